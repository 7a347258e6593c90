//! The status of a filter: its rate, its keys, and the time when it will be full.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::FutureExt;

use super::*;
use crate::{
    filter::{
        canary::Measurement,
        hash::HashFunction,
        profile::KeyProfile,
        scaling::{OnFull, Scaling},
        spec::Aging,
    },
    telemetry::logged::lines,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns one request of each kind, for 100,000 keys at a rate of 0.01.
fn requests() -> [SpecRequest; 6] {
    let of = |layout| SpecRequest {
        layout,
        ..SpecRequest::new(100_000, 0.01)
    };
    [
        of(Layout::Blocked),
        of(Layout::Classic),
        SpecRequest {
            kind: Kind::Counting,
            ..of(Layout::Blocked)
        },
        SpecRequest {
            kind: Kind::Aging(Aging {
                // No slice begins meanwhile.
                max_age: HOUR * 24 * 36_500,
                slices: 1,
                refresh: false,
            }),
            ..of(Layout::Blocked)
        },
        SpecRequest {
            hash_function: HashFunction::Xxh3_128,
            ..of(Layout::Blocked)
        },
        SpecRequest {
            key_profile: Some(KeyProfile::new("url-v1", true, &[]).unwrap()),
            ..of(Layout::Blocked)
        },
    ]
}

fn add(filter: &Filter, keys: std::ops::Range<usize>) {
    let keys: Vec<String> = keys.map(key).collect();
    for keys in keys.chunks(10_000) {
        filter
            .add_batch(&keys.to_vec(), WriteContext::default())
            .unwrap();
    }
}

fn measured(filter: &Filter) -> Measurement {
    let turn = block_on(filter.measuring_turn()).later();
    filter.measured_status(turn).measured.unwrap()
}

/// The measured and the predicted rate have nothing in common but the bits. Secret and keys are
/// fixed, so the result is fixed too.
#[test]
fn the_measured_rate_is_the_predicted_one_and_the_keys_are_those_that_came() {
    for request in requests() {
        let filter = filter_of(&request);
        assert_eq!(measured(&filter).seen, 0, "{request:?}: empty");
        assert_eq!(filter.status().estimated_keys, Some(0));
        let mut added = 0;
        for keys in [1000, 50_000, 100_000, 200_000] {
            add(&filter, added..keys);
            added = keys;
            let status = filter.status();
            let measured = measured(&filter);
            assert_eq!(measured.canaries, 10_000);
            let expected = status.predicted_false_positive_rate * 10_000.0;
            assert!(
                (measured.seen as f64 - expected).abs() <= 3.5 * expected.sqrt(),
                "{request:?} with {keys}: {measured:?} where {expected} are expected"
            );
            let estimated = status.estimated_keys.unwrap();
            assert!(
                estimated.abs_diff(keys as u64) <= keys as u64 / 100,
                "{request:?}: {estimated} for {keys}"
            );
            // False positives do not count as added, but they came.
            assert!(keys < 100_000 || status.keys_added < estimated);
        }
        let usage = filter.status().usage;
        assert_eq!(usage, Usage::default(), "canaries are nobody's queries");
    }
}

#[test]
fn a_full_array_says_nothing_of_its_keys() {
    for layout in Layout::OWN {
        let filter = filter_of(&SpecRequest {
            layout,
            bit_count: Some(512),
            false_positive_rate: None,
            ..SpecRequest::new(10, 0.1)
        });
        add(&filter, 0..20_000);
        let status = filter.status();
        assert_eq!((status.fill_ratio, status.estimated_keys), (1.0, None));
        assert_eq!(status.predicted_false_positive_rate, 1.0);
        assert_eq!(measured(&filter).rate(), 1.0);
    }
}

/// Sets all bits of a shard without a note of the change.
fn spoil(filter: &Filter) {
    filter.body.shards().unwrap().write(0).words.fill(u64::MAX);
}

#[test]
fn a_filter_is_measured_again_when_it_has_changed() {
    let filter = filter(Layout::Blocked, 1000);
    filter.add(b"a", WriteContext::default()).unwrap();
    let first = measured(&filter);
    assert_eq!(first.seen, 0);
    spoil(&filter);
    filter.add(b"a", WriteContext::default()).unwrap();
    assert_eq!(measured(&filter), first, "nothing has changed");

    // The rest of a batch, which had its version before.
    filter.body.shards().unwrap().write(0).note(1, 1);
    assert_eq!(measured(&filter).rate(), 1.0);

    filter.body.shards().unwrap().write(0).words.fill(0);
    assert_eq!(measured(&filter).rate(), 1.0);
    filter.add(b"b", WriteContext::default()).unwrap();
    assert_eq!(measured(&filter).seen, 0);
}

#[test]
fn whoever_has_waited_shares_a_measurement() {
    let filter = filter(Layout::Blocked, 1000);
    filter.add(b"a", WriteContext::default()).unwrap();
    let turn = block_on(filter.measuring_turn());
    let mut waits = pin!(filter.measuring_turn());
    assert!(waits.as_mut().now_or_never().is_none());
    let first = filter.measured_status(turn).measured.unwrap();

    spoil(&filter);
    filter.body.shards().unwrap().write(0).note(1, 2);
    let shared = filter.measured_status(block_on(waits));
    assert_eq!(shared.measured, Some(first));
    let soon = filter.measured_status(block_on(filter.measuring_turn()));
    assert_eq!(soon.measured, Some(first), "it is fresh");
    assert_ne!(measured(&filter), first, "who comes later measures");
}

/// So a filter takes no memory before it has keys.
#[test]
fn shards_without_keys_are_not_looked_at() {
    let filter = filter(Layout::Blocked, 1000);
    spoil(&filter);
    assert_eq!(measured(&filter).seen, 0);
}

#[test]
fn it_tells_when_it_will_be_full() {
    let filter = filter(Layout::Blocked, 1000);
    let (begin, time) = (Instant::now(), SystemTime::now());
    let status = |after: Duration| filter.status_at(begin + after, time);
    assert_eq!(status(24 * HOUR).last_hour, None);
    filter.sample(begin);
    let outlook = |span, new_keys, hours| {
        Some(Outlook {
            growth: Growth { span, new_keys },
            full_time: time.checked_add(HOUR * hours),
        })
    };
    let never = |span, new_keys| {
        Some(Outlook {
            growth: Growth { span, new_keys },
            full_time: None,
        })
    };
    assert_eq!(status(HOUR).last_hour, never(HOUR, 0));

    add(&filter, 0..100);
    assert_eq!(filter.status().keys_added, 100);
    assert_eq!(status(HOUR).last_hour, outlook(HOUR, 100, 9));
    assert_eq!(status(HOUR).last_day, outlook(HOUR, 100, 9));
    assert_eq!(status(HOUR / 100).last_hour, None);
    filter.sample(begin + 23 * HOUR);
    add(&filter, 100..400);
    assert_eq!(status(24 * HOUR).last_hour, outlook(HOUR, 300, 2));
    assert_eq!(status(24 * HOUR).last_day, outlook(24 * HOUR, 400, 36));
    assert!(!status(24 * HOUR).is_full());

    // At the capacity the filter is full now, and not since an earlier time.
    add(&filter, 400..999);
    assert!(!filter.status().is_full());
    add(&filter, 999..1000);
    assert!(filter.status().is_full());
    assert_eq!(status(24 * HOUR).last_hour, never(HOUR, 900));
    add(&filter, 1000..1500);
    assert!(filter.status().is_full());
    assert_eq!(status(24 * HOUR).last_hour.unwrap().full_time, None);
}

#[test]
fn keys_that_are_removed_do_not_fill_it() {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(1000, 0.001)
    });
    add(&filter, 0..200);
    let begin = Instant::now();
    filter.sample(begin);
    for index in 0..50 {
        let key = key(index);
        let removed = filter.remove(key.as_bytes(), WriteContext::default());
        assert!(removed.unwrap().value);
    }
    let status = filter.status_at(begin + HOUR, SystemTime::now());
    let Outlook { growth, full_time } = status.last_hour.unwrap();
    assert_eq!((growth.new_keys, full_time), (-50, None));
    assert_eq!(status.keys_added, 150);
    assert!((148..=152).contains(&status.estimated_keys.unwrap()));
}

/// Warns at 80 % of the capacity, at 100 %, and again when the rate has doubled.
#[test]
fn filters_that_can_be_overfull_warn_as_keys_come() {
    let kinds = [
        Kind::Plain,
        Kind::Counting,
        Kind::Aging(Aging {
            max_age: HOUR * 24 * 36_500,
            slices: 1,
            refresh: false,
        }),
        Kind::Scaling(OnFull::Degrade),
    ];
    for kind in kinds {
        let filter = filter_of(&SpecRequest {
            kind,
            ..SpecRequest::new(10_000, 0.01)
        });
        let mut added = 0;
        let mut lines_up_to = |keys: usize| {
            let more: Vec<String> = (added..keys).map(key).collect();
            added = keys;
            lines(|| {
                for batch in more.chunks(100) {
                    let batch = batch.to_vec();
                    filter
                        .query_and_add_batch(&batch, WriteContext::default())
                        .unwrap();
                }
            })
        };
        assert_eq!(lines_up_to(7_800), [""; 0], "{kind:?}");
        assert_eq!(filter.capacity_warning(), None);
        // If several warnings are due together, only one is logged.
        for (keys, percent) in [(8_300, "at 80 %"), (10_500, "at 100 %"), (40_000, "at ")] {
            let told = lines_up_to(keys);
            assert!(!told.is_empty(), "{kind:?}: nothing at {keys}");
            for part in ["WARN", "filter=urls", "capacity=10000", percent] {
                assert!(told[0].contains(part), "{kind:?}: {part}: {told:?}");
            }
        }
        let warning = filter.capacity_warning().unwrap();
        assert_eq!(warning.capacity, 10_000);
        assert!(warning.keys > 30_000, "{kind:?}: {warning:?}");
        assert!(warning.predicted_false_positive_rate > 0.1, "{warning:?}");
    }
}

#[test]
fn a_filter_that_grows_has_nothing_to_warn_of() {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(10_000, 0.01)
    });
    let more: Vec<String> = (0..40_000).map(key).collect();
    let told = lines(|| {
        for batch in more.chunks(1000) {
            let batch = batch.to_vec();
            filter
                .query_and_add_batch(&batch, WriteContext::default())
                .unwrap();
        }
    });
    assert!(told.iter().all(|line| !line.contains("WARN")), "{told:?}");
    assert_eq!(filter.capacity_warning(), None);
}
