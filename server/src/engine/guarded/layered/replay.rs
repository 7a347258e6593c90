//! Replay of logged keys into the layers that they were added to.

use super::Layered;
use crate::{
    engine::{EngineError, guarded::GuardedFilter},
    filter::hash::KeyHash,
    planted::Bug,
};

impl GuardedFilter {
    /// Replays keys that an earlier process has hashed, into the layer that they were added to. All
    /// were added by calls up to `version`.
    pub(in crate::engine::guarded) fn replay_in_layers(
        &self,
        layered: &Layered,
        version: u64,
        layer: u64,
        hashes: &[KeyHash],
    ) -> Result<(), EngineError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let layers = layered.layers();
        // A layer that the filter cannot have is in no log of a server. Its keys are found in any.
        let is_one = |layer: &usize| *layer < layers.layers().len();
        let layer = usize::try_from(layer).ok().filter(is_one).unwrap_or(0);
        let layer = match Bug::LayersNotReplayed.is_planted() {
            true => (layer + 1).min(layers.layers().len() - 1),
            false => layer,
        };
        layered
            .map(layer + 1)
            .map_err(|why| EngineError::NoRoomToRestore {
                name: self.name(),
                why,
            })?;
        let stripes = layered.partitions.stripes();
        self.visit_stripes(stripes, self.placed(hashes), |stripe, first, keys| {
            let mut stripe = stripe.write();
            for (_, hash) in keys {
                let number = layers.partition(hash) - first;
                if let Some(partition) = stripe.get_mut(number) {
                    partition.insert_again(layers, layer, hash, version);
                }
            }
        });
        Ok(())
    }
}
