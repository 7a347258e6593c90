//! How all memory of a filter is divided into shards.

use std::sync::Arc;

use crate::{scaling::Layers, shape::Shape, spec::FilterSpec};

/// The shards of a filter, which have numbers from 0 on. Those of a filter in layers follow layer
/// by layer; the ones of a layer to come have theirs already.
#[derive(Debug, Clone)]
pub enum Division {
    /// Shards of one shape.
    Whole(Shape),
    /// Those of each layer are of its shape.
    Layered(Arc<Layers>),
}

impl Division {
    /// That of a filter of a spec.
    pub fn of(spec: &FilterSpec) -> Self {
        match &spec.layers {
            None => Self::Whole(Shape::of(spec)),
            Some(layers) => Self::Layered(layers.clone()),
        }
    }

    /// The number of shards there can be.
    pub fn shard_count(&self) -> usize {
        match self {
            Self::Whole(shape) => shape.shard_count(),
            Self::Layered(layers) => layers.shard_count(),
        }
    }

    /// The shape that a shard is of; that of the last ones, if there is none of this number.
    pub fn shape(&self, shard: usize) -> &Shape {
        match self {
            Self::Whole(shape) => shape,
            Self::Layered(layers) => layers.layer_of(shard).shape(),
        }
    }
}
