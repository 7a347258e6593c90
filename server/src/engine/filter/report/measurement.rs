//! The current false-positive rate of a filter, measured with its canaries.
//!
//! Only the holder of a filter's [`MeasuringTurn`] measures it. Waiting for the turn blocks no
//! thread. A measurement is reused for a second, and for as long as the filter has not changed. So
//! measurements of a filter cost little, however often they are requested.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::FilterStatus;
use crate::{
    engine::filter::Filter,
    filter::canary::{Canary, Measurement},
};

/// The time for which a measurement is reused, whatever has changed.
const FRESH: Duration = Duration::from_secs(1);

/// The number of canaries that are looked up at once. No lock is held for longer than by a batch of
/// this size, which is a light one.
const AT_ONCE: u64 = 2048;

/// The last measurement of a filter, behind a lock.
pub type LastMeasurement = Arc<Mutex<Option<Measured>>>;

/// A measurement, and the state of the filter at that time.
#[derive(Debug)]
pub struct Measured {
    begun: Instant,
    of: State,
    measurement: Measurement,
}

/// The state of a filter, which differs after any change. The version alone is not enough: a batch
/// gets it before it sets its last bits. The fill alone is not enough: some bits can have been
/// cleared and others set.
#[derive(Debug, PartialEq)]
struct State {
    version: u64,
    fill_ratio: f64,
}

/// The right to measure a filter.
#[derive(Debug)]
pub struct MeasuringTurn {
    last: OwnedMutexGuard<Option<Measured>>,
    /// The time when the turn was requested.
    asked: Instant,
}

#[cfg(test)]
impl MeasuringTurn {
    /// Returns the same turn, as if requested when the earlier measurement is no longer fresh.
    pub fn later(self) -> Self {
        let asked = self.asked + FRESH;
        Self { asked, ..self }
    }
}

impl Filter {
    /// Waits for the turn to measure the filter.
    pub async fn measuring_turn(&self) -> MeasuringTurn {
        let asked = Instant::now();
        let last = self.last_measurement.clone().lock_owned().await;
        MeasuringTurn { last, asked }
    }

    /// Returns [`Self::status`] with the measured rate. Takes as long as some heavy batches. The
    /// turn ends with it.
    pub fn measured_status(&self, mut turn: MeasuringTurn) -> FilterStatus {
        let status = self.status();
        let of = State {
            version: status.version,
            fill_ratio: status.fill_ratio,
        };
        let is_fresh = |last: &Measured| last.begun + FRESH > turn.asked;
        let holds = |last: &&Measured| is_fresh(last) || last.of == of;
        let measurement = match turn.last.as_ref().filter(holds) {
            Some(last) => last.measurement,
            None => {
                let begun = Instant::now();
                let measurement = self.measure();
                *turn.last = Some(Measured {
                    begun,
                    of,
                    measurement,
                });
                measurement
            }
        };
        FilterStatus {
            measured: Some(measurement),
            ..status
        }
    }

    /// Looks up all canaries. They do not count as queries.
    fn measure(&self) -> Measurement {
        let canaries = Canary::count_for(self.spec.false_positive_rate);
        let mut seen = 0;
        for first in (0..canaries).step_by(AT_ONCE as usize) {
            let numbers = first..canaries.min(first + AT_ONCE);
            let keys: Vec<Canary> = numbers.map(Canary::new).collect();
            let mut hashes = Vec::with_capacity(keys.len());
            let keys = keys.iter().map(AsRef::as_ref);
            self.canary_hasher
                .hash_each(keys, |_, hash| hashes.push(hash));
            seen += self.count_seen(hashes) as u64;
        }
        Measurement { canaries, seen }
    }
}
