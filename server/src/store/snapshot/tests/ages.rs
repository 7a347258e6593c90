//! Tests of filters whose keys age.

use std::time::Duration;

use super::*;
use crate::filter::spec::Aging;

pub fn kind() -> Kind {
    Kind::Aging(Aging {
        max_age: Duration::from_secs(80),
        slices: 8,
        refresh: true,
    })
}

/// Numbers that no seenset writes, with right checksums.
#[test]
fn ages_that_no_spec_has_are_refused_by_name() {
    let (disk, directory, file, good) = victim_of(kind(), None);
    let reader = directory.read_filter(&"urls".parse().unwrap()).unwrap();
    assert_eq!(reader.unwrap().header().spec.body.kind(), kind());
    let table = 384 + 4 * 128;
    let (much, short) = (u64::MAX.to_le_bytes(), 7_999_999_999_u64.to_le_bytes());
    let of_a_spec = "ages: expected those of a spec";
    let (max_age, slices, refresh) = (at::NUMBERS + 24, at::NUMBERS + 32, at::NUMBERS + 40);
    let cases: &[(usize, &[u8], &str)] = &[
        (at::BODY, &3_u32.to_le_bytes(), "numbers of the body"),
        (max_age, &short, of_a_spec),
        (max_age, &much, of_a_spec),
        (slices, &0_u64.to_le_bytes(), of_a_spec),
        (slices, &14_u64.to_le_bytes(), of_a_spec),
        // Its low 32 bits are those of a spec.
        (slices, &((1_u64 << 32) + 8).to_le_bytes(), of_a_spec),
        (refresh, &2_u64.to_le_bytes(), "numbers of the body"),
        (table + 32, &much, "epoch of shard 0: expected at most"),
    ];
    for (offset, value, expected) in cases {
        let mut bytes = good.clone();
        bytes[*offset..][..value.len()].copy_from_slice(value);
        for covered in [COVERED, table..good.len() - 8] {
            let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
            bytes[covered.end..][..8].copy_from_slice(&sum);
        }
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

/// A shard may have fewer set bits than new keys, because bits are cleared. The epoch is read back.
#[test]
fn a_shard_comes_back_with_its_epoch() {
    let (_, directory, _, _) = victim_of(kind(), None);
    let reader = directory.read_filter(&"urls".parse().unwrap()).unwrap();
    let header = SnapshotHeader {
        number: directory.new_number(),
        ..reader.unwrap().header().clone()
    };
    let state = ShardState {
        version: 43,
        keys_added: 1_000_000,
        bits_set: 1,
        cleared: 77,
    };
    let written = directory.write_snapshot(&header, &[0], |_, words| {
        words.fill(0);
        words[0] = 0xf0;
        Ok(state)
    });
    let files = SnapshotFiles::default().with(&written.unwrap());
    let (name, id) = (&header.name, header.filter);
    directory.set_filter(name, id, &files, 0, None).unwrap();
    let reader = directory.read_filter(name).unwrap().unwrap();
    let mut words = vec![0; header.spec.body.shape().shard_words()];
    let found = reader.read_shard(0, &mut words, &mut Err).unwrap();
    assert_eq!((found, words[0]), (state, 0xf0));
}
