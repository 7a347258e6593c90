//! The partitions of a filter in layers with their locks, and the memory of the layers.
//!
//! A partition holds its shards of each layer that it has reached, all behind one lock. A layer
//! gets its memory before the first partition needs it. Each partition then gets its part at once,
//! as [`spare`](Partition::spare) shards. So no thread waits for memory while it holds a lock.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    engine::{
        budget::{MemoryBudget, Reservation},
        error::Full,
        filter::{
            mapping::{self, Cache, Mapping, PageSize, Prefetcher},
            one_or_many::OneOrMany,
            shard::Shard,
            stripes::Stripes,
        },
    },
    filter::{
        format::Format,
        hash::KeyHash,
        scaling::{Added, Fill, Layer, Layers},
    },
    store::ShardState,
    sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock},
};

/// The shards that hold all bits of a part of the keys, in all layers.
///
/// `repr(C)` keeps the fields in this order. While there is one layer, the lock and the shard share
/// a cache line, and a query reads no other line of the partition.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Partition {
    /// The shards in use: all of the first layer, then all of the second, and so on.
    shards: OneOrMany<Shard>,
    /// The number of bits that can still be set before the newest layer is full.
    left_bits: u64,
    /// The shards of layers that have memory, but that the partition has not reached.
    spare: Vec<Shard>,
}

const _: () = assert!(size_of::<OneOrMany<Shard>>() + size_of::<RwLock<()>>() <= 64);

impl AsRef<[Shard]> for Partition {
    #[inline]
    fn as_ref(&self) -> &[Shard] {
        &self.shards
    }
}

impl AsMut<[Shard]> for Partition {
    #[inline]
    fn as_mut(&mut self) -> &mut [Shard] {
        &mut self.shards
    }
}

impl Partition {
    /// Returns the state of one of its shards.
    #[inline(always)]
    pub fn state(&self, place: usize) -> ShardState {
        let shard = self.shards.get(place);
        shard.map_or_else(ShardState::default, |shard| shard.state)
    }

    /// Records a new key that a call with `version` has added. Moves to the next layer if this one
    /// is full.
    #[inline(always)]
    pub fn note(&mut self, layers: &Layers, added: Added, version: u64) {
        if let Some(shard) = self.shards.get_mut(added.shard) {
            shard.note(added.bits, version);
        }
        self.take(layers, added.bits.into());
    }

    /// Subtracts bits from `left_bits`, and adds the next layer if none is left.
    #[inline(always)]
    fn take(&mut self, layers: &Layers, bits: u64) {
        self.left_bits = self.left_bits.saturating_sub(bits);
        if self.left_bits == 0 {
            self.grow(layers);
        }
    }

    /// Moves to the next layer if the newest is full and the next has memory.
    #[cold]
    fn grow(&mut self, layers: &Layers) {
        while self.left_bits == 0 {
            if !self.push_layer(layers) {
                return;
            }
        }
    }

    /// Moves to the next layer. Returns `false` if it has no memory.
    fn push_layer(&mut self, layers: &Layers) -> bool {
        let next = layers.layers().get(layers.layers_of(self.shards.len()));
        let Some(next) = next.filter(|next| next.shards() <= self.spare.len()) else {
            return false;
        };
        self.shards.extend(self.spare.drain(..next.shards()));
        self.left_bits = next.spec().full_bits;
        true
    }

    /// Moves to a layer that has memory. If it is the newest then, counts bits that are about to be
    /// set there in another way than by keys.
    pub fn expect(&mut self, layers: &Layers, layer: usize, bits: u64) {
        if self.come_to(layers, layer) && layers.layers_of(self.shards.len()) == layer + 1 {
            self.take(layers, bits);
        }
    }

    /// Adds a key again, to the layer that it was added to when it was new. `version` is the
    /// version of the call that added it.
    pub fn insert_again(&mut self, layers: &Layers, layer: usize, hash: KeyHash, version: u64) {
        if !self.come_to(layers, layer) {
            return;
        }
        let added = layers.insert_in(layer, &mut self.shards, hash);
        if let Some(shard) = self.shards.get_mut(added.shard).filter(|_| added.bits > 0) {
            shard.note(added.bits, version);
        }
        if layers.layers_of(self.shards.len()) == layer + 1 {
            self.left_bits = self.left_bits.saturating_sub(added.bits.into());
        }
    }

    /// Moves to a layer. Returns `false` if it has no memory.
    fn come_to(&mut self, layers: &Layers, layer: usize) -> bool {
        while layers.layers_of(self.shards.len()) <= layer {
            if !self.push_layer(layers) {
                return false;
            }
        }
        true
    }

    /// Recounts the bits of its newest layer.
    fn recount(&mut self, layers: &Layers) {
        let newest = self.newest(layers);
        let full_bits = newest.map_or(0, |newest| newest.spec().full_bits);
        let newest = layers.layers_of(self.shards.len()).checked_sub(1);
        let bits_set = newest.map_or(0, |newest| self.bits_in(layers, newest));
        self.left_bits = full_bits.saturating_sub(bits_set);
        self.grow(layers);
    }

    /// Returns the number of bits that are set in a layer.
    fn bits_in(&self, layers: &Layers, layer: usize) -> u64 {
        let Some(layer) = layers.layers().get(layer) else {
            return 0;
        };
        let first = layer.first_shard();
        let own = self.shards.get(first..first + layer.shards());
        let own = own.unwrap_or_default();
        own.iter().map(|shard| shard.state.bits_set).sum()
    }

    fn newest<'a>(&self, layers: &'a Layers) -> Option<&'a Layer> {
        let count = layers.layers_of(self.shards.len());
        layers.layers().get(count.checked_sub(1)?)
    }

    /// Returns the expected number of keys that fill all layers with memory.
    fn keys_left(&self, layers: &Layers, mapped: usize) -> u64 {
        let count = layers.layers_of(self.shards.len());
        let newest = self.newest(layers);
        let newest = newest.map_or(0, |newest| {
            newest.keys_left(newest.spec().full_bits - self.left_bits)
        });
        let to_come = layers.layers().get(count..mapped).unwrap_or_default();
        newest + to_come.iter().map(|layer| layer.keys_left(0)).sum::<u64>()
    }

    /// Returns the number of bits that can still be set before all layers with memory are full.
    fn left(&self, layers: &Layers, mapped: usize) -> u64 {
        let count = layers.layers_of(self.shards.len());
        let to_come = layers.layers().get(count..mapped).unwrap_or_default();
        let to_come = to_come.iter().map(|layer| layer.spec().full_bits);
        self.left_bits + to_come.sum::<u64>()
    }
}

/// All partitions of a filter.
#[derive(Debug)]
pub struct Partitions {
    layers: Arc<Layers>,
    stripes: Stripes<Partition>,
    /// The number of layers that have memory.
    mapped: AtomicUsize,
    /// The prefetcher of each layer that has memory.
    prefetchers: Box<[OnceLock<Prefetcher>]>,
    /// The page size of each layer that has memory.
    page_sizes: Box<[OnceLock<PageSize>]>,
    /// The memory reservation of each layer but the first.
    memory: Mutex<Vec<Reservation>>,
}

impl Partitions {
    /// Creates partitions without keys. Reserves memory for the first layer, which the budget has
    /// counted already.
    ///
    /// # Errors
    ///
    /// The error of the kernel if not enough address space is left.
    pub fn new(layers: Arc<Layers>) -> std::io::Result<Self> {
        let count = layers.partitions();
        let partitions = Self {
            stripes: Stripes::new((0..count).map(|_| Partition::default())),
            mapped: AtomicUsize::new(0),
            prefetchers: layers.layers().iter().map(|_| OnceLock::new()).collect(),
            page_sizes: layers.layers().iter().map(|_| OnceLock::new()).collect(),
            memory: Mutex::default(),
            layers,
        };
        let first = partitions.layers.layer_of(0).blocked();
        let first = mapping::reserve(first.shape(), first.key_lines())?;
        partitions.hand_out(first);
        Ok(partitions)
    }

    /// Returns all layers that the filter can have.
    #[inline]
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Returns the partitions with their locks.
    #[inline]
    pub fn stripes(&self) -> &Stripes<Partition> {
        &self.stripes
    }

    /// Returns the number of layers that have memory.
    #[inline]
    pub fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Acquire)
    }

    /// Returns the memory that the budget counts for all layers but the first, in bytes.
    pub fn grown_bytes(&self) -> u64 {
        self.memory.lock().iter().map(Reservation::bytes).sum()
    }

    /// Reserves memory for the next layer, and gives each partition its part. The caller makes sure
    /// that no other thread does so at the same time.
    ///
    /// # Errors
    ///
    /// [`Full`] if no memory can be had; nothing has changed then.
    pub fn map_next(&self, budget: &Arc<MemoryBudget>, bound: Option<u64>) -> Result<(), Full> {
        let next = self.layers.layers().get(self.mapped());
        let next = next.ok_or(Full::AllLayers {
            max_memory_bytes: bound,
        })?;
        let needed_bytes = next.memory_bytes();
        let memory = budget.reserve(needed_bytes).map_err(Full::OverBudget)?;
        let layer = mapping::reserve(next.shape(), next.blocked().key_lines());
        let layer = layer.map_err(|_| Full::OutOfMemory { needed_bytes })?;
        self.memory.lock().push(memory);
        self.hand_out(layer);
        Ok(())
    }

    /// Gives each partition its shards of the next layer.
    fn hand_out(&self, mapping: Mapping) {
        let number = self.mapped();
        let shards = self.layers.layers().get(number).map_or(0, Layer::shards);
        if let Some(place) = self.prefetchers.get(number) {
            let _ = place.set(mapping.prefetcher);
        }
        if let Some(place) = self.page_sizes.get(number) {
            let _ = place.set(mapping.page_size);
        }
        let mut words = mapping.shards.into_iter();
        self.stripes.for_each_mut(|partition| {
            let own = words.by_ref().take(shards);
            partition.spare.extend(own.map(Shard::new));
            partition.grow(&self.layers);
        });
        self.mapped.store(number + 1, Ordering::Release);
    }

    /// Prefetches the cache lines of a key, in all layers that have memory.
    #[inline]
    pub fn fetch(&self, hash: KeyHash, to: Cache) {
        for (layer, prefetcher) in self.layers.layers().iter().zip(&self.prefetchers) {
            let Some(prefetcher) = prefetcher.get() else {
                return;
            };
            prefetcher.fetch_line(layer.line(hash), to);
        }
    }

    /// Returns the number of each partition, and the bits that it can take before it is full.
    pub fn left(&self) -> impl Iterator<Item = (usize, u64)> {
        let mapped = self.mapped();
        let stripes = self.stripes.locks().iter().enumerate();
        stripes.flat_map(move |(index, stripe)| {
            let partitions = stripe.read();
            let left = partitions
                .iter()
                .map(|partition| partition.left(&self.layers, mapped));
            let left: Vec<u64> = left.collect();
            (self.stripes.first_of(index)..).zip(left)
        })
    }

    /// Returns the expected number of keys that a partition can take before it is full.
    pub fn keys_left(&self, partition: usize) -> u64 {
        let partition = self.stripes.read(partition);
        partition.keys_left(&self.layers, self.mapped())
    }

    /// Returns the fill of each layer that has memory.
    pub fn fills(&self) -> Vec<Fill> {
        let mut fills = vec![Fill::default(); self.mapped()];
        self.stripes.for_each(|partition| {
            for (fill, layer) in fills.iter_mut().zip(self.layers.layers()) {
                let first = layer.first_shard();
                let own = partition.shards.get(first..first + layer.shards());
                let Some(own) = own else { break };
                fill.partitions += 1;
                fill.bits_set += own.iter().map(|shard| shard.state.bits_set).sum::<u64>();
            }
        });
        fills
    }

    /// Moves layers that have become dense to huge pages. Returns the least number of keys that
    /// would make another layer dense; `None` if all layers are on huge pages.
    pub fn look_at_pages(&self) -> Option<u64> {
        let page_sizes = || self.page_sizes.iter().map_while(OnceLock::get);
        page_sizes().filter_map(PageSize::dense_keys).next()?;
        for (page_size, fill) in page_sizes().zip(self.fills()) {
            page_size.look(fill.bits_set);
        }
        page_sizes().filter_map(PageSize::dense_keys).min()
    }

    /// Puts a layer that holds no keys yet on huge pages, if the bits that are about to be set make
    /// it dense.
    pub fn expect(&self, layer: usize, bits: u64) {
        if let Some(page_size) = self.page_sizes.get(layer).and_then(OnceLock::get) {
            page_size.expect(bits);
        }
    }

    /// Returns the numbers of all shards that have memory.
    pub fn numbers(&self) -> Range<usize> {
        0..self.layers.first_shard(self.mapped())
    }

    /// Locks a shard against writers. Returns `None` if its partition has not reached its layer.
    pub fn read(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>> {
        let (_, partition, place) = self.layers.locate(number)?;
        let partition = self.stripes.read(partition);
        MappedRwLockReadGuard::try_map(partition, |partition| partition.shards.get(place)).ok()
    }

    /// Locks a shard against readers and writers. Returns `None` if its partition has not reached
    /// its layer.
    pub fn write(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>> {
        let (_, partition, place) = self.layers.locate(number)?;
        let partition = self.stripes.write(partition);
        MappedRwLockWriteGuard::try_map(partition, |partition| partition.shards.get_mut(place)).ok()
    }

    /// Returns the number of the shard that holds a key, or of the shard that would take it.
    pub fn find(&self, hash: KeyHash) -> usize {
        let number = self.layers.partition(hash);
        let shards = &self.stripes.read(number).shards;
        let found = self.layers.find(shards, hash);
        let place = found.unwrap_or_else(|| self.layers.newest_place(shards.len(), hash));
        self.layers.number(number, place)
    }

    /// Returns a shard of a filter that no other thread uses yet. Moves its partition to its layer,
    /// which must have memory. After all shards are filled, the caller must [recount](Self::recount)
    /// them.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Shard> {
        let (_, partition, place) = self.layers.locate(number)?;
        let partition = self.stripes.get_mut(partition);
        let layer = self.layers.layers_of(place);
        let there = partition.come_to(&self.layers, layer);
        partition.shards.get_mut(place).filter(|_| there)
    }

    /// Recounts the bits of the shards, after they were filled in another way than by keys.
    pub fn recount(&self) {
        self.stripes
            .for_each_mut(|partition| partition.recount(&self.layers));
    }

    /// Returns the number of bits that are set in a layer of a partition.
    pub fn bits_in(&self, partition: usize, layer: usize) -> u64 {
        self.stripes.read(partition).bits_in(&self.layers, layer)
    }

    /// Locks a partition against readers and writers.
    pub fn write_partition(&self, partition: usize) -> MappedRwLockWriteGuard<'_, Partition> {
        self.stripes.write(partition)
    }
}
