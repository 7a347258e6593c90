//! The shards of small filters, and their locks.

use super::*;

/// A call can have one record per lock. The start sizes the segments of the log by this number.
#[test]
fn no_filter_brings_more_records_than_is_said() {
    let of = |kind, capacity| {
        let request = SpecRequest {
            kind,
            ..SpecRequest::new(capacity, 0.01)
        };
        filter_with(request.resolve().unwrap())
    };
    let most = Filter::most_records(1_000_000);
    let counting = of(Kind::Counting, 10_000_000);
    assert!(counting.body.shards().unwrap().locks().len() >= 128);
    for filter in [counting, of(Kind::Plain, 1), of(Kind::Counting, 1)] {
        assert!(filter.records_of_a_call(1_000_000) <= most);
    }
}

/// A stored filter keeps its number of shards. A key is in another shard there, although
/// both have the same spec and secret.
#[test]
fn they_take_keys_and_are_merged_with_their_like_alone() {
    let of = |shard_count| {
        let mut spec = SpecRequest::new(100_000, 1e-6).resolve().unwrap();
        if let BodySpec::Blocked(dimensions) = &mut spec.body {
            dimensions.shard_bits *= dimensions.shard_count / shard_count;
            dimensions.shard_count = shard_count;
        }
        filter_with(spec)
    };
    let [many, few, more_of_few] = [16, 1, 1].map(of);
    assert_eq!(many.body.shards().unwrap().locks().len(), 16);
    for filter in [&many, &few] {
        let keys: Vec<String> = (0..500).map(key).collect();
        let seen = filter.query_and_add_batch(&keys, WriteContext::default());
        assert_eq!(seen.unwrap().value, [false; 500]);
        let all = |mut range: std::ops::Range<usize>, there| {
            range.all(|index| filter.query(key(index).as_bytes(), None).value == there)
        };
        assert!(all(0..500, true) && all(500..1000, false));
    }
    few.check_mergeable(&more_of_few).unwrap();
    let refused = few.check_mergeable(&many).unwrap_err().to_string();
    assert!(refused.contains("number of shards"), "{refused}");
}
