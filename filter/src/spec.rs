//! The requirements of a filter: the request, and the spec it resolves to.

mod aging;
mod error;
mod exchange;
mod kind;
mod layout;

use std::sync::Arc;

pub use self::{
    aging::Aging,
    error::SpecError,
    kind::{Kind, KindName},
    layout::Layout,
};
pub use crate::hash::HashFunction;
use crate::{
    exchange::{ForeignBits, guava, redisbloom::Chain},
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
    profile::KeyProfile,
    scaling::{Layers, OnFull},
    shape::{CellFormat, Shape},
    sizing,
};

/// A request for a filter: `capacity` with `false_positive_rate`, or `capacity` with `bit_count`.
/// Fields that are `None` are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct SpecRequest {
    /// The number of distinct keys (n) for which the rate holds. For an aging filter, the number of
    /// keys that are present at one time.
    pub capacity: u64,
    /// The share of keys never added that are reported as seen, at capacity (p).
    pub false_positive_rate: Option<f64>,
    /// The size in bits (m), rounded up to whole blocks or words. A counting or aging filter has as
    /// many counters or stamps in their place.
    pub bit_count: Option<u64>,
    /// The number of bits that each key sets (k).
    pub hash_count: Option<u32>,
    /// The bits that a key can set.
    pub layout: Layout,
    /// The function that turns a key into bits.
    pub hash_function: HashFunction,
    /// The extra ability of the filter.
    pub kind: Kind,
    /// The canonical form of keys before they are hashed. `None` if keys are hashed unchanged.
    pub key_profile: Option<KeyProfile>,
}

impl SpecRequest {
    /// Returns a request for `capacity` keys at `false_positive_rate`, with defaults for all other
    /// fields.
    pub fn new(capacity: u64, false_positive_rate: f64) -> Self {
        Self {
            capacity,
            false_positive_rate: Some(false_positive_rate),
            bit_count: None,
            hash_count: None,
            layout: Layout::default(),
            hash_function: HashFunction::default(),
            kind: Kind::default(),
            key_profile: None,
        }
    }

    fn cell_format(&self) -> CellFormat {
        cell_format(self.kind, self.layout)
    }

    /// Computes the fields that were left out. Takes milliseconds at most, and allocates no filter.
    ///
    /// # Errors
    ///
    /// A [`SpecError`] that names the field, its value and the limit.
    pub fn resolve(&self) -> Result<FilterSpec, SpecError> {
        self.check()?;
        if let Kind::Scaling(on_full) = self.kind {
            return self.resolve_layers(on_full);
        }
        if let Some(strategy) = self.layout.strategy() {
            return self.resolve_guava(strategy);
        }
        let shape = match (self.bit_count, self.false_positive_rate) {
            (Some(bit_count), _) => {
                let hash_count = self.hash_count.unwrap_or_else(|| {
                    sizing::best_hash_count(self.cell_format(), bit_count, self.capacity)
                });
                Shape::new(self.cell_format(), bit_count, hash_count)
            }
            (None, Some(rate)) => {
                sizing::smallest(self.cell_format(), self.capacity, rate, self.hash_count).ok_or(
                    SpecError::Unreachable {
                        capacity: self.capacity,
                        false_positive_rate: rate,
                    },
                )?
            }
            (None, None) => return Err(SpecError::FalsePositiveRate { value: 0.0 }),
        };
        Ok(FilterSpec {
            capacity: self.capacity,
            false_positive_rate: self.rate(&shape)?,
            bit_count: shape.bit_count(),
            hash_count: shape.hash_count(),
            layout: self.layout,
            hash_function: self.hash_function,
            kind: self.kind,
            key_profile: self.key_profile.clone(),
            shard_count: shape.shard_count() as u64,
            layers: None,
            chain: None,
        })
    }

    fn resolve_layers(&self, on_full: OnFull) -> Result<FilterSpec, SpecError> {
        if self.bit_count.is_some() || self.hash_count.is_some() {
            return Err(SpecError::BitsOfLayers);
        }
        let Some(rate) = self.false_positive_rate else {
            return Err(SpecError::FalsePositiveRate { value: 0.0 });
        };
        let layers = on_full.layers(self.capacity, rate)?;
        let first = *layers.layer_of(0).shape();
        Ok(FilterSpec {
            capacity: self.capacity,
            false_positive_rate: rate,
            bit_count: first.bit_count(),
            hash_count: first.hash_count(),
            layout: self.layout,
            hash_function: self.hash_function,
            kind: self.kind,
            key_profile: self.key_profile.clone(),
            shard_count: first.shard_count() as u64,
            layers: Some(layers.into()),
            chain: None,
        })
    }

    fn check(&self) -> Result<(), SpecError> {
        if self.capacity == 0 {
            return Err(SpecError::Capacity);
        }
        if let Some(value) = self.false_positive_rate
            && !(value > 0.0 && value < 1.0)
        {
            return Err(SpecError::FalsePositiveRate { value });
        }
        if let Some(value) = self.hash_count
            && !(1..=MAX_HASH_COUNT).contains(&value)
        {
            return Err(SpecError::HashCount { value });
        }
        let (kind, layout, function) = (self.kind.name(), self.layout, self.hash_function);
        if layout == Layout::RedisBloom {
            return Err(SpecError::ImportedLayout);
        }
        if !layout.takes(function) {
            return Err(SpecError::HashFunctionOfLayout { function, layout });
        }
        if kind != KindName::Plain && layout != Layout::Blocked {
            return Err(SpecError::LayoutOfKind { kind, layout });
        }
        if let Kind::Aging(aging) = self.kind {
            aging.check()?;
        }
        match self.bit_count {
            Some(value) if !(1..=MAX_BIT_COUNT).contains(&value) => {
                Err(SpecError::BitCount { value })
            }
            _ => Ok(()),
        }
    }

    /// Returns the rate of the resolved spec: the one asked for if the shape keeps it. If none was
    /// asked for, it is the rate of the shape.
    fn rate(&self, shape: &Shape) -> Result<f64, SpecError> {
        let reached = sizing::false_positive_rate(shape, self.capacity as f64)
            // A probability can round to 0 or 1, which the spec does not allow.
            .clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
        match self.false_positive_rate {
            // Not compared to the last digit: a spec that was resolved on another machine must
            // resolve to itself here.
            Some(asked) if reached > asked * (1.0 + 1e-6) => Err(SpecError::RateOutOfReach {
                bit_count: shape.bit_count(),
                asked,
                reached,
            }),
            Some(asked) => Ok(asked),
            None => Ok(reached),
        }
    }
}

/// The requirements of a filter, resolved: every field has its value.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSpec {
    /// The number of distinct keys (n) for which the rate holds.
    pub capacity: u64,
    /// The share of keys never added that are reported as seen, at capacity (p).
    pub false_positive_rate: f64,
    /// The size in bits, or counters or stamps in their place (m).
    pub bit_count: u64,
    /// The number of bits that each key sets (k).
    pub hash_count: u32,
    /// The bits that a key can set.
    pub layout: Layout,
    /// The function that turns a key into bits.
    pub hash_function: HashFunction,
    /// The extra ability of the filter.
    pub kind: Kind,
    /// The canonical form of keys before they are hashed. `None` if keys are hashed unchanged.
    pub key_profile: Option<KeyProfile>,
    /// The number of shards that the bits are divided into, at least 1. For a filter in layers,
    /// that of the first layer.
    pub shard_count: u64,
    /// For a filter of the kind scaling: all layers that it can ever have. Its size in bits and the
    /// number of bits that each key sets are those of the first layer.
    pub layers: Option<Arc<Layers>>,
    /// For a filter of RedisBloom: all layers that it has. Its size in bits is that of all layers
    /// together. The number of bits that each key sets is that of the last layer, where new keys
    /// go.
    pub chain: Option<Arc<Chain>>,
}

impl FilterSpec {
    /// Returns the memory of the bits, counters or stamps, in bytes. For a filter in layers, that
    /// of the first layer.
    pub fn memory_bytes(&self) -> u64 {
        self.bit_count / 8 * self.cell_format().cell_bits()
    }

    /// Returns the shape of the memory. For a filter in layers it is the shape of the first layer.
    pub fn shape(&self) -> Shape {
        if let Some(layers) = &self.layers {
            return *layers.layer_of(0).shape();
        }
        let bits = self.bit_count.div_ceil(self.shard_count);
        Shape::divided(self.cell_format(), self.shard_count, bits, self.hash_count)
    }

    /// Returns the bits of keys in a filter of another program; `None` if the layout is one of our
    /// own.
    pub fn foreign_bits(&self) -> Option<ForeignBits> {
        let Some(strategy) = self.layout.strategy() else {
            return ForeignBits::of_chain(self.chain.as_ref()?);
        };
        let shape = guava::Shape::new(strategy, self.hash_count, self.bit_count / 64).ok()?;
        Some(ForeignBits::of_guava(shape))
    }

    fn cell_format(&self) -> CellFormat {
        cell_format(self.kind, self.layout)
    }

    /// Whether this spec satisfies `request`. Fields that the request leaves to be computed are not
    /// compared. So a repeated request still means the same filter after an update that sizes
    /// filters differently.
    pub fn answers(&self, request: &SpecRequest) -> bool {
        let rounded = request.bit_count.map(|bits| match self.layout.strategy() {
            None => {
                let bits = bits.div_ceil(self.shard_count);
                Shape::divided(self.cell_format(), self.shard_count, bits, self.hash_count)
                    .bit_count()
            }
            Some(_) => bits.next_multiple_of(64),
        });
        self.capacity == request.capacity
            && self.kind == request.kind
            && self.layout == request.layout
            && self.hash_function == request.hash_function
            && self.key_profile == request.key_profile
            && request
                .false_positive_rate
                .is_none_or(|rate| rate == self.false_positive_rate)
            && request
                .hash_count
                .is_none_or(|count| count == self.hash_count)
            && rounded.is_none_or(|bits| bits == self.bit_count)
    }
}

/// Returns the cell format of a kind, which has it in this layout or in no other.
fn cell_format(kind: Kind, layout: Layout) -> CellFormat {
    match (kind, layout) {
        (Kind::Counting, _) => CellFormat::Counting,
        (Kind::Aging(_), _) => CellFormat::Aging,
        (Kind::Plain | Kind::Scaling(_), Layout::Blocked) => CellFormat::Blocked,
        (Kind::Plain | Kind::Scaling(_), Layout::Classic) => CellFormat::Classic,
        (
            Kind::Plain | Kind::Scaling(_),
            Layout::Guava | Layout::GuavaMitz32 | Layout::RedisBloom,
        ) => CellFormat::Foreign,
    }
}

impl From<FilterSpec> for SpecRequest {
    /// Returns the request that names every field except those computed from layers. It resolves to
    /// the same spec again.
    fn from(spec: FilterSpec) -> Self {
        let is_whole = spec.layers.is_none();
        Self {
            capacity: spec.capacity,
            false_positive_rate: Some(spec.false_positive_rate),
            bit_count: is_whole.then_some(spec.bit_count),
            hash_count: is_whole.then_some(spec.hash_count),
            layout: spec.layout,
            hash_function: spec.hash_function,
            kind: spec.kind,
            key_profile: spec.key_profile,
        }
    }
}

#[cfg(test)]
mod tests;
