//! The growth of a filter: its number of keys at times up to a day ago.
//!
//! A sample is taken about once a minute and kept for an hour. One sample of each quarter of an
//! hour is kept for a day. These are some 160 samples of 24 bytes for each filter. They exist in
//! this process alone: after a restart they begin anew.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest time for a rate. A shorter time says little about the rate at which keys come.
const SHORTEST: Duration = Duration::from_secs(5 * 60);

/// The time that counts as never: a thousand years.
const NEVER: Duration = Duration::from_secs(365_250 * 24 * 60 * 60);

/// The number of keys that a filter had at past times.
#[derive(Debug)]
pub struct History {
    hour: Window,
    day: Window,
}

/// The samples of a span of time.
#[derive(Debug)]
struct Window {
    span: Duration,
    /// The least time between two samples.
    between: Duration,
    /// The samples, oldest first: one that is as old as the span, if there is one, and the younger
    /// ones.
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    keys: u64,
}

/// The number of keys that have come to a filter in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The time: an hour or a day, or less if the history is shorter. It is never less than five
    /// minutes.
    pub span: Duration,
    /// The number of new keys, minus the keys that were removed.
    pub new_keys: i64,
}

impl Growth {
    /// Returns the time in which `keys` more keys come at this rate. `None` if none came, if more
    /// were removed, or if it takes a thousand years or more.
    pub fn time_for(self, keys: u64) -> Option<Duration> {
        let new_keys = u64::try_from(self.new_keys).ok().filter(|&new| new > 0)?;
        let seconds = self.span.as_secs_f64() * (keys as f64 / new_keys as f64);
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        (time < NEVER).then_some(time)
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            hour: Window::new(HOUR, MINUTE),
            day: Window::new(DAY, HOUR / 4),
        }
    }
}

impl History {
    /// Records the number of keys. To be called at the start, and then once a minute.
    pub fn note(&mut self, now: Instant, keys: u64) {
        self.hour.note(now, keys);
        self.day.note(now, keys);
    }

    /// Returns the growth in the last hour and in the last day, if there are `keys` keys now.
    pub fn growth(&self, now: Instant, keys: u64) -> [Option<Growth>; 2] {
        [&self.hour, &self.day].map(|window| window.growth(now, keys))
    }
}

impl Window {
    fn new(span: Duration, between: Duration) -> Self {
        Self {
            span,
            between,
            samples: VecDeque::new(),
        }
    }

    fn note(&mut self, now: Instant, keys: u64) {
        let since = |sample: &Sample| now.saturating_duration_since(sample.at);
        if self
            .samples
            .back()
            .is_none_or(|last| since(last) >= self.between)
        {
            self.samples.push_back(Sample { at: now, keys });
        }
        while self
            .samples
            .get(1)
            .is_some_and(|second| since(second) >= self.span)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the growth since the youngest sample that is as old as the span, or else since the
    /// oldest.
    fn growth(&self, now: Instant, keys: u64) -> Option<Growth> {
        let age = |sample: &Sample| now.saturating_duration_since(sample.at);
        let old = self
            .samples
            .iter()
            .rev()
            .find(|sample| age(sample) >= self.span);
        let base = old.or(self.samples.front())?;
        let new_keys = keys.checked_signed_diff(base.keys)?;
        let span = age(base);
        (span >= SHORTEST).then_some(Growth { span, new_keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history that is driven by hand, with a number of keys for each minute.
    struct Driven {
        history: History,
        now: Instant,
        keys: u64,
    }

    impl Driven {
        fn new(keys: u64) -> Self {
            let mut driven = Self {
                history: History::default(),
                now: Instant::now(),
                keys,
            };
            driven.note();
            driven
        }

        fn note(&mut self) {
            self.history.note(self.now, self.keys);
        }

        fn minutes(&mut self, minutes: u32, keys: i64) {
            for _ in 0..minutes {
                self.now += MINUTE;
                self.keys = self.keys.checked_add_signed(keys).unwrap();
                self.note();
            }
        }

        fn growth(&self) -> [Option<Growth>; 2] {
            self.history.growth(self.now, self.keys)
        }
    }

    fn minutes(span: u32, new_keys: i64) -> Option<Growth> {
        Some(Growth {
            span: span * MINUTE,
            new_keys,
        })
    }

    #[test]
    fn nothing_is_known_before_five_minutes_and_then_what_there_is() {
        assert_eq!(History::default().growth(Instant::now(), 7), [None, None]);
        let mut driven = Driven::new(1000);
        driven.minutes(4, 10);
        assert_eq!(driven.growth(), [None, None]);
        driven.minutes(1, 10);
        // The keys that were there when the history began are not counted.
        assert_eq!(driven.growth(), [minutes(5, 50), minutes(5, 50)]);
        driven.minutes(55, 10);
        assert_eq!(driven.growth(), [minutes(60, 600), minutes(60, 600)]);
    }

    #[test]
    fn the_last_hour_and_the_last_day_are_told_apart() {
        let mut driven = Driven::new(0);
        driven.minutes(24 * 60, 100);
        driven.minutes(60, 1);
        let day = 23 * 60 * 100 + 60;
        assert_eq!(driven.growth(), [minutes(60, 60), minutes(24 * 60, day)]);
        // Older keys do not count.
        driven.minutes(48 * 60, 0);
        assert_eq!(driven.growth(), [minutes(60, 0), minutes(24 * 60, 0)]);
    }

    /// The growth counts up to now, and not up to the last sample.
    #[test]
    fn keys_count_as_soon_as_they_come() {
        let mut driven = Driven::new(0);
        driven.minutes(10, 1);
        let later = driven.now + MINUTE / 2;
        let [hour, _] = driven.history.growth(later, 500);
        let span = 10 * MINUTE + MINUTE / 2;
        assert_eq!(
            hour,
            Some(Growth {
                span,
                new_keys: 500
            })
        );
    }

    /// Samples come late where the machine is busy, and often where somebody wants it so.
    #[test]
    fn a_history_has_no_more_samples_than_it_needs() {
        let mut driven = Driven::new(0);
        for second in 0..3 * 24 * 60 * 60 / 7 {
            driven.now += Duration::from_secs(7);
            driven.keys = second;
            driven.note();
        }
        let History { hour, day } = &driven.history;
        assert!(hour.samples.len() <= 62, "{}", hour.samples.len());
        assert!(day.samples.len() <= 98, "{}", day.samples.len());
        for (growth, span) in driven.growth().into_iter().zip([HOUR, DAY]) {
            let growth = growth.unwrap();
            let longest = span + span / 48;
            assert!((span..=longest).contains(&growth.span), "{growth:?}");
            // One key every seven seconds.
            let expected = (growth.span.as_secs() / 7).cast_signed();
            assert!((growth.new_keys - expected).abs() <= 1, "{growth:?}");
        }

        // A machine that slept: the rate is that of the time it took.
        driven.now += 10 * DAY;
        driven.keys += 1_000_000;
        for growth in driven.growth().map(Option::unwrap) {
            // And of what came since the sample before.
            assert!(
                (1_000_000..1_000_130).contains(&growth.new_keys),
                "{growth:?}"
            );
            assert!(growth.span >= 10 * DAY, "{growth:?}");
        }
    }

    #[test]
    fn time_is_told_where_keys_come() {
        let growth = |new_keys| Growth {
            span: HOUR,
            new_keys,
        };
        assert_eq!(growth(100).time_for(50), Some(HOUR / 2));
        assert_eq!(growth(100).time_for(0), Some(Duration::ZERO));
        assert_eq!(growth(100).time_for(240_000), Some(100 * DAY));
        assert_eq!(growth(0).time_for(50), None);
        assert_eq!(growth(0).time_for(0), None);
        assert_eq!(growth(-7).time_for(50), None);
        // A thousand years have 8,766,000 hours.
        assert_eq!(growth(1).time_for(8_765_999), Some(8_765_999 * HOUR));
        assert_eq!(growth(1).time_for(8_766_000), None);
        assert_eq!(growth(1).time_for(u64::MAX), None);
        assert_eq!(growth(i64::MAX).time_for(u64::MAX), Some(2 * HOUR));
    }

    #[test]
    fn removed_keys_are_taken_off() {
        let mut driven = Driven::new(5000);
        driven.minutes(30, -100);
        assert_eq!(driven.growth()[0], minutes(30, -3000));
        driven.minutes(30, 100);
        assert_eq!(driven.growth()[0], minutes(60, 0));
    }
}
