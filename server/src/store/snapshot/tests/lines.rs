//! In how many lines the counters and stamps of a key are.

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

/// A filter of the past stays what it is, byte for byte, for keys are where they were.
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
        // But for when each was written.
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
