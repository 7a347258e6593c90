//! One clock for callers in several processes: the library's `Instant` cannot be written down.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment that is the same for all processes of this machine. It never
/// goes back, from one core to another neither.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock counts from the start of the machine, so neither part is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
