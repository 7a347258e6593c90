//! Filters that grow: layer upon layer, with a rate that is never above the one asked for.
//!
//! Almeida, Baquero, Preguiça and Hutchison (2007): a full filter gets a new layer, and a key
//! counts as seen if any layer holds it. A key that was never added is reported as seen if any
//! layer takes it for one of its own. So each layer has a share of the rate, and the shares of all
//! layers, no matter how many, add up to at most the rate.
//!
//! # Partitions
//!
//! No key waits for a decision about the whole filter. A filter has a fixed number of *partitions*,
//! chosen by the high half of the hash. Each partition grows by itself: when its newest layer is
//! full it gets the next. Each layer is a filter of its own [`Shape`], with the same number of
//! shards for each partition. Shards are chosen by the same half of the hash, so the shards of a
//! partition in all layers hold the same keys, and one lock can guard them.
//!
//! A layer is full when as many of its bits are set as its planned number of keys is expected to
//! set. The set bits determine the rate, no matter which keys have set them. An attacker who could
//! choose keys that lie in a few blocks would fill those blocks, but no layer.
//!
//! # Sizes and rates
//!
//! Each layer is `growth` times the size of the one before. The only exception is the second, which
//! is smaller if that makes a number of layers exactly full at [`HORIZON`] times the initial
//! capacity. A layer's share of the rate is proportional to its size, which takes the least memory
//! (`docs/adr/0009-layers.md`). Layers past the horizon get the rest.

mod kernel;
mod on_full;
mod plan;
mod together;

use std::ops::RangeInclusive;

use thiserror::Error;

use self::together::Together;
pub use self::{
    kernel::Added,
    on_full::{OnFull, OnFullName},
};

use crate::{
    blocked::{BLOCK_BITS, Blocked},
    format::Format,
    hash::{KeyHash, choose},
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
    shape::{Dimensions, MAX_SHARD_BITS, Shape},
    sizing,
};

/// The most layers that a filter can have: enough to grow by a factor of four billion.
pub const MAX_LAYERS: usize = 32;
/// The most partitions of a filter whose first layer has smaller shards than usual.
const MAX_PARTITIONS: u64 = 256;
/// The growth of the capacity, as a factor, for which the rate is divided among layers.
pub const HORIZON: u64 = 64;
/// The rates that a growing filter can keep. With a lower rate, the share of one layer would be
/// below the precision with which rates are computed.
pub const RATES: RangeInclusive<f64> = 1e-12..=0.5;
/// The allowed growth factors of layers.
pub const GROWTHS: RangeInclusive<u32> = 2..=16;

/// The growth of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scaling {
    /// The size of a new layer, as a multiple of the layer before.
    pub growth: u32,
    /// The most memory that all layers together can take, in bytes. No bound if `None`.
    pub max_memory_bytes: Option<u64>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            growth: 2,
            max_memory_bytes: None,
        }
    }
}

/// The reason why no layers could be planned, or why the layers of a file are invalid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScalingError {
    /// No capacity was given.
    #[error("capacity is 0; it must be at least 1: the number of keys of the first layer")]
    Capacity,
    /// The rate cannot be divided.
    #[error(
        "false_positive_rate is {value:e}; for one of the kind scaling it must be {:e} to {}",
        RATES.start(),
        RATES.end()
    )]
    FalsePositiveRate {
        /// The rate asked for.
        value: f64,
    },
    /// The growth factor is outside [`GROWTHS`].
    #[error("scaling.growth is {value}; it must be {} to {}", GROWTHS.start(), GROWTHS.end())]
    Growth {
        /// The growth factor asked for.
        value: u32,
    },
    /// A field for layers was given, but there is only one layer.
    #[error(
        "scaling.{field} is {value} and scaling.on_full is {on_full}, with which there is one layer \
         alone: leave {field} out, or make on_full scale"
    )]
    OneLayer {
        /// The field, within `scaling`.
        field: &'static str,
        /// The value asked for.
        value: u64,
        /// The action when the filter is full.
        on_full: OnFullName,
    },
    /// The first layer does not fit into the memory bound.
    #[error(
        "scaling.max_memory_bytes is {value}; the first layer takes {needed}: raise the bound, lower the \
         capacity or raise the rate"
    )]
    MaxMemory {
        /// The memory bound asked for.
        value: u64,
        /// The memory of the first layer, in bytes.
        needed: u64,
    },
    /// The first layer would have more bits than any filter can have.
    #[error(
        "capacity {capacity} with false_positive_rate {false_positive_rate:e} needs more than \
         {MAX_BIT_COUNT} bits in a first layer: lower the capacity or raise the rate"
    )]
    Unreachable {
        /// The capacity asked for.
        capacity: u64,
        /// The rate asked for.
        false_positive_rate: f64,
    },
    /// A layer that no plan would contain.
    #[error("layer {layer} is none that a filter could have")]
    Layer {
        /// The number of the layer, from 0.
        layer: usize,
    },
}

/// The numbers of a layer. They are whole numbers, so that they can be stored and mean the same to
/// a program that would plan differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSpec {
    /// The number of shards of each partition.
    pub shards: u64,
    /// The number of bits of each shard.
    pub shard_bits: u64,
    /// The number of bits that each key sets.
    pub hash_count: u32,
    /// The number of set bits at which the shards of a partition are full.
    pub full_bits: u64,
    /// The number of keys by which the layer lets the whole filter grow.
    pub capacity: u64,
}

/// One layer, over all partitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    spec: LayerSpec,
    /// The shards of all partitions. The shards of a partition are neighbours.
    blocked: Blocked,
    /// The number of shards of a partition in this layer and those before it.
    end: usize,
    /// The number of blocks of all its shards.
    blocks: u64,
    rate: f64,
}

impl Layer {
    /// Returns the numbers of the layer.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// Returns the blocks of the shards of all partitions. The shards of a partition are neighbours.
    pub fn blocked(&self) -> &Blocked {
        &self.blocked
    }

    /// Returns the sizes of the shards of all partitions.
    pub fn shape(&self) -> &Shape {
        self.blocked.shape()
    }

    /// Returns the number of shards of each partition.
    pub fn shards(&self) -> usize {
        self.spec.shards as usize
    }

    /// Returns the place of this layer's first shard among the shards of a partition.
    pub fn first_shard(&self) -> usize {
        self.end - self.shards()
    }

    /// Returns the false-positive rate of this layer alone when it is full.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the number of bits of the shards of one partition.
    fn partition_bits(&self) -> u64 {
        self.spec.shards * self.spec.shard_bits
    }

    /// Returns the memory of the shards of one partition, in bytes.
    pub fn partition_bytes(&self) -> u64 {
        self.partition_bits() / 8
    }

    /// Returns the memory of all shards, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.shape().bit_count() / 8
    }

    /// Returns the expected number of keys that still fit until the shards of a partition are full,
    /// if `bits_set` of their bits are set. Takes microseconds.
    pub fn keys_left(&self, bits_set: u64) -> u64 {
        let partitions = (self.shape().bit_count() / self.partition_bits()) as f64;
        let keys = |bits: u64| {
            let fill_ratio = bits as f64 / self.partition_bits() as f64;
            sizing::keys_at_fill(&self.blocked, fill_ratio).map(|keys| keys / partitions)
        };
        match (keys(self.spec.full_bits), keys(bits_set)) {
            (Some(most), Some(there)) => (most - there).max(0.0) as u64,
            _ => 0,
        }
    }
}

/// All layers that a filter can ever have, planned when it is created, and its partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Layers {
    partitions: u64,
    /// The layers: at least one.
    layers: Vec<Layer>,
}

/// The reason why a filter stops growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another layer would take more memory than the filter is allowed.
    Memory,
    /// Another layer would exceed the greatest number of layers or bits.
    Size,
}

impl Layers {
    /// Plans a filter for `capacity` keys at first, and a false-positive rate that is never above
    /// `rate`. Takes milliseconds, and allocates no filter.
    ///
    /// # Errors
    ///
    /// A [`ScalingError`] that names the field, its value and the limit.
    pub fn plan(capacity: u64, rate: f64, scaling: &Scaling) -> Result<(Self, End), ScalingError> {
        plan::plan(capacity, rate, scaling)
    }

    /// Plans a filter of one layer for `capacity` keys at `rate`. The filter can detect that it is
    /// full.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::plan`] does.
    pub fn plan_one(capacity: u64, rate: f64) -> Result<Self, ScalingError> {
        plan::plan_one(capacity, rate)
    }

    /// Returns the layers of a filter that was planned before, at most [`MAX_LAYERS`].
    ///
    /// # Errors
    ///
    /// [`ScalingError::Layer`] if a filter with `partitions` partitions cannot have these layers.
    pub fn restore(partitions: u64, specs: &[LayerSpec]) -> Result<Self, ScalingError> {
        let mut layers = Self {
            partitions,
            layers: Vec::new(),
        };
        specs.iter().try_for_each(|spec| layers.push(*spec))?;
        if layers.layers.is_empty() {
            return Err(ScalingError::Layer { layer: 0 });
        }
        Ok(layers)
    }

    fn push(&mut self, spec: LayerSpec) -> Result<(), ScalingError> {
        let error = ScalingError::Layer {
            layer: self.layers.len(),
        };
        let bits_before: u64 = self
            .layers
            .iter()
            .map(|layer| layer.shape().bit_count())
            .sum();
        let shards = self.partitions.checked_mul(spec.shards);
        let bits = shards.and_then(|shards| shards.checked_mul(spec.shard_bits));
        let (Some(shards), Some(bits)) = (shards, bits) else {
            return Err(error);
        };
        let is_one = self.layers.len() < MAX_LAYERS
            && (1..=MAX_BIT_COUNT - bits_before).contains(&bits)
            && spec.shard_bits <= MAX_SHARD_BITS
            && spec.shard_bits.is_multiple_of(BLOCK_BITS)
            && (1..=MAX_HASH_COUNT).contains(&spec.hash_count)
            && (1..=bits / self.partitions).contains(&spec.full_bits)
            // At most as many shards and partitions as these bits need.
            && spec.shards == (bits / self.partitions).div_ceil(MAX_SHARD_BITS)
            && (self.partitions <= MAX_PARTITIONS || spec.shard_bits >= MAX_SHARD_BITS / 2);
        if !is_one {
            return Err(error);
        }
        let blocked = Blocked::from(Dimensions {
            shard_count: shards,
            shard_bits: spec.shard_bits,
            hash_count: spec.hash_count,
        });
        let fill_ratio = spec.full_bits as f64 / (bits / self.partitions) as f64;
        self.layers.push(Layer {
            spec,
            blocked,
            end: self.layers.last().map_or(0, |layer| layer.end) + spec.shards as usize,
            blocks: bits / BLOCK_BITS,
            rate: sizing::false_positive_rate_at_fill(&blocked, fill_ratio),
        });
        Ok(())
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions as usize
    }

    /// Returns the layers, the first one first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns the number of shards of all layers.
    pub fn shard_count(&self) -> usize {
        self.first_shard(self.layers.len())
    }

    /// Returns the number of the first shard of a layer, among all shards. If there is no such
    /// layer, returns the number after the last shard.
    pub fn first_shard(&self, layer: usize) -> usize {
        let end = layer.checked_sub(1).and_then(|last| {
            let layers = self.layers.get(last).or(self.layers.last());
            layers.map(|layer| layer.end)
        });
        end.unwrap_or(0) * self.partitions()
    }

    /// Returns the place of the shard with a number among all shards: its layer, its partition, and
    /// its place among the shards of that partition. Returns `None` if there are fewer shards.
    pub fn locate(&self, shard: usize) -> Option<(usize, usize, usize)> {
        let layer = self
            .layers
            .partition_point(|layer| layer.end * self.partitions() <= shard);
        let found = self.layers.get(layer)?;
        let within = shard - self.first_shard(layer);
        let (partition, place) = (within / found.shards(), within % found.shards());
        Some((layer, partition, found.first_shard() + place))
    }

    /// Returns the layer of the shard with a number among all shards; the last layer if there are
    /// fewer shards.
    #[expect(clippy::indexing_slicing, reason = "there is a layer at least")]
    pub fn layer_of(&self, shard: usize) -> &Layer {
        let found = self.locate(shard).map_or(usize::MAX, |(layer, ..)| layer);
        &self.layers[found.min(self.layers.len() - 1)]
    }

    /// Returns the number, among all shards, of the shard at a place of a partition.
    pub fn number(&self, partition: usize, place: usize) -> usize {
        let layer = self.layers_of(place);
        let within = |found: &Layer| partition * found.shards() + place - found.first_shard();
        self.first_shard(layer) + self.layers.get(layer).map_or(0, within)
    }

    /// Returns the index of the partition that holds all bits of a key.
    #[inline]
    pub fn partition(&self, hash: KeyHash) -> usize {
        choose(hash.high, self.partitions).0 as usize
    }

    /// Returns the number of keys that the filter can grow to.
    pub fn capacity(&self) -> u64 {
        self.layers.iter().map(|layer| layer.spec.capacity).sum()
    }

    /// Returns the memory of all layers together, in bytes.
    pub fn max_memory_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::memory_bytes).sum()
    }

    /// Returns the memory, in bytes, of the layers that `keys` distinct keys need. Partitions that
    /// got more keys than others can be a layer ahead, past the sum of [`LayerSpec::capacity`].
    pub fn memory_bytes(&self, keys: u64) -> u64 {
        let mut before = 0;
        let is_there = |layer: &&Layer| {
            let is_there = before < keys.max(1);
            before += layer.spec.capacity;
            is_there
        };
        let layers = self.layers.iter().take_while(is_there);
        layers.map(Layer::memory_bytes).sum()
    }

    /// Returns the expected false-positive rate after `keys` distinct keys were added. Past
    /// [`capacity`](Self::capacity) the last layer has more keys than it is planned for.
    pub fn false_positive_rate(&self, keys: u64) -> f64 {
        let (mut left, mut together) = (keys as f64, Together::default());
        for (number, layer) in self.layers.iter().enumerate() {
            // Keys that older layers report as seen do not reach this layer.
            let passing = 1.0 - together.rate();
            let mut own = left * passing;
            if number + 1 < self.layers.len() {
                let fill_ratio = layer.spec.full_bits as f64 / layer.partition_bits() as f64;
                let most = sizing::keys_at_fill(&layer.blocked, fill_ratio);
                own = most.map_or(own, |most| own.min(most));
            }
            left -= own / passing;
            together.add(&layer.blocked, own, 1.0);
            if left <= 0.0 || together.rate() >= 1.0 {
                break;
            }
        }
        together.rate()
    }

    /// Returns the expected false-positive rate of a filter with these fills, the first layer
    /// first. Each fill is the number of partitions that have the layer, and the bits set in all of
    /// them.
    pub fn false_positive_rate_at_fill(&self, fills: impl IntoIterator<Item = Fill>) -> f64 {
        let mut together = Together::default();
        for (layer, fill) in self.layers.iter().zip(fills) {
            let partitions = fill.partitions.min(self.partitions) as f64;
            let bits = partitions * layer.partition_bits() as f64;
            let keys = match fill.partitions {
                0 => Some(0.0),
                _ => sizing::keys_at_fill(&layer.blocked, fill.bits_set as f64 / bits),
            };
            let share = partitions / self.partitions as f64;
            together.add(&layer.blocked, keys.unwrap_or(f64::INFINITY), share);
        }
        together.rate()
    }

    /// Returns the expected false-positive rate when all layers are full.
    fn rate_when_full(&self) -> f64 {
        self.false_positive_rate_at_fill(self.layers.iter().map(|layer| Fill {
            partitions: self.partitions,
            bits_set: layer.spec.full_bits * self.partitions,
        }))
    }

    /// Returns the expected number of distinct keys in a filter with these fills, as in
    /// [`false_positive_rate_at_fill`](Self::false_positive_rate_at_fill). It includes keys that
    /// older layers reported as seen. Returns `None` if all bits of a layer are set.
    pub fn keys_at_fill(&self, fills: impl IntoIterator<Item = Fill>) -> Option<f64> {
        let (mut keys, mut passing) = (0.0, 1.0);
        for (layer, fill) in self.layers.iter().zip(fills) {
            let share = fill.partitions.min(self.partitions) as f64 / self.partitions as f64;
            if share == 0.0 {
                break;
            }
            let fill_ratio = fill.bits_set as f64 / (layer.shape().bit_count() as f64 * share);
            let own = sizing::keys_at_fill(&layer.blocked, fill_ratio)? * share;
            keys += own / passing;
            let rate = sizing::false_positive_rate_at_fill(&layer.blocked, fill_ratio);
            passing *= 1.0 - rate * share;
        }
        Some(keys)
    }
}

/// The current state of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// The number of partitions that have the layer.
    pub partitions: u64,
    /// The number of bits set in all of them.
    pub bits_set: u64,
}

/// Returns the rate at which at least one of several layers is wrong.
fn compound(rates: impl Iterator<Item = f64>) -> f64 {
    -rates.map(|rate| (-rate).ln_1p()).sum::<f64>().exp_m1()
}

#[cfg(test)]
mod tests;
