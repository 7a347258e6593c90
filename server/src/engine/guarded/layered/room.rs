//! The bits that a filter in layers can take for certain, and who has claimed them.
//!
//! Many calls claim some side by side, and whoever counts what is left is alone. One number that
//! every call wrote would travel between the cores with each of them. So a thread takes more than a
//! call needs at once, for calls of its own to come, and keeps there what they give back. What
//! threads keep is nobody's again when somebody counts anew: that comes a little sooner for it.

use std::sync::{PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use crate::{
    engine::striped::Striped,
    sync::{
        ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// A thread takes as much at once as so many calls like the one that it is for.
const CALLS: u64 = if cfg!(test) { 4 } else { 64 };

/// All threads together keep no more than about this part of what is left.
const KEPT_PART: u64 = 2;

/// What is left, in bits. None until it is counted.
#[derive(Debug)]
pub struct Room {
    /// Held for reading by calls that have claimed what they need.
    calls: ShardedLock<()>,
    /// What neither calls nor threads have. Not in the line of what all read.
    left: CachePadded<AtomicU64>,
    /// What threads keep.
    kept: Striped<AtomicU64>,
}

/// Bits that are a call's, until it is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    kept: &'a AtomicU64,
    bits: u64,
    _calls: ShardedLockReadGuard<'a, ()>,
}

/// The lock is held by others, and the caller must not block.
#[derive(Debug)]
pub struct Busy;

/// That no call has claimed anything.
#[derive(Debug)]
pub struct Alone<'a> {
    room: &'a Room,
    _alone: ShardedLockWriteGuard<'a, ()>,
}

impl Room {
    /// Nothing is left.
    pub fn new() -> Self {
        Self {
            calls: ShardedLock::new(()),
            left: CachePadded::new(AtomicU64::new(0)),
            kept: Striped::default(),
        }
    }

    /// Claims so many bits, if they are left. What several threads keep is not found, even if it
    /// were enough. Waits for whoever is alone.
    #[inline]
    pub fn claim(&self, bits: u64) -> Option<Claim<'_>> {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        self.claim_in(calls, bits)
    }

    /// [`Self::claim`] for whoever must not wait.
    ///
    /// # Errors
    ///
    /// [`Busy`] if somebody is alone.
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
            // Of several threads that keep theirs in one place each takes its own.
            let taken = take(&self.left, |left| self.portion(left, bits))?;
            kept.fetch_add(taken - bits, Ordering::Relaxed);
        }
        let claim = Claim { kept, bits, _calls };
        Some(claim)
    }

    /// Waits until no call has claimed anything, and has others wait meanwhile.
    pub fn alone(&self) -> Alone<'_> {
        let _alone = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        Alone { room: self, _alone }
    }

    /// [`Self::alone`] for whoever must not wait.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a call has claimed something, or somebody is alone.
    pub fn try_alone(&self) -> Result<Alone<'_>, Busy> {
        let _alone = unblocked(self.calls.try_write())?;
        Ok(Alone { room: self, _alone })
    }

    /// What a call takes that needs so many bits: more, if much is left.
    fn portion(&self, left: u64, bits: u64) -> Option<u64> {
        let rest = left.checked_sub(bits)?;
        let most = bits.saturating_mul(CALLS - 1);
        Some(bits + most.min(rest / (KEPT_PART * self.kept.count() as u64)))
    }
}

impl Claim<'_> {
    /// Ends a call that has used no more than so many of its bits.
    #[inline]
    pub fn end(self, used: u64) {
        let unused = self.bits.saturating_sub(used);
        self.kept.fetch_add(unused, Ordering::Relaxed);
    }
}

impl Alone<'_> {
    /// Notes what has been counted.
    pub fn note(&self, left: u64) {
        for kept in self.room.kept.iter() {
            kept.store(0, Ordering::Relaxed);
        }
        self.room.left.store(left, Ordering::Relaxed);
    }
}

fn unblocked<G>(locked: Result<G, TryLockError<G>>) -> Result<G, Busy> {
    match locked {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Busy),
    }
}

/// Takes from a number what is to be taken of its value, if anything.
#[inline]
fn take(from: &AtomicU64, what: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    // The locks put the calls, and whoever is alone, in order.
    let order = Ordering::Relaxed;
    let before = from.fetch_update(order, order, |left| what(left).map(|taken| left - taken));
    before.ok().and_then(what)
}
