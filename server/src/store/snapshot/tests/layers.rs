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
        .body
        .layers()
        .unwrap()
        .layers()
        .len();
    assert_eq!(count, 6);
    let extension = 384..384 + 16 + count * 40;
    let (much, zero, one) = (u64::MAX.to_le_bytes(), [0; 8], 1_u64.to_le_bytes());
    let cases: &[(usize, &[u8], &str)] = &[
        (at::NUMBERS, &one, "growth: expected 2..=16, found 1"),
        (
            at::NUMBERS,
            &17_u64.to_le_bytes(),
            "growth: expected 2..=16, found 17",
        ),
        (at::NUMBERS, &much, "growth: expected 2..=16"),
        (
            at::NUMBERS + 16,
            &one,
            "numbers of the body: expected 0 if the body does not have them",
        ),
        // A filter that rejects new keys has one layer.
        (at::BODY, &[6, 0, 0, 0], "number of layers: expected 1"),
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

/// The tag of a filter in layers, in a file without layers.
#[test]
fn a_filter_that_grows_has_layers() {
    let (disk, directory, file, mut bytes) = victim(None);
    bytes[at::BODY] = 5;
    bytes[at::NUMBERS] = 2;
    bytes[at::NUMBERS + 16] = 0;
    let sum = checksum(&bytes[COVERED]).to_le_bytes();
    bytes[at::CHECKSUM..][..8].copy_from_slice(&sum);
    disk.put(&file, &bytes);
    let message = refusal(&directory, &file, "no layers");
    let expected = "extension: expected the layers of a filter";
    assert!(message.contains(expected), "{message}");
}
