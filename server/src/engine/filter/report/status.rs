//! The status of a filter.

use std::time::{Instant, SystemTime};

use super::Growth;
use crate::{
    engine::filter::{Filter, LastStore, body::Content, counters::Usage},
    filter::{canary::Measurement, spec::FilterSpec},
    store::FilterName,
};

/// The state of a filter at one moment.
#[derive(Debug, Clone)]
pub struct FilterStatus {
    /// The filter's name.
    pub name: FilterName,
    /// The spec of the filter.
    pub spec: FilterSpec,
    /// The memory that it takes once all of it has been touched.
    pub memory_bytes: u64,
    /// The number of new keys that were added, minus the keys that were removed.
    pub keys_added: u64,
    /// The number of counters that have reached their greatest value and stay as they are. Only of
    /// a filter that counts.
    pub saturated_counters: u64,
    /// The share of bits that are set.
    pub fill_ratio: f64,
    /// The false-positive rate that is expected at this fill.
    pub predicted_false_positive_rate: f64,
    /// The measured false-positive rate, if it was measured.
    pub measured: Option<Measurement>,
    /// The number of distinct keys that are expected at this fill, including false positives;
    /// `None` if all bits are set.
    pub estimated_keys: Option<u64>,
    /// The keys that came in the last hour.
    pub last_hour: Option<Outlook>,
    /// The keys that came in the last day.
    pub last_day: Option<Outlook>,
    /// The layers of a filter in layers.
    pub layers: Option<LayersStatus>,
    /// The filter that is to take its place.
    pub rebuilt_as: Option<FilterName>,
    /// The filter whose place it is to take.
    pub rebuilds: Option<FilterName>,
    /// The version, which advances with each call that changes the filter.
    pub version: u64,
    /// The time when it was created.
    pub create_time: SystemTime,
    /// Its last snapshot, if it has one.
    pub last_store: Option<LastStore>,
    /// The lookups since the server started.
    pub usage: Usage,
}

/// The growth of a filter in layers: its present size and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayersStatus {
    /// The number of layers that have memory.
    pub layers: usize,
    /// The number of keys that it can grow to, with all the layers that it can have.
    pub max_capacity: u64,
    /// The memory that all those layers take, in bytes.
    pub max_memory_bytes: u64,
    /// Whether the server's budget has room for all those layers at present.
    pub fits_budget: bool,
}

impl FilterStatus {
    /// Returns the number of keys up to which the rate holds, with all layers that the filter can
    /// have.
    pub fn max_capacity(&self) -> u64 {
        most_keys(&self.spec)
    }

    /// Returns whether the filter has reached its capacity.
    pub fn is_full(&self) -> bool {
        match self.spec.body.ages() {
            // Many of the keys that were added can be too old by now.
            true => self
                .estimated_keys
                .is_none_or(|keys| keys >= self.spec.capacity),
            false => self.keys_added >= most_keys(&self.spec),
        }
    }
}

/// The growth of a filter, and the time when it is full if it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// The keys that have come.
    pub growth: Growth,
    /// The time when the filter will reach its capacity. `None` if it has reached it, if it never
    /// will, or if keys age.
    pub full_time: Option<SystemTime>,
}

impl Filter {
    /// Returns the current status. Takes each lock for a moment. Where keys age, holds a lock long
    /// enough to clear stamps that are too old, if that has not been done.
    pub fn status(&self) -> FilterStatus {
        self.status_at(Instant::now(), SystemTime::now())
    }

    /// Returns [`Self::status`] at a time, which is given by both clocks.
    pub fn status_at(&self, now: Instant, time: SystemTime) -> FilterStatus {
        self.clear_old();
        // Read before the version, so that it is never the greater of the two.
        let last_store = *self.last_store.lock();
        let content = self.content();
        let keys_added = content.keys_added;
        let missing = most_keys(&self.spec).saturating_sub(keys_added);
        let outlook = |growth: Growth| Outlook {
            growth,
            full_time: growth
                .time_for(missing)
                // Where keys age, new keys take the place of others.
                .filter(|_| missing > 0 && self.body.whole().max_age().is_none())
                .and_then(|left| time.checked_add(left)),
        };
        let growth = self.history.lock().growth(now, keys_added);
        let [last_hour, last_day] = growth.map(|growth| growth.map(outlook));
        FilterStatus {
            name: self.name(),
            spec: self.spec.clone(),
            memory_bytes: self.memory_bytes(),
            keys_added,
            saturated_counters: self.body.whole().saturated(),
            fill_ratio: content.fill_ratio,
            predicted_false_positive_rate: content.false_positive_rate(),
            measured: None,
            estimated_keys: content.estimated_keys().map(|keys| keys.round() as u64),
            last_hour,
            last_day,
            layers: self.layers_status(),
            rebuilt_as: None,
            rebuilds: None,
            version: self.versions.seal(),
            create_time: self.create_time,
            last_store,
            usage: self.counters.usage(),
        }
    }

    /// Notes the number of keys, from which the status computes how fast keys come, and looks at
    /// the fill. To be called when the filter can be reached, and then once a minute.
    pub fn sample(&self, now: Instant) {
        let content = self.content();
        self.history.lock().note(now, content.keys_added);
        self.look_at(&content);
    }

    /// Returns the memory that the budget counts.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes() + self.body.whole().grown_bytes()
    }

    /// Returns the status of the layers, if the filter is in layers.
    fn layers_status(&self) -> Option<LayersStatus> {
        let layers = self.spec.body.layers()?;
        let max_memory_bytes = layers.max_memory_bytes();
        let missing_bytes = max_memory_bytes.saturating_sub(self.memory_bytes());
        Some(LayersStatus {
            layers: self.body.whole().layers()?,
            max_capacity: layers.capacity(),
            max_memory_bytes,
            fits_budget: missing_bytes <= self.memory.budget().left_bytes(),
        })
    }

    /// Returns the content of all shards. Takes each lock for a moment.
    pub fn content(&self) -> Content<'_> {
        self.body.whole().content(&self.spec)
    }
}

/// Returns the number of keys that a filter is made for, with all layers that it can have.
pub fn most_keys(spec: &FilterSpec) -> u64 {
    let layers = spec.body.layers();
    layers.map_or(spec.capacity, |layers| layers.capacity())
}
