//! The cost of a key in one layer and in four, compared with a plain filter for as many keys.

use seenset_server::{
    engine::{Engine, OnFull, Scaling},
    filter::spec::{Kind, SpecRequest},
    store::DataDirectory,
};

use crate::{
    BATCH, Keys, batches,
    ours::{engine, now},
    turns::{print, turns},
};

const LAYERS: usize = 4;
const RATE: f64 = 0.01;
/// The rate of the server's default filter, and the bits for each key of a plain filter at that
/// rate.
const DEFAULT_RATE: (f64, f64) = (0.001, 15.86);
/// The keys of four layers, as a multiple of the keys of the first. Each layer has twice the keys
/// of the one before.
const GROWN: u64 = 15;
/// The part of the capacity that is used when the measurement begins.
const USED: f64 = 0.6;

/// Requests keys from a filter, and returns how many were seen.
type Ask = fn(&Filter, Keys) -> usize;

/// Compares a filter that has not grown yet with a plain filter of `mib` MiB for as many keys. Both
/// already hold the keys `seen` and others, but none of `new`.
pub fn compare_one(mib: usize, new: Keys, seen: Keys) {
    let (rate, bits_per_key) = DEFAULT_RATE;
    let capacity = (((mib as u64) << 23) as f64 / bits_per_key) as u64;
    let plain = Filter::new(SpecRequest::new(capacity, rate));
    let one = Filter::new(SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(capacity, rate)
    });
    // This plain filter has the rate of the first layer, and therefore as much memory.
    let large = Filter::new(SpecRequest::new(capacity, rate / 3.0));
    let others = others().take((capacity as f64 * USED) as usize);
    let mut all = others.chain(seen.iter().map(|&key| key.to_owned()));
    loop {
        let batch: Vec<String> = all.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        for filter in [&plain, &one, &large] {
            filter.fill(batch.clone());
        }
    }
    let ([_, plain_mib], [layers, one_mib]) = (plain.memory(), one.memory());
    println!(
        "\nplain for {capacity} keys at {rate}, {plain_mib} MiB, and one layer, {one_mib} MiB; ns a key"
    );
    contend(
        [
            ("plain", &plain),
            ("one layer", &one),
            ("plain, as large", &large),
        ],
        new,
        seen,
    );
    assert_eq!(
        (layers, one.memory()[0]),
        (1, 1),
        "take a larger filter: this one has grown"
    );
}

fn contend<const N: usize>(filters: [(&'static str, &Filter); N], new: Keys, seen: Keys) {
    let asked: [(&str, Keys, Ask); 4] = [
        ("query, seen", seen, Filter::query),
        ("query, new", new, Filter::query),
        ("add, seen", seen, Filter::add),
        ("add, new", new, Filter::add),
    ];
    for (what, keys, ask) in asked {
        let mut contenders = filters.map(|(name, filter)| {
            let ask: Box<dyn FnMut(Keys) -> usize> = Box::new(move |keys| ask(filter, keys));
            (name, ask)
        });
        print(what, &turns(keys, &mut contenders));
    }
}

/// Compares four layers with a plain filter of `mib` MiB. The keys `seen` are added before, at
/// equal distances among other keys; the keys `new` are not.
pub fn compare(mib: usize, new: Keys, seen: Keys) {
    let capacity = capacity(mib);
    let plain = Filter::new(SpecRequest::new(capacity, RATE));
    let layered = Filter::layered(capacity);
    let used = (capacity as f64 * USED) as usize;
    let mut others = others();
    let chunks = seen.len() * 10 / BATCH;
    for (index, keys) in seen.chunks(BATCH / 10).enumerate() {
        let share = used * (index + 1) / chunks - used * index / chunks;
        let mut left = share.saturating_sub(keys.len());
        let mut batch: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        while !batch.is_empty() {
            let more = left.min(BATCH - batch.len());
            batch.extend(others.by_ref().take(more));
            left -= more;
            plain.fill(batch.clone());
            layered.fill(batch);
            batch = others.by_ref().take(left.min(BATCH)).collect();
            left -= batch.len();
        }
    }
    let (plain_mib, [layers, layered_mib]) = (plain.memory()[1], layered.memory());
    println!(
        "\nplain for {capacity} keys at {RATE}, {plain_mib} MiB, and {layers} layers, {layered_mib} \
         MiB; ns a key"
    );
    assert_eq!(layers, LAYERS, "so much was to be added");
    contend([("plain", &plain), ("four layers", &layered)], new, seen);
}

/// Returns the capacity of a plain filter of `mib` MiB.
fn capacity(mib: usize) -> u64 {
    let bits = (mib as u64) << 23;
    (bits as f64 / 9.99) as u64
}

/// Returns keys that no measurement requests.
fn others() -> impl Iterator<Item = String> {
    (0_u64..).map(|number| format!("other/{number}"))
}

/// A filter in an engine of its own.
pub struct Filter {
    engine: Engine,
    _dir: tempfile::TempDir,
}

impl Filter {
    /// Returns four layers for as many keys as a plain filter of `mib` MiB, filled as they are when
    /// the measurement begins.
    pub fn four_layers(mib: usize) -> Self {
        let capacity = capacity(mib);
        let filter = Self::layered(capacity);
        let mut others = others().take((capacity as f64 * USED) as usize);
        loop {
            let batch: Vec<String> = others.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            filter.fill(batch);
        }
        filter
    }

    /// Returns a filter that has `capacity` keys when four layers are full.
    fn layered(capacity: u64) -> Self {
        Self::new(SpecRequest {
            kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
            ..SpecRequest::new(capacity / GROWN, RATE)
        })
    }

    fn new(spec: SpecRequest) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(DataDirectory::open(dir.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(engine.recover(Some(spec))).unwrap();
        Self { engine, _dir: dir }
    }

    /// Returns the number of layers, and the memory in MiB.
    fn memory(&self) -> [usize; 2] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let status = runtime.block_on(self.engine.get_filter("")).unwrap();
        let layers = status.layers.map_or(1, |layers| layers.layers);
        [layers, (status.memory_bytes >> 20) as usize]
    }

    fn fill(&self, keys: Vec<String>) {
        now(self.engine.add_batch("", keys));
    }

    /// Makes a call for each key.
    pub fn add_each(&self, keys: Keys) -> usize {
        keys.iter()
            .filter(|key| now(self.engine.query_and_add("", key)))
            .count()
    }

    fn add(&self, keys: Keys) -> usize {
        batches(keys, |batch| {
            now(self.engine.query_and_add_batch("", batch))
        })
    }

    fn query(&self, keys: Keys) -> usize {
        batches(keys, |batch| now(self.engine.query_batch("", batch)))
    }
}
