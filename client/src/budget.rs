//! A limit on the load that the retries of a client add to a server in trouble.
//!
//! If every caller repeats its call a few times, all of them together are a multiple of the load
//! that the server could not handle before. So the repeated attempts of all calls of one connection
//! are limited: to a number per second, and a share of the calls that are answered. An attempt over
//! the limit waits for its turn.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The number of repeated attempts that each answered call allows.
const SHARE: f64 = 0.2;

/// The budget of the repeated attempts of all calls of one connection.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: f64,
    /// The calls that were answered and are not yet counted into `left`.
    answered: AtomicU64,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    /// The attempts that can be made at once. Attempts that wait for their turn make it negative.
    attempts: f64,
    at: Instant,
}

impl Budget {
    /// Creates a budget of `per_second` attempts per second. The attempts of the first second are
    /// available at once.
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self {
            per_second,
            answered: AtomicU64::new(0),
            left: Mutex::new(Left {
                attempts: per_second,
                at: Instant::now(),
            }),
        }
    }

    /// Notes that a call was answered.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes an attempt and returns the time to wait for it. Returns `None`, and takes nothing, if
    /// the wait is longer than `most`.
    pub(crate) fn take(&self, most: Duration) -> Option<Duration> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let answered = self.answered.swap(0, Ordering::Relaxed) as f64;
        let since = now.duration_since(left.at).as_secs_f64();
        let more = since * self.per_second + answered * SHARE;
        left.attempts = (left.attempts + more).min(self.per_second);
        left.at = now;
        let wait_s = ((1.0 - left.attempts) / self.per_second).max(0.0);
        if wait_s > most.as_secs_f64() {
            return None;
        }
        left.attempts -= 1.0;
        Some(Duration::from_secs_f64(wait_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_is_past_the_budget_waits_its_turn() {
        let budget = Budget::new(10);
        for _ in 0..10 {
            assert_eq!(budget.take(LONG), Some(Duration::ZERO));
        }
        for turn in 1..=20 {
            let wait = budget.take(LONG).unwrap().as_secs_f64();
            assert!((wait - f64::from(turn) / 10.0).abs() < 1e-6, "{wait}");
        }
        // An attempt that cannot wait so long takes no turn.
        assert_eq!(budget.take(Duration::from_secs(2)), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        let wait = budget.take(LONG).unwrap().as_secs_f64();
        assert!((wait - 0.1).abs() < 1e-6, "{wait}");
        // Unused attempts are saved up for one second at most.
        tokio::time::advance(Duration::from_secs(1000)).await;
        let at_once = (0..20).filter(|_| budget.take(LONG) == Some(Duration::ZERO));
        assert_eq!(at_once.count(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_make_room() {
        let budget = Budget::new(10);
        for _ in 0..10 {
            budget.take(LONG);
        }
        for _ in 0..25 {
            budget.note_answer();
        }
        let at_once = (0..20).filter(|_| budget.take(LONG) == Some(Duration::ZERO));
        assert_eq!(at_once.count(), 5);
    }
}
