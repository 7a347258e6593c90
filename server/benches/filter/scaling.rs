//! What a key costs in four layers, against a plain filter for as many keys.

use std::{array, cell::RefCell};

use memmap2::{Advice, MmapMut, MmapOptions};
use seenset_server::filter::{
    hash::{HashFunction, KeyHash, KeyHasher, Secret},
    scaling::{Layers, Scaling},
    shape::Shape,
    spec::SpecRequest,
};

use crate::{
    Keys, batches,
    turns::{print, turns},
};

const LAYERS: usize = 4;
const RATE: f64 = 0.01;
/// The engine has 128 for each core.
const LOG2_STRIPES: u32 = 8;
/// The keys whose lines are fetched at once from a plain filter, as the engine does it. Four lines
/// for each key are fetched key by key: they take so long to be found that work runs beside.
const BURST: usize = 32;
/// How many keys ahead lines are fetched.
const AHEAD: usize = 16;
/// The part of the capacity that is used when measuring begins.
const USED: f64 = 0.6;

/// Holds four layers against a plain filter of so many MiB. `seen` are added before, in equal
/// distances among other keys, and `new` are not.
pub fn compare(mib: usize, new: Keys, seen: Keys) {
    let bits = (mib as u64) << 23;
    // 15 times the first layer is what four have, each twice the one before.
    let capacity = (bits as f64 / 9.99) as u64;
    let (layers, _) = Layers::plan(capacity / 15, RATE, &Scaling::default()).unwrap();
    let spec = SpecRequest::new(capacity, RATE).resolve().unwrap();
    let mut layered = Layered::new(layers);
    let mut plain = Plain::new(Shape::of(&spec));
    let layered_mib = layered.layers.memory_bytes(capacity) >> 20;
    println!(
        "\nplain for {capacity} keys at {RATE}, {} MiB, and {LAYERS} layers, {layered_mib} MiB; ns a key",
        spec.memory_bytes() >> 20
    );

    let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([7; 16]));
    let used = (capacity as f64 * USED) as usize;
    let mut others = (0_u32..).map(|number| {
        let seed = KeyHash { low: 11, high: 13 };
        let [low, high] = [0, 1].map(|half| seed.value(2 * number + half));
        KeyHash { low, high }
    });
    for (index, key) in seen.iter().enumerate() {
        let (from, to) = (used * index / seen.len(), used * (index + 1) / seen.len());
        let mut hashes: Vec<KeyHash> = others
            .by_ref()
            .take((to - from).saturating_sub(1))
            .collect();
        hashes.push(hasher.hash(key.as_bytes()));
        layered.add(&hashes);
        plain.add(&hashes);
    }
    assert!(
        layered
            .partitions
            .iter()
            .all(|partition| partition.coming.is_empty())
    );

    let (layered, plain) = (RefCell::new(layered), RefCell::new(plain));
    let add = |what, keys| {
        let rows = turns(
            keys,
            &mut [
                (
                    "plain",
                    Box::new(|keys| {
                        batches(keys, |batch| {
                            plain.borrow_mut().add(&hashes(&hasher, &batch))
                        })
                    }),
                ),
                (
                    "four layers",
                    Box::new(|keys| {
                        batches(keys, |batch| {
                            layered.borrow_mut().add(&hashes(&hasher, &batch))
                        })
                    }),
                ),
            ],
        );
        print(what, &rows);
    };
    add("add, seen", seen);
    add("add, new", new);
}

/// The hashes of a batch, in the order in which the engine visits them: by stripes.
fn hashes(hasher: &KeyHasher, batch: &[&str]) -> Vec<KeyHash> {
    let mut hashes = vec![KeyHash::default(); batch.len()];
    let keys = batch.iter().map(|key| key.as_bytes());
    hasher.hash_each(keys, |place, hash| hashes[place] = hash);
    let stripe = |hash: &KeyHash| (hash.high >> (64 - LOG2_STRIPES)) as usize;
    let mut ends = [0; 1 << LOG2_STRIPES];
    hashes.iter().for_each(|hash| ends[stripe(hash)] += 1);
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    let mut sorted = hashes.clone();
    for hash in hashes.iter().rev() {
        let end = &mut ends[stripe(hash)];
        *end -= 1;
        sorted[*end] = *hash;
    }
    sorted
}

type Words = &'static mut [u64];

/// The shards of a shape, as the engine has them: on huge pages if there are any.
fn shards(shape: &Shape) -> (usize, Vec<Words>) {
    let mapping = MmapOptions::new()
        .len(shape.shard_bytes() as usize * shape.shard_count())
        .map_anon()
        .unwrap();
    mapping.advise(Advice::HugePage).unwrap();
    let bytes: &'static mut MmapMut = Box::leak(Box::new(mapping));
    let words: Words = bytemuck::cast_slice_mut(bytes);
    let start = words.as_ptr() as usize;
    (start, words.chunks_mut(shape.shard_words()).collect())
}

/// The numbers and hashes of keys, of which `fetch` is told `AHEAD` keys ahead, a burst at a time.
fn told_ahead<'h>(
    hashes: &'h [KeyHash],
    burst: usize,
    mut fetch: impl FnMut(KeyHash) + 'h,
) -> impl Iterator<Item = (usize, KeyHash)> + 'h {
    let mut coming = hashes.iter();
    let mut tell = move |keys: usize| coming.by_ref().take(keys).for_each(|hash| fetch(*hash));
    tell(AHEAD.max(burst));
    let mut left = burst;
    hashes.iter().enumerate().map(move |(number, hash)| {
        left -= 1;
        if left == 0 {
            left = burst;
            tell(burst);
        }
        (number, *hash)
    })
}

/// Fetches a line into the second cache, which can wait for more lines than the first.
#[allow(unsafe_code, reason = "prefetching dereferences nothing")]
fn prefetch(address: usize) {
    // SAFETY: a hint, which faults at no address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

struct Plain {
    shape: Shape,
    start: usize,
    shards: Vec<Words>,
}

impl Plain {
    fn new(shape: Shape) -> Self {
        let (start, shards) = shards(&shape);
        Self {
            shape,
            start,
            shards,
        }
    }

    fn add(&mut self, hashes: &[KeyHash]) -> Vec<bool> {
        let (shape, start) = (self.shape, self.start);
        let mut seen = vec![true; hashes.len()];
        let keys = told_ahead(hashes, BURST, |hash| {
            shape.visit_lines(hash, |word| {
                prefetch(start + (shape.shard(hash) * shape.shard_words() + word) * 8)
            });
        });
        shape.insert_each(&mut self.shards, 0, keys, |number, _, bits| {
            seen[number] = bits == 0
        });
        seen
    }
}

struct Layered {
    layers: Layers,
    /// Where the memory of each layer starts.
    memory: [(usize, usize, usize); LAYERS],
    partitions: Vec<Partition>,
}

struct Partition {
    shards: Vec<Words>,
    /// Those of the next layers, the last one first.
    coming: Vec<Vec<Words>>,
    /// In the newest layer.
    bits_set: u64,
}

impl AsMut<[Words]> for Partition {
    fn as_mut(&mut self) -> &mut [Words] {
        &mut self.shards
    }
}

impl Layered {
    fn new(layers: Layers) -> Self {
        let (starts, mut memory): (Vec<usize>, Vec<_>) = layers.layers()[..LAYERS]
            .iter()
            .map(|layer| {
                let (start, shards) = shards(layer.shape());
                (start, shards.into_iter())
            })
            .unzip();
        let partitions = (0..layers.partitions())
            .map(|_| {
                let mut coming: Vec<Vec<Words>> = memory
                    .iter_mut()
                    .zip(layers.layers())
                    .map(|(shards, layer)| shards.take(layer.shards()).collect())
                    .rev()
                    .collect();
                Partition {
                    shards: coming.pop().unwrap(),
                    coming,
                    bits_set: 0,
                }
            })
            .collect();
        Self {
            memory: array::from_fn(|number| {
                let layer = &layers.layers()[number];
                (
                    starts[number],
                    layer.shards(),
                    layer.shape().shard_bytes() as usize,
                )
            }),
            layers,
            partitions,
        }
    }

    fn add(&mut self, hashes: &[KeyHash]) -> Vec<bool> {
        let (layers, memory) = (&self.layers, self.memory);
        let mut seen = vec![true; hashes.len()];
        let keys = told_ahead(hashes, 1, |hash| {
            let partition = layers.partition(hash);
            layers.visit_lines(hash, LAYERS, |number, shard, word| {
                let (start, shards, bytes) = memory[number];
                prefetch(start + (partition * shards + shard) * bytes + word * 8);
            });
        });
        layers.insert_each(
            &mut self.partitions,
            0,
            keys,
            |number, partition: &mut Partition, added| {
                if added.bits == 0 {
                    return;
                }
                seen[number] = false;
                partition.bits_set += u64::from(added.bits);
                let newest = &layers.layers()[added.layer];
                if newest.is_full(partition.bits_set)
                    && let Some(next) = partition.coming.pop()
                {
                    partition.shards.extend(next);
                    partition.bits_set = 0;
                }
            },
        );
        seen
    }
}
