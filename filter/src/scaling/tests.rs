//! Plans, and the places of keys in the layers.

use super::*;
use crate::{blocked::LANES, key_set::KeySet, spec::SpecRequest};

const RATES_ASKED: [f64; 4] = [0.1, 0.01, 0.001, 0.0001];

fn plan(capacity: u64, rate: f64, growth: u32) -> Layers {
    let scaling = Scaling {
        growth,
        ..Scaling::default()
    };
    Layers::plan(capacity, rate, &scaling).unwrap().0
}

fn bounded(capacity: u64, rate: f64, bound: u64) -> Result<(Layers, End), ScalingError> {
    let scaling = Scaling {
        max_memory_bytes: Some(bound),
        ..Scaling::default()
    };
    Layers::plan(capacity, rate, &scaling)
}

fn hashes(count: u32) -> impl Iterator<Item = KeyHash> {
    let seed = KeyHash { low: 3, high: 5 };
    (1..=count).map(move |i| KeyHash {
        low: seed.value(i),
        high: seed.value(i + (1 << 30)),
    })
}

/// Returns the shards of a partition that has `count` layers.
fn shards(layers: &Layers, count: usize) -> Vec<Vec<u64>> {
    let layers = layers.layers()[..count].iter();
    layers
        .flat_map(|layer| vec![vec![0; layer.shape().shard_words()]; layer.shards()])
        .collect()
}

fn full(layer: &Layer, partitions: u64) -> Fill {
    Fill {
        partitions,
        bits_set: layer.spec.full_bits * partitions,
    }
}

#[test]
fn all_layers_together_keep_the_rate() {
    for rate in [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-9, 1e-12] {
        for growth in [2, 3, 4, 7, 16] {
            for capacity in [1000, 20_000, 3_000_000, 1 << 36] {
                let layers = plan(capacity, rate, growth);
                let fills = layers
                    .layers
                    .iter()
                    .map(|layer| full(layer, layers.partitions));
                let reached = layers.false_positive_rate_at_fill(fills);
                assert!(
                    reached <= rate && reached > 0.9 * rate,
                    "{rate:e}, growth {growth}, capacity {capacity}: {reached:e}"
                );
                assert!(layers.false_positive_rate(layers.capacity()) <= rate);
                assert!(layers.layers.len() <= MAX_LAYERS);
            }
        }
    }
}

#[test]
fn layers_grow_and_are_full_at_the_horizon() {
    for (growth, layers_then) in [(2, 6), (3, 5), (4, 4), (8, 3), (16, 3)] {
        let capacity = 1_000_000;
        let layers = plan(capacity, 0.01, growth);
        let sizes: Vec<u64> = layers
            .layers
            .iter()
            .map(|layer| layer.spec.capacity)
            .collect();
        assert!(sizes[0] >= capacity && sizes[0] < capacity * 33 / 32);
        let then: u64 = sizes[..layers_then].iter().sum();
        assert!(
            (HORIZON * capacity..=HORIZON * capacity + 8).contains(&then),
            "{sizes:?}"
        );
        let ratio = |pair: &[u64]| pair[1] as f64 / pair[0] as f64;
        assert!(ratio(&sizes) <= f64::from(growth) * 1.0001);
        for pair in sizes[1..].windows(2) {
            assert!(
                (ratio(pair) / f64::from(growth) - 1.0).abs() < 1e-4,
                "{sizes:?}"
            );
        }
    }
}

/// The table of `docs/lab/scaling.md`: the memory at 64 times the capacity, against a filter that
/// was made for that many keys.
#[test]
fn memory_at_the_horizon_stays_within_bounds() {
    for (growth, bounds) in [
        (2, [1.66, 1.43, 1.345, 1.24]),
        (4, [1.435, 1.285, 1.23, 1.16]),
    ] {
        for (rate, bound) in RATES_ASKED.into_iter().zip(bounds) {
            for capacity in [20_000, 1_000_000, 100_000_000] {
                let keys = HORIZON * capacity;
                let plain = SpecRequest::new(keys, rate).resolve().unwrap();
                let layers = plan(capacity, rate, growth);
                let ratio = layers.memory_bytes(keys) as f64 / plain.memory_bytes() as f64;
                assert!(
                    ratio <= bound,
                    "{rate}, growth {growth}, {capacity}: {ratio}"
                );
                // The bound is close to the measured ratio.
                assert!(
                    ratio > 0.98 * bound,
                    "{rate}, growth {growth}, {capacity}: {ratio}"
                );
            }
        }
    }
}

#[test]
fn memory_grows_layer_by_layer() {
    let layers = plan(1_000_000, 0.01, 2);
    let [first, second] = [0, 1].map(|number| layers.layers[number]);
    assert_eq!(layers.memory_bytes(0), first.memory_bytes());
    assert_eq!(
        layers.memory_bytes(first.spec.capacity),
        first.memory_bytes()
    );
    let both = first.memory_bytes() + second.memory_bytes();
    assert_eq!(layers.memory_bytes(first.spec.capacity + 1), both);
    assert_eq!(layers.memory_bytes(u64::MAX), layers.max_memory_bytes());
}

#[test]
fn a_bound_on_memory_is_kept_and_used() {
    let mut capacity_before = 0;
    let (first, _) = bounded(1_000_000, 0.01, 1_400_000).unwrap();
    assert_eq!(first.layers.len(), 1);
    for sixteenths in 16..400 {
        let bound = first.max_memory_bytes() * sixteenths / 16;
        let (layers, end) = bounded(1_000_000, 0.01, bound).unwrap();
        assert_eq!(end, End::Memory);
        let memory = layers.max_memory_bytes();
        assert!(
            memory <= bound && memory > bound * 11 / 20,
            "{memory} of {bound}"
        );
        // Nearly, because with one more layer each has a smaller share of the rate.
        assert!(layers.capacity() as f64 > 0.9 * capacity_before as f64);
        capacity_before = layers.capacity();
        let fills = layers
            .layers
            .iter()
            .map(|layer| full(layer, layers.partitions));
        assert!(layers.false_positive_rate_at_fill(fills) <= 0.01);
    }
    assert!(capacity_before > 15_000_000, "{capacity_before}");

    let refused = bounded(1_000_000, 0.01, first.max_memory_bytes() - 1);
    let error = ScalingError::MaxMemory {
        value: first.max_memory_bytes() - 1,
        needed: first.max_memory_bytes(),
    };
    assert_eq!(refused, Err(error));
    // A bound that is too high has no effect.
    let (all, end) = bounded(1_000_000, 0.01, u64::MAX).unwrap();
    assert_eq!((all, end), (plan(1_000_000, 0.01, 2), End::Size));
}

/// Few layers then share all of the rate, and each has few bits a key.
#[test]
fn a_bound_on_memory_keeps_the_highest_rates() {
    for rate in [0.4, 0.45, 0.5] {
        let first = Layers::plan_one(20_000, rate).unwrap().max_memory_bytes();
        for sixteenths in (24..400).step_by(8) {
            let planned = bounded(20_000, rate, first * sixteenths / 16);
            let (layers, _) = planned.unwrap();
            let reached = layers.rate_when_full();
            assert!(reached <= rate, "{rate}, {sixteenths}: {reached}");
        }
    }
}

#[test]
fn what_no_filter_can_be_is_refused() {
    let planned = |capacity, rate, growth| {
        let max_memory_bytes = None;
        Layers::plan(
            capacity,
            rate,
            &Scaling {
                growth,
                max_memory_bytes,
            },
        )
    };
    assert_eq!(planned(0, 0.01, 2), Err(ScalingError::Capacity));
    for rate in [0.0, -1.0, 9e-13, 0.51, 1.0, f64::INFINITY] {
        let error = ScalingError::FalsePositiveRate { value: rate };
        assert_eq!(planned(1000, rate, 2), Err(error));
    }
    assert!(planned(1000, f64::NAN, 2).is_err());
    for growth in [0, 1, 17, u32::MAX] {
        let error = ScalingError::Growth { value: growth };
        assert_eq!(planned(1000, 0.01, growth), Err(error));
    }
    for capacity in [1 << 50, u64::MAX] {
        let error = ScalingError::Unreachable {
            capacity,
            false_positive_rate: 0.01,
        };
        assert_eq!(planned(capacity, 0.01, 2), Err(error.clone()));
        assert_eq!(bounded(capacity, 0.01, u64::MAX), Err(error));
    }
    assert!(bounded(1000, 0.01, 0).is_err());
    // The largest possible filter, which never grows.
    let (largest, end) = planned(1 << 46, 0.01, 16).unwrap();
    assert_eq!((largest.layers.len(), end), (1, End::Size));
}

#[test]
fn layers_are_restored_from_whole_numbers_alone() {
    for capacity in [1, 20_000, 100_000_000, 1 << 38] {
        let layers = plan(capacity, 0.001, 3);
        let specs: Vec<LayerSpec> = layers.layers.iter().map(|layer| *layer.spec()).collect();
        assert_eq!(Layers::restore(layers.partitions, &specs), Ok(layers));
    }
}

#[test]
fn damaged_layers_are_refused() {
    let layers = plan(1_000_000, 0.01, 2);
    let partitions = layers.partitions;
    let specs: Vec<LayerSpec> = layers.layers[..3]
        .iter()
        .map(|layer| *layer.spec())
        .collect();
    assert!(Layers::restore(partitions, &specs).is_ok());
    assert!(Layers::restore(partitions, &[]).is_err());
    for partitions in [0, MAX_PARTITIONS + 1, u64::MAX] {
        let error = ScalingError::Layer { layer: 0 };
        assert_eq!(Layers::restore(partitions, &specs), Err(error));
    }
    let damages: [fn(&mut LayerSpec); 12] = [
        |spec| spec.shards = 0,
        |spec| spec.shards += 1,
        |spec| spec.shards = u64::MAX,
        |spec| spec.shard_bits = 0,
        |spec| spec.shard_bits += 1,
        |spec| spec.shard_bits = u64::MAX - 511,
        |spec| spec.shard_bits = MAX_SHARD_BITS + 512,
        |spec| (spec.shards, spec.shard_bits) = (1 << 40, MAX_SHARD_BITS),
        |spec| spec.hash_count = 0,
        |spec| spec.hash_count = MAX_HASH_COUNT + 1,
        |spec| spec.full_bits = 0,
        |spec| spec.full_bits = spec.shards * spec.shard_bits + 1,
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut damaged = specs.clone();
        damage(&mut damaged[1]);
        let error = ScalingError::Layer { layer: 1 };
        assert_eq!(
            Layers::restore(partitions, &damaged),
            Err(error),
            "{number}"
        );
    }
    // Too many together.
    let large = LayerSpec {
        shards: 1 << 24,
        shard_bits: MAX_SHARD_BITS,
        ..specs[0]
    };
    assert!(Layers::restore(1, &[large; 2]).is_ok());
    assert_eq!(
        Layers::restore(1, &[large; 3]),
        Err(ScalingError::Layer { layer: 2 })
    );
    let error = ScalingError::Layer { layer: MAX_LAYERS };
    assert_eq!(
        Layers::restore(partitions, &[specs[0]; MAX_LAYERS + 1]),
        Err(error)
    );
}

#[test]
fn rates_follow_what_is_there() {
    let layers = plan(1_000_000, 0.01, 2);
    let rate = |fills: &[Fill]| layers.false_positive_rate_at_fill(fills.iter().copied());
    let [first, second] = [0, 1].map(|number| layers.layers[number]);
    assert_eq!(rate(&[]), 0.0);
    assert_eq!(rate(&[Fill::default()]), 0.0);
    let all = layers.partitions;
    let alone = rate(&[full(&first, all)]);
    assert!((alone / first.rate() - 1.0).abs() < 1e-9);
    // A layer that half of the partitions have is asked for half of the keys.
    let half = rate(&[Fill::default(), full(&second, all / 2)]);
    assert!((half / second.rate() - (all / 2) as f64 / all as f64).abs() < 1e-9);
    // Two layers report the same key less often than if they were independent.
    let both = rate(&[full(&first, all), full(&second, all)]);
    let sum = first.rate() + second.rate();
    assert!(both > sum - first.rate() * second.rate() && both < sum);
    // A number above all partitions counts as all.
    assert!(rate(&[full(&first, all + 1)]) <= 1.0);
    let mut before = 0.0;
    for keys in (0..70).map(|millions| millions * 1_000_000) {
        let rate = layers.false_positive_rate(keys);
        assert!(rate >= before && rate <= 0.01);
        before = rate;
    }
    assert!(before > 0.009);
    // Past the last layer nothing keeps the rate.
    assert!(layers.false_positive_rate(layers.capacity() * 16) > 0.02);
    assert_eq!(layers.false_positive_rate(u64::MAX), 1.0);
}

/// In each layer the shards of a partition hold the same keys, and the bits of a key are those of
/// the layer's blocks.
#[test]
fn shards_of_a_partition_have_the_same_keys_in_all_layers() {
    let layers = plan(30_000_000, 1e-6, 16);
    // The third has several shards of each partition.
    assert!(layers.layers[2].shards() > 1 && layers.partitions > 1);
    for hash in hashes(2000) {
        let partition = layers.partition(hash);
        let mut end = 0;
        for layer in &layers.layers[..3] {
            let (shard, mut block) = (layer.shape().shard(hash), 0);
            layer.blocked.visit_lines(hash, |word| block = word / LANES);
            assert_eq!(
                layer.line(hash),
                shard * (layer.shape().shard_words() / LANES) + block
            );
            let first = end;
            end += layer.shards();
            let place = layers.newest_place(end, hash);
            assert_eq!(partition * layer.shards() + place - first, shard);
        }
    }
}

#[test]
fn a_key_is_added_to_the_newest_layer_alone() {
    let layers = plan(1000, 0.01, 2);
    assert_eq!(layers.partitions, 1);
    for count in 1..5 {
        let newest = &layers.layers[count - 1];
        for hash in hashes(200) {
            let mut shards = shards(&layers, count);
            assert_eq!(layers.find(&shards, hash), None);
            let added = layers.insert(&mut shards, hash);
            assert_eq!(added.shard, newest.first_shard());
            assert_eq!(
                u64::from(added.bits),
                newest.shape().bits_set(&shards[added.shard])
            );
            assert!(newest.blocked.contains(&shards[added.shard], hash));
            assert_eq!(layers.find(&shards, hash), Some(added.shard));
            assert_eq!(layers.insert(&mut shards, hash), Added { bits: 0, ..added });
            assert_eq!(added.layer, count - 1);
            let others = shards[..added.shard].iter().flatten();
            assert!(others.copied().all(|word| word == 0));
        }
    }
}

#[test]
fn a_key_is_there_when_all_its_bits_are_in_one_layer() {
    let layers = plan(1000, 0.01, 2);
    for hash in hashes(100) {
        for number in 0..3 {
            let layer = &layers.layers[number];
            let mut shards = shards(&layers, 3);
            layer.blocked.insert(&mut shards[layer.first_shard()], hash);
            assert_eq!(layers.find(&shards, hash), Some(layer.first_shard()));
            let added = layers.insert(&mut shards, hash);
            let expected = Added {
                layer: number,
                shard: layer.first_shard(),
                bits: 0,
            };
            assert_eq!(added, expected);
            // With one bit less in this layer the key is not found: bits of different layers do not
            // add up.
            let bit = layer.blocked.bits(hash)[0];
            shards[layer.first_shard()][bit as usize / 64] &= !(1 << (bit % 64));
            let other = (number + 1) % 3;
            let words = &mut shards[layers.layers[other].first_shard()];
            let bits = layers.layers[other].blocked.bits(hash);
            bits[1..]
                .iter()
                .for_each(|bit| words[*bit as usize / 64] |= 1 << (bit % 64));
            assert_eq!(layers.find(&shards, hash), None);
        }
    }
}

#[test]
fn many_keys_at_once_are_as_one_after_the_other() {
    let layers = plan(100_000, 0.001, 2);
    let partitions = layers.partitions();
    assert!(partitions > 3);
    // Starts at the second partition: one layer in each, and then one more in each.
    many_keys_are_as_one_after_the_other(&layers, (1..partitions).map(|_| 1));
    many_keys_are_as_one_after_the_other(&layers, 1..partitions);
}

fn many_keys_are_as_one_after_the_other(layers: &Layers, counts: impl Iterator<Item = usize>) {
    let own = |hash: &KeyHash| layers.partition(*hash) >= 1;
    let keys: Vec<KeyHash> = hashes(3000).filter(own).collect();
    let keys: Vec<KeyHash> = keys.iter().chain(&keys[..500]).copied().collect();
    let mut one_by_one: Vec<_> = counts.map(|count| shards(layers, count)).collect();
    let mut at_once = one_by_one.clone();
    let numbered = || keys.iter().copied().enumerate();
    let mut told = Vec::new();
    layers.insert_each(
        &mut at_once,
        1,
        numbered(),
        |(number, _), _: &mut Vec<_>, added| {
            told.push((number, added));
        },
    );
    for ((number, hash), told) in numbered().zip(told) {
        let partition = &mut one_by_one[layers.partition(hash) - 1];
        assert_eq!(told, (number, layers.insert(partition, hash)));
        // The last keys were added before.
        assert!(number < keys.len() - 500 || told.1.bits == 0);
    }
    assert!(at_once == one_by_one);
    for partition in &mut at_once {
        partition[0].fill(0);
    }
    let mut told = Vec::new();
    layers.find_each(&at_once, 1, numbered(), |number, _: &Vec<_>, found| {
        told.push((number, found));
    });
    assert!(told.iter().any(|(_, found)| found.is_none()));
    for ((number, hash), told) in numbered().zip(told) {
        let partition = &at_once[layers.partition(hash) - 1];
        assert_eq!(told, (number, layers.find(partition, hash)));
    }
}

/// A layer that `report` adds to a partition gets the next of its keys.
#[test]
fn a_partition_may_grow_amid_a_batch() {
    let layers = plan(1000, 0.01, 2);
    let mut partition = vec![shards(&layers, 1)];
    let mut bits_set = 0;
    let keys: Vec<KeyHash> = hashes(3000).collect();
    let mut in_second = 0;
    layers.insert_each(
        &mut partition,
        0,
        keys.iter().copied().enumerate(),
        |_, partition: &mut Vec<Vec<u64>>, added| {
            assert!(added.bits == 0 || added.shard == partition.len() - 1);
            in_second += u32::from(added.shard == 1);
            bits_set += u64::from(added.bits);
            if partition.len() == 1 && bits_set >= layers.layers[0].spec.full_bits {
                partition.push(vec![0; layers.layers[1].shape().shard_words()]);
            }
        },
    );
    // The first layer has its planned number of keys, and four standard deviations.
    assert!((1700..1950).contains(&in_second), "{in_second}");
    assert!(
        keys.iter()
            .all(|&hash| layers.find(&partition[0], hash).is_some())
    );
}

/// Keys that all lie in one block cannot make a filter grow.
#[test]
fn keys_of_one_block_fill_no_layer() {
    let layers = plan(20_000, 0.01, 2);
    let layer = &layers.layers[0];
    let mut shards = shards(&layers, 1);
    let mut bits_set = 0;
    for hash in hashes(100_000) {
        let added = layers.insert(
            &mut shards,
            KeyHash {
                high: 1 << 40,
                ..hash
            },
        );
        bits_set += u64::from(added.bits);
    }
    assert!(bits_set <= 512 && bits_set < layer.spec.full_bits);
}
