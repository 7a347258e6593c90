//! Filters in layers, which know when they are full.
//!
//! # BitBudget
//!
//! A call adds all of its keys or none, so it must not find out half-way that the filter is full.
//! Before a call sets a bit, it claims the bits that its keys can set. It claims them from the bits
//! that every partition can take for certain, as if all its keys lay in one partition. Calls that
//! claim bits run side by side ([`BitBudget`]).
//!
//! A call that finds too little room takes the filter exclusively for a moment. It counts the bits
//! that are left in each partition, and its own new keys there. If few bits or too few bits are
//! left, it adds another layer. The call is refused if no layer can be added and in some partition
//! it has more new keys than are expected to fill the partition.
//!
//! So a filter that is nearly full takes one call after the other. In a full filter calls run side
//! by side again, if all of their keys are there already: such keys need no room.

mod bit_budget;
pub(super) mod new_keys;
mod replay;

use std::{collections::BTreeMap, io, iter, slice, sync::Arc};

use parking_lot::Mutex;

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::bit_budget::BitBudget;
}

use self::{
    bit_budget::{Alone, BitBudget},
    new_keys::NewKeys,
};
use super::{
    Answer, GuardedFilter, WriteContext,
    hashed_key::{HashedKey, answer_again, set},
    partitions::{Partition, Partitions},
};
use crate::{
    engine::{EngineError, budget::MemoryBudget, error::Full},
    filter::{
        hash::KeyHash,
        scaling::{Added, Layers, OnFull},
    },
};

/// A layer is added when a partition has at most one part in `LOW_PART` of the newest layer left.
const LOW_PART: u64 = 16;

/// The partitions and the bit budget of a filter in layers. It has these in place of shards.
#[derive(Debug)]
pub(super) struct Layered {
    pub partitions: Partitions,
    on_full: OnFull,
    budget: Arc<MemoryBudget>,
    /// The greatest number of bits that a key sets, in any layer.
    pub key_bits: u64,
    /// The bits that every partition can take.
    bit_budget: BitBudget,
    told: Mutex<Told>,
}

/// The events that the server's log has already, so that each is logged once.
#[derive(Debug, Default)]
struct Told {
    /// Whether it was logged that keys are refused, since the last layer was added.
    is_full: bool,
}

/// The behaviour for a call whose keys have no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// The call fails, and none of its keys is added.
    Refuse,
    /// The keys are added, and the false-positive rate rises.
    Add,
}

/// The result of adding keys.
struct Outcome {
    answer: Answer<Vec<bool>>,
    /// The greatest number of bits that were set in one stripe.
    most_bits: u64,
}

impl Layered {
    /// Creates the layers of a filter without keys. Reserves memory for the first layer, which the
    /// budget has counted already.
    ///
    /// # Errors
    ///
    /// The error of the kernel if not enough address space is left.
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
            bit_budget: BitBudget::default(),
            told: Mutex::default(),
        };
        layered.note_left(&layered.bit_budget.alone());
        Ok(layered)
    }

    /// Returns the stripe of a key.
    #[inline]
    pub fn stripe_of(&self, hash: KeyHash) -> usize {
        let partition = self.layers().partition(hash);
        self.partitions.stripes().stripe_of(partition)
    }

    /// Returns whether the filter can refuse new keys.
    pub fn refuses(&self) -> bool {
        match self.on_full {
            OnFull::Scale(_) | OnFull::Reject => true,
            OnFull::Degrade => false,
        }
    }

    fn layers(&self) -> &Layers {
        self.partitions.layers()
    }

    /// Reserves memory until the given number of layers have it.
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

    /// Counts the bits that are left in the partitions, and sets the room to them.
    fn note_left(&self, alone: &Alone<'_>) {
        let least = self.partitions.left().map(|(_, left)| left).min();
        alone.note(least.unwrap_or_default());
    }

    /// Adds layers until each partition can take the `needed` number of new keys. Calls must not
    /// have claims meanwhile.
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
                // No partition lacks room. The layer was only due early.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    /// Returns whether a partition with `left` bits left cannot take `keys` more keys.
    fn lacks(&self, partition: usize, left: u64, keys: u64) -> bool {
        match keys {
            0 => false,
            // One key only needs a partition that is not full.
            1 => left == 0,
            _ => left < keys * self.key_bits && self.partitions.keys_left(partition) < keys,
        }
    }

    /// Calls `act`, which changes the bits that are left, while no call has a claim. Then counts
    /// them again.
    pub fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        let alone = self.bit_budget.alone();
        let result = act();
        self.note_left(&alone);
        result
    }

    /// Recounts the bits of the shards, after they were filled in another way than by keys.
    pub fn recount(&self) {
        self.partitions.recount();
        self.note_left(&self.bit_budget.alone());
    }
}

impl GuardedFilter {
    /// Returns whether a write can have to wait for the exclusive lock that recounts the room.
    pub fn may_be_full(&self) -> bool {
        self.body.layered().is_some_and(Layered::refuses)
    }

    /// Claims room, as a write does.
    #[cfg(test)]
    pub fn claim_room(&self, bits: u64) -> Option<impl Sized> {
        self.body.layered()?.bit_budget.claim(bits)
    }

    /// Adds the keys, and returns for each whether it had been seen before.
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], or [`EngineError::FilterBusy`] for a call that must not wait;
    /// no key has been added then.
    pub(super) fn add_to_layers(
        &self,
        layered: &Layered,
        places: Vec<HashedKey>,
        change: WriteContext<'_>,
        when_full: WhenFull,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        if !layered.refuses() {
            return Ok(self.insert_in_layers(layered, places, change).answer);
        }
        let most = (places.len() as u64).saturating_mul(layered.key_bits);
        let claim = match change.must_not_wait {
            true => layered.bit_budget.try_claim(most),
            false => Ok(layered.bit_budget.claim(most)),
        };
        let busy = |_| EngineError::FilterBusy;
        if let Some(claim) = claim.map_err(busy)? {
            let Outcome { answer, most_bits } = self.insert_in_layers(layered, places, change);
            claim.end(most_bits);
            return Ok(answer);
        }
        if self.new_keys(layered, &places).is_empty() {
            // Keys that are there stay there, so the call needs no room.
            return Ok(self.insert_in_layers(layered, places, change).answer);
        }
        let alone = match change.must_not_wait {
            true => layered.bit_budget.try_alone().map_err(busy)?,
            false => layered.bit_budget.alone(),
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

    /// Logs new layers, and that keys are refused.
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

    /// Returns the number of new keys for each partition that has any.
    fn new_keys(&self, layered: &Layered, places: &[HashedKey]) -> BTreeMap<usize, u64> {
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

    /// Returns for each key, at its index, whether it is there. Calls `found` with the version of
    /// each key that is there.
    pub(super) fn are_in_layers(
        &self,
        layered: &Layered,
        places: Vec<HashedKey>,
        mut found: impl FnMut(u64),
    ) -> Vec<bool> {
        let (stripes, mut seen) = (layered.partitions.stripes(), vec![false; places.len()]);
        self.visit_stripes(stripes, places, |stripe, first, keys| {
            layered.layers().find_each(
                &stripe.read(),
                first,
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

    /// Returns the version that the presence of a key depends on; `None` if the key is not there.
    pub(super) fn is_in_layers(&self, layered: &Layered, hash: KeyHash) -> Option<u64> {
        let mut version = None;
        let number = layered.layers().partition(hash);
        let partition = layered.partitions.stripes().read(number);
        let tell = |_, partition: &Partition, place: Option<usize>| {
            version = place.map(|place| partition.state(place).version);
        };
        let key = iter::once((0, hash));
        let partitions = slice::from_ref(&*partition);
        layered.layers().find_each(partitions, number, key, tell);
        version
    }

    /// Adds the keys, for which there is room.
    fn insert_in_layers(
        &self,
        layered: &Layered,
        places: Vec<HashedKey>,
        change: WriteContext<'_>,
    ) -> Outcome {
        let mut new = NewKeys::among(places.len());
        let (mut own_version, mut depends_on, mut most_bits) = (None, 0, 0);
        let mut of_stripe = (usize::MAX, 0);
        let stripes = layered.partitions.stripes();
        let places = self.visit_stripes(stripes, places, |stripe, first, keys| {
            // The stripe can have been locked before, for other keys of the call.
            let (before, mut bits) = of_stripe;
            if before != first {
                bits = 0;
            }
            layered.layers().insert_each(
                &mut stripe.write(),
                first,
                keys,
                #[inline(always)]
                |key, partition: &mut Partition, added: Added| {
                    if added.bits == 0 {
                        depends_on = partition.state(added.shard).version.max(depends_on);
                        return;
                    }
                    let version = *own_version.get_or_insert_with(|| self.next_version());
                    partition.note(layered.layers(), added, version);
                    new.note(key, added.layer);
                    bits += u64::from(added.bits);
                },
            );
            of_stripe = (first, bits);
            most_bits = bits.max(most_bits);
        });
        let WriteContext {
            reservation,
            mut session,
            ..
        } = change;
        if let Some(version) = own_version {
            self.remember(session.as_ref(), new.hashes(&places));
            if let (Some(log), Some(mut reservation)) = (&self.log, reservation) {
                let head = self.record_head(session.as_ref(), version);
                log.append_parts(&mut reservation, new.records(head, &places));
            }
        }
        let mut seen = new.seen;
        answer_again(session.as_mut(), &places, &mut seen);
        let depends_on = own_version.unwrap_or(0).max(depends_on);
        Outcome {
            answer: Answer {
                value: seen,
                depends_on,
            },
            most_bits,
        }
    }
}
