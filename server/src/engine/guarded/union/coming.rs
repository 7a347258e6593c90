//! What is to come to the layers of a filter when another one is merged into it.
//!
//! A key stays in the layer that it is in, so each layer gets the bits of the other filter's. It must
//! not come to have more than it is made for, or the filter would be wrong more often than was asked
//! for, and for good. And keys go on coming meanwhile. So first it is found out how many bits are to
//! come to each layer of each partition; later it can only be fewer, for bits that are set stay so.
//! Then, with the filter to itself for a moment, these count as if they were set, and a partition
//! comes to its next layer as soon as those and its own fill the newest one. When all has come, or
//! nothing does, it is what is set that counts again.

use std::collections::BTreeMap;

use crate::{
    engine::{error::Full, guarded::layered::Layered},
    filter::union,
    store::{FilterReader, StoreError},
};

/// Why what is to come does not fit.
#[derive(Debug)]
pub enum Unfit {
    /// There is no memory for a layer that the other filter has.
    Full(Full),
    /// A layer would have more bits than it is made for.
    Overfull,
}

/// What is to come to each layer.
#[derive(Debug)]
pub struct Coming {
    /// How many bits that are not set, by partition and layer.
    bits: BTreeMap<(usize, usize), u64>,
}

impl Coming {
    /// That of a filter in layers, from what is stored of another of the same. Reads all of that.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn find(layered: &Layered, stored: &FilterReader) -> Result<Self, StoreError> {
        let (partitions, division) = (&layered.partitions, stored.division());
        let mut bits = BTreeMap::new();
        let mut words = Vec::new();
        for shard in stored.shards() {
            let Some((layer, partition, _)) = partitions.layers().locate(shard) else {
                continue;
            };
            words.resize(division.shape(shard).shard_words(), 0);
            let state = stored.read_shard(shard, &mut words, &mut Err)?;
            let own = partitions.read(shard);
            let new = own.map_or(state.bits_set, |own| union::new_bits(&own.words, &words));
            *bits.entry((partition, layer)).or_default() += new;
        }
        Ok(Self { bits })
    }

    /// Has a filter count on it. Nothing has changed if it does not fit, but that there may be
    /// memory for layers to come.
    ///
    /// # Errors
    ///
    /// [`Unfit`].
    pub fn expect<'a>(&self, layered: &'a Layered) -> Result<Expectation<'a>, Unfit> {
        let partitions = &layered.partitions;
        layered.alone(|| {
            if layered.refuses() && !self.fits(layered) {
                return Err(Unfit::Overfull);
            }
            let layers = self.bits.keys().map(|(_, layer)| layer + 1).max();
            layered
                .map(layers.unwrap_or_default())
                .map_err(Unfit::Full)?;
            for (&(number, layer), &new) in &self.bits {
                // In the order of the layers: what comes to one that is not the newest any more
                // needs not be counted.
                partitions.change(number, |partition| {
                    partition.expect(partitions.layers(), layer, new);
                });
            }
            Ok(Expectation { layered })
        })
    }

    /// Whether no layer comes to have more bits than it is made for, but for some of those of a last
    /// key, which may set more than there was room for.
    fn fits(&self, layered: &Layered) -> bool {
        let partitions = &layered.partitions;
        self.bits.iter().all(|(&(number, layer), &new)| {
            let own = partitions.bits_in(number, layer);
            let full = partitions.layers().layers().get(layer);
            let full = full.map_or(0, |layer| layer.spec().full_bits);
            new == 0 || own + new < full + layered.key_bits
        })
    }
}

/// That bits are about to come. Until this is dropped they count as if they were set.
#[derive(Debug)]
pub struct Expectation<'a> {
    layered: &'a Layered,
}

impl Drop for Expectation<'_> {
    fn drop(&mut self) {
        let partitions = &self.layered.partitions;
        self.layered.alone(|| partitions.recount());
    }
}
