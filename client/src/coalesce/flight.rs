//! The batches in flight: whether one more can be sent, and the number of keys that it should have.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::queue::MAX_KEYS;

/// The number of batches that keep a near server busy: it answers one while the next is filled.
/// With more batches each would be smaller, and a key would cost more.
const NEAR: usize = 2;
/// The maximum number of batches in flight.
pub(super) const WINDOW: usize = 16;
/// The longest wait for room, as a part of the round-trip time of a batch.
const PART: u32 = 8;
/// The shortest limit of that wait, because a timer is not more precise.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// The number of keys that are worth a batch even if more are about to come.
const LEAST_KEYS: usize = 64;

/// The batches in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The time when each batch was sent, and the number of its keys. Batches are answered in this
    /// order.
    batches: VecDeque<(Instant, usize)>,
    /// The number of keys in `batches`.
    keys: usize,
    /// The number of keys that were answered since a batch was sent. Their callers can be back at
    /// once.
    answered: usize,
    /// The round-trip time of the last answered batch.
    round_trip: Duration,
    /// The time since when a caller has waited for room.
    waiting_since: Option<Instant>,
}

impl Flight {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Notes that a batch was sent.
    pub fn depart(&mut self, keys: usize) {
        self.batches.push_back((Instant::now(), keys));
        self.keys += keys;
        self.answered = 0;
        self.waiting_since = None;
    }

    /// Notes that the first batch was answered.
    pub fn arrive(&mut self) {
        if let Some((sent, keys)) = self.batches.pop_front() {
            self.round_trip = sent.elapsed();
            self.keys -= keys;
            self.answered += keys;
        }
    }

    /// Returns whether one more batch can be sent. A caller must be waiting.
    pub fn has_room(&mut self) -> bool {
        self.batches.len() < NEAR || self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Returns the latest time at which one more batch can be sent; `None` if only an answer makes
    /// room. A caller must be waiting.
    pub fn due(&mut self) -> Option<Instant> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let patience = LEAST_PATIENCE.max(self.round_trip / PART);
        (self.batches.len() < WINDOW).then(|| since + patience)
    }

    /// Returns the number of keys that the next batch should have if `waiting` keys wait. It is
    /// half of all keys, so that there are two batches.
    pub fn enough(&self, waiting: usize) -> usize {
        let all = self.keys + self.answered + waiting;
        (all / NEAR).clamp(LEAST_KEYS, MAX_KEYS)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    fn of(batches: usize) -> Flight {
        let mut flight = Flight::default();
        (0..batches).for_each(|_| flight.depart(100));
        flight
    }

    #[test]
    fn two_go_at_once_and_others_a_little_later() {
        for batches in 0..=WINDOW {
            let mut flight = of(batches);
            let begun = Instant::now();
            let goes_at_once = flight.has_room();
            assert!(goes_at_once == (batches < NEAR) || begun.elapsed() >= LEAST_PATIENCE);
            sleep(LEAST_PATIENCE);
            assert_eq!(flight.has_room(), batches < WINDOW, "{batches}");
            // A new caller has not waited yet.
            if batches < WINDOW {
                flight.depart(100);
                assert!(flight.due().is_none_or(|due| due > begun + LEAST_PATIENCE));
            }
        }
    }

    #[test]
    fn where_a_batch_takes_long_others_wait_longer() {
        let mut flight = of(3);
        sleep(80 * LEAST_PATIENCE);
        flight.arrive();
        let begun = Instant::now();
        assert!(flight.due().unwrap() >= begun + 10 * LEAST_PATIENCE);
    }

    #[test]
    fn half_of_those_that_there_are_are_enough() {
        let mut flight = of(4);
        flight.arrive();
        flight.arrive();
        // The callers that were answered come back.
        assert_eq!(flight.enough(10), 205);
        flight.depart(200);
        assert_eq!(flight.enough(10), 205);
        assert_eq!(flight.enough(10_000), MAX_KEYS);
        assert_eq!(Flight::default().enough(1), LEAST_KEYS);
    }
}
