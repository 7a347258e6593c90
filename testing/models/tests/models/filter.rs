//! A filter with its log. It does with the shards, queues, trackers and barrier of the server the
//! work of `engine/filter/mod.rs`, `engine/commit/mod.rs` and the log thread.

use std::sync::{Arc, Mutex};

use loom::future::block_on;
use seenset_models::{
    engine::modelled::{
        Parker, Shard, Stripes, Trackers, Versions, WalQueues, Watermark, WriteBarrier, reserve,
        set_stripe,
    },
    filter::{blocked::Blocked, hash::KeyHash, key_set::KeySet, spec::SpecRequest},
    store::{FilterId, Record, RecordHead},
};

use super::reached;

const ID: FilterId = FilterId(1);

/// A filter of two shards, and its log.
pub struct Filter {
    /// The format of one shard.
    format: Blocked,
    shards: Stripes<Shard>,
    versions: Arc<Versions>,
    pub barrier: WriteBarrier,
    queues: WalQueues,
    /// The trackers. Only one thread of a model uses them.
    trackers: Mutex<Trackers>,
    watermark: Arc<Watermark>,
    writer: Parker,
    /// The durable records. Not a loom mutex, because only the models read it.
    written: Mutex<Vec<Record>>,
    fault: Option<Fault>,
}

/// The faults that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The lock is released between the check of a key's bits and setting them.
    LockLetGo,
    /// A version is taken and noted after the release of the lock under which bits were set.
    VersionOutsideOfTheLock,
    /// An answer waits only for the changes of its own call.
    SeenDoesNotWait,
    /// A snapshot does not wait for the calls in progress.
    NoBarrier,
    /// A snapshot does not wait for the log.
    AheadOfTheLog,
    /// Unused versions are not reported.
    UnusedNotTold,
}

/// A key, and its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub shard: usize,
    pub hash: KeyHash,
}

/// The findings and changes of one call.
#[derive(Default)]
struct Changes {
    /// The version of the call, once it has one.
    version: Option<u64>,
    new: Vec<Key>,
    depends_on: u64,
}

/// The words of the shards at some moment, and the version that the snapshot claims to hold.
pub struct Snapshot {
    version: u64,
    /// The words of the two shards.
    words: [Vec<u64>; 2],
}

impl Filter {
    pub fn new(fault: Option<Fault>) -> Self {
        let spec = SpecRequest::new(10, 0.01).resolve().unwrap();
        let shape = spec.body.shape();
        let words = || reserve(&shape, 1).unwrap().shards.remove(0);
        let mut trackers = Trackers::default();
        let versions = Arc::new(Versions::default());
        // The first caller has met others, so it leases the versions that it takes. Without the
        // barrier it does not lease: then it reads a value that it writes next, and loom does not
        // try all orders of such a pair with another thread's read.
        if fault != Some(Fault::NoBarrier) {
            for stripe in [0, 0, 1, 0, 0, 0, 1] {
                set_stripe(stripe);
                versions.next();
            }
        }
        let watermark = trackers.begin(ID, &versions);
        let queues = WalQueues::new(64 << 10);
        queues.add_space(32 << 10);
        Self {
            format: shape.dimensions().into(),
            shards: Stripes::new([words(), words()].into_iter().map(Shard::new)),
            versions,
            barrier: WriteBarrier::default(),
            queues,
            trackers: Mutex::new(trackers),
            watermark,
            writer: Parker::default(),
            written: Mutex::default(),
            fault,
        }
    }

    /// Adds keys and returns the new ones, once this answer may be given.
    pub fn query_and_add(&self, keys: &[Key]) -> Vec<Key> {
        let mut reservation = self.queues.reserve(keys.len(), 1).unwrap();
        let mut changes = Changes::default();
        {
            let _permit = self.barrier.pass().unwrap();
            keys.iter().for_each(|key| self.insert(*key, &mut changes));
            if let Some(version) = changes.version {
                let (count, hashes) = (changes.new.len(), changes.new.iter().map(|key| key.hash));
                let head = RecordHead::added(ID, version);
                self.queues.append(&mut reservation, &head, count, hashes);
                self.writer.wake();
            }
        }
        let depends_on = changes.version.unwrap_or(0).max(changes.depends_on);
        block_on(reached(&self.watermark, depends_on));
        changes.new
    }

    fn insert(&self, key: Key, changes: &mut Changes) {
        let Key { shard, hash } = key;
        let mut was_there = None;
        if self.fault == Some(Fault::LockLetGo) {
            let shard = self.shards.read(shard);
            was_there = Some(self.format.contains(&shard.words, hash));
        }
        let mut guard = self.shards.write(shard);
        let bits_added = self.format.insert(&mut guard.words, hash);
        if was_there.unwrap_or(bits_added == 0) {
            if self.fault != Some(Fault::SeenDoesNotWait) {
                changes.depends_on = guard.state.version.max(changes.depends_on);
            }
            return;
        }
        if self.fault == Some(Fault::VersionOutsideOfTheLock) {
            drop(guard);
            self.next_version(changes);
            guard = self.shards.write(shard);
        }
        guard.note(bits_added, self.next_version(changes));
        changes.new.push(key);
    }

    /// Returns the version of the call.
    fn next_version(&self, changes: &mut Changes) -> u64 {
        *changes.version.get_or_insert_with(|| self.versions.next())
    }

    /// Does the work of the log thread until the given number of calls are written.
    pub fn write(&self, calls: usize) {
        let mut written = 0;
        while written < calls {
            let (mut filled, mut ends) = (Vec::new(), Vec::new());
            self.queues.take(&mut filled, &mut ends);
            if ends.is_empty() {
                self.writer.sleep(|| self.queues.is_empty(), None);
                continue;
            }
            let records = filled.iter().flat_map(|filled| filled.batch.records());
            self.written.lock().unwrap().extend(records);
            let mut trackers = self.trackers.lock().unwrap();
            if self.fault != Some(Fault::UnusedNotTold) {
                trackers.note_unused(&ends);
            }
            trackers.note(&ends);
            written += ends.len();
        }
    }

    /// Returns whether the durable records up to a version contain a key.
    pub fn is_written(&self, key: Key, to: u64) -> bool {
        let written = self.written.lock().unwrap();
        let mut records = written.iter().filter(|record| record.head.version <= to);
        records.any(|record| record.hashes.contains(&key.hash))
    }

    /// Takes a snapshot, and returns it once it may be published.
    pub fn snapshot(&self) -> Snapshot {
        let version = self.versions.seal();
        if self.fault != Some(Fault::NoBarrier) {
            self.barrier.wait_for_writes();
        }
        let mut latest = version;
        let words = [0, 1].map(|shard| {
            let shard = self.shards.read(shard);
            latest = shard.state.version.max(latest);
            shard.words.to_vec()
        });
        if self.fault != Some(Fault::AheadOfTheLog) {
            block_on(reached(&self.watermark, latest));
        }
        Snapshot { version, words }
    }

    /// Returns the version of the last change to a shard.
    pub fn changed(&self, shard: usize) -> u64 {
        self.shards.read(shard).state.version
    }

    /// Returns whether a snapshot contains a key.
    pub fn is_in(&self, snapshot: &Snapshot, key: Key) -> bool {
        self.format.contains(&snapshot.words[key.shard], key.hash)
    }
}

impl Snapshot {
    pub fn version(&self) -> u64 {
        self.version
    }
}
