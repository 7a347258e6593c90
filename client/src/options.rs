//! How patient a client is: deadlines, attempts and the pauses between them.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// What a longer deadline is cut down to: far from where clocks overflow, and the most
/// that the header of a call can tell.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a [`Client`](crate::Client) waits and how often it tries.
///
/// What is safe to repeat is decided by the call, not here: see the
/// [crate documentation](crate#retries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The time that one call may take, with all its attempts and the pauses between
    /// them. The server is told, and stops working for a caller that has gone. In the
    /// stream form it is the time that each batch may take. Default 10 s.
    pub deadline: Duration,
    /// The time that one attempt to connect may take. Default 5 s.
    pub connect_timeout: Duration,
    /// The most attempts for one call, the first included; 0 counts as 1. Default 6.
    pub attempts: usize,
    /// The pause before the second attempt; it doubles with each one after. A random
    /// share of up to as much again is added, so that clients that failed together do
    /// not come back together. Default 50 ms.
    pub first_pause: Duration,
    /// Where the pause stops growing (before the random share). Default 2 s.
    pub longest_pause: Duration,
    /// The repeated attempts a second that all calls of one connection may make together, beside
    /// one for every five calls that are answered: or the callers of a server in trouble would
    /// be what keeps it there. A call that is past this waits for its turn, within its deadline.
    /// 0 counts as 1. Default 100.
    pub retries_per_second: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            attempts: 6,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(2),
            retries_per_second: 100,
        }
    }
}

impl Options {
    /// When a call that begins now has to be answered.
    pub(crate) fn deadline_from_now(&self) -> Instant {
        Instant::now() + self.deadline.min(LONGEST_DEADLINE)
    }

    /// The pauses between the attempts of one call; they end with the attempts.
    pub(crate) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .with_max_times(self.attempts.saturating_sub(1))
            .with_jitter()
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_cap_and_end_with_the_attempts() {
        let options = Options {
            attempts: 8,
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(100),
            ..Options::default()
        };
        let pauses: Vec<_> = options.pauses().collect();
        assert_eq!(pauses.len(), 7);
        for (index, pause) in pauses.iter().enumerate() {
            let base = Duration::from_millis((10 << index).min(100));
            assert!(
                (base..=base * 2).contains(pause),
                "pause {index} is {pause:?}"
            );
        }
    }

    #[test]
    fn no_attempts_or_one_have_no_pause() {
        for attempts in [0, 1] {
            let options = Options {
                attempts,
                ..Options::default()
            };
            assert_eq!(options.pauses().count(), 0);
        }
    }
}
