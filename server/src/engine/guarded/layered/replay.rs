//! Replay of logged keys into the layers that they were added to.

use super::Layered;
use crate::{
    engine::{
        EngineError,
        error::Full,
        guarded::{GuardedFilter, partitions::Partition},
    },
    filter::{hash::KeyHash, scaling::Added},
    planted::Bug,
};

impl GuardedFilter {
    /// Replays keys that an earlier process has hashed, into the layer that they were added to. All
    /// were added by calls up to `version`.
    pub(in crate::engine::guarded) fn replay_in_layers(
        &self,
        layered: &Layered,
        version: u64,
        layer: Option<u64>,
        hashes: &[KeyHash],
    ) -> Result<(), EngineError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let layers = layered.layers();
        let layer = layer.filter(|_| !Bug::LayersNotReplayed.is_planted());
        let layer = layer.and_then(|layer| usize::try_from(layer).ok());
        let Some(layer) = layer.filter(|&layer| layer < layers.layers().len()) else {
            return self.replay_in_any_layer(layered, version, hashes);
        };
        layered
            .map(layer + 1)
            .map_err(|why| EngineError::NoRoomToRestore {
                name: self.name(),
                why,
            })?;
        let partitions = &layered.partitions;
        self.visit_stripes(
            partitions.stripes(),
            self.placed(hashes),
            |index, stripe, keys| {
                let (mut stripe, first) = (stripe.write(), partitions.first_of(index));
                for (_, hash) in keys {
                    let number = layers.partition(hash) - first;
                    if let Some(partition) = stripe.get_mut(number) {
                        partition.insert_again(layers, layer, hash, version);
                    }
                }
            },
        );
        Ok(())
    }

    /// Replays keys of an old log, whose records name no layers. The filter had room for these keys
    /// when they were added. Some can land in other layers now, but none must be lost.
    fn replay_in_any_layer(
        &self,
        layered: &Layered,
        version: u64,
        hashes: &[KeyHash],
    ) -> Result<(), EngineError> {
        let places = self.placed(hashes);
        let needed = self.new_keys(layered, &places);
        match layered.make_room(&needed) {
            Ok(()) | Err(Full::Rejects | Full::AllLayers { .. }) => {}
            Err(why @ (Full::OverBudget(_) | Full::OutOfMemory { .. })) => {
                let name = self.name();
                return Err(EngineError::NoRoomToRestore { name, why });
            }
        }
        let partitions = &layered.partitions;
        self.visit_stripes(partitions.stripes(), places, |index, stripe, keys| {
            let tell = |_, partition: &mut Partition, added: Added| {
                if added.bits > 0 {
                    partition.note(layered.layers(), added, version);
                }
            };
            let first = partitions.first_of(index);
            layered
                .layers()
                .insert_each(&mut stripe.write(), first, keys, tell);
        });
        layered.note_left(&layered.room.alone());
        Ok(())
    }
}
