//! The clock of the filters whose keys age.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// A clock that returns the time since 1970. Cheap to clone; clones are the same clock.
///
/// It reads the system clock once, when it is created, and counts on from there. If the system
/// clock is set forward or back later, this has no effect until the next start.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { begun: Instant, time: Duration },
    ManualClock(ManualClock),
}

/// Moves a clock that does not run by itself.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Sets the clock, forward or back, to a time since 1970.
    pub fn set(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Release);
    }

    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        self.set(self.time() + time);
    }

    /// Returns the time of the clock.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

impl Default for Clock {
    fn default() -> Self {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self(Source::System {
            begun: Instant::now(),
            time: time.unwrap_or_default(),
        })
    }
}

impl Clock {
    /// Returns a clock that starts at 1970, and the handle that moves it.
    pub fn manual() -> (Self, ManualClock) {
        let manual_clock = ManualClock::default();
        (
            Self(Source::ManualClock(manual_clock.clone())),
            manual_clock,
        )
    }

    /// Returns the time since 1970.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::System { begun, time } => *time + begun.elapsed(),
            Source::ManualClock(manual_clock) => manual_clock.time(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_tells_the_time() {
        let clock = Clock::default();
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (before, told) = (now().unwrap(), clock.now());
        assert!(told.abs_diff(before) < Duration::from_secs(60));
        assert!(clock.now() >= told);

        let (clock, manual_clock) = Clock::manual();
        assert_eq!(clock.now(), Duration::ZERO);
        manual_clock.set(Duration::from_secs(9));
        manual_clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(10));
        manual_clock.set(Duration::from_secs(2));
        assert_eq!(clock.clone().now(), Duration::from_secs(2));
    }
}
