//! A filter in layers as a whole.

use std::{collections::BTreeMap, ops::Range};

use super::{Layered, MergePlan};
use crate::{
    engine::{
        error::Full,
        filter::{
            Filter,
            body::{
                content::{Content, LayoutContent},
                whole::{KeyBits, Unfit, Whole},
            },
            shard::Shard,
        },
    },
    filter::{cells::Values, format::Format, hash::KeyHash, spec::FilterSpec},
    store::{FilterReader, ShardState},
    sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard},
};

impl Whole for Layered {
    fn numbers(&self) -> Range<usize> {
        self.partitions.numbers()
    }

    fn read(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>> {
        self.partitions.read(number)
    }

    fn write(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>> {
        self.partitions.write(number)
    }

    fn get_mut(&mut self, number: usize) -> Option<&mut Shard> {
        self.partitions.get_mut(number)
    }

    fn recount(&self) {
        self.alone(|| self.partitions.recount());
    }

    fn reserve(&self, last: usize) -> Result<(), Full> {
        let found = self.plan().locate(last);
        self.map(found.map_or(0, |(layer, ..)| layer + 1))
    }

    fn grown_bytes(&self) -> u64 {
        self.partitions.grown_bytes()
    }

    fn look_at_pages(&self, _: u64) -> Option<u64> {
        self.partitions.look_at_pages()
    }

    fn prepare_pages(&self, states: &mut dyn Iterator<Item = (usize, ShardState)>) {
        let mut bits = BTreeMap::<usize, u64>::new();
        for (shard, state) in states {
            if let Some((layer, ..)) = self.plan().locate(shard) {
                *bits.entry(layer).or_default() += state.bits_set;
            }
        }
        for (layer, bits) in bits {
            self.partitions.expect(layer, bits);
        }
    }

    fn content(&self, _: &FilterSpec) -> Content<'_> {
        let (mut keys_added, mut bits_set) = (0, 0);
        self.partitions.stripes().for_each(|partition| {
            for shard in partition.as_ref() {
                keys_added += shard.state.keys_added;
                bits_set += shard.state.bits_set;
            }
        });
        let fills = self.partitions.fills();
        let layers = self.plan();
        let bits = fills.iter().zip(layers.layers());
        let bits = bits.map(|(fill, layer)| fill.partitions * layer.partition_bytes() * 8);
        Content {
            keys_added,
            bits_set,
            fill_ratio: bits_set as f64 / bits.sum::<u64>() as f64,
            layout: LayoutContent::Layers { layers, fills },
        }
    }

    /// Explains the layer that holds the key, or the layer that would take it.
    fn explain(&self, hash: KeyHash) -> KeyBits {
        let number = self.partitions.find(hash);
        let blocked = self.plan().layer_of(number).blocked();
        let shard = self.read(number);
        let is_set = |bit| {
            let shard = shard.as_ref();
            shard.is_some_and(|shard| blocked.shape().is_set(&shard.words, bit, Values::SET))
        };
        let bits = blocked.bits(hash).into_iter();
        KeyBits {
            layer: self.plan().locate(number).map(|(layer, ..)| layer),
            shard: Some(number),
            block: Some(blocked.block(hash)),
            lines: Vec::new(),
            bits: bits.map(|bit| (bit, is_set(bit))).collect(),
        }
    }

    fn layers(&self) -> Option<usize> {
        Some(self.partitions.mapped())
    }

    /// One for each layer.
    fn records_of_a_call(&self, keys: usize, _: usize) -> usize {
        keys.min(self.plan().layers().len())
    }

    fn expect_merge(&self, filter: &Filter, source: &FilterReader) -> Result<(), Unfit> {
        let merge_plan = MergePlan::find(self, source)?;
        let mapped = self.partitions.mapped();
        let expected = merge_plan.expect(self);
        filter.log_growth(self, mapped, None);
        expected
    }
}
