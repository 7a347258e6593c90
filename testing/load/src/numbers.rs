//! The numbers of the keys that are asked next: new keys, or keys that are known to be seen.

use std::{collections::VecDeque, ops::Range};

/// The keys of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    /// The number of the first key.
    pub first: u64,
    /// Whether the keys were asked, and answered, before.
    pub seen: bool,
}

/// Hands out the keys of requests that all have the same number of keys. Other callers can be
/// ahead, so a key counts as seen when it and all keys before it have been answered.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The number of the next new key.
    next: u64,
    /// The numbers of the keys that were answered.
    answered: Range<u64>,
    /// Whether each later batch of new keys was answered.
    behind: VecDeque<bool>,
    /// The number of the next key to ask again.
    again: u64,
    /// The number of keys in each batch.
    batch: u64,
    /// The share of batches that are asked again.
    share: f64,
    /// The number of batches that are due to be asked again, with a fraction.
    due: f64,
}

impl Numbers {
    /// Starts to hand out batches of `batch` keys, a `share` of them seen.
    pub fn begin(&mut self, batch: usize, share: f64) {
        self.batch = batch.max(1) as u64;
        self.share = share;
        self.due = 0.0;
        if !self.behind.is_empty() {
            // A run was cut short, and nobody knows which of its keys have arrived.
            self.behind.clear();
            self.answered = self.next..self.next;
        }
    }

    /// Returns the next batch. While too few keys are known as seen, it has new keys.
    pub fn take(&mut self) -> Batch {
        self.due += self.share;
        if self.due >= 1.0 && self.answered.end - self.answered.start >= self.batch {
            self.due -= 1.0;
            if self.again < self.answered.start || self.again + self.batch > self.answered.end {
                self.again = self.answered.start;
            }
            let first = self.again;
            self.again += self.batch;
            return Batch { first, seen: true };
        }
        // A batch that could not be asked again is not made up for later.
        self.due = self.due.min(1.0);
        let first = self.next;
        self.next += self.batch;
        self.behind.push_back(false);
        Batch { first, seen: false }
    }

    /// Notes that a batch was answered.
    pub fn answered(&mut self, batch: Batch) {
        if batch.seen {
            return;
        }
        let position = batch.first.saturating_sub(self.answered.end) / self.batch;
        if let Some(answered) = self.behind.get_mut(position as usize) {
            *answered = true;
        }
        while self.behind.front() == Some(&true) {
            self.behind.pop_front();
            self.answered.end += self.batch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(first: u64) -> Batch {
        Batch { first, seen: false }
    }

    fn seen(first: u64) -> Batch {
        Batch { first, seen: true }
    }

    #[test]
    fn a_key_is_seen_when_all_before_it_are_answered() {
        let mut numbers = Numbers::default();
        numbers.begin(10, 1.0);
        assert_eq!(
            [numbers.take(), numbers.take(), numbers.take()],
            [new(0), new(10), new(20)]
        );
        numbers.answered(new(10));
        assert_eq!(numbers.take(), new(30));
        numbers.answered(new(0));
        assert_eq!(
            [numbers.take(), numbers.take(), numbers.take()],
            [seen(0), seen(10), seen(0)]
        );
        numbers.answered(seen(0));
        numbers.answered(new(20));
        assert_eq!([numbers.take(), numbers.take()], [seen(10), seen(20)]);
    }

    #[test]
    fn the_share_is_kept() {
        for share in [0.0, 0.1, 0.5, 0.75, 1.0] {
            let mut numbers = Numbers::default();
            numbers.begin(1, 0.0);
            let first = numbers.take();
            numbers.answered(first);
            numbers.begin(1, share);
            let seen = (0..10_000).filter(|_| {
                let batch = numbers.take();
                numbers.answered(batch);
                batch.seen
            });
            let seen = seen.count() as f64;
            assert!((seen - 10_000.0 * share).abs() <= 1.0, "{seen} of {share}");
        }
    }

    #[test]
    fn another_size_of_batch_goes_on_where_the_last_ended() {
        let mut numbers = Numbers::default();
        numbers.begin(10, 0.0);
        let batch = numbers.take();
        numbers.answered(batch);
        numbers.begin(4, 0.0);
        let batch = numbers.take();
        assert_eq!(batch, new(10));
        numbers.answered(batch);
        numbers.begin(7, 1.0);
        assert_eq!(
            [numbers.take(), numbers.take(), numbers.take()],
            [seen(0), seen(7), seen(0)]
        );
    }

    #[test]
    fn after_a_run_that_was_cut_short_only_later_keys_are_known() {
        let mut numbers = Numbers::default();
        numbers.begin(1, 0.0);
        let batch = numbers.take();
        numbers.answered(batch);
        numbers.take();
        numbers.begin(1, 1.0);
        assert_eq!(numbers.take(), new(2));
        numbers.answered(new(2));
        assert_eq!(numbers.take(), seen(2));
    }
}
