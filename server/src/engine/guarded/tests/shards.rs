//! Filters that were made when small ones were in as few shards as their bits need.

use super::*;

/// A key is in another shard of the other, although both are of one spec and secret.
#[test]
fn they_take_keys_and_are_merged_with_their_like_alone() {
    let of = |shard_count| {
        let spec = FilterSpec {
            shard_count,
            ..SpecRequest::new(100_000, 1e-6).resolve().unwrap()
        };
        filter_with(spec)
    };
    let [many, few, more_of_few] = [16, 1, 1].map(of);
    assert_eq!(many.shards.stripes().len(), 16);
    for filter in [&many, &few] {
        let keys: Vec<String> = (0..500).map(key).collect();
        let seen = filter.query_and_add_batch(&keys, Change::default());
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
