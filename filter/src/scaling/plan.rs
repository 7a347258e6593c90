//! Plans the layers of a filter.

use std::ops::Range;

use super::{
    End, GROWTHS, HORIZON, LayerSpec, Layers, MAX_LAYERS, MAX_PARTITIONS, RATES, Scaling,
    ScalingError, compound,
};
use crate::{
    blocked::{BLOCK_BITS, Blocked},
    format::Format,
    limits::MAX_BIT_COUNT,
    shape::{Dimensions, MAX_SHARD_BITS},
    sizing,
};

/// The number of keys of the first layer for each partition. With this many keys, partitions fill
/// alike: when they hold [`HORIZON`] times as many, their numbers of keys differ by a thousandth.
const PARTITION_KEYS: u64 = 16_384;
/// The reserve of a partition for more keys than average, in standard deviations of its number of
/// keys. One partition in thirty thousand gets more.
const DEVIATIONS: f64 = 4.0;
/// The part of the rate that layers up to the [`HORIZON`] share, if there are later layers.
const NEAR_SHARE: f64 = 0.95;
/// The part of that share which the first layer has, if there are others. A larger part makes
/// filters smaller that never grow, and larger those that do: `docs/adr/0009-layers.md`.
const FIRST_SHARE: f64 = 1.0 / 3.0;
/// The greatest part of the keys that can be missing at the [`HORIZON`] if all layers are enlarged.
/// If more are missing, a layer is added instead.
const STRETCH: f64 = 1.0 / 32.0;
/// The useful parts of a last layer if the whole layer would take too much memory. The end of the
/// range is the number of parts of a whole layer.
const PARTS: Range<u32> = 2..8;

/// See [`Layers::plan`].
pub fn plan(capacity: u64, rate: f64, scaling: &Scaling) -> Result<(Layers, End), ScalingError> {
    let growth = scaling.growth;
    check(capacity, rate)?;
    if !GROWTHS.contains(&growth) {
        return Err(ScalingError::Growth { value: growth });
    }
    let mut planner = Planner {
        capacity: capacity as f64,
        growth: f64::from(growth),
        rate,
    };
    let most = MAX_BIT_COUNT / 8;
    let bound = scaling.max_memory_bytes.unwrap_or(most);
    let mut planned = planner.within(bound.min(most));
    // Layers are not independent, and near the highest rate they would miss it: see `together.rs`.
    while (planned.as_ref()).is_ok_and(|(layers, _)| layers.rate_when_full() > rate) {
        planner.rate *= sizing::MARGIN;
        planned = planner.within(bound.min(most));
    }
    let (layers, is_cut) = planned.map_err(|needed| match needed {
        Some(needed) if needed <= most => ScalingError::MaxMemory {
            value: bound,
            needed,
        },
        _ => ScalingError::Unreachable {
            capacity,
            false_positive_rate: rate,
        },
    })?;
    let end = match is_cut && bound < most {
        true => End::Memory,
        false => End::Size,
    };
    Ok((layers, end))
}

/// See [`Layers::plan_one`].
pub fn plan_one(capacity: u64, rate: f64) -> Result<Layers, ScalingError> {
    check(capacity, rate)?;
    let planner = Planner {
        capacity: capacity as f64,
        growth: 2.0,
        rate,
    };
    let layers = planner.layers(1, 1.0, u64::MAX);
    match layers.layers.is_empty() {
        false => Ok(layers),
        true => Err(ScalingError::Unreachable {
            capacity,
            false_positive_rate: rate,
        }),
    }
}

fn check(capacity: u64, rate: f64) -> Result<(), ScalingError> {
    if capacity == 0 {
        return Err(ScalingError::Capacity);
    }
    if !RATES.contains(&rate) {
        return Err(ScalingError::FalsePositiveRate { value: rate });
    }
    Ok(())
}

struct Planner {
    capacity: f64,
    growth: f64,
    rate: f64,
}

impl Planner {
    /// Returns the most layers that take at most `bound` bytes, and whether there would be more
    /// without the bound. If fewer layers fit, each has more of the rate.
    ///
    /// # Errors
    ///
    /// Fails with the bytes of the first layer if not even that one fits; with `None` if it is
    /// larger than any filter.
    fn within(&self, bound: u64) -> Result<(Layers, bool), Option<u64>> {
        let fits = |layers: &Layers| layers.max_memory_bytes() <= bound;
        let lowest = self.layers(MAX_LAYERS, 1.0, bound);
        if lowest.layers.len() == MAX_LAYERS && fits(&lowest) {
            return Ok((lowest, false));
        }
        // The number of layers that fits with the lowest rates also fits with higher ones.
        let count = lowest.layers.len() - usize::from(!fits(&lowest));
        let mut layers = self.layers(count.max(1), 1.0, u64::MAX);
        if layers.layers.is_empty() {
            return Err(None);
        }
        if !fits(&layers) {
            return Err(Some(layers.max_memory_bytes()));
        }
        loop {
            let count = layers.layers.len() + 1;
            let more = self.layers(count, 1.0, u64::MAX);
            if count > MAX_LAYERS || more.layers.len() < count {
                return Ok((layers, false));
            }
            if !fits(&more) {
                let whole = f64::from(PARTS.end);
                let mut cut = PARTS.rev().map(|part| {
                    let part = f64::from(part) / whole;
                    self.layers(count, part, u64::MAX)
                });
                return Ok((cut.find(fits).unwrap_or(layers), true));
            }
            layers = more;
        }
    }

    /// Returns `count` layers. The last one is the given `part` of a whole one. Returns fewer
    /// layers if more would be larger than any filter. Stops at the first layer that makes the
    /// total exceed `bound` bytes.
    fn layers(&self, count: usize, part: f64, bound: u64) -> Layers {
        let mut layers = Layers {
            partitions: 1,
            layers: Vec::new(),
        };
        for (size, rate) in self.sizes(count, part) {
            if layers.layers.is_empty() {
                layers.partitions = partitions(size, rate);
            }
            let next = next(&layers, size, rate);
            let is_there = next.is_some_and(|next| layers.push(next).is_ok());
            if !is_there || layers.max_memory_bytes() > bound {
                break;
            }
        }
        layers
    }

    /// Returns, for each of `count` layers, the number of keys by which it lets the filter grow,
    /// and its rate.
    ///
    /// The first layer has a large share of the whole rate, because most filters get about as many
    /// keys as they are made for. The layers after it, up to the horizon, share the rest in
    /// proportion to their sizes. Past the horizon the shares are 1/2, 1/6, 1/12 and so on of what
    /// is left. They add up to 1, so the i-th such layer takes about 2·log2(i) more bits for each
    /// key because it comes late.
    fn sizes(&self, count: usize, part: f64) -> Vec<(f64, f64)> {
        let horizon = HORIZON as f64;
        let power = |number: usize| self.growth.powi(number as i32);
        // The sum of the first powers.
        let sum = |number: usize| (power(number) - 1.0) / (self.growth - 1.0);
        let reaches = |number: &usize| sum(*number) * (1.0 + STRETCH) >= horizon;
        let near = (1..MAX_LAYERS).find(reaches).unwrap_or(MAX_LAYERS);
        let first = (horizon / sum(near)).max(1.0);
        let unit = (horizon - first) / (sum(near) - 1.0);
        let size = |number: usize| {
            let whole = if number == 0 {
                first
            } else {
                unit * power(number)
            };
            if number + 1 == count {
                whole * part
            } else {
                whole
            }
        };

        let late = count.saturating_sub(near) as f64;
        let near_share = if late > 0.0 { NEAR_SHARE } else { 1.0 };
        // The keys of all layers after the first.
        let near_keys: f64 = (1..near.min(count)).map(size).sum();
        let first_share = if near_keys > 0.0 { FIRST_SHARE } else { 1.0 };
        let share = |number: usize| match number.checked_sub(near) {
            None if number == 0 => near_share * first_share,
            None => near_share * (1.0 - first_share) * size(number) / near_keys,
            Some(before) => {
                let part = 1.0 / ((before + 1) * (before + 2)) as f64;
                // `late` of these parts add up to late / (late + 1).
                (1.0 - NEAR_SHARE) * part * (late + 1.0) / late
            }
        };
        // If layers were independent, all together would be wrong as often as one with the whole
        // rate is.
        let rate = |share: f64| -(share * (-self.rate).ln_1p()).exp_m1();
        (0..count)
            .map(|number| (size(number) * self.capacity, rate(share(number))))
            .collect()
    }
}

/// Returns the number of partitions of a filter with such a first layer.
fn partitions(size: f64, rate: f64) -> u64 {
    let by_keys = (size as u64 / PARTITION_KEYS).clamp(1, MAX_PARTITIONS);
    let whole = sizing::smallest::<Blocked>(size as u64, rate, None);
    let bits = whole.map_or(1, |whole| whole.shape().bit_count());
    by_keys.max(bits.div_ceil(MAX_SHARD_BITS))
}

/// Returns the layer that lets a filter grow by `size` keys; `None` if the layer would have more
/// bits than any filter.
fn next(layers: &Layers, size: f64, rate: f64) -> Option<LayerSpec> {
    let keys = layers.capacity() as f64;
    let partitions = layers.partitions as f64;
    // Keys that full layers report as seen do not reach later layers.
    let passing = 1.0 - compound(layers.layers.iter().map(|layer| layer.rate));
    let padded = |keys: f64| keys + DEVIATIONS * keys.sqrt();
    let own = padded((keys + size) / partitions) - padded(keys / partitions);
    let own = (own * partitions * passing).ceil();

    let whole = sizing::smallest::<Blocked>(own as u64, rate, None)?;
    let whole = whole.shape();
    let bits = whole.bit_count().div_ceil(layers.partitions);
    let shards = bits.div_ceil(MAX_SHARD_BITS);
    let shard_bits = bits.div_ceil(shards).next_multiple_of(BLOCK_BITS);
    let hash_count = whole.hash_count();
    let layer = Blocked::from(Dimensions {
        shard_count: layers.partitions * shards,
        shard_bits,
        hash_count,
    });
    let bits = shards * shard_bits;
    Some(LayerSpec {
        shards,
        shard_bits,
        hash_count,
        full_bits: ((sizing::fill_ratio(&layer, own) * bits as f64) as u64).max(1),
        capacity: size.ceil() as u64,
    })
}
