//! The keys of a call that were new, and the layers that they came to.
//!
//! The log has to tell the layers. Whoever is told that a key is seen may rest on bits that other
//! keys have set, by chance; so those have to be where they were when they come back from the log,
//! and where a key comes to else depends on which others were there before it.

use crate::{
    engine::guarded::batch::Place,
    filter::{hash::KeyHash, scaling::MAX_LAYERS},
    store::RecordHead,
};

/// No layer: there are fewer.
const NONE: u8 = u8::MAX;
const _: () = assert!(MAX_LAYERS < NONE as usize);

/// The layers that the keys of a call came to.
pub struct NewKeys {
    /// That of each key, by its number.
    layers: Vec<u8>,
    /// How many came to each layer.
    counts: [usize; MAX_LAYERS],
}

impl NewKeys {
    /// Of so many keys none is new yet.
    pub fn among(keys: usize) -> Self {
        Self {
            layers: vec![NONE; keys],
            counts: [0; MAX_LAYERS],
        }
    }

    /// Notes that a key was new, and came to a layer.
    #[inline(always)]
    pub fn note(&mut self, key: usize, layer: usize) {
        if let (Some(place), Some(count)) = (self.layers.get_mut(key), self.counts.get_mut(layer)) {
            // There are no more layers than that.
            *place = layer as u8;
            *count += 1;
        }
    }

    /// The hashes of all, given the places of all keys.
    pub fn hashes<'a>(&'a self, places: &'a [Place]) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        self.hashes_where(places, |layer| layer != NONE)
    }

    /// What the log is to have of them: a part for each layer.
    pub fn records<'a>(
        &'a self,
        head: RecordHead,
        places: &'a [Place],
    ) -> impl Iterator<Item = (RecordHead, usize, impl Iterator<Item = KeyHash> + 'a)> + 'a {
        let counts = self.counts.iter().enumerate();
        let counts = counts.filter(|(_, count)| **count > 0);
        counts.map(move |(layer, &count)| {
            let hashes = self.hashes_where(places, move |found| usize::from(found) == layer);
            let layer = Some(layer as u64);
            (RecordHead { layer, ..head }, count, hashes)
        })
    }

    fn hashes_where<'a>(
        &'a self,
        places: &'a [Place],
        is_one: impl Fn(u8) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        let is_one = move |place: &&Place| {
            let layer = self.layers.get(place.key as usize);
            layer.is_some_and(|&layer| is_one(layer))
        };
        places.iter().filter(is_one).map(|place| place.hash)
    }
}
