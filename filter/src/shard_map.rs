//! The division of a filter's memory into shards.

use std::sync::Arc;

use crate::{scaling::Layers, shape::Shape, spec::FilterSpec};

/// The shards of a filter, numbered from 0. In a filter in layers the numbers go layer by layer.
/// Shards of future layers have their numbers already.
#[derive(Debug, Clone)]
pub enum ShardMap {
    /// Shards of one shape.
    Whole(Shape),
    /// Shards by layer: the shards of each layer have its shape.
    Layered(Arc<Layers>),
}

impl ShardMap {
    /// Returns the shards of a filter with this spec.
    pub fn of(spec: &FilterSpec) -> Self {
        match spec.body.layers() {
            None => Self::Whole(spec.body.shape()),
            Some(layers) => Self::Layered(layers.clone()),
        }
    }

    /// Returns the greatest possible number of shards.
    pub fn shard_count(&self) -> usize {
        match self {
            Self::Whole(shape) => shape.shard_count(),
            Self::Layered(layers) => layers.shard_count(),
        }
    }

    /// Returns the shape of a shard. If no shard has this number, returns the shape of the last
    /// ones.
    pub fn shape(&self, shard: usize) -> &Shape {
        match self {
            Self::Whole(shape) => shape,
            Self::Layered(layers) => layers.layer_of(shard).shape(),
        }
    }
}
