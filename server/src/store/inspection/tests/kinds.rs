//! Tests of damage to filters of each kind and layout, and to their log.

use super::*;
use crate::store::snapshot::tests::specs;

#[test]
fn what_any_damage_leaves_of_any_kind_is_saved() {
    for spec in specs() {
        let kind = spec.body.kind();
        let disk = example_of(spec);
        let whole = read(&disk).unwrap();
        let files = disk.names().unwrap();
        // Other tests cover the other files, and logs without counts, ages or layers.
        let is_its = |file: &&String| {
            let is_log = file.ends_with(".log");
            file.starts_with("urls.") || is_log && kind != Kind::Plain
        };
        for file in files.iter().filter(is_its) {
            let stride = if file.ends_with(".log") { 97 } else { 31 };
            try_damage(&disk, &whole, file, |bit| bit.is_multiple_of(stride));
        }
    }
}

/// The rest of a damaged shard keeps the state of the whole shard: the changes that it holds, and
/// the epoch at which it was cleared.
#[test]
fn a_page_of_a_shard_is_lost_alone() {
    let has_state = |spec: &FilterSpec| matches!(spec.body.kind(), Kind::Counting | Kind::Aging(_));
    for mut spec in specs().into_iter().filter(has_state) {
        // Two pages of 64 KiB.
        if let BodySpec::Counting(dimensions) | BodySpec::Aging(dimensions, _) = &mut spec.body {
            dimensions.shard_bits = 1 << 18;
        }
        let disk = example_of(spec);
        let whole = read(&disk).unwrap();
        let files = disk.names().unwrap();
        let file = files.iter().find(|name| name.starts_with("urls.")).unwrap();
        let mut bytes = disk.contents(file).unwrap();
        bytes[1000] ^= 1;
        let damaged = with(&disk, file, &bytes);
        check(&damaged, &whole, 0, "a page");
        let saved = read(&damaged).unwrap();
        let (_, words) = &saved.filters["urls"].shards[&0];
        let lost = words.iter().filter(|&&word| word == 0).count();
        assert_eq!(lost * 2, words.len());
    }
}
