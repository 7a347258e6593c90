//! Tests of the number of lines that hold the counters and stamps of a key.

use std::time::Duration;

use super::*;
use crate::filter::{
    cells::CellLines,
    spec::{Aging, SpecRequest},
};

const FORMAT_AT: usize = 8;
const LINES_AT: usize = 316;

fn spec(kind: Kind, cell_lines: CellLines) -> FilterSpec {
    let request = SpecRequest {
        kind,
        ..SpecRequest::new(20, 0.01)
    };
    FilterSpec {
        cell_lines,
        ..request.resolve().unwrap()
    }
}

fn kinds() -> [(Kind, u8); 2] {
    let aging = Aging {
        max_age: Duration::from_secs(3600),
        slices: 8,
        refresh: false,
    };
    [(Kind::Counting, 3), (Kind::Aging(aging), 4)]
}

/// An old filter is stored as before, byte for byte, because its keys stay where they were.
#[test]
fn lines_make_the_only_difference() {
    for (kind, of_the_past) in kinds() {
        let [two, four] = [CellLines::Two, CellLines::Four].map(|lines| {
            let (_, directory, file, bytes) = victim_with(&spec(kind, lines));
            let reader = directory.read_filter(&"urls".parse().unwrap());
            let found = reader.unwrap().unwrap().header().spec.clone();
            assert_eq!(found.cell_lines, lines, "{file}");
            bytes
        });
        assert_eq!((two[FORMAT_AT], two[LINES_AT]), (7, 2));
        assert_eq!((four[FORMAT_AT], four[LINES_AT]), (of_the_past, 0));
        // The times of the two files may differ.
        let differ = (0..40).chain(48..376).filter(|&at| two[at] != four[at]);
        let differ: Vec<usize> = differ.collect();
        assert_eq!(differ, [FORMAT_AT, LINES_AT]);
    }
}

#[test]
fn other_lines_are_refused() {
    let two = |(kind, _)| spec(kind, CellLines::Two);
    let plain = FilterSpec {
        kind: Kind::Plain,
        key_profile: profile(),
        ..spec(Kind::Plain, CellLines::Two)
    };
    let cases = kinds().map(two).into_iter().flat_map(|spec| {
        [(7, 0), (7, 1), (7, 4), (4, 2)].map(|(format, lines)| (spec.clone(), format, lines))
    });
    for (spec, format, lines) in cases.chain([(plain.clone(), 3, 2), (plain, 7, 2)]) {
        let (disk, directory, file, mut bytes) = victim_with(&spec);
        (bytes[FORMAT_AT], bytes[LINES_AT]) = (format, lines);
        let sum = checksum(&bytes[..376]).to_le_bytes();
        bytes[376..][..8].copy_from_slice(&sum);
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, "lines");
        let expected = format!("else 0, found {lines}");
        assert!(message.contains(&expected), "{message}, not {expected}");
    }
}

/// An old filter with blocks of zeros, after a reset for example. The old formats stored these
/// blocks.
#[test]
fn a_filter_of_the_past_may_have_few_keys() {
    for (kind, _) in kinds() {
        for lines in [CellLines::Two, CellLines::Four] {
            let request = SpecRequest {
                kind,
                ..SpecRequest::new(100_000, 0.01)
            };
            let spec = FilterSpec {
                cell_lines: lines,
                shard_count: 1,
                ..request.resolve().unwrap()
            };
            let disk = SimulatedDisk::default();
            let directory = directory(&disk);
            let mut header = header(&directory, Layout::Blocked, 64);
            header.number = directory.new_number();
            header.spec = spec.clone();
            let mut stored = vec![0; Shape::of(&spec).shard_words()];
            stored[0] = 1;
            let written = directory.write_snapshot(&header, &[0], |_, words| {
                words.copy_from_slice(&stored);
                Ok(ShardState {
                    version: 1,
                    keys_added: 1,
                    bits_set: 1,
                    cleared: 0,
                })
            });
            let files = SnapshotFiles::default().with(&written.unwrap());
            directory
                .set_filter(&header.name, header.filter, &files, 0, None)
                .unwrap();
            let reader = directory.read_filter(&header.name).unwrap().unwrap();
            assert!(reader.header().spec == spec, "{lines:?}");
            let mut words = vec![7; stored.len()];
            reader.read_shard(0, &mut words, &mut Err).unwrap();
            assert_eq!(words, stored);
        }
    }
}
