//! Events that may come again and again, and are logged once a second at most.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time between two lines of the log about the same event.
const INTERVAL: Duration = Duration::from_secs(1);

/// Events of a few kinds.
#[derive(Debug, Default)]
pub struct Repeated(Mutex<Vec<Event>>);

#[derive(Debug)]
struct Event {
    name: &'static str,
    logged: Instant,
    /// The times that it has come since then.
    times: u64,
}

impl Repeated {
    /// Events that have not come.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Counts an event. Returns how often it has come since it was logged last, if it is to be
    /// logged now.
    pub fn count(&self, name: &'static str) -> Option<u64> {
        self.count_at(name, Instant::now())
    }

    fn count_at(&self, name: &'static str, now: Instant) -> Option<u64> {
        let mut events = self.0.lock();
        let Some(event) = events.iter_mut().find(|event| event.name == name) else {
            events.push(Event {
                name,
                logged: now,
                times: 0,
            });
            return Some(1);
        };
        event.times += 1;
        if now < event.logged + INTERVAL {
            return None;
        }
        event.logged = now;
        Some(std::mem::take(&mut event.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_logged_once_a_second() {
        let (events, begin) = (Repeated::new(), Instant::now());
        let count = |name, ms| events.count_at(name, begin + Duration::from_millis(ms));
        assert_eq!(count("a", 0), Some(1));
        assert_eq!(count("a", 1), None);
        assert_eq!(count("b", 2), Some(1));
        assert_eq!(count("a", 999), None);
        assert_eq!(count("a", 1000), Some(3));
        assert_eq!(count("a", 1999), None);
        assert_eq!(count("b", 5000), Some(1));
    }
}
