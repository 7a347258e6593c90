//! The body of any kind.

use std::{io, sync::Arc};

use super::{
    aging::Aging, counting::Counting, foreign::Foreign, layered::Layered, plain::Plain,
    sharded::Sharded, whole::Whole,
};
use crate::{
    engine::{budget::MemoryBudget, clock::Clock},
    filter::{
        exchange::ForeignBits,
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
    Plain(Plain),
    Counting(Counting),
    Aging(Aging),
    Layered(Layered),
    Foreign(Foreign),
}

/// Evaluates an expression with the body of a filter, whatever its type.
macro_rules! with_body {
    ($filter:expr, $body:ident => $value:expr) => {
        match &$filter.body {
            $crate::engine::filter::body::AnyBody::Plain($body) => $value,
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
        let sharded = || Sharded::new(spec.body.shape());
        let foreign = |bits| Ok::<_, io::Error>(Self::Foreign(Foreign::new(bits, sharded()?)));
        Ok(match &spec.body {
            BodySpec::Blocked(_) | BodySpec::Classic(_) => Self::Plain(Plain {
                sharded: sharded()?,
            }),
            BodySpec::Counting(_) => Self::Counting(Counting::new(sharded()?)),
            BodySpec::Aging(_, aging) => Self::Aging(Aging::new(*aging, clock, sharded()?)),
            BodySpec::Layered(on_full, layers) => {
                Self::Layered(Layered::new(layers, *on_full, budget)?)
            }
            BodySpec::Guava(shape) => foreign(ForeignBits::of_guava(*shape))?,
            BodySpec::RedisBloom(chain) => foreign(ForeignBits::of_chain(chain))?,
        })
    }

    /// Returns the bits as a whole.
    pub fn whole(&self) -> &dyn Whole {
        match self {
            Self::Plain(body) => body,
            Self::Counting(body) => body,
            Self::Aging(body) => body,
            Self::Layered(body) => body,
            Self::Foreign(body) => body,
        }
    }

    /// Returns the bits as a whole, to be changed while no other thread uses them.
    pub fn whole_mut(&mut self) -> &mut dyn Whole {
        match self {
            Self::Plain(body) => body,
            Self::Counting(body) => body,
            Self::Aging(body) => body,
            Self::Layered(body) => body,
            Self::Foreign(body) => body,
        }
    }
}

#[cfg(test)]
impl AnyBody {
    /// Returns the shards of a filter that is not in layers.
    pub fn sharded(&self) -> Option<&Sharded> {
        match self {
            Self::Plain(plain) => Some(&plain.sharded),
            Self::Counting(counting) => Some(&counting.sharded),
            Self::Aging(aging) => Some(&aging.sharded),
            Self::Foreign(foreign) => Some(&foreign.sharded),
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
