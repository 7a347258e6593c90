//! The new keys of a call, and the layers that they were added to.
//!
//! The log must contain the layer of each key. The answer that a key is seen can depend on bits
//! that other keys have set by chance. So replay must put those other keys back into the same
//! layers. Without the layers in the log, the layer of a replayed key would depend on which keys
//! were there before it.

use crate::{
    engine::guarded::hashed_key::{HashedKey, set},
    filter::{hash::KeyHash, scaling::MAX_LAYERS},
    store::{RecordHead, RecordKind},
};

/// The number for no layer: there are fewer layers.
const NONE: u8 = u8::MAX;
const _: () = assert!(MAX_LAYERS < NONE as usize);

/// The new keys of one call, and the layer that each was added to.
pub struct NewKeys {
    /// One flag per key of the call, at the key's index: `true` if it was seen before.
    pub seen: Vec<bool>,
    /// The layer of the first new key; [`NONE`] while no key is new.
    layer: u8,
    /// The layer of each new key, at the key's index. Allocated when a second layer gets a key.
    layers: Option<Box<[u8]>>,
}

impl NewKeys {
    /// Returns the value for a call with `keys` keys, none of which is new yet.
    pub fn among(keys: usize) -> Self {
        Self {
            seen: vec![true; keys],
            layer: NONE,
            layers: None,
        }
    }

    /// Records that a key was new and was added to a layer.
    #[inline(always)]
    pub fn note(&mut self, key: usize, layer: usize) {
        // There are at most `MAX_LAYERS` layers.
        let layer = layer as u8;
        if layer != self.layer {
            self.note_layer(key, layer);
        }
        set(&mut self.seen, key, false);
    }

    /// Records the layer of a key, if it is not that of the keys before.
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

    /// Returns the hashes of all new keys, given the places of all keys.
    pub fn hashes<'a>(
        &'a self,
        places: &'a [HashedKey],
    ) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        self.hashes_where(places, |_| true)
    }

    /// Returns the records for the log: one for each layer that has new keys.
    pub fn records<'a>(
        &'a self,
        head: RecordHead,
        places: &'a [HashedKey],
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
            let kind = RecordKind::AddedTo {
                layer: layer.into(),
            };
            (count > 0).then_some((RecordHead { kind, ..head }, count, hashes))
        })
    }

    /// Returns the hashes of the new keys whose index passes the filter.
    fn hashes_where<'a>(
        &'a self,
        places: &'a [HashedKey],
        is_one: impl Fn(usize) -> bool + Clone + 'a,
    ) -> impl Iterator<Item = KeyHash> + Clone + 'a {
        let is_one = move |place: &&HashedKey| {
            let key = place.key as usize;
            self.seen.get(key) == Some(&false) && is_one(key)
        };
        places.iter().filter(is_one).map(|place| place.hash)
    }
}
