//! The bits that a merge will add to each layer of a filter in layers.
//!
//! A key stays in its layer, so a merge adds to each layer the bits of the same layer of the other
//! filter. No layer can take more bits than it is made for: the false-positive rate would then be
//! above the requested rate for good. Calls go on adding keys during the merge.
//!
//! So the merge first counts, for each layer of each partition, the bits that it will newly set.
//! Later this number can only shrink, because set bits stay set. Then the merge takes the filter
//! exclusively for a moment and counts these bits as if they were set. From then on, a partition
//! moves to its next layer as soon as these bits and its own bits fill its newest layer. After the
//! merge has ended or failed, only bits that are set count again.

use std::collections::BTreeMap;

use super::Layered;
use crate::{
    engine::filter::body::Unfit,
    filter::union,
    store::{FilterReader, StoreError},
};

/// The number of bits that a merge will newly set in each layer.
#[derive(Debug)]
pub struct MergePlan {
    /// The number of bits that are not set yet, by partition and layer.
    bits: BTreeMap<(usize, usize), u64>,
}

impl MergePlan {
    /// Counts the bits that a merge would newly set in a filter in layers. `stored` is the stored
    /// copy of another filter with the same layers. Reads all of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn find(layered: &Layered, stored: &FilterReader) -> Result<Self, StoreError> {
        let (partitions, shard_map) = (&layered.partitions, stored.shard_map());
        let mut bits = BTreeMap::new();
        let mut words = Vec::new();
        for shard in stored.shards() {
            let Some((layer, partition, _)) = partitions.layers().locate(shard) else {
                continue;
            };
            words.resize(shard_map.shape(shard).shard_words(), 0);
            let state = stored.read_shard(shard, &mut words, &mut Err)?;
            let own = partitions.read(shard);
            let new = own.map_or(state.bits_set, |own| union::new_bits(&own.words, &words));
            *bits.entry((partition, layer)).or_default() += new;
        }
        Ok(Self { bits })
    }

    /// Counts the bits as if they were set, until the bits are [counted again](super::super::Whole::recount). If
    /// they do not fit, nothing changes, except that further layers can have memory.
    ///
    /// # Errors
    ///
    /// [`Unfit`].
    pub fn expect(&self, layered: &Layered) -> Result<(), Unfit> {
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
                // In the order of the layers: bits for a layer that is no longer the newest need
                // not be counted.
                let mut partition = partitions.write_partition(number);
                partition.expect(partitions.layers(), layer, new);
            }
            Ok(())
        })
    }

    /// Returns whether every layer stays within the bits that it is made for. The last key of a
    /// layer is an exception: it can set more bits than there was room for.
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
