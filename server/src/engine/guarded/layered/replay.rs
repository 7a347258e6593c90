//! Keys of the log that come back to the layers that they were in.

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
    /// Adds keys that an earlier process has hashed, all in calls up to a version, to the layer that
    /// they came to.
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

    /// Adds keys of a log from before that told of layers. There was room for them when they were
    /// added; that some may lie in other layers now is no reason to lose one.
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
