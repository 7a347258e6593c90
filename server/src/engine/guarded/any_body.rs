//! The body of any kind.

use super::{
    aging::Aging, counting::Counting, foreign::Foreign, layered::Layered, plain::Plain,
    sharded::Sharded,
};

/// The body of any kind.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a filter has one, and a pointer would cost each call a cache line"
)]
pub(super) enum AnyBody {
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
            $crate::engine::guarded::any_body::AnyBody::Plain($body) => $value,
            $crate::engine::guarded::any_body::AnyBody::Counting($body) => $value,
            $crate::engine::guarded::any_body::AnyBody::Aging($body) => $value,
            $crate::engine::guarded::any_body::AnyBody::Layered($body) => $value,
            $crate::engine::guarded::any_body::AnyBody::Foreign($body) => $value,
        }
    };
}
pub(super) use with_body;

impl AnyBody {
    /// Returns the shards; `None` of a filter in layers, which has partitions.
    #[inline]
    pub fn sharded(&self) -> Option<&Sharded> {
        match self {
            Self::Plain(plain) => Some(&plain.sharded),
            Self::Counting(counting) => Some(&counting.sharded),
            Self::Aging(aging) => Some(&aging.sharded),
            Self::Foreign(foreign) => Some(&foreign.sharded),
            Self::Layered(_) => None,
        }
    }

    pub fn sharded_mut(&mut self) -> Option<&mut Sharded> {
        match self {
            Self::Plain(plain) => Some(&mut plain.sharded),
            Self::Counting(counting) => Some(&mut counting.sharded),
            Self::Aging(aging) => Some(&mut aging.sharded),
            Self::Foreign(foreign) => Some(&mut foreign.sharded),
            Self::Layered(_) => None,
        }
    }

    pub fn counting(&self) -> Option<&Counting> {
        match self {
            Self::Counting(counting) => Some(counting),
            _ => None,
        }
    }

    pub fn aging(&self) -> Option<&Aging> {
        match self {
            Self::Aging(aging) => Some(aging),
            _ => None,
        }
    }

    pub fn aging_mut(&mut self) -> Option<&mut Aging> {
        match self {
            Self::Aging(aging) => Some(aging),
            _ => None,
        }
    }

    pub fn layered(&self) -> Option<&Layered> {
        match self {
            Self::Layered(layered) => Some(layered),
            _ => None,
        }
    }

    pub fn foreign(&self) -> Option<&Foreign> {
        match self {
            Self::Foreign(foreign) => Some(foreign),
            _ => None,
        }
    }
}
