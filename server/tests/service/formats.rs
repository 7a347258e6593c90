//! Data directories of earlier servers, and how the present server reads them.
//!
//! Each directory in `server/tests/formats/` was written by the first server of some format, and is
//! as a killed server leaves it.
//!
//! | directory | snapshots | manifest | log |
//! |---|---|---|---|
//! | `1` | 1 | 1 | 1 |
//!
//! Each directory has these filters. All contain the keys `https://example.com/1` to `/50`; the keys
//! from 41 on were added by requests with the id `again`.
//!
//! - `default` and `classic`, for 100 keys.
//! - `urls`, with a key profile.
//! - `counted`, from which the keys 16 to 25 were removed.
//! - `aged`, which remembers its keys for a century.
//! - `grown`, which was made for ten keys.
//! - `sharded`, in two shards although its bits need only one.
//! - `java`, of Guava's layout, and `redis`, from a dump that RedisBloom has made.
//!
//! After a format was raised, keep the present one in `formats/2`:
//! `SEENSET_KEEP_FORMAT=2 cargo test -p seenset-server --test service formats`.

use std::{
    collections::BTreeSet,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use seenset_server::{
    engine::{
        Aging, Call, Durability, Engine, FileFormat, Import, KeyProfile, Kind, Layout, Limits,
        OnFull, RequestLimits, Scaling, Settings, SpecRequest,
    },
    store::{DataDirectory, LOG_FORMAT, MANIFEST_FORMAT, SNAPSHOT_FORMAT},
};

const FILTERS: [(&str, Layout); 2] = [("default", Layout::Blocked), ("classic", Layout::Classic)];
/// The filter with a profile.
const URLS: &str = "urls";
/// The filter that counts.
const COUNTED: &str = "counted";
/// The filter whose keys age.
const AGED: &str = "aged";

/// The filter in more shards than it needs.
const SHARDED: &str = "sharded";

/// The filter that has grown.
const GROWN: &str = "grown";

/// The filters of other programs.
const JAVA: &str = "java";
const REDIS: &str = "redis";

/// A dump with 40 keys, from `https://example.com/0` on. One of them was seen by accident.
const DUMP: &[u8] = include_bytes!("../../../filter/tests/exchange/redisbloom-chain.dump");

/// So long that only the tail of the log contains the last added keys.
const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

async fn recovered(dir: &Path, durability: Durability) -> Engine {
    let limits = Limits {
        max_key_bytes: 100,
        max_batch_keys: 100,
        max_filters: Limits::MAX_FILTERS,
    };
    let engine = Engine::new(
        DataDirectory::open(dir).unwrap(),
        Settings {
            limits,
            max_memory_bytes: 1 << 20,
            durability,
            // Small enough to keep in the repository.
            segment_bytes: 2 << 10,
            requests: RequestLimits::default(),
        },
    );
    engine.recover(None).await.unwrap();
    engine
}

fn keys(range: RangeInclusive<u32>) -> Vec<String> {
    range.map(|i| format!("https://example.com/{i}")).collect()
}

fn again(filter: &str) -> Call<'_> {
    Call {
        filter,
        request_id: "again",
        max_age: None,
        deadline: None,
    }
}

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

fn kept() -> Vec<PathBuf> {
    let mut kept: Vec<_> = fs::read_dir(formats())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    kept.sort();
    kept
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        // A segment that is being made is not copied.
        if file.path().extension() == Some("tmp".as_ref()) {
            continue;
        }
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Returns the kind of a file, and the format in its header.
fn format_of(file: &Path) -> Option<(&'static str, u32)> {
    let bytes = fs::read(file).unwrap();
    let format = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    match bytes.get(..8)? {
        b"SEENSNAP" => Some(("snapshot", format)),
        b"SEENMANI" => Some(("manifest", format)),
        b"SEENSLOG" => Some(("log", format)),
        _ => None,
    }
}

/// Fails if a format was raised and no directory of it is kept.
#[test]
fn no_format_is_forgotten() {
    let files = kept()
        .into_iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap());
    let found: BTreeSet<_> = files
        .filter_map(|file| format_of(&file.unwrap().path()))
        .collect();
    let all = |kind, newest| (1..=newest).map(move |format| (kind, format));
    let expected: BTreeSet<_> = all("snapshot", SNAPSHOT_FORMAT)
        .chain(all("manifest", MANIFEST_FORMAT))
        .chain(all("log", LOG_FORMAT))
        .collect();
    assert_eq!(found, expected);
}

fn profile() -> Option<KeyProfile> {
    let names = ["utm_*".to_owned()];
    Some(KeyProfile::new("url-v1", true, &names).unwrap())
}

/// Checks the filter with a profile, with the same keys in other spellings.
async fn check_profile(engine: &Engine) {
    let status = engine.get_filter(URLS).await.unwrap();
    assert_eq!(status.spec.key_profile, profile());
    let others = |range| {
        keys(range)
            .iter()
            .map(|key| format!("{key}?utm_a#b"))
            .collect()
    };
    let seen: Vec<String> = others(1..=50);
    assert_eq!(engine.query_batch(URLS, seen).await.unwrap(), [true; 50]);
    let unseen: Vec<String> = others(1001..=1010);
    assert_eq!(engine.query_batch(URLS, unseen).await.unwrap(), [false; 10]);
}

/// Checks the filter that counts: each key is there once, except the removed ones.
async fn check_counted(engine: &Engine) {
    let status = engine.get_filter(COUNTED).await.unwrap();
    assert_eq!(
        (status.spec.body.kind(), status.keys_added),
        (Kind::Counting, 40)
    );
    // The spec can be created again even if a new filter could not have so few bits.
    let again = engine.create_filter(COUNTED, status.spec.into()).await;
    assert!(!again.unwrap().is_new);
    for round in 0..2 {
        for (range, there) in [(1..=15, true), (16..=25, false), (26..=50, true)] {
            let keys = keys(range);
            let expected = vec![there && round == 0; keys.len()];
            let removed = engine.remove_batch(COUNTED, keys).await.unwrap();
            assert_eq!(removed, expected, "round {round}");
        }
    }
    let status = engine.get_filter(COUNTED).await.unwrap();
    assert_eq!((status.keys_added, status.fill_ratio), (0, 0.0));
    for keys in [keys(1..=15), keys(26..=50)] {
        engine.add_batch(COUNTED, keys).await.unwrap();
    }
}

fn ages() -> Kind {
    Kind::Aging(Aging {
        max_age: Duration::from_secs(36_500 * 24 * 3600),
        slices: 4,
        refresh: true,
    })
}

/// Checks the filter whose keys age: all keys are there, and no others.
async fn check_aged(engine: &Engine) {
    let status = engine.get_filter(AGED).await.unwrap();
    assert_eq!((status.spec.body.kind(), status.keys_added), (ages(), 50));
    let again = engine.create_filter(AGED, status.spec.into()).await;
    assert!(!again.unwrap().is_new);
    let seen = engine.query_batch(AGED, keys(1..=50)).await.unwrap();
    assert_eq!(seen, [true; 50]);
    let unseen = engine.query_batch(AGED, keys(1001..=1010)).await.unwrap();
    assert_eq!(unseen, [false; 10]);
}

/// Checks the filter in two shards: all keys are there, and no others.
async fn check_sharded(engine: &Engine) {
    let status = engine.get_filter(SHARDED).await.unwrap();
    assert_eq!(
        (status.spec.body.shape().shard_count(), status.keys_added),
        (2, 50)
    );
    let seen = engine.query_batch(SHARDED, keys(1..=50)).await.unwrap();
    assert_eq!(seen, [true; 50]);
    let unseen = engine
        .query_batch(SHARDED, keys(1001..=1010))
        .await
        .unwrap();
    assert_eq!(unseen, [false; 10]);
}

fn grows() -> Kind {
    Kind::Scaling(OnFull::Scale(Scaling {
        growth: 2,
        max_memory_bytes: Some(1 << 16),
    }))
}

/// Checks the filter that has grown: all keys are there, and no others.
async fn check_grown(engine: &Engine) {
    let status = engine.get_filter(GROWN).await.unwrap();
    assert_eq!((status.spec.body.kind(), status.keys_added), (grows(), 50));
    assert!(status.layers.unwrap().layers >= 2);
    let seen = engine.query_batch(GROWN, keys(1..=50)).await.unwrap();
    assert_eq!(seen, [true; 50]);
    let unseen = engine.query_batch(GROWN, keys(1001..=1010)).await.unwrap();
    assert_eq!(unseen, [false; 10]);
}

/// Checks the filters of other programs: all keys are there, and no others.
async fn check_foreign(engine: &Engine) {
    let java = engine.get_filter(JAVA).await.unwrap();
    assert_eq!(
        (java.spec.body.layout(), java.keys_added),
        (Layout::Guava, 50)
    );
    let seen = engine.query_batch(JAVA, keys(1..=50)).await.unwrap();
    assert_eq!(seen, [true; 50]);
    let unseen = engine.query_batch(JAVA, keys(1001..=1010)).await.unwrap();
    assert_eq!(unseen, [false; 10]);

    let redis = engine.get_filter(REDIS).await.unwrap();
    let layers = redis.spec.body.chain().unwrap();
    assert_eq!((layers.layers().len(), redis.keys_added), (3, 39));
    let seen = engine.query_batch(REDIS, keys(0..=39)).await.unwrap();
    assert_eq!(seen, [true; 40]);
}

/// Checks the filters after a start on a directory of some format.
async fn check_filters(format: &Path) {
    let dir = tempfile::tempdir().unwrap();
    copy(format, dir.path());
    // The first start reads the old files, the second the newly stored ones, the third those again.
    for start in 0..3 {
        let engine = recovered(dir.path(), Durability::Snapshot).await;
        for (filter, layout) in FILTERS {
            let case = format!("{}, {filter}, start {start}", format.display());
            let status = engine.get_filter(filter).await.unwrap();
            assert_eq!(
                (status.spec.capacity, status.spec.body.layout()),
                (100, layout)
            );
            assert_eq!(status.keys_added, 50 + start, "{case}");
            let seen = engine.query_batch(filter, keys(1..=50)).await.unwrap();
            assert_eq!(seen, [true; 50], "{case}");
            let unseen = engine.query_batch(filter, keys(1001..=1010)).await.unwrap();
            assert_eq!(unseen, [false; 10], "{case}");
            let key = format!("new at start {start}");
            assert!(!engine.query_and_add(filter, &key).await.unwrap(), "{case}");
        }
        check_profile(&engine).await;
        check_counted(&engine).await;
        check_aged(&engine).await;
        check_sharded(&engine).await;
        check_grown(&engine).await;
        check_foreign(&engine).await;
        engine.store("").await.unwrap();
    }
}

/// Checks that the server remembers which keys old requests have added first.
async fn check_requests(format: &Path) {
    let dir = tempfile::tempdir().unwrap();
    copy(format, dir.path());
    let engine = recovered(dir.path(), INTERVAL).await;
    for (filter, _) in FILTERS {
        let mut expected = vec![true; 40];
        expected.extend([false; 10]);
        let told = engine.query_and_add_batch(again(filter), keys(1..=50));
        let case = format!("{}, {filter}", format.display());
        assert_eq!(told.await.unwrap(), expected, "{case}");
    }
}

#[tokio::test]
async fn every_format_is_read_and_stored_as_the_present_one() {
    for format in kept() {
        check_filters(&format).await;
        check_requests(&format).await;
    }
}

#[tokio::test]
async fn the_present_format_is_one_of_these() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path(), INTERVAL).await;
    let spec = SpecRequest::new(100, 0.001);
    let with_layout = |layout| SpecRequest {
        layout,
        ..spec.clone()
    };
    let with_profile = SpecRequest {
        key_profile: profile(),
        ..spec.clone()
    };
    let counting = SpecRequest {
        kind: Kind::Counting,
        // So exact that no key is seen by accident.
        ..SpecRequest::new(100, 1e-9)
    };
    let aging = SpecRequest {
        kind: ages(),
        ..SpecRequest::new(100, 1e-9)
    };
    let scaling = SpecRequest {
        kind: grows(),
        ..SpecRequest::new(10, 1e-9)
    };
    let sharded = SpecRequest {
        bit_count: Some(1 << 18),
        false_positive_rate: None,
        ..SpecRequest::new(100, 0.5)
    };
    let guava = SpecRequest {
        layout: Layout::Guava,
        hash_function: Layout::Guava.hash_function(),
        ..SpecRequest::new(100, 1e-9)
    };
    let plain = FILTERS.map(|(filter, layout)| (filter, with_layout(layout)));
    let others = [
        (URLS, with_profile),
        (COUNTED, counting),
        (AGED, aging),
        (SHARDED, sharded),
        (GROWN, scaling),
        (JAVA, guava),
    ];
    for (filter, request) in plain.into_iter().chain(others) {
        engine.create_filter(filter, request).await.unwrap();
        // So few keys that some blocks of the filter's shards are empty.
        let stored = if filter == SHARDED { 3 } else { 20 };
        engine.add_batch(filter, keys(1..=stored)).await.unwrap();
        engine.store(filter).await.unwrap();
        engine
            .add_batch(filter, keys(stored + 1..=20))
            .await
            .unwrap();
        // More keys than fit into one segment.
        for key in keys(21..=40) {
            engine.add(filter, &key).await.unwrap();
        }
        for keys in [keys(41..=45), keys(46..=50)] {
            engine
                .query_and_add_batch(again(filter), keys)
                .await
                .unwrap();
        }
    }
    engine.remove_batch(COUNTED, keys(16..=25)).await.unwrap();
    let import = Import {
        name: REDIS.to_owned(),
        format: FileFormat::RedisBloom,
        file_bytes: DUMP.len() as u64,
        capacity: None,
    };
    engine.import_filter(import, DUMP).await.unwrap();
    // The files are copied while the engine works, as after a kill.
    let left = tempfile::tempdir().unwrap();
    copy(dir.path(), left.path());
    fs::remove_file(left.path().join("LOCK")).unwrap();
    check_filters(left.path()).await;
    check_requests(left.path()).await;
    if let Some(name) = std::env::var_os("SEENSET_KEEP_FORMAT") {
        let new = formats().join(name);
        fs::create_dir_all(&new).unwrap();
        copy(left.path(), &new);
    }
}
