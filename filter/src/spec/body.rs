//! The bits of a filter: what they are, and how many.

use std::sync::Arc;

use super::{Aging, Kind, Layout, SpecError, SpecRequest};
use crate::{
    blocked::Blocked,
    classic::Classic,
    counters::Counters,
    exchange::{
        ForeignBits,
        guava::{self, Strategy},
        redisbloom::{Chain, ChainLayer},
    },
    format::Format,
    scaling::{Layers, OnFull},
    shape::{Dimensions, Shape},
    sizing,
    stamps::Stamps,
};

/// The bits of a filter, or the counters or stamps in their place. Each variant has the numbers of
/// its kind and layout, and no others.
#[derive(Debug, Clone, PartialEq)]
pub enum BodySpec {
    /// Keys that were added stay. A key has one cache line.
    Blocked(Dimensions),
    /// Keys that were added stay. A key has bits anywhere in a shard.
    Classic(Dimensions),
    /// Keys can be removed.
    Counting(Dimensions),
    /// Keys are forgotten after a time.
    Aging(Dimensions, Aging),
    /// The filter detects when it is full. These are all layers that it can ever have.
    Layered(OnFull, Arc<Layers>),
    /// The bits of a filter of Guava.
    Guava(guava::Shape),
    /// The layers of a filter of RedisBloom.
    RedisBloom(Arc<Chain>),
}

impl BodySpec {
    /// Returns the body for a request, which has been checked, and its false-positive rate at
    /// capacity.
    pub(super) fn of(request: &SpecRequest) -> Result<(Self, f64), SpecError> {
        match (request.kind, request.layout) {
            (_, Layout::RedisBloom) => Err(SpecError::ImportedLayout),
            (Kind::Plain, Layout::Blocked) => sharded::<Blocked>(request, Self::Blocked),
            (Kind::Plain, Layout::Classic) => sharded::<Classic>(request, Self::Classic),
            (Kind::Plain, Layout::Guava) => request.guava_body(Strategy::Mitz64),
            (Kind::Plain, Layout::GuavaMitz32) => request.guava_body(Strategy::Mitz32),
            (Kind::Counting, Layout::Blocked) => sharded::<Counters>(request, Self::Counting),
            (Kind::Aging(aging), Layout::Blocked) => {
                sharded::<Stamps>(request, |dimensions| Self::Aging(dimensions, aging))
            }
            (Kind::Scaling(on_full), Layout::Blocked) => layered(request, on_full),
            (kind, layout @ (Layout::Classic | Layout::Guava | Layout::GuavaMitz32)) => {
                let kind = kind.name();
                Err(SpecError::LayoutOfKind { kind, layout })
            }
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Blocked(_) | Self::Classic(_) | Self::Guava(_) | Self::RedisBloom(_) => {
                Kind::Plain
            }
            Self::Counting(_) => Kind::Counting,
            Self::Aging(_, aging) => Kind::Aging(*aging),
            Self::Layered(on_full, _) => Kind::Scaling(*on_full),
        }
    }

    /// Returns whether keys are counted, so that they can be removed.
    pub fn counts(&self) -> bool {
        matches!(self, Self::Counting(_))
    }

    /// Returns whether keys are forgotten after a time.
    pub fn ages(&self) -> bool {
        matches!(self, Self::Aging(..))
    }

    /// Returns the bits that a key can set.
    pub fn layout(&self) -> Layout {
        match self {
            Self::Blocked(_) | Self::Counting(_) | Self::Aging(..) | Self::Layered(..) => {
                Layout::Blocked
            }
            Self::Classic(_) => Layout::Classic,
            Self::Guava(shape) => shape.strategy().into(),
            Self::RedisBloom(_) => Layout::RedisBloom,
        }
    }

    /// Returns the size in bits, or counters or stamps in their place (m). Of a filter in layers it
    /// is that of the first layer, of RedisBloom's that of all layers together.
    pub fn bit_count(&self) -> u64 {
        match self {
            Self::Blocked(dimensions)
            | Self::Classic(dimensions)
            | Self::Counting(dimensions)
            | Self::Aging(dimensions, _) => dimensions.bit_count(),
            Self::Layered(_, layers) => layers.layer_of(0).shape().bit_count(),
            Self::Guava(shape) => shape.bit_count(),
            Self::RedisBloom(chain) => {
                chain
                    .layers()
                    .iter()
                    .map(ChainLayer::word_count)
                    .sum::<u64>()
                    * 64
            }
        }
    }

    /// Returns the number of bits that each key sets. Of a filter in layers it is that of the first
    /// layer, of RedisBloom's that of the last layer, where new keys go.
    pub fn hash_count(&self) -> u32 {
        match self {
            Self::Blocked(dimensions)
            | Self::Classic(dimensions)
            | Self::Counting(dimensions)
            | Self::Aging(dimensions, _) => dimensions.hash_count,
            Self::Layered(_, layers) => layers.layer_of(0).shape().hash_count(),
            Self::Guava(shape) => shape.hash_count(),
            Self::RedisBloom(chain) => chain.layers().last().map_or(1, ChainLayer::hash_count),
        }
    }

    /// Returns the shape of the memory. Of a filter in layers it is that of the first layer.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Blocked(dimensions) => *Blocked::from(*dimensions).shape(),
            Self::Classic(dimensions) => *Classic::from(*dimensions).shape(),
            Self::Counting(dimensions) => *Counters::from(*dimensions).shape(),
            Self::Aging(dimensions, _) => *Stamps::from(*dimensions).shape(),
            Self::Layered(_, layers) => *layers.layer_of(0).shape(),
            Self::Guava(_) | Self::RedisBloom(_) => {
                Shape::of_array(self.bit_count(), self.hash_count())
            }
        }
    }

    /// Returns all layers that the filter can ever have; `None` if it is not in layers.
    pub fn layers(&self) -> Option<&Arc<Layers>> {
        match self {
            Self::Layered(_, layers) => Some(layers),
            _ => None,
        }
    }

    /// Returns the layers of a filter of RedisBloom; `None` of all others.
    pub fn chain(&self) -> Option<&Chain> {
        match self {
            Self::RedisBloom(chain) => Some(chain),
            _ => None,
        }
    }

    /// Returns the bits that the filter has if a number is asked for: the number, rounded up.
    pub(super) fn rounded(&self, bit_count: u64) -> u64 {
        match self {
            Self::Guava(_) | Self::RedisBloom(_) => bit_count.next_multiple_of(64),
            _ => self.shape().rounded(bit_count),
        }
    }

    /// Returns the bits of keys in a filter of another program; `None` if the layout is one of our
    /// own.
    pub fn foreign_bits(&self) -> Option<ForeignBits> {
        match self {
            Self::Guava(shape) => Some(ForeignBits::of_guava(*shape)),
            Self::RedisBloom(chain) => Some(ForeignBits::of_chain(chain)),
            _ => None,
        }
    }
}

fn sharded<F: Format>(
    request: &SpecRequest,
    body: impl FnOnce(Dimensions) -> BodySpec,
) -> Result<(BodySpec, f64), SpecError> {
    let filter: F = match (request.bit_count, request.false_positive_rate) {
        (Some(bit_count), _) => {
            let best = || sizing::best_hash_count::<F>(bit_count, request.capacity);
            F::new(bit_count, request.hash_count.unwrap_or_else(best))
        }
        (None, Some(rate)) => {
            let smallest = sizing::smallest(request.capacity, rate, request.hash_count);
            smallest.ok_or(SpecError::Unreachable {
                capacity: request.capacity,
                false_positive_rate: rate,
            })?
        }
        (None, None) => return Err(SpecError::FalsePositiveRate { value: 0.0 }),
    };
    let rate = rate(request, &filter)?;
    Ok((body(filter.shape().dimensions()), rate))
}

/// Returns the rate of the resolved spec: the one asked for if the filter keeps it. If none was
/// asked for, it is the rate of the filter.
fn rate(request: &SpecRequest, filter: &impl Format) -> Result<f64, SpecError> {
    let reached = sizing::false_positive_rate(filter, request.capacity as f64)
        // A probability can round to 0 or 1, which the spec does not allow.
        .clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
    match request.false_positive_rate {
        // Not compared to the last digit: a spec that was resolved on another machine must resolve
        // to itself here.
        Some(asked) if reached > asked * (1.0 + 1e-6) => Err(SpecError::RateOutOfReach {
            bit_count: filter.shape().bit_count(),
            asked,
            reached,
        }),
        Some(asked) => Ok(asked),
        None => Ok(reached),
    }
}

fn layered(request: &SpecRequest, on_full: OnFull) -> Result<(BodySpec, f64), SpecError> {
    if request.bit_count.is_some() || request.hash_count.is_some() {
        return Err(SpecError::BitsOfLayers);
    }
    let Some(rate) = request.false_positive_rate else {
        return Err(SpecError::FalsePositiveRate { value: 0.0 });
    };
    let layers = on_full.layers(request.capacity, rate)?;
    Ok((BodySpec::Layered(on_full, layers.into()), rate))
}
