//! One filter that any number of threads use at once.
//!
//! # One winner
//!
//! All bits of a key lie in one shard. Whether a key is new is found out, and its bits are
//! set, under the exclusive lock of that shard; so of all threads that add one key, the first to
//! hold the lock finds bits unset, and every other finds them set.
//!
//! # Versions
//!
//! Each call that changes anything gets a version, one more than the call before, when it finds
//! the first bit to set (in a filter that counts, under each lock: `guarded/counting.rs`). A shard keeps the greatest version of the calls that changed it,
//! noted under its lock together with the bits. From this follows:
//!
//! * Whoever finds a key in a shard rests on no later version than the shard's. So an answer
//!   stands once all calls up to that version are on stable storage.
//! * A snapshot is begun at a version V that no call has under way any more (the engine lets
//!   none begin meanwhile), and then copies the shards. It holds every change up to V. A change
//!   that it does not hold is of a call that begins later, and leaves its shard with a version
//!   greater than V. So "what changed since V" is the list of shards with a greater version.

mod batch;
mod bit_by_bit;
mod counting;
mod explain;
mod shards;
mod snapshots;

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

pub use self::{
    counting::Action,
    explain::Explanation,
    snapshots::{LastStore, StoreReport},
};

use self::{
    counting::Counting,
    shards::{Shard, Shards},
    snapshots::Turns,
};
use super::{
    EngineError,
    budget::{MemoryBudget, Reservation},
    counters::{Counters, Usage},
    journal::{FilterLog, Journal, Room},
    region::{self, Prefetcher},
    requests::{Requests, Turn},
};
use crate::{
    filter::{
        hash::{KeyHash, KeyHasher, Secret},
        shape::Shape,
        sizing,
        spec::{FilterSpec, Kind},
    },
    planted::Bug,
    store::{FilterId, FilterName, RecordHead, RequestId},
};

/// A filter behind locks, and what is known of its last snapshot.
#[derive(Debug)]
pub struct GuardedFilter {
    id: FilterId,
    name: FilterName,
    spec: FilterSpec,
    shape: Shape,
    secret: Secret,
    hasher: KeyHasher,
    create_time: SystemTime,
    shards: Shards,
    prefetcher: Prefetcher,
    /// Of a filter that counts.
    counting: Option<Counting>,
    /// That of the last call that changed anything. Each such call writes it: not in the line of
    /// what all read.
    version: CachePadded<AtomicU64>,
    counters: Counters,
    memory: Reservation,
    last_store: Mutex<Option<LastStore>>,
    turns: Turns,
    /// `None` if there is no log.
    log: Option<FilterLog>,
}

/// What a call brings along that changes a filter.
#[derive(Debug, Default)]
pub struct Change<'a> {
    /// Room in the log, if there is one.
    pub room: Option<Room<'a>>,
    /// The turn of the call's id, if it has one.
    pub turn: Option<Turn<'a>>,
}

/// What a filter says.
#[derive(Debug)]
pub struct Answer<T> {
    /// The answer.
    pub value: T,
    /// The latest change that it rests on: what the call itself has changed, and what it has
    /// seen of others. 0 for none.
    pub rests_on: u64,
}

impl<T> Answer<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            value: map(self.value),
            rests_on: self.rests_on,
        }
    }
}

/// A filter as it is at one moment.
#[derive(Debug, Clone)]
pub struct FilterStatus {
    /// The filter's name.
    pub name: FilterName,
    /// What it is made for.
    pub spec: FilterSpec,
    /// The memory that it takes once all of it has been touched.
    pub memory_bytes: u64,
    /// Keys added that were new, without those that were removed.
    pub keys_added: u64,
    /// Of a filter that counts: the counters that stay as they are, for they have come to their
    /// greatest value.
    pub saturated_counters: u64,
    /// The share of bits that are set.
    pub fill_ratio: f64,
    /// The rate that is to be expected at this fill.
    pub predicted_false_positive_rate: f64,
    /// Advances with each call that changed the filter.
    pub version: u64,
    /// When it was made.
    pub create_time: SystemTime,
    /// Its last snapshot, if it has one.
    pub last_store: Option<LastStore>,
    /// What has been asked of it since the server started.
    pub usage: Usage,
}

impl GuardedFilter {
    /// A new, empty filter. Its memory is counted against the budget before any is mapped.
    ///
    /// # Errors
    ///
    /// [`EngineError::OverBudget`], or [`EngineError::OutOfMemory`] if the system has no
    /// address space left.
    pub fn new(
        id: FilterId,
        name: FilterName,
        spec: FilterSpec,
        secret: Secret,
        create_time: SystemTime,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self, EngineError> {
        let shape = Shape::of(&spec);
        let counting = (spec.kind == Kind::Counting).then(Counting::default);
        let memory = budget
            .reserve(region::region_bytes(&shape))
            .map_err(EngineError::OverBudget)?;
        let (words, prefetcher) =
            region::reserve(&shape).map_err(|source| EngineError::OutOfMemory {
                needed_bytes: memory.bytes(),
                source,
            })?;
        Ok(Self {
            id,
            name,
            hasher: KeyHasher::new(spec.hash_function, &secret),
            spec,
            shape,
            secret,
            create_time,
            shards: Shards::new(words),
            prefetcher,
            counting,
            version: AtomicU64::new(0).into(),
            counters: Counters::default(),
            memory,
            last_store: Mutex::new(None),
            turns: Turns::default(),
            log: None,
        })
    }

    /// Has what is added from now on go to a log. To be called before anything is.
    pub fn set_log(&mut self, journal: &Journal) {
        let version = *self.version.get_mut();
        self.log = Some(journal.filter(self.id, version));
        if let Some(counting) = &mut self.counting {
            counting.since = version;
        }
    }

    /// The log, if an answer that rests on a version has to wait for it.
    #[inline]
    pub fn unsettled(&self, rests_on: u64) -> Option<FilterLog> {
        let log = self.log.as_ref()?;
        (!log.has_reached(rests_on)).then(|| log.clone())
    }

    /// Which filter it is.
    pub fn id(&self) -> FilterId {
        self.id
    }

    /// The filter's name.
    pub fn name(&self) -> &FilterName {
        &self.name
    }

    /// What the filter is made for.
    pub fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// Begins the turn of a request of this filter; nothing for an empty id. One that adds keys
    /// and one that removes some are two, whatever their callers call them.
    ///
    /// # Errors
    ///
    /// As [`Requests::begin`].
    #[inline]
    pub fn begin<'a>(
        &self,
        requests: &'a Requests,
        id: &str,
        action: Action,
    ) -> Result<Option<Turn<'a>>, EngineError> {
        // To add keys again changes nothing, but where they are counted.
        let is_idempotent = action == Action::Add && !self.counts();
        if id.is_empty() || is_idempotent {
            return Ok(None);
        }
        // Under the filter's secret, like its keys: nobody can choose ids that meet.
        let KeyHash { low, high } = self.hasher.hash(id.as_bytes());
        let id = u128::from(low) | (u128::from(high) << 64);
        let id = match action {
            Action::Remove => !id,
            Action::Add | Action::QueryAndAdd => id,
        };
        requests.begin(self.id, RequestId(id.to_le_bytes()))
    }

    /// Whether keys are brought into a canonical form before they are hashed.
    pub fn has_profile(&self) -> bool {
        self.spec.key_profile.is_some()
    }

    /// The hash of a key, in its canonical form if the filter has a profile.
    #[inline]
    fn hash(&self, key: &[u8]) -> KeyHash {
        match &self.spec.key_profile {
            None => self.hasher.hash(key),
            Some(profile) => self.hasher.hash(&profile.canonical(key)),
        }
    }

    /// Has the processor fetch the memory that a key is in. It waits for nothing, and if the
    /// memory is not used after all, nothing has happened. A canonical form would be made twice,
    /// which takes longer than memory does.
    pub fn foresee(&self, key: &[u8]) {
        if !self.has_profile() {
            self.fetch(self.hasher.hash(key));
        }
    }

    /// Whether a key has been seen.
    pub fn query(&self, key: &[u8]) -> Answer<bool> {
        let seen = self.contains(self.hash(key));
        self.counters.count(1, usize::from(seen.value));
        seen
    }

    /// Whether a key had been seen before this call, which adds it.
    pub fn query_and_add(&self, key: &[u8], change: Change<'_>) -> Answer<bool> {
        let hash = self.hash(key);
        let seen = match &self.counting {
            None => self.insert(hash, change),
            Some(counting) => self.count(counting, hash, Action::QueryAndAdd, change),
        };
        self.counters.count(1, usize::from(seen.value));
        seen
    }

    /// Adds a key.
    pub fn add(&self, key: &[u8], change: Change<'_>) -> Answer<()> {
        let hash = self.hash(key);
        let added = match &self.counting {
            None => self.insert(hash, change),
            Some(counting) => self.count(counting, hash, Action::Add, change),
        };
        added.map(|_| ())
    }

    /// Takes a key out, and tells whether it was there.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotCounting`].
    pub fn remove(&self, key: &[u8], change: Change<'_>) -> Result<Answer<bool>, EngineError> {
        let hash = self.hash(key);
        Ok(self.count(self.counting()?, hash, Action::Remove, change))
    }

    /// Whether keys are counted, so that they can be removed.
    pub fn counts(&self) -> bool {
        self.counting.is_some()
    }

    #[inline]
    fn contains(&self, hash: KeyHash) -> Answer<bool> {
        let shard = self.shards.read(self.shape.shard(hash));
        let value = self.shape.contains(&shard.words, hash);
        // That a key is not there may rest on its removal.
        let rests = value || self.counts();
        Answer {
            value,
            rests_on: match rests && !Bug::SeenWithoutWaiting.is_planted() {
                true => shard.state.version,
                false => 0,
            },
        }
    }

    /// Adds a key, and tells whether it had been seen before.
    #[inline]
    fn insert(&self, hash: KeyHash, change: Change<'_>) -> Answer<bool> {
        let Change { room, mut turn } = change;
        let bit_by_bit = Bug::BitByBit.is_planted();
        let bit_by_bit = bit_by_bit.then(|| self.insert_bit_by_bit(hash));
        let mut shard = self.shards.write(self.shape.shard(hash));
        let bits_added = bit_by_bit.unwrap_or_else(|| self.shape.insert(&mut shard.words, hash));
        if bits_added == 0 {
            let rests_on = match Bug::SeenWithoutWaiting.is_planted() {
                true => 0,
                false => shard.state.version,
            };
            drop(shard);
            let is_own = turn.as_mut().is_some_and(|turn| turn.has_won(hash));
            return Answer {
                value: !is_own,
                rests_on,
            };
        }
        let version = self.next_version();
        shard.note(bits_added, version);
        drop(shard);
        self.log_change(room, turn.as_ref(), version, 1, iter::once(hash));
        Answer {
            value: false,
            rests_on: version,
        }
    }

    /// Hands so many hashes over to the log, and to the memory of the request.
    #[inline]
    fn log_change(
        &self,
        room: Option<Room<'_>>,
        turn: Option<&Turn<'_>>,
        version: u64,
        count: usize,
        hashes: impl Iterator<Item = KeyHash> + Clone,
    ) {
        self.remember(turn, hashes.clone());
        if let (Some(log), Some(mut room)) = (&self.log, room) {
            let head = self.record_head(turn, version);
            log.append(&mut room, &head, count, hashes);
        }
    }

    /// Hands hashes over to the memory of the request, if there is one.
    #[inline]
    fn remember(&self, turn: Option<&Turn<'_>>, hashes: impl Iterator<Item = KeyHash>) {
        if let Some(turn) = turn {
            let segment = self.log.as_ref().map_or(0, FilterLog::segment);
            turn.win(hashes.collect(), segment);
        }
    }

    /// What is logged of a version, beside the hashes.
    #[inline]
    fn record_head(&self, turn: Option<&Turn<'_>>, version: u64) -> RecordHead {
        let request = turn.map(Turn::id);
        RecordHead {
            request: request.filter(|_| !Bug::RequestNotLogged.is_planted()),
            ..RecordHead::added(self.id, version)
        }
    }

    /// Whether keys that were found where the latest change is of a version are in the log for
    /// certain, although that cannot be written at present.
    pub fn is_certain<'a>(&self, version: u64, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        // Where keys are removed, that one was added says nothing of how it is now.
        if self.counts() {
            return false;
        }
        let hashes = keys.into_iter().map(|key| self.hash(key));
        let log = self.log.as_ref();
        log.is_some_and(|log| log.is_certain(version, hashes))
    }

    /// The version of a call that is about to change something. To be asked for once, under the
    /// lock of what it changes first: see the module's argument.
    #[inline]
    fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How the filter is now. Takes each lock for a moment.
    pub fn status(&self) -> FilterStatus {
        // Before the version, so that it is never the greater of the two.
        let last_store = *self.last_store.lock();
        let (mut keys_added, mut bits_set) = (0, 0);
        for stripe in self.shards.stripes() {
            for Shard { state, .. } in &**stripe.read() {
                keys_added += state.keys_added;
                bits_set += state.bits_set;
            }
        }
        let fill_ratio = bits_set as f64 / self.spec.bit_count as f64;
        FilterStatus {
            name: self.name.clone(),
            spec: self.spec.clone(),
            memory_bytes: self.memory.bytes(),
            keys_added,
            saturated_counters: self.counting.as_ref().map_or(0, Counting::saturated),
            fill_ratio,
            predicted_false_positive_rate: sizing::false_positive_rate_at_fill(
                &self.shape,
                fill_ratio,
            ),
            version: self.version.load(Ordering::Acquire),
            create_time: self.create_time,
            last_store,
            usage: self.counters.usage(),
        }
    }
}

impl Drop for GuardedFilter {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.end();
        }
    }
}

#[cfg(test)]
mod tests;
