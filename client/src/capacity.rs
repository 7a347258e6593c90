//! Warnings of the server that a filter is nearly at its capacity, or past it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use seenset_proto::v1;

/// A warning about a filter that holds at least 80 % of the keys that it is made for.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityWarning {
    /// The name of the filter.
    pub filter: String,
    /// The number of keys in the filter.
    pub keys: u64,
    /// The number of keys that the filter is made for.
    pub capacity: u64,
    /// The false-positive rate that the filter is made for.
    pub false_positive_rate: f64,
    /// The share of new keys that the filter reports as seen now, as predicted by the server.
    pub predicted_false_positive_rate: f64,
}

impl CapacityWarning {
    /// The percentage of the capacity from which on a server warns.
    const PERCENT: u64 = 80;

    /// Returns the warning about a filter in the state that the server shows; `None` if there is
    /// none. The keys of the filter do not age.
    pub fn of(filter: &v1::Filter) -> Option<Self> {
        let spec = filter.spec.as_ref()?;
        let layers = filter.layers.as_ref();
        let warning = Self {
            filter: filter.name.clone(),
            keys: filter.keys_added,
            capacity: layers.map_or(spec.capacity, |layers| layers.max_capacity),
            false_positive_rate: spec.false_positive_rate,
            predicted_false_positive_rate: filter.predicted_false_positive_rate,
        };
        (warning.percent() >= Self::PERCENT).then_some(warning)
    }

    fn percent(&self) -> u64 {
        self.keys.saturating_mul(100) / self.capacity.max(1)
    }

    /// Returns whether the filter is at its capacity, or past it.
    pub fn is_full(&self) -> bool {
        self.keys >= self.capacity
    }
}

impl fmt::Display for CapacityWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.percent();
        write!(
            f,
            "the filter {} is at {percent} % of its capacity: {} keys, made for {}; it calls {:.3} % \
             of new keys seen, and was made for {:.3} %",
            self.filter,
            self.keys,
            self.capacity,
            100.0 * self.predicted_false_positive_rate,
            100.0 * self.false_positive_rate,
        )?;
        if self.is_full() {
            f.write_str(
                ": rebuild it with a larger capacity, or with the kind scaling, which grows",
            )?;
        }
        Ok(())
    }
}

/// The latest warning of each filter. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CapacityWarnings(Arc<Mutex<BTreeMap<String, CapacityWarning>>>);

impl CapacityWarnings {
    /// Keeps the warning of an answer. The first warning of each filter goes to the log, and the
    /// first one that says that the filter is full does too.
    pub fn note(&self, filter: &str, warning: Option<v1::CapacityWarning>) {
        let Some(warning) = warning else { return };
        let filter = if filter.is_empty() { "default" } else { filter };
        let warning = CapacityWarning {
            filter: filter.to_owned(),
            keys: warning.keys,
            capacity: warning.capacity,
            false_positive_rate: warning.false_positive_rate,
            predicted_false_positive_rate: warning.predicted_false_positive_rate,
        };
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = warnings.get(filter);
        if before.is_none_or(|before| warning.is_full() && !before.is_full()) {
            tracing::warn!("{warning}");
        }
        warnings.insert(filter.to_owned(), warning);
    }

    /// Returns the latest warning of each filter, in the order of the names.
    pub fn all(&self) -> Vec<CapacityWarning> {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_warning_of_each_filter_is_kept() {
        let warnings = CapacityWarnings::default();
        warnings.note("", None);
        assert!(warnings.all().is_empty());
        let warning = |keys| v1::CapacityWarning {
            keys,
            capacity: 1000,
            false_positive_rate: 0.01,
            predicted_false_positive_rate: 0.125,
        };
        warnings.clone().note("urls", Some(warning(800)));
        warnings.note("", Some(warning(850)));
        warnings.note("urls", Some(warning(2000)));
        let all = warnings.all();
        let found = all
            .iter()
            .map(|warning| (&*warning.filter, warning.keys, warning.is_full()));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [("default", 850, false), ("urls", 2000, true)]);
        let text = all[1].to_string();
        for part in [
            "urls is at 200 %",
            "2000 keys, made for 1000",
            "12.500 %",
            "rebuild it",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!all[0].to_string().contains("rebuild"), "{}", all[0]);
    }
}
