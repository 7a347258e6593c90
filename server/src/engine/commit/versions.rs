//! Allocates version numbers for the changes of a filter. No two changes have the same version, and
//! each version is greater than all versions that were [sealed](Versions::seal) before.
//!
//! # Leases
//!
//! With one shared counter, its cache line would move between the cores at each call. So a thread
//! checks now and then whether it takes many versions in a short time while other threads take some
//! too. If so, it leases several versions at once for later calls of its own. If calls follow one
//! another, their versions do too, without gaps.
//!
//! Unused leased versions are taken back when a caller needs a version that is less than all later
//! ones. They are also taken back at each turn of the log: an answer waits until all versions up to
//! its own are written, and unused versions count as written.

use std::{mem, ops::Range, sync::Arc, time::Duration};

use crossbeam_utils::CachePadded;

use crate::{
    engine::per_thread::PerThread,
    sync::{
        Instant, LEASE, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The greatest average interval between the versions of a busy thread. A client that waits for
/// each answer before its next call, over a network, causes longer intervals. Tests use a longer
/// limit.
const PAUSE: Duration = Duration::from_micros(if cfg!(test) { 1000 } else { 16 });

/// The versions of a filter.
#[derive(Debug, Default)]
pub struct Versions {
    /// In a cache line of its own, apart from the fields that all threads read.
    given: CachePadded<Given>,
    slots: PerThread<LeaseSlot>,
    unused: Mutex<Unused>,
}

/// The fields that are written when versions are given out or leased.
#[derive(Debug, Default)]
struct Given {
    /// The greatest version given out or leased.
    latest: AtomicU64,
    /// Whether there may be leases that are not used up.
    are_leased: AtomicBool,
}

/// The state of one thread, or of a few.
#[derive(Debug, Default)]
struct LeaseSlot {
    /// Whether the thread leases versions. If not, it takes a version without a lock.
    leases: AtomicBool,
    /// The number of versions taken one at a time. If two threads count at once, one of the two can
    /// be lost.
    taken: AtomicU64,
    lease: Mutex<Lease>,
}

#[derive(Debug, Default)]
struct Lease {
    /// The unused versions of the lease.
    versions: Range<u64>,
    /// The number of versions used since the last look.
    used: u64,
    /// The latest version at the last look. `looked` is the time of that look.
    seen: u64,
    looked: Option<Instant>,
}

impl LeaseSlot {
    /// Decides whether the thread leases versions. Called when a lease is used up or taken back, or
    /// when as many versions as a lease has were taken one at a time.
    fn look(&self, lease: &mut Lease, latest: u64) {
        let now = Instant::now();
        let is_busy = |looked| now.duration_since(looked) < PAUSE * lease.used as u32;
        // Another thread of the slot may have looked meanwhile, and seen a greater version.
        let are_others = latest.saturating_sub(lease.seen) > LEASE;
        let leases = lease.looked.is_some_and(is_busy) && are_others;
        self.leases.store(leases, Ordering::Relaxed);
        (lease.used, lease.seen, lease.looked) = (0, latest, Some(now));
    }
}

/// The versions that no call will use.
#[derive(Debug, Default)]
struct Unused {
    /// Whether they are kept for a log.
    is_kept: bool,
    versions: Vec<Range<u64>>,
}

impl Versions {
    /// Returns an allocator whose first version is the one after `version`.
    pub fn behind(version: u64) -> Arc<Self> {
        let versions = Self::default();
        versions.pass(version);
        Arc::new(versions)
    }

    /// Returns a version for a call of this thread.
    #[inline]
    pub fn next(&self) -> u64 {
        let slot = self.slots.own();
        if slot.leases.load(Ordering::Relaxed) {
            return self.next_leased(slot);
        }
        let version = self.next_in_order();
        let taken = slot.taken.load(Ordering::Relaxed) + 1;
        slot.taken.store(taken, Ordering::Relaxed);
        if taken.is_multiple_of(LEASE) {
            let mut lease = slot.lease.lock();
            lease.used = LEASE;
            slot.look(&mut lease, version);
        }
        version
    }

    fn next_leased(&self, slot: &LeaseSlot) -> u64 {
        let mut lease = slot.lease.lock();
        if let Some(version) = lease.versions.next() {
            lease.used += 1;
            return version;
        }
        // A lease has been used since the last look.
        if lease.used > 0 {
            slot.look(&mut lease, self.latest());
        }
        // This look, or one of another thread of the slot, may have ended leasing.
        if !slot.leases.load(Ordering::Relaxed) {
            return self.next_in_order();
        }
        self.given.are_leased.store(true, Ordering::Relaxed);
        let before = self.given.latest.fetch_add(LEASE, Ordering::AcqRel);
        lease.versions = before + 2..before + LEASE + 1;
        lease.used = 1;
        before + 1
    }

    /// Returns a version that is greater than all that have been given out. If [`Self::next`] is
    /// never called on the filter, it is one more than the last.
    #[inline]
    pub fn next_in_order(&self) -> u64 {
        self.given.latest.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the greatest version that a change has, or that a change in progress can have.
    pub fn latest(&self) -> u64 {
        self.given.latest.load(Ordering::Acquire)
    }

    /// Returns a version V: from now on no change gets V or an earlier version. Versions given out
    /// before are at most V.
    pub fn seal(&self) -> u64 {
        // Read before leases are taken back: versions that are leased meanwhile are greater.
        let latest = self.latest();
        self.take_back(&mut self.unused.lock());
        latest
    }

    /// Makes all later versions greater than `version`. Nothing must be leased yet.
    pub fn pass(&self, version: u64) {
        self.given.latest.fetch_max(version, Ordering::AcqRel);
    }

    /// Returns a [sealed](Self::seal) version, for a change that waits for all changes with an
    /// earlier version.
    pub fn next_sealed(&self) -> u64 {
        let version = self.next_in_order();
        self.take_back(&mut self.unused.lock());
        version
    }

    /// Keeps unused versions from now on, for a log that calls [`Self::take_unused`].
    pub fn keep_unused(&self) {
        self.unused.lock().is_kept = true;
    }

    /// Takes back the leased versions. Returns all versions that will not be used: these, and those
    /// taken back before.
    pub fn take_unused(&self) -> Vec<Range<u64>> {
        let mut unused = self.unused.lock();
        self.take_back(&mut unused);
        mem::take(&mut unused.versions)
    }

    fn take_back(&self, unused: &mut Unused) {
        // A thread sets `are_leased` before it takes versions, and holds the lock of its lease
        // until it has stored them. The caller of this has read `latest`, or taken a record from a
        // queue, so it sees the flag of every lease before that.
        if !self.given.are_leased.load(Ordering::Relaxed) {
            return;
        }
        self.given.are_leased.store(false, Ordering::Relaxed);
        for slot in self.slots.iter() {
            let versions = mem::take(&mut slot.lease.lock().versions);
            if unused.is_kept && !versions.is_empty() {
                unused.versions.push(versions);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::thread;

    use super::*;

    fn take(versions: &Versions, count: u64) {
        for _ in 0..count {
            versions.next();
        }
    }

    fn take_of_another(versions: &Versions) -> u64 {
        thread::scope(|scope| scope.spawn(|| versions.next()).join().unwrap())
    }

    /// Makes this thread hold leased, unused versions after the one that is returned. Of the
    /// versions taken before, all but the returned one are sealed.
    pub fn lease(versions: &Versions) -> u64 {
        loop {
            for _ in 0..2 {
                take_of_another(versions);
                take(versions, LEASE);
            }
            versions.take_unused();
            let version = versions.next();
            if versions.latest() > version {
                return version;
            }
        }
    }

    #[test]
    fn where_nobody_else_takes_any_there_are_no_gaps() {
        let versions = Versions::behind(7);
        for version in 8..1000 {
            assert_eq!(versions.next(), version);
            assert_eq!(versions.latest(), version);
        }
        assert_eq!(versions.take_unused(), []);
    }

    #[test]
    fn what_is_leased_is_used_or_told() {
        let versions = Versions::default();
        versions.keep_unused();
        let first = lease(&versions);
        assert_eq!(versions.next(), first + 1);
        let other = take_of_another(&versions);
        assert_eq!(other, first + LEASE);
        let rest = first + 2..first + LEASE;
        assert_eq!(versions.seal(), other);
        assert_eq!(versions.next(), other + 1);
        versions.seal();
        let unused = versions.take_unused();
        assert_eq!(unused.first(), Some(&rest));
        let all: u64 = unused.iter().map(|range| range.end - range.start).sum();
        assert_eq!(all + 4, versions.latest() - first + 1);
        assert_eq!(versions.take_unused(), []);
    }

    #[test]
    fn behind_a_change_that_is_made_alone_all_are_greater() {
        let versions = Versions::default();
        let held = lease(&versions);
        let alone = versions.next_sealed();
        assert_eq!(alone, held + LEASE);
        assert_eq!(versions.next(), alone + 1);
    }

    #[test]
    fn where_nobody_asks_for_it_nothing_is_kept() {
        let versions = Versions::default();
        lease(&versions);
        assert_eq!(versions.take_unused(), []);
    }

    /// Also covers a thread that is alone.
    #[test]
    fn whoever_takes_few_takes_one_at_a_time() {
        for is_alone in [false, true] {
            let versions = Versions::default();
            lease(&versions);
            take(&versions, LEASE - 1);
            if !is_alone {
                thread::sleep(2 * PAUSE * LEASE as u32);
                take_of_another(&versions);
            }
            for _ in 0..LEASE {
                assert_eq!(versions.next(), versions.latest());
            }
        }
    }

    /// Leased versions are taken back all the time, so no lease is used up.
    #[test]
    fn whoever_takes_few_beside_a_log_takes_one_at_a_time() {
        let versions = Versions::default();
        lease(&versions);
        for _ in 0..2 {
            versions.seal();
            thread::sleep(2 * PAUSE);
            take_of_another(&versions);
            versions.next();
        }
        assert_eq!(versions.next(), versions.latest());
    }
}
