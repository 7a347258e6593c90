//! What a filter tells of itself.

use std::{
    sync::atomic::Ordering,
    time::{Instant, SystemTime},
};

use super::{Growth, GuardedFilter, LastStore, counting::Counting, shards::Shard};
use crate::{
    engine::counters::Usage,
    filter::{
        canary::Measurement,
        sizing,
        spec::{FilterSpec, Kind},
    },
    store::FilterName,
};

/// A filter as it is at one moment.
#[derive(Debug, Clone)]
pub struct FilterStatus {
    /// The filter's name.
    pub name: FilterName,
    /// What it is made for.
    pub spec: FilterSpec,
    /// The memory that it takes once all of it has been touched.
    pub memory_bytes: u64,
    /// Keys added that were new, without those that were removed.
    pub keys_added: u64,
    /// Of a filter that counts: the counters that stay as they are, for they have come to their
    /// greatest value.
    pub saturated_counters: u64,
    /// The share of bits that are set.
    pub fill_ratio: f64,
    /// The rate that is to be expected at this fill.
    pub predicted_false_positive_rate: f64,
    /// The rate as it was measured, if it was.
    pub measured: Option<Measurement>,
    /// The number of distinct keys that are to be expected at this fill, false positives among
    /// them; nothing if all bits are set.
    pub estimated_keys: Option<u64>,
    /// The keys that came in the last hour.
    pub last_hour: Option<Outlook>,
    /// The keys that came in the last day.
    pub last_day: Option<Outlook>,
    /// Advances with each call that changed the filter.
    pub version: u64,
    /// When it was made.
    pub create_time: SystemTime,
    /// Its last snapshot, if it has one.
    pub last_store: Option<LastStore>,
    /// What has been asked of it since the server started.
    pub usage: Usage,
}

impl FilterStatus {
    /// Whether the filter has come to its capacity, or is past it.
    pub fn is_full(&self) -> bool {
        match self.spec.kind {
            Kind::Plain | Kind::Counting => self.keys_added >= self.spec.capacity,
            // Many of those that were added may be too old by now.
            Kind::Aging(_) => self
                .estimated_keys
                .is_none_or(|keys| keys >= self.spec.capacity),
        }
    }
}

/// How many keys have come to a filter in some time, and what comes of it if they go on so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// The keys that have come.
    pub growth: Growth,
    /// When the filter will have come to its capacity. `None` if it has, and if it never will, or
    /// keys age.
    pub full_time: Option<SystemTime>,
}

impl GuardedFilter {
    /// How the filter is now. Takes each lock for a moment; where keys age, long enough to clear
    /// the memory of what is too old, if that has not been done.
    pub fn status(&self) -> FilterStatus {
        self.status_at(Instant::now(), SystemTime::now())
    }

    /// [`Self::status`] at a time, by either clock.
    pub(in crate::engine) fn status_at(&self, now: Instant, time: SystemTime) -> FilterStatus {
        self.clear_old();
        // Before the version, so that it is never the greater of the two.
        let last_store = *self.last_store.lock();
        let (keys_added, bits_set) = self.keys_and_bits();
        let fill_ratio = bits_set as f64 / self.spec.bit_count as f64;
        let estimated_keys = sizing::keys_at_fill(&self.shape, fill_ratio);
        let missing = self.spec.capacity.saturating_sub(keys_added);
        let outlook = |growth: Growth| Outlook {
            growth,
            full_time: growth
                .time_for(missing)
                // What comes where keys age takes the place of others.
                .filter(|_| missing > 0 && self.aging.is_none())
                .and_then(|left| time.checked_add(left)),
        };
        let growth = self.history.lock().growth(now, keys_added);
        let [last_hour, last_day] = growth.map(|growth| growth.map(outlook));
        FilterStatus {
            name: self.name(),
            spec: self.spec.clone(),
            memory_bytes: self.memory.bytes(),
            keys_added,
            saturated_counters: self.counting.as_ref().map_or(0, Counting::saturated),
            fill_ratio,
            predicted_false_positive_rate: sizing::false_positive_rate_at_fill(
                &self.shape,
                fill_ratio,
            ),
            measured: None,
            estimated_keys: estimated_keys.map(|keys| keys.round() as u64),
            last_hour,
            last_day,
            version: self.version.load(Ordering::Acquire),
            create_time: self.create_time,
            last_store,
            usage: self.counters.usage(),
        }
    }

    /// Notes how many keys there are now, so that the status tells how fast they come. To be
    /// called when the filter can be reached, and then once a minute.
    pub fn sample(&self, now: Instant) {
        let (keys_added, _) = self.keys_and_bits();
        self.history.lock().note(now, keys_added);
    }

    /// The keys that were added and the bits that are set, over all shards.
    fn keys_and_bits(&self) -> (u64, u64) {
        let (mut keys_added, mut bits_set) = (0, 0);
        for stripe in self.shards.stripes() {
            for Shard { state, .. } in &**stripe.read() {
                keys_added += state.keys_added;
                bits_set += state.bits_set;
            }
        }
        (keys_added, bits_set)
    }
}
