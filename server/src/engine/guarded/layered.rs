//! Filters in layers, which know when they are full.
//!
//! # Room
//!
//! A call adds all of its keys or none, and a filter that may take no more of them must not find
//! that out amid a call. So a call claims the bits that its keys may set before it sets one: of what
//! every partition can take for certain, as if all its keys lay in one. Calls that claim run side by
//! side ([`Room`]).
//!
//! One that finds too little left has the filter to itself for a moment. It counts what is left
//! in each partition and how many of its keys are new there, and has another layer come if that is
//! little, or too little; it is refused if none may come, and in some partition there are more new
//! keys than are to be expected to fill it. So a filter that is nearly full takes one call after the
//! other, and one that is full is asked side by side again: keys that are all there need no room.

pub(super) mod new_keys;
mod replay;
mod room;

use std::{collections::BTreeMap, io, iter, slice, sync::Arc};

use parking_lot::Mutex;

use self::{
    new_keys::NewKeys,
    room::{Alone, Room},
};
use super::{
    Answer, Change, GuardedFilter,
    batch::{Place, answer_again, set},
    partitions::{Partition, Partitions},
};
use crate::{
    engine::{EngineError, budget::MemoryBudget, error::Full},
    filter::{
        hash::KeyHash,
        scaling::{Added, Layers, OnFull},
    },
};

/// Another layer comes when a partition has less left than this part of the newest.
const LOW_PART: u64 = 16;

/// What a filter in layers has in the place of shards.
#[derive(Debug)]
pub(super) struct Layered {
    pub partitions: Partitions,
    on_full: OnFull,
    budget: Arc<MemoryBudget>,
    /// The most bits that a key sets, in any layer.
    pub key_bits: u64,
    /// Of every partition.
    room: Room,
    told: Mutex<Told>,
}

/// What the log has been told, which is to say each thing once.
#[derive(Debug, Default)]
struct Told {
    /// That keys are refused, since another layer came.
    is_full: bool,
}

/// What is done with keys for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// None of the call's is added.
    Refuse,
    /// They are added, and the rate rises.
    Add,
}

/// What came of adding keys.
struct Outcome {
    answer: Answer<Vec<bool>>,
    /// The most bits that were set in one stripe.
    most_bits: u64,
}

impl Layered {
    /// One without keys, with memory for the first layer, which the budget has counted.
    ///
    /// # Errors
    ///
    /// What the system says, if it has not as much address space left.
    pub fn new(
        layers: &Arc<Layers>,
        on_full: OnFull,
        budget: &Arc<MemoryBudget>,
    ) -> io::Result<Self> {
        let partitions = Partitions::new(layers.clone())?;
        let key_bits = layers.layers().iter().map(|layer| layer.spec().hash_count);
        let layered = Self {
            partitions,
            on_full,
            budget: budget.clone(),
            key_bits: key_bits.max().unwrap_or_default().into(),
            room: Room::new(),
            told: Mutex::default(),
        };
        layered.note_left(&layered.room.alone());
        Ok(layered)
    }

    /// The stripe that a key lies in.
    #[inline]
    pub fn stripe_of(&self, hash: KeyHash) -> usize {
        self.partitions.stripe_of(self.layers().partition(hash))
    }

    /// Whether new keys may be refused.
    pub fn refuses(&self) -> bool {
        match self.on_full {
            OnFull::Scale(_) | OnFull::Reject => true,
            OnFull::Degrade => false,
        }
    }

    fn layers(&self) -> &Layers {
        self.partitions.layers()
    }

    /// Has memory for so many layers.
    ///
    /// # Errors
    ///
    /// [`Full`].
    pub fn map(&self, layers: usize) -> Result<(), Full> {
        while self.partitions.mapped() < layers {
            self.map_next()?;
        }
        Ok(())
    }

    fn map_next(&self) -> Result<(), Full> {
        let bound = match self.on_full {
            OnFull::Scale(scaling) => scaling.max_memory_bytes,
            OnFull::Reject | OnFull::Degrade => return Err(Full::Rejects),
        };
        self.partitions.map_next(&self.budget, bound)
    }

    /// Counts what is left.
    fn note_left(&self, alone: &Alone<'_>) {
        let least = self.partitions.left().map(|(_, left)| left).min();
        alone.note(least.unwrap_or_default());
    }

    /// Sees to it that each partition can take so many keys more, while no call has claimed any of
    /// what is left.
    fn make_room(&self, needed: &BTreeMap<usize, u64>) -> Result<(), Full> {
        loop {
            let newest = self.partitions.mapped().saturating_sub(1);
            let newest = self.layers().layers().get(newest);
            let low = newest.map_or(0, |newest| newest.spec().full_bits / LOW_PART);
            let (mut is_low, mut lacks) = (false, false);
            for (partition, left) in self.partitions.left() {
                is_low |= left <= low;
                lacks |= needed
                    .get(&partition)
                    .is_some_and(|&keys| self.lacks(partition, left, keys));
            }
            if !is_low && !lacks {
                return Ok(());
            }
            match self.map_next() {
                Err(full) if lacks => return Err(full),
                // It was only to come early.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    /// Whether a partition that has so many bits left cannot take so many keys more.
    fn lacks(&self, partition: usize, left: u64, keys: u64) -> bool {
        match keys {
            0 => false,
            // One fills it at most.
            1 => left == 0,
            _ => left < keys * self.key_bits && self.partitions.keys_left(partition) < keys,
        }
    }

    /// Does something that changes what is left, while no call has claimed any of it.
    pub fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        let alone = self.room.alone();
        let result = act();
        self.note_left(&alone);
        result
    }

    /// Counts what the shards hold, after it has come there by other ways than keys.
    pub fn count(&mut self) {
        self.partitions.count();
        self.note_left(&self.room.alone());
    }
}

impl GuardedFilter {
    /// Whether a write may have to wait for the exclusive lock that recounts the room.
    pub fn may_be_full(&self) -> bool {
        self.layered.as_ref().is_some_and(Layered::refuses)
    }

    /// Claims room, as a write does.
    #[cfg(test)]
    pub fn claim_room(&self, bits: u64) -> Option<impl Sized> {
        self.layered.as_ref()?.room.claim(bits)
    }

    /// Adds a key, and tells whether it had been seen before.
    ///
    /// # Errors
    ///
    /// As [`Self::add_to_layers`].
    pub(super) fn add_to_layer(
        &self,
        layered: &Layered,
        hash: KeyHash,
        change: Change<'_>,
    ) -> Result<Answer<bool>, EngineError> {
        let places = vec![self.place(0, hash)];
        let answer = self.add_to_layers(layered, places, change, WhenFull::Refuse)?;
        Ok(answer.map(|seen| seen.first() == Some(&true)))
    }

    /// Adds the keys, and tells of each whether it had been seen before.
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], or [`EngineError::FilterBusy`] for a call that must not wait; none
    /// has then been added.
    pub(super) fn add_to_layers(
        &self,
        layered: &Layered,
        places: Vec<Place>,
        change: Change<'_>,
        when_full: WhenFull,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        if !layered.refuses() {
            return Ok(self.insert_in_layers(layered, places, change).answer);
        }
        let most = (places.len() as u64).saturating_mul(layered.key_bits);
        let claim = match change.must_not_wait {
            true => layered.room.try_claim(most),
            false => Ok(layered.room.claim(most)),
        };
        let busy = |_| EngineError::FilterBusy;
        if let Some(claim) = claim.map_err(busy)? {
            let Outcome { answer, most_bits } = self.insert_in_layers(layered, places, change);
            claim.end(most_bits);
            return Ok(answer);
        }
        if self.new_keys(layered, &places).is_empty() {
            // What is there stays there.
            return Ok(self.insert_in_layers(layered, places, change).answer);
        }
        let alone = match change.must_not_wait {
            true => layered.room.try_alone().map_err(busy)?,
            false => layered.room.alone(),
        };
        let needed = self.new_keys(layered, &places);
        let mapped = layered.partitions.mapped();
        let made = layered.make_room(&needed);
        self.tell_of_growth(layered, mapped, made.err());
        if let (Err(why), WhenFull::Refuse) = (made, when_full) {
            let name = self.name();
            return Err(EngineError::FilterFull { name, why });
        }
        let Outcome { answer, .. } = self.insert_in_layers(layered, places, change);
        layered.note_left(&alone);
        Ok(answer)
    }

    /// Tells the log of layers that have come, and when keys are refused.
    pub(super) fn tell_of_growth(&self, layered: &Layered, mapped: usize, refused: Option<Full>) {
        let mut told = layered.told.lock();
        let layers = layered.partitions.mapped();
        if layers > mapped {
            told.is_full = false;
            // The new layer begins on small pages.
            self.counters.look_after(1);
            let memory_bytes = self.memory_bytes();
            tracing::info!(filter = %self.name(), layers, memory_bytes, "the filter has grown");
        }
        if let Some(why) = refused.filter(|_| !told.is_full) {
            told.is_full = true;
            tracing::warn!(filter = %self.name(), %why, "the filter is full, and refuses new keys");
        }
    }

    /// The number of keys which are not there, of each partition that has any.
    fn new_keys(&self, layered: &Layered, places: &[Place]) -> BTreeMap<usize, u64> {
        let mut needed = BTreeMap::new();
        let seen = self.are_in_layers(layered, places.to_vec(), |_| {});
        for place in places {
            if seen.get(place.key as usize) != Some(&true) {
                let partition = layered.layers().partition(place.hash);
                *needed.entry(partition).or_default() += 1;
            }
        }
        needed
    }

    /// Whether keys are there, each by its number. `found` is told the version of each that is.
    pub(super) fn are_in_layers(
        &self,
        layered: &Layered,
        places: Vec<Place>,
        mut found: impl FnMut(u64),
    ) -> Vec<bool> {
        let (partitions, mut seen) = (&layered.partitions, vec![false; places.len()]);
        self.visit_stripes(partitions.stripes(), places, |index, stripe, keys| {
            layered.layers().find_each(
                &stripe.read(),
                partitions.first_of(index),
                keys,
                #[inline(always)]
                |key, partition: &Partition, place: Option<usize>| {
                    if let Some(place) = place {
                        found(partition.state(place).version);
                        set(&mut seen, key, true);
                    }
                },
            );
        });
        seen
    }

    /// Whether a key is there, and the version that this rests on.
    pub(super) fn is_in_layers(&self, layered: &Layered, hash: KeyHash) -> Option<u64> {
        let mut version = None;
        let partition = layered.layers().partition(hash);
        let stripe = layered.partitions.stripe_of(partition);
        let first = layered.partitions.first_of(stripe);
        let stripe = layered.partitions.stripes().get(stripe)?.read();
        let partition = stripe.get(partition - first)?;
        let tell = |_, partition: &Partition, place: Option<usize>| {
            version = place.map(|place| partition.state(place).version);
        };
        let (partitions, number) = (slice::from_ref(partition), layered.layers().partition(hash));
        let key = iter::once((0, hash));
        layered.layers().find_each(partitions, number, key, tell);
        version
    }

    /// Adds the keys, for which there is room.
    fn insert_in_layers(
        &self,
        layered: &Layered,
        places: Vec<Place>,
        change: Change<'_>,
    ) -> Outcome {
        let partitions = &layered.partitions;
        let mut new = NewKeys::among(places.len());
        let (mut own_version, mut rests_on, mut most_bits) = (None, 0, 0);
        let mut of_stripe = (usize::MAX, 0);
        let places = self.visit_stripes(partitions.stripes(), places, |index, stripe, keys| {
            // It may have been locked before for others of the keys.
            let (before, mut bits) = of_stripe;
            if before != index {
                bits = 0;
            }
            layered.layers().insert_each(
                &mut stripe.write(),
                partitions.first_of(index),
                keys,
                #[inline(always)]
                |key, partition: &mut Partition, added: Added| {
                    if added.bits == 0 {
                        rests_on = partition.state(added.shard).version.max(rests_on);
                        return;
                    }
                    let version = *own_version.get_or_insert_with(|| self.next_version());
                    partition.note(layered.layers(), added, version);
                    new.note(key, added.layer);
                    bits += u64::from(added.bits);
                },
            );
            of_stripe = (index, bits);
            most_bits = bits.max(most_bits);
        });
        let Change { room, mut turn, .. } = change;
        if let Some(version) = own_version {
            self.remember(turn.as_ref(), new.hashes(&places));
            if let (Some(log), Some(mut room)) = (&self.log, room) {
                let head = self.record_head(turn.as_ref(), version);
                log.append_parts(&mut room, new.records(head, &places));
            }
        }
        let mut seen = new.seen;
        answer_again(turn.as_mut(), &places, &mut seen);
        let rests_on = own_version.unwrap_or(0).max(rests_on);
        Outcome {
            answer: Answer {
                value: seen,
                rests_on,
            },
            most_bits,
        }
    }
}
