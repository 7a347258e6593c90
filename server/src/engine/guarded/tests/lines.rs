//! Filters from older versions, where a key had its stamps in four lines.

use std::time::Duration;

use super::*;
use crate::filter::{
    cells::CellLines,
    spec::{Aging, Kind},
};

/// The stamps of the one mean other keys in the other, although both have the same spec and secret.
#[test]
fn they_take_keys_and_are_merged_with_their_like_alone() {
    let request = SpecRequest {
        kind: Kind::Aging(Aging {
            max_age: Duration::from_secs(3600),
            slices: 4,
            refresh: false,
        }),
        ..SpecRequest::new(1000, 1e-6)
    };
    let of = |cell_lines| {
        let spec = FilterSpec {
            cell_lines,
            ..request.resolve().unwrap()
        };
        filter_with(spec)
    };
    let [two, four, more_of_four] = [CellLines::Two, CellLines::Four, CellLines::Four].map(of);
    for filter in [&two, &four] {
        let keys: Vec<String> = (0..500).map(key).collect();
        let seen = filter.query_and_add_batch(&keys, Change::default());
        assert_eq!(seen.unwrap().value, [false; 500]);
        let more: Vec<String> = (0..1000).map(key).collect();
        let there = filter.query_batch(&more, None).value;
        assert!(
            there
                .iter()
                .enumerate()
                .all(|(index, &there)| there == (index < 500))
        );
    }
    let explained = four.explain(b"any").lines;
    assert!((1..=4).contains(&explained.len()));
    assert_eq!(two.explain(b"any").lines.len(), 2);
    assert_eq!(four.explain(b"any").block, None);
    let states = |filter: &GuardedFilter| filter.read_shard(0).unwrap().words.to_vec();
    assert_ne!(states(&two), states(&four));
    four.check_mergeable(&more_of_four).unwrap();
    let refused = four.check_mergeable(&two).unwrap_err().to_string();
    assert!(
        refused.contains("where a key has its counters or stamps"),
        "{refused}"
    );
}
