//! The batches in flight: whether one more may go, and how many keys it should have.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::queue::MAX_KEYS;

/// The batches that keep a server busy which is near: it answers one while the next is filled. With
/// more of them each would be smaller, and a key cost more.
const NEAR: usize = 2;
/// The most batches.
pub(super) const WINDOW: usize = 16;
/// Nobody waits for room longer than this part of the time that a batch takes to be answered,
const PART: u32 = 8;
/// unless that is less than what a timer can tell.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// So many keys are worth a batch though more are about to come.
const LEAST_KEYS: usize = 64;

/// The batches in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// When each was sent, and its keys. They are answered in this order.
    batches: VecDeque<(Instant, usize)>,
    /// The keys in them.
    keys: usize,
    /// The keys that were answered since a batch was sent. Their callers may be back at once.
    answered: usize,
    /// What the last that was answered took.
    round_trip: Duration,
    /// Since when somebody has waited for room.
    waiting_since: Option<Instant>,
}

impl Flight {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// A batch was sent.
    pub fn depart(&mut self, keys: usize) {
        self.batches.push_back((Instant::now(), keys));
        self.keys += keys;
        self.answered = 0;
        self.waiting_since = None;
    }

    /// The first of them was answered.
    pub fn arrive(&mut self) {
        if let Some((sent, keys)) = self.batches.pop_front() {
            self.round_trip = sent.elapsed();
            self.keys -= keys;
            self.answered += keys;
        }
    }

    /// Whether one more may go, when somebody waits for that.
    pub fn has_room(&mut self) -> bool {
        self.batches.len() < NEAR || self.due().is_some_and(|due| due <= Instant::now())
    }

    /// When one more may go at the latest, when somebody waits for that; `None` if only an answer
    /// makes room.
    pub fn due(&mut self) -> Option<Instant> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let patience = LEAST_PATIENCE.max(self.round_trip / PART);
        (self.batches.len() < WINDOW).then(|| since + patience)
    }

    /// How many keys the next batch should have, where so many wait: half of all that there are, so
    /// that there are two batches.
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
            // Whoever comes now has not waited.
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
        // Those that were answered come back.
        assert_eq!(flight.enough(10), 205);
        flight.depart(200);
        assert_eq!(flight.enough(10), 205);
        assert_eq!(flight.enough(10_000), MAX_KEYS);
        assert_eq!(Flight::default().enough(1), LEAST_KEYS);
    }
}
