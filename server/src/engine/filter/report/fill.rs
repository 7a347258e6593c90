//! Watches how full a filter is while keys come.
//!
//! The exact number of keys is a sum over all shards, which is too slow for each call. So each
//! thread counts the new keys of its calls. When [`Counters::count_new`] says that a look is due,
//! one of the threads looks at the whole filter. A look moves memory to huge pages when it is
//! dense, and warns before the filter is past its capacity.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use super::status::most_keys;
use crate::{
    engine::filter::{Filter, body::Content},
    filter::{
        scaling::OnFull,
        spec::{BodySpec, FilterSpec},
    },
};

/// The percentage of the capacity from which on callers are warned.
const WARN_PERCENT: u64 = 80;

/// The number of looks until a filter is at its capacity, for each thread that adds keys.
const LOOKS: u64 = 256;

/// The number of looks until the memory of a filter is dense.
const LOOKS_UNTIL_DENSE: u64 = 16;

/// A filter that is nearly at its capacity, or past it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityWarning {
    /// The keys that it holds.
    pub keys: u64,
    /// The keys that it is made for.
    pub capacity: u64,
    /// The false-positive rate that it is made for.
    pub false_positive_rate: f64,
    /// The false-positive rate to expect now.
    pub predicted_false_positive_rate: f64,
}

/// The result of the last look at a filter.
#[derive(Debug, Default)]
pub struct FillWatch {
    /// Whether there is a warning. Read by each call, and seldom written.
    has_warning: AtomicBool,
    /// Held during a look, so that there is one at a time.
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    warning: Option<Arc<CapacityWarning>>,
    logged: Logged,
}

/// The last warning in the server's log.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd)]
enum Logged {
    #[default]
    Nothing,
    /// The filter is nearly at its capacity.
    NearlyFull,
    /// The filter is at its capacity, or past it. Holds the rate at that time.
    Full(f64),
}

impl Logged {
    /// Returns the line for the log that is due with a warning, if there is one.
    fn next(self, warning: &CapacityWarning) -> Option<Self> {
        let rate = warning.predicted_false_positive_rate;
        let is_full = warning.keys >= warning.capacity;
        match self {
            Self::Full(logged) if rate < 2.0 * logged => None,
            Self::NearlyFull if !is_full => None,
            _ if is_full => Some(Self::Full(rate)),
            _ => Some(Self::NearlyFull),
        }
    }
}

impl Filter {
    /// Returns the warning for callers that add keys, as of the last look.
    #[inline]
    pub fn capacity_warning(&self) -> Option<Arc<CapacityWarning>> {
        match self.fill.has_warning.load(Ordering::Relaxed) {
            true => self.fill.found.lock().warning.clone(),
            false => None,
        }
    }

    /// Counts new keys of one call, and looks at the filter when that is due.
    #[inline]
    pub fn note_new(&self, keys: usize) {
        if keys > 0 && self.counters.count_new(keys) {
            self.look_at_fill();
        }
    }

    /// Sums up the whole filter, and looks at that. Takes each lock for a moment.
    #[cold]
    fn look_at_fill(&self) {
        self.look_at(&self.content());
    }

    /// Looks at the content of the filter, unless another thread does.
    pub fn look_at(&self, content: &Content<'_>) {
        let Some(mut found) = self.fill.found.try_lock() else {
            return;
        };
        let until_dense = self.body.whole().look_at_pages(content.bits_set);
        let capacity = match self.spec.body {
            BodySpec::Layered(OnFull::Scale(_), _) => most_keys(&self.spec),
            _ => self.spec.capacity,
        };
        let keys = match self.spec.body.ages() {
            // Many of the keys that were added can be too old by now.
            true => content.estimated_keys().unwrap_or(f64::INFINITY) as u64,
            false => content.keys_added,
        };
        let until_warning = keys.max(capacity).div_ceil(LOOKS);
        let until_look = until_dense.map_or(u64::MAX, |keys| keys.div_ceil(LOOKS_UNTIL_DENSE));
        self.counters.look_after(until_warning.min(until_look));

        let is_nearly_full =
            u128::from(keys) * 100 >= u128::from(capacity) * u128::from(WARN_PERCENT);
        let warning = is_nearly_full.then(|| CapacityWarning {
            keys,
            capacity,
            false_positive_rate: self.spec.false_positive_rate,
            predicted_false_positive_rate: content.false_positive_rate(),
        });
        match &warning {
            Some(warning) => {
                if let Some(next) = found.logged.next(warning) {
                    found.logged = next;
                    self.log_warning(warning);
                }
            }
            None => found.logged = Logged::Nothing,
        }
        self.fill
            .has_warning
            .store(warning.is_some(), Ordering::Relaxed);
        found.warning = warning.map(Arc::new);
    }

    fn log_warning(&self, warning: &CapacityWarning) {
        let CapacityWarning {
            keys,
            capacity,
            false_positive_rate,
            predicted_false_positive_rate,
        } = *warning;
        let percent = keys.saturating_mul(100) / capacity.max(1);
        let advice = match refuses(&self.spec) {
            true => {
                "new keys are refused when it is full: give it a successor with a larger capacity"
            }
            false => {
                "more and more new keys are taken for seen: rebuild it with a larger capacity, or \
                 with the kind scaling, which grows"
            }
        };
        tracing::warn!(
            filter = %self.name(),
            keys,
            capacity,
            false_positive_rate,
            predicted_false_positive_rate,
            "the filter is at {percent} % of its capacity; {advice}"
        );
    }

    /// Returns whether the filter can refuse new keys.
    pub fn may_be_full(&self) -> bool {
        refuses(&self.spec)
    }
}

/// Returns whether a filter refuses new keys when it is full.
fn refuses(spec: &FilterSpec) -> bool {
    matches!(
        spec.body,
        BodySpec::Layered(OnFull::Scale(_) | OnFull::Reject, _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(keys: u64, rate: f64) -> CapacityWarning {
        CapacityWarning {
            keys,
            capacity: 1000,
            false_positive_rate: 0.01,
            predicted_false_positive_rate: rate,
        }
    }

    #[test]
    fn the_log_has_a_line_when_it_is_nearly_full_when_it_is_full_and_for_each_doubling() {
        let mut logged = Logged::Nothing;
        let mut lines = Vec::new();
        for (keys, rate) in [
            (800, 0.004),
            (900, 0.006),
            (999, 0.0099),
            (1000, 0.01),
            (1100, 0.015),
            (1200, 0.02),
            (1300, 0.039),
            (1600, 0.09),
        ] {
            if let Some(next) = logged.next(&warning(keys, rate)) {
                logged = next;
                lines.push(keys);
            }
        }
        assert_eq!(lines, [800, 1000, 1200, 1600]);
        // A filter that has become full at once.
        let full = Logged::Nothing.next(&warning(5000, 0.5));
        assert_eq!(full, Some(Logged::Full(0.5)));
    }
}
