//! The deadlines and retries of a client, and the pauses between its attempts.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// The longest deadline; a longer one is cut down to it. It is far from where clocks overflow, and
/// it is the most that the header of a call can hold.
const LONGEST_DEADLINE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The deadlines of a [`Client`](crate::Client), and the pauses between its attempts. The number of
/// attempts has no limit: the deadline ends them.
///
/// These options do not decide which calls are safe to repeat. The call decides that: see the
/// [crate documentation](crate#retries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The time limit of one call, including all its attempts and the pauses between them. The
    /// client sends it to the server, which stops working on a call when it is over. On a stream it
    /// is the time limit of each batch. Default 10 s.
    pub deadline: Duration,
    /// The time limit of one attempt to connect. Default 5 s.
    pub connect_timeout: Duration,
    /// The pause before the second attempt. The pause doubles with each further attempt. A random
    /// share of up to the same length is added, so that clients that failed together do not come
    /// back together. The last attempt starts this long before the deadline. Default 50 ms.
    pub first_pause: Duration,
    /// The longest pause, before the random share is added. Default 2 s.
    pub longest_pause: Duration,
    /// The number of repeated attempts per second that all calls of one connection can make
    /// together. In addition, every five answered calls allow one repeated attempt. Without this
    /// limit, the retries of the callers would keep an overloaded server overloaded. A call over
    /// the limit waits for its turn, within its deadline. 0 counts as 1. Default 100.
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
    /// Returns the deadline of a call that starts now.
    pub(crate) fn deadline_from_now(&self) -> Instant {
        Instant::now() + self.deadline.min(LONGEST_DEADLINE)
    }

    /// Returns the pauses between the attempts of one call. They never end.
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
