//! Metrics of the filters, in the format of Prometheus.
//!
//! They are computed when they are fetched, from the same status that `ListFilters` returns. Adding
//! keys counts nothing extra for them.

use std::{cmp::Reverse, fmt, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::engine::FilterStatus;

/// The media type of [`text`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric: its name, its help text, and its value for a filter.
type Metric<T> = (&'static str, &'static str, fn(&FilterStatus) -> T);

/// The maximum number of filters that have metrics of their own.
const MAX_FILTERS: usize = 200;

/// The sums over all filters. A sum falls when a filter is deleted.
const SUMS: [Metric<f64>; 5] = [
    (
        "seenset_filters_full",
        "Filters that have come to their capacity, or are past it",
        |filter| f64::from(u8::from(filter.is_full())),
    ),
    (
        "seenset_filters_memory_bytes",
        "Memory that all filters take once all of it has been touched",
        |filter| filter.memory_bytes as f64,
    ),
    (
        "seenset_filters_keys_added",
        "Keys added to all filters that were new, without those that were removed",
        |filter| filter.keys_added as f64,
    ),
    (
        "seenset_filters_queries",
        "Keys looked up since the server started, in the filters that there are",
        |filter| filter.usage.queries as f64,
    ),
    (
        "seenset_filters_hits",
        "Those of them that had been seen",
        |filter| filter.usage.hits as f64,
    ),
];

/// The metrics of one filter that can rise and fall.
const GAUGES: [Metric<f64>; 8] = [
    (
        "false_positive_rate",
        "Share of keys never added that are reported as seen, at capacity, as it was asked for",
        |filter| filter.spec.false_positive_rate,
    ),
    (
        "predicted_false_positive_rate",
        "The same, as it is to be expected now",
        |filter| filter.predicted_false_positive_rate,
    ),
    ("fill_ratio", "Share of bits that are set", |filter| {
        filter.fill_ratio
    }),
    (
        "capacity_keys",
        "Distinct keys for which the rate holds, with all layers that there may come to be",
        |filter| filter.max_capacity() as f64,
    ),
    (
        "keys_added",
        "Keys added that were new, without those that were removed",
        |filter| filter.keys_added as f64,
    ),
    (
        "is_full",
        "1 if the filter has come to its capacity, or is past it",
        |filter| f64::from(u8::from(filter.is_full())),
    ),
    (
        "memory_bytes",
        "Memory that the filter takes once all of it has been touched",
        |filter| filter.memory_bytes as f64,
    ),
    (
        "version",
        "Advances with each call that changed the filter",
        |filter| filter.version as f64,
    ),
];

/// The counters of one filter since the start of the server. The format adds `_total` to their
/// names.
const COUNTERS: [Metric<u64>; 2] = [
    (
        "queries",
        "Keys looked up since the server started",
        |filter| filter.usage.queries,
    ),
    ("hits", "Those of them that had been seen", |filter| {
        filter.usage.hits
    }),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    filter: String,
}

/// Returns the metrics of filters in the text format of Prometheus: the sums over all filters, and
/// the metrics of each filter. If the filters are too many, only the largest have metrics of their
/// own.
///
/// # Errors
///
/// None: writing to memory does not fail.
pub fn text(filters: &[FilterStatus]) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    add_sums(&mut registry, filters);
    add_each(registry.sub_registry_with_prefix("seenset_filter"), filters);
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

fn add_sums(registry: &mut Registry, filters: &[FilterStatus]) {
    let gauge = |value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        gauge
    };
    let sum = |of: fn(&FilterStatus) -> f64| gauge(filters.iter().map(of).sum());
    registry.register("seenset_filters", "Filters", gauge(filters.len() as f64));
    for (name, help, of) in SUMS {
        registry.register(name, help, sum(of));
    }
}

fn add_each(registry: &mut Registry, filters: &[FilterStatus]) {
    let mut filters: Vec<&FilterStatus> = filters.iter().collect();
    if filters.len() > MAX_FILTERS {
        filters.sort_by_key(|filter| (Reverse(filter.memory_bytes), filter.name.clone()));
        filters.truncate(MAX_FILTERS);
    }
    let labels = |filter: &FilterStatus| Labels {
        filter: filter.name.to_string(),
    };
    for (name, help, value) in GAUGES {
        let gauges = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for filter in &filters {
            gauges.get_or_create(&labels(filter)).set(value(filter));
        }
        registry.register(name, help, gauges);
    }
    for (name, help, value) in COUNTERS {
        let counters = Family::<Labels, Counter>::default();
        for filter in &filters {
            counters
                .get_or_create(&labels(filter))
                .inc_by(value(filter));
        }
        registry.register(name, help, counters);
    }
}
