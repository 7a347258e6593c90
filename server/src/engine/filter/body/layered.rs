//! Filters in layers, which know when they are full.
//!
//! # The bit budget
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
mod merge_plan;
mod partitions;
mod whole;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use parking_lot::Mutex;

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::bit_budget::BitBudget;
}

pub use self::merge_plan::MergePlan;
use self::{
    bit_budget::{Alone, BitBudget},
    partitions::{Partition, Partitions},
};
use super::{Body, Terms, WhenFull, group::Group, tally::Tally};
use crate::{
    engine::{
        budget::MemoryBudget,
        call::Action,
        error::{EngineError, Full},
        filter::{
            Filter,
            hashed_key::HashedKey,
            mapping::{Cache, fetch_to_write},
            stripes::Stripe,
        },
    },
    filter::{
        hash::KeyHash,
        scaling::{Added, Layers, MAX_LAYERS, OnFull},
    },
    planted::Bug,
    store::{RecordHead, RecordKind},
};

/// A layer is added when a partition has at most one part in `LOW_PART` of the newest layer left.
const LOW_PART: u64 = 16;

/// The partitions and the bit budget of a filter in layers. It has these in place of shards.
#[derive(Debug)]
pub struct Layered {
    pub partitions: Partitions,
    on_full: OnFull,
    budget: Arc<MemoryBudget>,
    /// The greatest number of bits that a key sets, in any layer.
    pub key_bits: u64,
    /// The bits that every partition can take.
    bit_budget: BitBudget,
    logged: Mutex<Logged>,
}

/// The events that the server's log has already, so that each is logged once.
#[derive(Debug, Default)]
struct Logged {
    /// Whether it was logged that keys are refused, since the last layer was added.
    is_full: bool,
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
            logged: Mutex::default(),
        };
        layered.note_left(&layered.bit_budget.alone());
        Ok(layered)
    }

    /// Returns whether the filter can refuse new keys.
    pub fn refuses(&self) -> bool {
        match self.on_full {
            OnFull::Scale(_) | OnFull::Reject => true,
            OnFull::Degrade => false,
        }
    }

    fn plan(&self) -> &Layers {
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
            let newest = self.plan().layers().get(newest);
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
}

/// The bits that a write has set.
#[derive(Debug, Default)]
pub struct BitsSet {
    /// The first partition behind the latest lock, and the bits that were set behind it.
    latest: Option<(usize, u64)>,
    /// The greatest number of bits that were set behind one lock.
    most: u64,
}

impl Body for Layered {
    type Lock = Stripe<Partition>;
    type Call = BitsSet;
    /// The layer that a key was added to.
    ///
    /// The answer that a key is seen can depend on bits that other keys have set by chance. So
    /// replay must put those other keys back into the same layers. Without the layers in the log,
    /// the layer of a replayed key would depend on which keys were there before it.
    type Tag = u8;
    /// The layer that keys were added to.
    type Replay = usize;

    fn locks(&self) -> usize {
        self.partitions.stripes().locks().len()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the pipeline asks for locks of keys"
    )]
    #[inline]
    fn lock(&self, number: usize) -> (&Stripe<Partition>, usize) {
        let stripes = self.partitions.stripes();
        (&stripes.locks()[number], stripes.first_of(number))
    }

    #[inline]
    fn lock_of(&self, hash: KeyHash) -> usize {
        let partition = self.plan().partition(hash);
        self.partitions.stripes().stripe_of(partition)
    }

    #[inline]
    fn fetch_lock(&self, number: usize) {
        fetch_to_write(&**self.lock(number).0);
    }

    #[inline]
    fn fetch(&self, hash: KeyHash, to: Cache) {
        self.partitions.fetch(hash, to);
    }

    fn lines(&self, _: KeyHash) -> usize {
        self.partitions.mapped()
    }

    fn is_untouched(&self, _: KeyHash) -> bool {
        false
    }

    fn begin_query(&self, _: Option<Duration>) -> BitsSet {
        BitsSet::default()
    }

    fn begin_write(&self, _: Action, _: Option<Duration>) -> BitsSet {
        BitsSet::default()
    }

    #[inline]
    fn probe(
        &self,
        stripe: &Stripe<Partition>,
        first: usize,
        keys: Group<'_, '_, Self>,
        _: &BitsSet,
        mut found: impl FnMut(usize, u64, bool),
    ) {
        self.plan().find_each(
            &stripe.read(),
            first,
            keys,
            #[inline(always)]
            |key, partition: &Partition, place: Option<usize>| {
                let version = place.map(|place| partition.state(place).version);
                found(key, version.unwrap_or(0), place.is_some());
            },
        );
    }

    #[inline]
    fn apply(
        &self,
        stripe: &Stripe<Partition>,
        first: usize,
        keys: Group<'_, '_, Self>,
        set: &mut BitsSet,
        tally: &mut Tally<'_, '_, Self>,
    ) {
        // The lock can have been taken before, for other keys of the call.
        let mut bits = match set.latest {
            Some((latest, bits)) if latest == first => bits,
            _ => 0,
        };
        self.plan().insert_each(
            &mut stripe.write(),
            first,
            keys,
            #[inline(always)]
            |key, partition: &mut Partition, added: Added| {
                if added.bits == 0 {
                    return tally.depends_on(partition.state(added.shard).version);
                }
                partition.note(self.plan(), added, tally.version());
                // There are at most `MAX_LAYERS` layers.
                tally.changed(key, added.layer as u8);
                bits += u64::from(added.bits);
            },
        );
        set.latest = Some((first, bits));
        set.most = bits.max(set.most);
    }

    /// See the description of the module.
    fn admit<R>(
        &self,
        filter: &Filter,
        keys: &[HashedKey],
        terms: Terms,
        set: &mut BitsSet,
        write: impl FnOnce(&mut BitsSet) -> R,
    ) -> Result<R, EngineError> {
        if !self.refuses() {
            return Ok(write(set));
        }
        let most = (keys.len() as u64).saturating_mul(self.key_bits);
        let claim = match terms.must_not_wait {
            true => self.bit_budget.try_claim(most),
            false => Ok(self.bit_budget.claim(most)),
        };
        let busy = |_| EngineError::FilterBusy;
        if let Some(claim) = claim.map_err(busy)? {
            let result = write(set);
            claim.end(set.most);
            return Ok(result);
        }
        if self.new_keys(filter, keys).is_empty() {
            // Keys that are there stay there, so the call needs no room.
            return Ok(write(set));
        }
        let alone = match terms.must_not_wait {
            true => self.bit_budget.try_alone().map_err(busy)?,
            false => self.bit_budget.alone(),
        };
        let needed = self.new_keys(filter, keys);
        let mapped = self.partitions.mapped();
        let made = self.make_room(&needed);
        filter.log_growth(self, mapped, made.err());
        if let (Err(why), WhenFull::Refuse) = (made, terms.when_full) {
            let name = filter.name();
            return Err(EngineError::FilterFull { name, why });
        }
        let result = write(set);
        self.note_left(&alone);
        Ok(result)
    }

    fn record_kind(&self, _: Action, layer: u8) -> RecordKind {
        RecordKind::AddedTo {
            layer: layer.into(),
        }
    }

    fn begin_replay(&self, head: &RecordHead) -> Result<Option<usize>, Full> {
        let layers = self.plan().layers().len();
        let layer = match head.kind {
            // A layer that the filter cannot have is in no log of a server. Its keys are found in
            // any.
            RecordKind::AddedTo { layer } => usize::try_from(layer)
                .ok()
                .filter(|&layer| layer < layers)
                .unwrap_or(0),
            _ => 0,
        };
        let layer = match Bug::LayersNotReplayed.is_planted() {
            true => (layer + 1).min(layers - 1),
            false => layer,
        };
        self.map(layer + 1)?;
        Ok(Some(layer))
    }

    fn replay(
        &self,
        stripe: &Stripe<Partition>,
        first: usize,
        keys: Group<'_, '_, Self>,
        version: u64,
        &layer: &usize,
    ) {
        let (layers, mut stripe) = (self.plan(), stripe.write());
        for (_, hash) in keys {
            let number = layers.partition(hash) - first;
            if let Some(partition) = stripe.get_mut(number) {
                partition.insert_again(layers, layer, hash, version);
            }
        }
    }
}

const _: () = assert!(MAX_LAYERS <= u8::MAX as usize);

impl Layered {
    /// Returns the number of new keys for each partition that has any.
    fn new_keys(&self, filter: &Filter, keys: &[HashedKey]) -> BTreeMap<usize, u64> {
        let mut seen = vec![false; keys.len()];
        filter.look_up(self, keys, None, &mut seen);
        let mut needed = BTreeMap::new();
        for key in keys {
            if seen.get(key.index as usize) != Some(&true) {
                let partition = self.plan().partition(key.hash);
                *needed.entry(partition).or_default() += 1;
            }
        }
        needed
    }
}

impl Filter {
    /// Claims room, as a write does.
    #[cfg(test)]
    pub fn claim_room(&self, bits: u64) -> Option<impl Sized> {
        self.body.layered()?.bit_budget.claim(bits)
    }

    /// Logs new layers, and that keys are refused.
    pub fn log_growth(&self, layered: &Layered, mapped: usize, refused: Option<Full>) {
        let mut logged = layered.logged.lock();
        let layers = layered.partitions.mapped();
        if layers > mapped {
            logged.is_full = false;
            // The new layer begins on small pages.
            self.counters.look_after(1);
            let memory_bytes = self.memory_bytes();
            tracing::info!(filter = %self.name(), layers, memory_bytes, "the filter has grown");
        }
        if let Some(why) = refused.filter(|_| !logged.is_full) {
            logged.is_full = true;
            tracing::warn!(filter = %self.name(), %why, "the filter is full, and refuses new keys");
        }
    }
}
