//! Tests of the log lines of a start.

use super::*;
use crate::engine::Progress;
use crate::telemetry::logged::lines;

#[test]
fn a_start_that_takes_long_says_how_far_it_has_come() {
    let mut progress = Progress {
        filter: Some("urls".parse().unwrap()),
        read_bytes: 1 << 20,
        bytes: 9 << 20,
    };
    let found = lines(|| {
        let mut tell = telling_every(Duration::ZERO);
        tell(&progress);
        progress.filter = None;
        progress.read_bytes = 2 << 20;
        tell(&progress);
    });
    let expected = [
        "INFO seenset_server::server::log_lines: restoring a filter filter=urls read_bytes=1048576 \
         bytes=9437184",
        "INFO seenset_server::server::log_lines: reading the log read_bytes=2097152 bytes=9437184",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.ends_with(expected), "{found}, not {expected}");
    }
}

#[test]
fn a_start_says_so_from_time_to_time() {
    let interval = Duration::from_millis(50);
    let progress = Progress {
        filter: None,
        read_bytes: 0,
        bytes: 1,
    };
    let begun = Instant::now();
    let found = lines(|| {
        let mut tell = telling_every(interval);
        for _ in 0..60 {
            tell(&progress);
            std::thread::sleep(interval / 20);
        }
    });
    let most = begun.elapsed().as_millis() / interval.as_millis();
    let count = found.len();
    assert!((1..=most).contains(&(count as u128)), "{count} of {most}");
}
