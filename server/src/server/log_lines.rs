//! Log lines about filters: at the start, after snapshots, at the stop.

use std::time::{Duration, Instant};

use crate::engine::{Engine, FilterStatus, Kind, OnFull, Progress, Scaling, StoreOutcome, Torn};

/// Returns a function that logs the progress of a recovery, at most once per `interval`.
pub(super) fn telling_every(interval: Duration) -> impl FnMut(&Progress) {
    let mut logged = Instant::now();
    move |progress| {
        if logged.elapsed() < interval {
            return;
        }
        logged = Instant::now();
        let Progress {
            filter,
            read_bytes,
            bytes,
        } = progress;
        match filter {
            Some(filter) => tracing::info!(%filter, read_bytes, bytes, "restoring a filter"),
            None => tracing::info!(read_bytes, bytes, "reading the log"),
        }
    }
}

/// Logs the spec and the state of a filter.
pub(super) fn log_filter(filter: &FilterStatus, what: &str) {
    tracing::info!(
        filter = %filter.name,
        capacity = filter.spec.capacity,
        false_positive_rate = filter.spec.false_positive_rate,
        bit_count = filter.spec.body.bit_count(),
        hash_count = filter.spec.body.hash_count(),
        layout = %filter.spec.body.layout(),
        hash_function = %filter.spec.hash_function,
        kind = %filter.spec.body.kind(),
        memory_bytes = filter.memory_bytes,
        keys_added = filter.keys_added,
        predicted_false_positive_rate = filter.predicted_false_positive_rate,
        version = filter.version,
        "{what}"
    );
    let is_bounded = matches!(
        filter.spec.body.kind(),
        Kind::Scaling(OnFull::Scale(Scaling {
            max_memory_bytes: Some(_),
            ..
        }))
    );
    if let Some(layers) = filter
        .layers
        .filter(|layers| is_bounded && !layers.fits_budget)
    {
        tracing::warn!(
            filter = %filter.name,
            max_capacity = layers.max_capacity,
            max_memory_bytes = layers.max_memory_bytes,
            "as things are the memory budget (--max-memory) has no room for all layers of the \
             filter: it will be full before it has as many keys as it may grow to"
        );
    }
}

/// Logs the results of snapshots, and returns the first error.
pub(super) fn log_outcomes(outcomes: &[StoreOutcome]) -> Option<String> {
    let mut first = None;
    for StoreOutcome { name, result } in outcomes {
        match result {
            Ok(report) => tracing::info!(
                filter = %name,
                version = report.version,
                written_bytes = report.written_bytes,
                duration = ?report.duration,
                "filter stored"
            ),
            Err(error) => {
                tracing::error!(filter = %name, %error, "storing failed; the last snapshot stands");
                first.get_or_insert_with(|| error.to_string());
            }
        }
    }
    first
}

/// Logs a torn write at the end of the WAL.
pub(super) fn log_torn(torn: &Torn) {
    let Torn {
        path, at, bytes, ..
    } = torn;
    let what = match torn.is_cut_off {
        true => "has been copied and cut",
        false => "stays there",
    };
    tracing::warn!(
        file = %path.display(),
        at,
        bytes,
        "the log ends where the server ended; what is behind that {what}"
    );
}

/// Logs how often each filter was queried.
pub(super) async fn log_usage(engine: &Engine) {
    let Ok(filters) = engine.all_filters().await else {
        return;
    };
    for filter in filters {
        tracing::info!(
            filter = %filter.name,
            queries = filter.usage.queries,
            hits = filter.usage.hits,
            keys_added = filter.keys_added,
            fill_ratio = filter.fill_ratio,
            predicted_false_positive_rate = filter.predicted_false_positive_rate,
            "filter used"
        );
    }
}
