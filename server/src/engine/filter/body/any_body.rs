//! The body of any kind.

use std::{io, sync::Arc};

use super::{
    aging::Aging, counting::Counting, foreign::Foreign, layered::Layered, plain::Plain,
    sharded::Sharded, whole::Whole,
};
#[cfg(test)]
use crate::engine::filter::{shard::Shard, stripes::Stripes};
use crate::{
    engine::{budget::MemoryBudget, clock::Clock},
    filter::{
        blocked::Blocked,
        classic::Classic,
        exchange::ForeignBits,
        format::Format,
        shape::Dimensions,
        spec::{BodySpec, FilterSpec},
    },
};

/// The body of any kind.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a filter has one, and a pointer would cost each call a cache line"
)]
pub enum AnyBody {
    Blocked(Plain<Blocked>),
    Classic(Plain<Classic>),
    Counting(Counting),
    Aging(Aging),
    Layered(Layered),
    Foreign(Foreign),
}

/// Evaluates an expression with a body, whatever its type.
macro_rules! with_body {
    ($any_body:expr, $body:ident => $value:expr) => {
        match $any_body {
            $crate::engine::filter::body::AnyBody::Blocked($body) => $value,
            $crate::engine::filter::body::AnyBody::Classic($body) => $value,
            $crate::engine::filter::body::AnyBody::Counting($body) => $value,
            $crate::engine::filter::body::AnyBody::Aging($body) => $value,
            $crate::engine::filter::body::AnyBody::Layered($body) => $value,
            $crate::engine::filter::body::AnyBody::Foreign($body) => $value,
        }
    };
}
pub(in crate::engine::filter) use with_body;

impl AnyBody {
    /// Returns the bits of a filter without keys. Reserves memory for them, which the budget has
    /// counted already.
    ///
    /// # Errors
    ///
    /// The error of the kernel if not enough address space is left.
    pub fn new(spec: &FilterSpec, budget: &Arc<MemoryBudget>, clock: &Clock) -> io::Result<Self> {
        let foreign = |bits| {
            let sharded = Sharded::new(spec.body.shape(), spec.body.hash_count() as usize)?;
            Ok::<_, io::Error>(Self::Foreign(Foreign::new(bits, sharded)))
        };
        Ok(match &spec.body {
            BodySpec::Blocked(sizes) => Self::Blocked(Plain {
                sharded: sharded(*sizes)?,
            }),
            BodySpec::Classic(sizes) => Self::Classic(Plain {
                sharded: sharded(*sizes)?,
            }),
            BodySpec::Counting(sizes) => Self::Counting(Counting::new(sharded(*sizes)?)),
            BodySpec::Aging(sizes, aging) => {
                Self::Aging(Aging::new(*aging, clock, sharded(*sizes)?))
            }
            BodySpec::Layered(on_full, layers) => {
                Self::Layered(Layered::new(layers, *on_full, budget)?)
            }
            BodySpec::Guava(shape) => foreign(ForeignBits::of_guava(*shape))?,
            BodySpec::RedisBloom(chain) => foreign(ForeignBits::of_chain(chain))?,
        })
    }

    /// Returns the bits as a whole.
    pub fn whole(&self) -> &dyn Whole {
        with_body!(self, body => body)
    }

    /// Returns the bits as a whole, to be changed while no other thread uses them.
    pub fn whole_mut(&mut self) -> &mut dyn Whole {
        with_body!(self, body => body)
    }
}

fn sharded<F: Format>(sizes: Dimensions) -> io::Result<Sharded<F>> {
    let format = F::from(sizes);
    Sharded::new(format, format.key_lines())
}

#[cfg(test)]
impl AnyBody {
    /// Returns the shards of a filter that is not in layers.
    pub fn shards(&self) -> Option<&Stripes<Shard>> {
        match self {
            Self::Blocked(plain) => Some(&plain.sharded.shards),
            Self::Classic(plain) => Some(&plain.sharded.shards),
            Self::Counting(counting) => Some(&counting.sharded.shards),
            Self::Aging(aging) => Some(&aging.sharded.shards),
            Self::Foreign(foreign) => Some(&foreign.sharded.shards),
            Self::Layered(_) => None,
        }
    }

    /// Returns the partitions of a filter in layers.
    pub fn layered(&self) -> Option<&Layered> {
        match self {
            Self::Layered(layered) => Some(layered),
            _ => None,
        }
    }
}
