//! The keys of a call that were new, and the layers that they came to.
//!
//! The log has to tell the layers. Whoever is told that a key is seen may rest on bits that other
//! keys have set, by chance; so those have to be where they were when they come back from the log,
//! and where a key comes to else depends on which others were there before it.

use crate::{
    engine::guarded::batch::{Place, set},
    filter::{hash::KeyHash, scaling::MAX_LAYERS},
    store::RecordHead,
};

/// No layer: there are fewer.
const NONE: u8 = u8::MAX;
const _: () = assert!(MAX_LAYERS < NONE as usize);

/// Which keys of a call were new, and the layers that they came to.
pub struct NewKeys {
    /// Whether a key was seen, by its number.
    pub seen: Vec<bool>,
    /// The layer that the first new key came to; [`NONE`] if there is none.
    layer: u8,
    /// The layer of each key that is new, by its number, if there are two.
    layers: Option<Box<[u8]>>,
}

impl NewKeys {
    /// Of so many keys none is new yet.
    pub fn among(keys: usize) -> Self {
        Self {
            seen: vec![true; keys],
            layer: NONE,
            layers: None,
        }
    }

    /// Notes that a key was new, and came to a layer.
    #[inline(always)]
    pub fn note(&mut self, key: usize, layer: usize) {
        // There are no more layers than that.
        let layer = layer as u8;
        if layer != self.layer {
            self.note_layer(key, layer);
        }
        set(&mut self.seen, key, false);
    }

    /// Notes that a key came to another layer than the first.
    #[cold]
    fn note_layer(&mut self, key: usize, layer: u8) {
        if self.layer == NONE {
            self.layer = layer;
            return;
        }
        let all = || vec![self.layer; self.seen.len()].into();
        if let Some(place) = self.layers.get_or_insert_with(all).get_mut(key) {
            *place = layer;
        }
    }

    /// The hashes of all, given the places of all keys.
    pub fn hashes<'a>(&'a self, places: &'a [Place]) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        self.hashes_where(places, |_| true)
    }

    /// What the log is to have of them: a part for each layer.
    pub fn records<'a>(
        &'a self,
        head: RecordHead,
        places: &'a [Place],
    ) -> impl Iterator<Item = (RecordHead, usize, impl Iterator<Item = KeyHash> + 'a)> + 'a {
        let layers = self.layers.as_deref();
        let numbers = || layers.into_iter().flatten().copied();
        let lowest = numbers().min().unwrap_or(self.layer);
        let highest = numbers().max().unwrap_or(self.layer);
        (lowest..=highest).filter_map(move |layer| {
            let hashes = self.hashes_where(places, move |key| {
                layers.is_none_or(|layers| layers.get(key) == Some(&layer))
            });
            let count = match layers {
                None => self.seen.iter().filter(|seen| !**seen).count(),
                Some(_) => hashes.clone().count(),
            };
            let layer = Some(layer.into());
            (count > 0).then_some((RecordHead { layer, ..head }, count, hashes))
        })
    }

    /// The hashes of new keys, of those numbers that are asked for.
    fn hashes_where<'a>(
        &'a self,
        places: &'a [Place],
        is_one: impl Fn(usize) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        let is_one = move |place: &&Place| {
            let key = place.key as usize;
            self.seen.get(key) == Some(&false) && is_one(key)
        };
        places.iter().filter(is_one).map(|place| place.hash)
    }
}
