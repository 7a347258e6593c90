//! Refused requests, and the specs that other requests resolve to.

use super::*;
use crate::shape::Dimensions;

fn request() -> SpecRequest {
    SpecRequest::new(1_000_000, 0.001)
}

fn profile(drop: &[&str]) -> Option<KeyProfile> {
    let drop: Vec<String> = drop.iter().copied().map(str::to_owned).collect();
    Some(KeyProfile::new(KeyProfile::NAME, true, &drop).unwrap())
}

#[test]
fn bad_values_are_refused_by_name() {
    let cases: [(SpecRequest, &str); 12] = [
        (
            SpecRequest {
                capacity: 0,
                ..request()
            },
            "capacity is 0;",
        ),
        (SpecRequest::new(1, 0.0), "false_positive_rate is 0;"),
        (SpecRequest::new(1, 1.0), "false_positive_rate is 1;"),
        (SpecRequest::new(1, -0.5), "false_positive_rate is -0.5;"),
        (SpecRequest::new(1, f64::NAN), "false_positive_rate is NaN;"),
        (
            SpecRequest::new(1, f64::INFINITY),
            "false_positive_rate is inf;",
        ),
        (
            SpecRequest {
                false_positive_rate: None,
                ..request()
            },
            "false_positive_rate is 0;",
        ),
        (
            SpecRequest {
                hash_count: Some(65),
                ..request()
            },
            "hash_count is 65; it must be 1 to 64",
        ),
        (
            SpecRequest {
                bit_count: Some(0),
                ..request()
            },
            "bit_count is 0; it must be 1 to",
        ),
        (
            SpecRequest {
                bit_count: Some(u64::MAX),
                ..request()
            },
            "it must be 1 to 1125899906842624",
        ),
        (
            SpecRequest::new(u64::MAX, 0.001),
            "needs more than 1125899906842624 bits",
        ),
        (
            SpecRequest {
                bit_count: Some(1024),
                ..request()
            },
            "bit_count 1024 gives a rate of 1.000e0",
        ),
    ];
    for (request, expected) in cases {
        let message = request.resolve().unwrap_err().to_string();
        assert!(
            message.contains(expected),
            "{message:?} does not say {expected:?}"
        );
    }
}

#[test]
fn a_resolved_spec_resolves_to_itself() {
    let forms = Layout::OWN.map(|layout| (layout, Kind::Plain));
    for (layout, kind) in forms.into_iter().chain([(Layout::Blocked, Kind::Counting)]) {
        for hash_count in [None, Some(5), Some(12)] {
            for bit_count in [None, Some(40_000_001)] {
                let request = SpecRequest {
                    layout,
                    kind,
                    hash_count,
                    bit_count,
                    key_profile: profile(&["sid"]),
                    ..request()
                };
                let spec = request.resolve().unwrap();
                let named = SpecRequest::from(spec.clone());
                assert_eq!(named.resolve().unwrap(), spec);
                assert!(spec.answers(&request) && spec.answers(&named));
            }
        }
    }
}

/// A stored filter keeps its number of shards, whatever number a new filter of that size would get.
/// Its bits were rounded up to be divided among those.
#[test]
fn a_filter_in_fewer_shards_answers_the_request_that_it_was_made_for() {
    let request = SpecRequest {
        bit_count: Some(100_000_001),
        false_positive_rate: None,
        ..SpecRequest::new(1000, 0.5)
    };
    let now = request.resolve().unwrap();
    let past = FilterSpec {
        body: BodySpec::Blocked(Dimensions {
            shard_count: 3,
            shard_bits: 100_001_280 / 3,
            hash_count: now.body.hash_count(),
        }),
        ..now.clone()
    };
    assert_ne!(now.body.bit_count(), past.body.bit_count());
    assert!(now.answers(&request) && past.answers(&request));
    let other = SpecRequest {
        bit_count: Some(100_001_281),
        ..request
    };
    assert!(!past.answers(&other));
}

#[test]
fn another_request_is_not_the_same_spec() {
    let spec = request().resolve().unwrap();
    for other in [
        SpecRequest {
            capacity: 999_999,
            ..request()
        },
        SpecRequest {
            false_positive_rate: Some(0.002),
            ..request()
        },
        SpecRequest {
            bit_count: Some(1 << 30),
            ..request()
        },
        SpecRequest {
            hash_count: Some(3),
            ..request()
        },
        SpecRequest {
            layout: Layout::Classic,
            ..request()
        },
        SpecRequest {
            hash_function: HashFunction::Xxh3_128,
            ..request()
        },
        SpecRequest {
            key_profile: profile(&[]),
            ..request()
        },
    ] {
        assert!(!spec.answers(&other), "{other:?}");
    }
}

#[test]
fn another_profile_is_not_the_same_spec_and_another_order_of_names_is() {
    let with = |drop| SpecRequest {
        key_profile: profile(drop),
        ..request()
    };
    let spec = with(&["utm_*", "sid"]).resolve().unwrap();
    assert!(spec.answers(&with(&["sid", "utm_*", "utm_source"])));
    for other in [with(&["utm_*"]), with(&[]), request()] {
        assert!(!spec.answers(&other), "{other:?}");
    }
}

#[test]
fn bits_alone_give_a_rate() {
    let request = SpecRequest {
        bit_count: Some(1 << 33),
        false_positive_rate: None,
        ..SpecRequest::new(500_000_000, 0.5)
    };
    let spec = request.resolve().unwrap();
    assert_eq!(spec.body.bit_count(), 1 << 33);
    assert!((1e-4..1e-3).contains(&spec.false_positive_rate), "{spec:?}");
}

#[test]
fn extremes_resolve_or_refuse_and_never_panic() {
    for layout in Layout::OWN {
        for capacity in [1, 2, 3, 1 << 40, u64::MAX] {
            for rate in [
                f64::MIN_POSITIVE,
                1e-300,
                1e-12,
                0.5,
                0.999_999,
                1.0 - f64::EPSILON,
            ] {
                for hash_count in [None, Some(1), Some(9), Some(64)] {
                    let request = SpecRequest {
                        layout,
                        hash_count,
                        ..SpecRequest::new(capacity, rate)
                    };
                    if let Ok(spec) = request.resolve() {
                        assert!(
                            spec.body.bit_count() > 0 && spec.body.hash_count() > 0,
                            "{spec:?}"
                        );
                    }
                }
            }
            for bit_count in [1, 1 << 50] {
                let request = SpecRequest {
                    layout,
                    bit_count: Some(bit_count),
                    false_positive_rate: None,
                    ..SpecRequest::new(capacity, 0.5)
                };
                let spec = request.resolve().unwrap();
                assert!(spec.false_positive_rate > 0.0 && spec.false_positive_rate < 1.0);
            }
        }
    }
}
