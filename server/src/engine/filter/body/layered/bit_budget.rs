//! The bit budget of a filter in layers: the bits that it can take for certain, and the claims on
//! them.
//!
//! Many calls claim bits side by side. A call that counts the bits that are left runs alone. A
//! single number that every call writes would move between the cores with each call. So a thread
//! takes more bits at once than a call needs, for its later calls, and keeps the bits that its
//! calls give back. A recount frees the bits that threads keep. Because of these bits, a recount
//! becomes necessary a little sooner.

use std::sync::{PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use crate::{
    engine::per_thread::PerThread,
    sync::{
        ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// The number of equal calls for which a thread takes bits at once.
const CALLS: u64 = if cfg!(test) { 4 } else { 64 };

/// The part of the bits left that all threads together can keep: about one in `KEPT_PART`.
const KEPT_PART: u64 = 2;

/// The bits that are left. It is 0 until it is counted.
#[derive(Debug, Default)]
pub struct BitBudget {
    /// Held for reading by calls that have claimed what they need.
    calls: ShardedLock<()>,
    /// The bits that neither calls nor threads have. Not in the cache line that all calls read.
    left: CachePadded<AtomicU64>,
    /// The bits that threads keep.
    kept: PerThread<AtomicU64>,
}

/// The bits that a call has claimed, until this is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    kept: &'a AtomicU64,
    bits: u64,
    _calls: ShardedLockReadGuard<'a, ()>,
}

/// The lock is held by others, and the caller must not block.
#[derive(Debug)]
pub struct Busy;

/// The guard of exclusive access: no call has claimed anything.
#[derive(Debug)]
pub struct Alone<'a> {
    budget: &'a BitBudget,
    _alone: ShardedLockWriteGuard<'a, ()>,
}

impl BitBudget {
    /// Claims `bits` bits; `None` if too few are left. Does not use the bits that other threads
    /// keep, even if they were enough. Waits while another caller has exclusive access.
    #[inline]
    pub fn claim(&self, bits: u64) -> Option<Claim<'_>> {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        self.claim_in(calls, bits)
    }

    /// Claims as [`Self::claim`] does, for a caller that must not wait.
    ///
    /// # Errors
    ///
    /// [`Busy`] if another caller has exclusive access.
    #[inline]
    pub fn try_claim(&self, bits: u64) -> Result<Option<Claim<'_>>, Busy> {
        Ok(self.claim_in(unblocked(self.calls.try_read())?, bits))
    }

    #[inline]
    fn claim_in<'a>(
        &'a self,
        _calls: ShardedLockReadGuard<'a, ()>,
        bits: u64,
    ) -> Option<Claim<'a>> {
        let kept = self.kept.own();
        let is_there = take(kept, |kept| (kept >= bits).then_some(bits)).is_some();
        if !is_there {
            // Several threads can share the place where they keep bits. Each takes its own portion.
            let taken = take(&self.left, |left| self.portion(left, bits))?;
            kept.fetch_add(taken - bits, Ordering::Relaxed);
        }
        let claim = Claim { kept, bits, _calls };
        Some(claim)
    }

    /// Waits until no call has claimed anything, and makes others wait until the guard is dropped.
    pub fn alone(&self) -> Alone<'_> {
        let _alone = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        Alone {
            budget: self,
            _alone,
        }
    }

    /// Takes exclusive access as [`Self::alone`] does, for a caller that must not wait.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a call has claimed something, or another caller has exclusive access.
    pub fn try_alone(&self) -> Result<Alone<'_>, Busy> {
        let _alone = unblocked(self.calls.try_write())?;
        Ok(Alone {
            budget: self,
            _alone,
        })
    }

    /// Returns the number of bits that a call takes if it needs `bits`: more, if much is left.
    /// `None` if too few are left.
    fn portion(&self, left: u64, bits: u64) -> Option<u64> {
        let rest = left.checked_sub(bits)?;
        let most = bits.saturating_mul(CALLS - 1);
        Some(bits + most.min(rest / (KEPT_PART * self.kept.count() as u64)))
    }
}

impl Claim<'_> {
    /// Ends a call that has used at most `used` of its bits. Gives the rest back.
    #[inline]
    pub fn end(self, used: u64) {
        let unused = self.bits.saturating_sub(used);
        self.kept.fetch_add(unused, Ordering::Relaxed);
    }
}

impl Alone<'_> {
    /// Sets the bits that are left to the number that was counted.
    pub fn note(&self, left: u64) {
        for kept in self.budget.kept.iter() {
            kept.store(0, Ordering::Relaxed);
        }
        self.budget.left.store(left, Ordering::Relaxed);
    }
}

fn unblocked<G>(locked: Result<G, TryLockError<G>>) -> Result<G, Busy> {
    match locked {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Busy),
    }
}

/// Subtracts from a number what `what` returns for its value, and returns that; `None` if `what`
/// returns `None`.
#[inline]
fn take(from: &AtomicU64, what: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    // The locks order the calls and callers with exclusive access.
    let order = Ordering::Relaxed;
    let before = from.fetch_update(order, order, |left| what(left).map(|taken| left - taken));
    before.ok().and_then(what)
}
