//! Filters of other programs: import, service, store and export, and malformed files.
//!
//! The files are those of `filter/tests/exchange/`, made by Guava and RedisBloom.

use std::io::{self, Read};

use fastrand::Rng;

use super::{
    durability::{key, start},
    *,
};
use crate::{
    filter::{exchange::guava, hash::murmur, spec::BodySpec},
    store::simulated::{Fault, SimulatedDisk},
};

const GUAVA: [(Layout, &[u8]); 2] = [
    (
        Layout::GuavaMitz32,
        include_bytes!("../../../../filter/tests/exchange/guava-mitz-32.bin"),
    ),
    (
        Layout::Guava,
        include_bytes!("../../../../filter/tests/exchange/guava-mitz-64.bin"),
    ),
];
/// A filter with 39 keys in three layers, of the 40 keys that were added.
const REDISBLOOM: &[u8] = include_bytes!("../../../../filter/tests/exchange/redisbloom-chain.dump");
const KEYS: u64 = 40;

fn guava(capacity: u64, rate: f64) -> SpecRequest {
    SpecRequest {
        layout: Layout::Guava,
        hash_function: Layout::Guava.hash_function(),
        ..SpecRequest::new(capacity, rate)
    }
}

/// A filter with several shards, so large that no key is seen by accident.
fn large() -> SpecRequest {
    let request = SpecRequest {
        bit_count: Some(100_000_000),
        false_positive_rate: None,
        hash_count: Some(20),
        ..guava(1_000_000, 0.5)
    };
    assert!(request.resolve().unwrap().body.bit_count() > 2 * 8 * (4 << 20));
    request
}

fn import(name: &str, format: FileFormat, file: &[u8]) -> Import {
    Import {
        name: name.to_owned(),
        format,
        file_bytes: file.len() as u64,
        capacity: None,
    }
}

async fn imported(engine: &Engine, name: &str, file: &'static [u8]) -> FilterStatus {
    let format = match GUAVA.iter().any(|(_, guava)| *guava == file) {
        true => FileFormat::Guava,
        false => FileFormat::RedisBloom,
    };
    let imported = engine.import_filter(import(name, format, file), file).await;
    imported.unwrap()
}

async fn exported(engine: &Engine, name: &str) -> Vec<u8> {
    let mut export = engine.export_filter(name).await.unwrap();
    let mut file = Vec::new();
    while let Some(piece) = export.next_piece().unwrap() {
        assert!((1..=32 << 10).contains(&piece.len()));
        file.extend(piece);
    }
    assert_eq!(file.len() as u64, export.file_bytes());
    file
}

/// Returns the file that the pure code makes of a spec and keys.
fn file_of(spec: &FilterSpec, keys: impl Iterator<Item = String>) -> Vec<u8> {
    let BodySpec::Guava(shape) = spec.body else {
        panic!("{spec:?}");
    };
    let mut words = vec![0; shape.word_count() as usize];
    for key in keys {
        shape.insert(&mut words, murmur::of_guava(key.as_bytes()));
    }
    let mut file = guava::FilterWriter::create(Vec::new(), &shape).unwrap();
    file.write_words(&words).unwrap();
    file.finish().unwrap()
}

async fn seen(engine: &Engine, name: &str, range: std::ops::Range<u64>) -> usize {
    let mut count = 0;
    for keys in range.map(key).collect::<Vec<_>>().chunks(1000) {
        let seen = engine.query_batch(name, keys.to_vec()).await.unwrap();
        count += seen.iter().filter(|&&seen| seen).count();
    }
    count
}

#[tokio::test]
async fn a_file_of_guava_is_served_added_to_and_comes_back_byte_for_byte() {
    for (layout, file) in GUAVA {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Always).await.unwrap();
        let status = imported(&engine, "java", file).await;
        let spec = &status.spec;
        assert_eq!((spec.body.layout(), spec.body.hash_count()), (layout, 7));
        assert_eq!(spec.hash_function, HashFunction::Murmur3X64_128);
        // Guava was asked for 40 keys at 0.01, and rounds the number of bits up.
        assert!((38..=46).contains(&spec.capacity), "{}", spec.capacity);
        assert!((35..=45).contains(&status.keys_added), "{status:?}");
        assert_eq!(status.estimated_keys, Some(status.keys_added));
        assert_eq!(seen(&engine, "java", 0..KEYS).await, KEYS as usize);
        assert_eq!(exported(&engine, "java").await, file);

        let explained = engine.explain("java", &key(3)).await.unwrap();
        assert!(explained.seen());
        assert_eq!((explained.place.shard, explained.place.block), (None, None));
        assert!(explained.place.layer.is_none() && explained.place.lines.is_empty());
        assert_eq!(explained.hash, murmur::of_guava(key(3).as_bytes()));

        let new = engine.query_and_add_batch("java", vec![key(1), key(900)]);
        assert_eq!(new.await.unwrap(), [true, false]);
        engine.add("java", &key(901)).await.unwrap();
        let keys = || (0..KEYS).chain([900, 901]).map(key);
        let expected = file_of(spec, keys());
        assert_eq!(exported(&engine, "java").await, expected);
        // The keys in the snapshot and the keys in the log make the same file.
        let killed = disk.kill();
        let engine = start(&killed, Durability::Always).await.unwrap();
        assert_eq!(exported(&engine, "java").await, expected);
        engine.store("java").await.unwrap();
        let engine = start(&killed.kill(), Durability::Always).await.unwrap();
        assert_eq!(exported(&engine, "java").await, expected);
        let found = engine.get_filter("java").await.unwrap();
        assert_eq!(found.spec, status.spec);
        assert_eq!(found.keys_added, status.keys_added + 2);
    }
}

/// A merge can set bits in layers to which no keys are added any more.
#[tokio::test]
async fn bits_of_old_layers_count_after_a_merge() {
    let engine = start(&SimulatedDisk::default(), Durability::Always).await;
    let engine = engine.unwrap();
    let mut without_old_layers = REDISBLOOM.to_vec();
    for (at, bytes) in [(0xd3, 16), (0xf3, 32)] {
        without_old_layers[at..][..bytes].fill(0);
    }
    let few = imported(&engine, "few", without_old_layers.leak()).await;
    let all = imported(&engine, "all", REDISBLOOM).await;
    assert!(few.predicted_false_positive_rate < all.predicted_false_positive_rate);
    let merged = engine.merge_filters("all", "few").await.unwrap();
    assert_eq!(
        merged.predicted_false_positive_rate,
        all.predicted_false_positive_rate
    );
    assert_eq!(seen(&engine, "few", 0..KEYS).await, KEYS as usize);
}

#[tokio::test]
async fn a_dump_of_redisbloom_is_served_and_its_last_layer_added_to() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let status = imported(&engine, "redis", REDISBLOOM).await;
    assert_eq!(status.spec.body.layout(), Layout::RedisBloom);
    assert_eq!(status.spec.body.bit_count(), (2 + 4 + 9) * 64);
    assert_eq!(
        (status.spec.capacity, status.keys_added),
        (10 + 20 + 40, 39)
    );
    assert!((25..=55).contains(&status.estimated_keys.unwrap()));
    assert_eq!(seen(&engine, "redis", 0..KEYS).await, KEYS as usize);
    // With so few bits no formula predicts the rate. Canaries measure it.
    let others = seen(&engine, "redis", 1000..11_000).await as f64 / 10_000.0;
    let measured = engine.get_filter("redis").await.unwrap().measured.unwrap();
    let (low, high) = measured.interval();
    assert!(
        (low / 1.5..high * 1.5).contains(&others),
        "{others}, {measured:?}"
    );

    let new: Vec<String> = (1000..2000).map(key).collect();
    let mut won = Vec::new();
    for key in new {
        if !engine.query_and_add("redis", &key).await.unwrap() {
            won.push(key);
        }
        if won.len() == 5 {
            break;
        }
    }
    let explained = engine.explain("redis", &won[0]).await.unwrap();
    let last = (2 + 4) * 64;
    assert!(explained.seen() && explained.place.bits.iter().all(|&(bit, _)| bit >= last));
    assert_eq!(explained.place.layer, Some(2));
    let oldest = engine.explain("redis", &key(0)).await.unwrap();
    assert!(oldest.seen() && oldest.place.bits.iter().all(|&(bit, _)| bit < 2 * 64));
    assert_eq!(oldest.place.layer, Some(0));
    let killed = disk.kill();
    let engine = start(&killed, Durability::Always).await.unwrap();
    engine.store("redis").await.unwrap();
    let engine = start(&killed.kill(), Durability::Always).await.unwrap();
    assert_eq!(seen(&engine, "redis", 0..KEYS).await, KEYS as usize);
    let again = engine.query_batch("redis", won).await.unwrap();
    assert_eq!(again, [true; 5]);
    let found = engine.get_filter("redis").await.unwrap();
    assert_eq!((found.spec, found.keys_added), (status.spec, 44));
    let refused = engine.export_filter("redis").await.unwrap_err();
    assert!(
        matches!(refused, EngineError::NotExportable { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_filter_that_is_made_has_guavas_size_and_bytes() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let made = engine.create_filter("urls", guava(40, 0.01)).await.unwrap();
    engine
        .add_batch("urls", (0..KEYS).map(key).collect::<Vec<_>>())
        .await
        .unwrap();
    assert_eq!(exported(&engine, "urls").await, GUAVA[1].1);
    assert_eq!(made.filter.spec.false_positive_rate, 0.01);
    let again = engine.create_filter("urls", guava(40, 0.01)).await.unwrap();
    assert!(!again.is_new);
    // The same filter without its keys, and another one of the same size.
    engine.reset_filter("urls").await.unwrap();
    assert_eq!(seen(&engine, "urls", 0..KEYS).await, 0);
    engine
        .create_filter("empty", guava(40, 0.01))
        .await
        .unwrap();
    assert_eq!(
        exported(&engine, "urls").await,
        exported(&engine, "empty").await
    );
}

#[test]
fn specs_that_no_such_filter_has_are_refused() {
    let refused = |request: SpecRequest| request.resolve().unwrap_err().to_string();
    let of = |layout, hash_function| SpecRequest {
        layout,
        hash_function,
        ..guava(1000, 0.01)
    };
    for (request, said) in [
        (
            of(Layout::Guava, HashFunction::SipHash13_128),
            "leave hash_function out",
        ),
        (
            of(Layout::Blocked, HashFunction::Murmur3X64_128),
            "leave hash_function out",
        ),
        (
            of(Layout::Classic, HashFunction::Murmur2_64A),
            "leave hash_function out",
        ),
        (
            of(Layout::Guava, HashFunction::Murmur2_64A),
            "leave hash_function out",
        ),
        (
            of(Layout::RedisBloom, HashFunction::Murmur2_64A),
            "import a dump",
        ),
        (
            SpecRequest {
                kind: Kind::Counting,
                ..guava(1000, 0.01)
            },
            "layout is guava",
        ),
        (guava(1_000_000_000_000, 0.01), "word_count"),
        (
            SpecRequest {
                bit_count: Some(1000),
                ..guava(1000, 0.01)
            },
            "give more bits",
        ),
        // Bits from 2^31 on can never be set.
        (
            SpecRequest {
                layout: Layout::GuavaMitz32,
                ..guava(1_000_000_000, 0.01)
            },
            "give more bits",
        ),
    ] {
        let text = refused(request.clone());
        assert!(text.contains(said), "{request:?}: {text}");
    }
    let resolved = guava(1000, 0.01).resolve().unwrap();
    let again = SpecRequest::from(resolved.clone()).resolve().unwrap();
    assert_eq!(again, resolved);
}

/// Callers race for keys of many shards, with calls for one key and for many keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_that_add_a_key_one_wins() {
    const RACED: u64 = 20_000;
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Snapshot).await.unwrap();
    engine.create_filter("urls", large()).await.unwrap();
    let racers = (0..4).map(|racer| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut won = 0;
            for first in (0..RACED).step_by(100) {
                // All callers ask for the same keys at the same time, from either end.
                let mut keys: Vec<String> = (first..first + 100).map(key).collect();
                if racer % 2 == 0 {
                    keys.reverse();
                }
                if racer < 2 {
                    for key in keys {
                        won += usize::from(!engine.query_and_add("urls", &key).await.unwrap());
                    }
                } else {
                    let seen = engine.query_and_add_batch("urls", keys).await.unwrap();
                    won += seen.iter().filter(|&&seen| !seen).count();
                }
            }
            won
        })
    });
    let mut won = 0;
    for racer in racers.collect::<Vec<_>>() {
        won += racer.await.unwrap();
    }
    assert_eq!(won, RACED as usize);
    let status = engine.get_filter("urls").await.unwrap();
    assert_eq!(status.keys_added, RACED);
    assert_eq!(seen(&engine, "urls", 0..RACED).await, RACED as usize);
    let expected = file_of(&status.spec, (0..RACED).map(key));
    assert!(exported(&engine, "urls").await == expected);
}

/// Each snapshot may have only a part of the bits of a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_several_shards_survive_crashes_amid_stores() {
    let mut chance = Rng::with_seed(3);
    for round in 0..6 {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Always).await.unwrap();
        engine.create_filter("urls", large()).await.unwrap();
        engine.add("urls", &key(0)).await.unwrap();
        let calls = disk.calls();
        disk.fail(calls + 10 + 12 * round, 1, Fault::PowerCut);
        let storing = {
            let engine = engine.clone();
            tokio::spawn(async move { while engine.store("urls").await.is_ok() {} })
        };
        let (mut acknowledged, mut new) = (1, 0);
        loop {
            match engine.query_and_add("urls", &key(acknowledged)).await {
                Ok(seen) => new += u64::from(!seen),
                Err(_) => break,
            }
            acknowledged += 1;
        }
        storing.await.unwrap();
        assert_eq!(new, acknowledged - 1);
        drop(engine);
        let found = disk.cut(&mut chance);
        let engine = start(&found, Durability::Always).await.unwrap();
        let there = seen(&engine, "urls", 0..acknowledged).await;
        assert_eq!(there as u64, acknowledged, "round {round}");
        let status = engine.get_filter("urls").await.unwrap();
        assert!(status.keys_added >= acknowledged, "{status:?}");
    }
}

/// A snapshot holds each shard that a key has changed since the snapshot before.
#[tokio::test]
async fn a_single_key_is_stored_in_all_of_its_shards() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Snapshot).await.unwrap();
    engine.create_filter("urls", large()).await.unwrap();
    for number in 0..3 {
        engine.add("urls", &key(number)).await.unwrap();
        engine.store("urls").await.unwrap();
    }
    let engine = start(&disk.kill(), Durability::Snapshot).await.unwrap();
    assert_eq!(seen(&engine, "urls", 0..3).await, 3);
}

#[tokio::test]
async fn filters_of_one_shape_are_merged_and_copied() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let (_, file) = GUAVA[1];
    imported(&engine, "java", file).await;
    let spec = engine.get_filter("java").await.unwrap().spec;
    // Two imports have different secrets, but the bits of a key do not depend on them.
    imported(&engine, "other", file).await;
    engine.add("other", &key(500)).await.unwrap();
    engine.merge_filters("other", "java").await.unwrap();
    engine.copy_filter("java", "copy").await.unwrap();
    engine.rename_filter("java", "renamed").await.unwrap();
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    let expected = file_of(&spec, (0..KEYS).chain([500]).map(key));
    for name in ["copy", "renamed"] {
        assert_eq!(exported(&engine, name).await, expected, "{name}");
    }
    imported(&engine, "redis", REDISBLOOM).await;
    imported(&engine, "redis-2", REDISBLOOM).await;
    let status = engine.merge_filters("redis-2", "redis").await.unwrap();
    assert_eq!(status.keys_added, 39);
    let refused = engine.merge_filters("redis", "copy").await.unwrap_err();
    assert!(refused.to_string().contains("layout"), "{refused}");
}

/// Canaries are not hashed as the keys of these filters are, without a secret. Otherwise a caller
/// who can choose keys could also choose the measured rate.
#[tokio::test]
async fn the_measured_rate_is_that_of_secret_keys() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Snapshot).await.unwrap();
    let mut rates = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let made = engine.create_filter(name, guava(2000, 0.1)).await.unwrap();
        assert!(made.is_new);
        for keys in (0..2000).map(key).collect::<Vec<_>>().chunks(1000) {
            engine.add_batch(name, keys.to_vec()).await.unwrap();
        }
        let status = engine.get_filter(name).await.unwrap();
        let measured = status.measured.unwrap();
        let (low, high) = measured.interval();
        let predicted = status.predicted_false_positive_rate;
        assert!(
            low * 0.9 < predicted && predicted < high * 1.1,
            "{status:?}"
        );
        rates.push(measured.seen);
    }
    // Two are equal by chance once in a hundred runs, all four once in a million.
    let are_equal = rates.iter().all(|rate| *rate == rates[0]);
    assert!(!are_equal, "the same canaries in all: {rates:?}");
}

/// A file that breaks off, as if its connection had ended.
struct Broken(&'static [u8]);

impl Read for Broken {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0.read(bytes)? {
            0 => Err(io::ErrorKind::ConnectionAborted.into()),
            count => Ok(count),
        }
    }
}

#[tokio::test]
async fn what_is_no_file_leaves_nothing() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let (_, whole) = GUAVA[1];
    let head = |strategy: u8, hashes: u8, words: u32| {
        let words = words.to_be_bytes();
        [&[strategy, hashes], &words[..]].concat()
    };
    let cases: [(Vec<u8>, u64, &str); 9] = [
        (vec![], 0, "file length"),
        // Six bytes that claim 17 GB.
        (head(1, 7, i32::MAX as u32), 6, "file length"),
        (
            head(1, 7, i32::MAX as u32),
            6 + (8 << 31) - 8,
            "bytes of memory",
        ),
        (head(1, 7, u32::MAX), 6, "word_count"),
        (head(1, 0, 1), 14, "hash_count"),
        (head(1, 255, 1), 14, "hash_count"),
        (head(2, 7, 1), 14, "strategy"),
        (
            whole[..whole.len() - 1].to_vec(),
            whole.len() as u64,
            "cannot read",
        ),
        ([whole, &[0]].concat(), whole.len() as u64, "size_bytes"),
    ];
    for (file, file_bytes, said) in cases {
        let import = Import {
            file_bytes,
            ..import("java", FileFormat::Guava, &[])
        };
        let case = format!("{:?} of {file_bytes}", &file[..file.len().min(8)]);
        let refused = engine.import_filter(import, io::Cursor::new(file)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(said), "{case}: {refused}");
        assert_eq!(engine.catalog.budget.used_bytes(), 0, "{case}");
    }
    for cut in [0, 3, 6, 20, whole.len()] {
        let file = Broken(&whole[..cut]);
        let import = import("java", FileFormat::Guava, whole);
        let refused = engine.import_filter(import, file).await.unwrap_err();
        assert!(matches!(refused, EngineError::Import(_)), "{refused}");
    }
    let mut chance = Rng::with_seed(5);
    for _ in 0..300 {
        let mut file = REDISBLOOM.to_vec();
        for _ in 0..3 {
            let at = chance.u64(..200) as usize;
            file[at] = chance.u64(..256) as u8;
        }
        let import = import("redis", FileFormat::RedisBloom, &file);
        if engine
            .import_filter(import, io::Cursor::new(file))
            .await
            .is_ok()
        {
            engine.delete_filter("redis").await.unwrap();
        }
    }
    assert_eq!(engine.catalog.budget.used_bytes(), 0);
    assert_eq!(
        engine.catalog.imports.available_permits(),
        crate::engine::Limits::MAX_IMPORTS
    );
    // The failed imports have left the name free. A successful import takes it.
    imported(&engine, "java", whole).await;
    let taken = import("java", FileFormat::Guava, whole);
    let refused = engine.import_filter(taken, whole).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::NameTaken { .. }),
        "{refused}"
    );
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    let page = engine.list_filters(0, "").await.unwrap();
    assert_eq!(page.filters.len(), 1);
}

#[tokio::test]
async fn an_import_is_there_after_a_power_cut_or_not_at_all() {
    let (_, file) = GUAVA[1];
    let mut chance = Rng::with_seed(9);
    let mut there = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Always).await.unwrap();
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let import = import("java", FileFormat::Guava, file);
        let imported = engine.import_filter(import, file).await;
        let used = disk.calls() - before;
        drop(engine);
        for _ in 0..4 {
            let found = disk.cut(&mut chance);
            let engine = start(&found, Durability::Always).await.unwrap();
            let is_there = engine.get_filter("java").await.is_ok();
            assert!(is_there || imported.is_err(), "call {call}");
            if is_there {
                assert_eq!(exported(&engine, "java").await, file, "call {call}");
            }
            there.push(is_there);
        }
        if used <= call {
            break;
        }
    }
    assert!(there.contains(&true) && there.contains(&false));
}

#[tokio::test]
async fn an_export_keeps_nothing_of_a_filter_that_is_gone() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    imported(&engine, "java", GUAVA[1].1).await;
    let mut export = engine.export_filter("java").await.unwrap();
    assert!(export.next_piece().unwrap().is_some());
    engine.delete_filter("java").await.unwrap();
    assert_eq!(engine.catalog.budget.used_bytes(), 0);
    let ended = export.next_piece().unwrap_err();
    assert!(matches!(ended, EngineError::ExportEnded { .. }), "{ended}");
}
