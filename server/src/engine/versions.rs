//! The versions that a filter gives its changes: no two have the same, and each is greater than
//! all that were [settled](Versions::settle) before.
//!
//! # Leases
//!
//! One number that every call wrote would travel between the cores with each of them. So a thread
//! looks now and then whether it takes many in a short time, and others take some as well; if that
//! is so it takes several at once, for calls of its own to come. Where one call follows the other,
//! versions do so too, without gaps.
//!
//! What is leased and not used is taken back when somebody needs a version that all later ones
//! are greater than, and with each turn of the log, where an answer waits until all versions up
//! to its own are written: those that are not used count as such.

use std::{mem, ops::Range, sync::Arc, time::Duration};

use crossbeam_utils::CachePadded;

use crate::{
    engine::striped::Striped,
    sync::{
        Instant, LEASE, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A thread that takes versions less far apart than this, on the average, has more to do than
/// calls that each wait for the answer to the one before, over a network. Tests are in no hurry.
const PAUSE: Duration = Duration::from_micros(if cfg!(test) { 1000 } else { 16 });

/// The versions of a filter.
#[derive(Debug, Default)]
pub struct Versions {
    /// Not in the line of what all read.
    given: CachePadded<Given>,
    stripes: Striped<Stripe>,
    unused: Mutex<Unused>,
}

/// What is written when versions are given out or leased.
#[derive(Debug, Default)]
struct Given {
    /// The greatest.
    latest: AtomicU64,
    /// Whether there may be leases that are not used up.
    are_leased: AtomicBool,
}

/// What is of one thread, or few.
#[derive(Debug, Default)]
struct Stripe {
    /// Whether versions are leased. If not, it costs no lock to take one.
    leases: AtomicBool,
    /// How many have been taken one by one. Of two threads that count at once one may not be.
    taken: AtomicU64,
    lease: Mutex<Lease>,
}

#[derive(Debug, Default)]
struct Lease {
    /// What is left of it.
    versions: Range<u64>,
    /// How many have been used since the last look.
    used: u64,
    /// Which version was the latest at the last look, and when that was.
    seen: u64,
    looked: Option<Instant>,
}

impl Stripe {
    /// Looks whether versions are to be leased, when a lease is used up or taken back, or as many
    /// have been taken one by one as it has.
    fn look(&self, lease: &mut Lease, latest: u64) {
        let now = Instant::now();
        let is_busy = |looked| now.duration_since(looked) < PAUSE * lease.used as u32;
        // Another thread of the stripe may have looked meanwhile, and seen more.
        let are_others = latest.saturating_sub(lease.seen) > LEASE;
        let leases = lease.looked.is_some_and(is_busy) && are_others;
        self.leases.store(leases, Ordering::Relaxed);
        (lease.used, lease.seen, lease.looked) = (0, latest, Some(now));
    }
}

/// What no call will use.
#[derive(Debug, Default)]
struct Unused {
    /// Whether a log asks for it.
    is_kept: bool,
    versions: Vec<Range<u64>>,
}

impl Versions {
    /// Those behind a version.
    pub fn behind(version: u64) -> Arc<Self> {
        let versions = Self::default();
        versions.pass(version);
        Arc::new(versions)
    }

    /// A version for a call of this thread.
    #[inline]
    pub fn next(&self) -> u64 {
        let stripe = self.stripes.own();
        if stripe.leases.load(Ordering::Relaxed) {
            return self.next_leased(stripe);
        }
        let version = self.next_in_order();
        let taken = stripe.taken.load(Ordering::Relaxed) + 1;
        stripe.taken.store(taken, Ordering::Relaxed);
        if taken.is_multiple_of(LEASE) {
            let mut lease = stripe.lease.lock();
            lease.used = LEASE;
            stripe.look(&mut lease, version);
        }
        version
    }

    fn next_leased(&self, stripe: &Stripe) -> u64 {
        let mut lease = stripe.lease.lock();
        if let Some(version) = lease.versions.next() {
            lease.used += 1;
            return version;
        }
        // There was one since the last look.
        if lease.used > 0 {
            stripe.look(&mut lease, self.latest());
        }
        // Or another thread of the stripe has looked.
        if !stripe.leases.load(Ordering::Relaxed) {
            return self.next_in_order();
        }
        self.given.are_leased.store(true, Ordering::Relaxed);
        let before = self.given.latest.fetch_add(LEASE, Ordering::AcqRel);
        lease.versions = before + 2..before + LEASE + 1;
        lease.used = 1;
        before + 1
    }

    /// A version that is greater than all that have been given out: of a filter for which
    /// [`Self::next`] is not called, one more than the last.
    #[inline]
    pub fn next_in_order(&self) -> u64 {
        self.given.latest.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The greatest that any change has, or may have that is under way.
    pub fn latest(&self) -> u64 {
        self.given.latest.load(Ordering::Acquire)
    }

    /// A version that no change is given from now on, nor an earlier one: those that have been
    /// given out before have one up to this.
    pub fn settle(&self) -> u64 {
        // Before leases are taken back: what is leased meanwhile is greater.
        let latest = self.latest();
        self.take_back(&mut self.unused.lock());
        latest
    }

    /// Goes on behind a version at least, where nothing is leased yet.
    pub fn pass(&self, version: u64) {
        self.given.latest.fetch_max(version, Ordering::AcqRel);
    }

    /// A version for a change that waits for all changes with an earlier one: [settled](Self::settle).
    pub fn next_settled(&self) -> u64 {
        let version = self.next_in_order();
        self.take_back(&mut self.unused.lock());
        version
    }

    /// From now on keeps what is not used, for a log that asks for it.
    pub fn keep_unused(&self) {
        self.unused.lock().is_kept = true;
    }

    /// Takes back what is leased, and tells what will not be used of that and of all that was
    /// taken back before.
    pub fn take_unused(&self) -> Vec<Range<u64>> {
        let mut unused = self.unused.lock();
        self.take_back(&mut unused);
        mem::take(&mut unused.versions)
    }

    fn take_back(&self, unused: &mut Unused) {
        // Whoever leases says so before it takes versions, and holds the lock of its lease until
        // they are there. Whoever calls this has read `latest`, or taken a record from a lane, and
        // so sees what was said before.
        if !self.given.are_leased.load(Ordering::Relaxed) {
            return;
        }
        self.given.are_leased.store(false, Ordering::Relaxed);
        for stripe in self.stripes.iter() {
            let versions = mem::take(&mut stripe.lease.lock().versions);
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

    /// Has this thread hold versions that are not used, behind the one that is returned; and of
    /// those that were taken on the way all but that are settled.
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
        assert_eq!(versions.settle(), other);
        assert_eq!(versions.next(), other + 1);
        versions.settle();
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
        let alone = versions.next_settled();
        assert_eq!(alone, held + LEASE);
        assert_eq!(versions.next(), alone + 1);
    }

    #[test]
    fn where_nobody_asks_for_it_nothing_is_kept() {
        let versions = Versions::default();
        lease(&versions);
        assert_eq!(versions.take_unused(), []);
    }

    /// Or is alone.
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

    /// Though what is leased is taken back all the time, so that no lease is used up.
    #[test]
    fn whoever_takes_few_beside_a_log_takes_one_at_a_time() {
        let versions = Versions::default();
        lease(&versions);
        for _ in 0..2 {
            versions.settle();
            thread::sleep(2 * PAUSE);
            take_of_another(&versions);
            versions.next();
        }
        assert_eq!(versions.next(), versions.latest());
    }
}
