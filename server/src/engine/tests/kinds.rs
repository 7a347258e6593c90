//! A filter of each kind and each layout, for tests that apply to all of them.

#[path = "../../../tests/common/redisbloom.rs"]
mod redisbloom;

use std::{fmt, io::Cursor, ops::Range, time::Duration};

use super::{durability::key, *};

/// The kind of a filter: small, and so exact that no false positive is expected.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    /// A filter made from a spec.
    Made(SpecRequest),
    /// A filter of RedisBloom, which has to be imported.
    RedisBloom,
}

impl Sample {
    pub(super) fn plain() -> Self {
        Self::of(Layout::Blocked)
    }

    pub(super) fn counting() -> Self {
        Self::of_kind(Kind::Counting, 300)
    }

    fn of(layout: Layout) -> Self {
        Self::Made(workload::exact_in(layout))
    }

    fn of_kind(kind: Kind, capacity: u64) -> Self {
        Self::Made(SpecRequest {
            kind,
            ..SpecRequest::new(capacity, 1e-9)
        })
    }

    /// Returns one of each kind and of each layout. A few keys make the scaling filter grow.
    pub(super) fn all() -> [Self; 8] {
        Self::growing_from(2)
    }

    /// The same, with this first capacity of the scaling filter.
    pub(super) fn growing_from(capacity: u64) -> [Self; 8] {
        let aging = Aging {
            max_age: Duration::from_secs(1_000_000),
            slices: 8,
            refresh: false,
        };
        let scaling = Kind::Scaling(OnFull::Scale(Scaling::default()));
        [
            Self::plain(),
            Self::of(Layout::Classic),
            Self::of(Layout::Guava),
            Self::of(Layout::GuavaMitz32),
            Self::RedisBloom,
            Self::counting(),
            Self::of_kind(Kind::Aging(aging), 1000),
            Self::of_kind(scaling, capacity),
        ]
    }

    /// Makes the filter.
    pub(super) async fn make(&self, engine: &Engine, name: &str) -> Result<(), EngineError> {
        match self {
            Self::Made(request) => {
                let made = engine.create_filter(name, request.clone()).await;
                made.map(|_| ())
            }
            Self::RedisBloom => {
                let dump = redisbloom::empty(256);
                let import = Import {
                    name: name.to_owned(),
                    format: FileFormat::RedisBloom,
                    file_bytes: dump.len() as u64,
                    capacity: None,
                };
                let imported = engine.import_filter(import, Cursor::new(dump)).await;
                imported.map(|_| ())
            }
        }
    }

    /// Returns the count of a key that was added this number of times.
    pub(super) fn times(&self, added: u32) -> u32 {
        match self {
            Self::Made(request) if request.kind == Kind::Counting => added,
            _ => added.min(1),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made(request) => write!(f, "{}, {}", request.kind, request.layout),
            Self::RedisBloom => Layout::RedisBloom.fmt(f),
        }
    }
}

/// Returns the keys with these numbers.
pub(super) fn keys(range: Range<u64>) -> Vec<String> {
    range.map(key).collect()
}

/// Returns the count of each key. A filter that counts is asked by removal, and the keys are gone
/// after that. In other filters the count is 1 if the key is seen.
pub(super) async fn counts(engine: &Engine, filter: &str, range: Range<u64>) -> Vec<u32> {
    let keys = keys(range);
    let mut times = vec![0; keys.len()];
    let mut count = |found: Vec<bool>| {
        let both = times.iter_mut().zip(&found);
        both.for_each(|(times, &found)| *times += u32::from(found));
        found.contains(&true)
    };
    if find(engine, filter).unwrap().spec().body.kind() == Kind::Counting {
        while count(engine.remove_batch(filter, keys.clone()).await.unwrap()) {}
    } else {
        count(engine.query_batch(filter, keys).await.unwrap());
    }
    times
}
