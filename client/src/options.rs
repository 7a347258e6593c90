//! How patient a client is: deadlines, attempts and the pauses between them.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// What a longer deadline is cut down to: far from where clocks overflow, and the most
/// that the header of a call can tell.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a [`Client`](crate::Client) waits, and the pauses between its attempts. The number of
/// attempts has no limit: time decides.
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
    /// The pause before the second attempt; it doubles with each one after. A random
    /// share of up to as much again is added, so that clients that failed together do
    /// not come back together. The last attempt is made this long before the deadline.
    /// Default 50 ms.
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

    /// The pauses between the attempts of one call, without end.
    pub(crate) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .without_max_times()
            .with_jitter()
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_cap_and_do_not_end() {
        let options = Options {
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(100),
            ..Options::default()
        };
        let pauses: Vec<_> = options.pauses().take(1000).collect();
        assert_eq!(pauses.len(), 1000);
        for (index, pause) in pauses.iter().enumerate() {
            let base = Duration::from_millis((10 << index.min(10)).min(100));
            assert!(
                (base..=base * 2).contains(pause),
                "pause {index} is {pause:?}"
            );
        }
    }
}
