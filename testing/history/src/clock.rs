//! One clock for callers in several processes. `Instant` of the standard library cannot be written
//! to a file.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds since a moment that is the same for all processes of this machine. The
/// value never goes back, not even between two cores.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock counts from the start of the machine, so neither part is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
