//! Tests of filters in layers, whose shards differ in length.

use super::*;
use crate::filter::{
    scaling::{OnFull, Scaling},
    shard_map::ShardMap,
    spec::FilterSpec,
};

pub fn kind() -> Kind {
    Kind::Scaling(OnFull::Scale(Scaling {
        growth: 4,
        max_memory_bytes: Some(100_000),
    }))
}

pub fn spec(kind: Kind) -> FilterSpec {
    let request = SpecRequest {
        kind,
        ..SpecRequest::new(50, 0.01)
    };
    request.resolve().unwrap()
}

/// The newest copy of each shard is used, in any layer and any file.
#[test]
fn shards_of_all_layers_come_back() {
    let (disk, directory) = {
        let disk = SimulatedDisk::default();
        (disk.clone(), directory(&disk))
    };
    for on_full in [
        kind(),
        Kind::Scaling(OnFull::Scale(Scaling::default())),
        Kind::Scaling(OnFull::Reject),
        Kind::Scaling(OnFull::Degrade),
    ] {
        let mut header = header(&directory, Layout::Blocked, 1024);
        header.spec = spec(on_full);
        header.spec.key_profile = profile();
        let most = ShardMap::of(&header.spec).shard_count().min(5);
        let first: Vec<usize> = (0..most).collect();
        let none = SnapshotFiles::default();
        let files = store(&directory, &header, &none, &first, 3).unwrap();
        store(&directory, &header, &files, &first[most / 2..], 7).unwrap();

        let again = DataDirectory::on(Arc::new(disk.clone())).unwrap();
        let reader = again.read_filter(&header.name).unwrap().unwrap();
        assert_eq!(reader.header().spec, header.spec);
        assert_eq!(reader.shards().collect::<Vec<_>>(), first);
        let shard_map = reader.shard_map();
        let mut bytes = 0;
        for shard in first {
            let mut words = vec![0; shard_map.shape(shard).shard_words()];
            let state = reader.read_shard(shard, &mut words, &mut Err).unwrap();
            let word = if shard < most / 2 { 3 } else { 7 };
            assert!(words.iter().all(|&found| found == word));
            assert_eq!(state.version, word);
            bytes += size_of_val(&*words) as u64;
        }
        assert_eq!(reader.bytes(), bytes);
        directory.remove_filter(&header.name).unwrap();
    }
}

/// Numbers that no seenset writes, with right checksums.
#[test]
fn layers_that_no_plan_has_are_refused_by_name() {
    let (disk, directory, file, good) = victim_of(kind(), None);
    let reader = directory.read_filter(&"urls".parse().unwrap()).unwrap();
    let count = reader
        .unwrap()
        .header()
        .spec
        .layers
        .as_ref()
        .unwrap()
        .layers()
        .len();
    assert_eq!(count, 6);
    let extension = 384..384 + 16 + count * 40;
    let (much, zero, one) = (u64::MAX.to_le_bytes(), [0; 8], 1_u64.to_le_bytes());
    let cases: &[(usize, &[u8], &str)] = &[
        (at::BIT_COUNT, &one, "bit_count: expected"),
        (at::HASH_COUNT, &[1, 0, 0, 0], "hash_count: expected"),
        (at::SHARD_COUNT, &one, "shard count: expected"),
        (at::SHARD_BITS, &much, "bits per shard: expected"),
        (at::LAYOUT, &[2, 0, 0, 0], "layout: expected blocked"),
        (
            at::KIND_COUNT,
            &[1, 0, 0, 0],
            "numbers of the kind: expected those of a spec",
        ),
        (
            at::KIND_COUNT,
            &[17, 0, 0, 0],
            "numbers of the kind: expected those of a spec",
        ),
        (
            at::KIND_FLAGS,
            &[1, 0, 0, 0],
            "numbers of the kind: expected those of a spec",
        ),
        (
            at::KIND_FLAGS,
            &[3, 0, 0, 0],
            "numbers of the kind: expected those of a spec",
        ),
        // A filter that rejects new keys, and has one layer.
        (
            at::KIND_TAG,
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "number of layers: expected 1",
        ),
        // The same, with the numbers of a filter that grows.
        (
            at::KIND_TAG,
            &[4, 0, 0, 0],
            "numbers of the kind: expected those of a spec",
        ),
        (384, &zero, "layers: expected those of a plan"),
        (384, &much, "layers: expected those of a plan"),
        (392, &zero, "layers: expected those of a plan"),
        (392, &one, "extension: expected one key profile"),
        (392, &much, "extension: expected the layers of a filter"),
        (400, &zero, "layers: expected those of a plan"),
        (408, &much, "layers: expected those of a plan"),
        (416, &much, "extension: expected the layers of a filter"),
        (424, &much, "layers: expected those of a plan"),
    ];
    for (offset, value, expected) in cases {
        let mut bytes = good.clone();
        bytes[*offset..][..value.len()].copy_from_slice(value);
        for covered in [COVERED, extension.clone()] {
            let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
            bytes[covered.end..][..8].copy_from_slice(&sum);
        }
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

/// A header without layers is refused for a filter that grows.
#[test]
fn a_filter_that_grows_has_layers() {
    let (disk, directory) = {
        let disk = SimulatedDisk::default();
        (disk.clone(), directory(&disk))
    };
    let mut header = header(&directory, Layout::Blocked, 1024);
    header.spec.kind = kind();
    let files = store(&directory, &header, &SnapshotFiles::default(), &[0], 1).unwrap();
    let number = files.numbers().next().unwrap();
    let file = names::snapshot(&header.name, number);
    let message = refusal(&directory, &file, "no layers");
    assert!(message.contains("layers: expected"), "{message}");
    drop(disk);
}
