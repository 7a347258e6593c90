//! The requirements of a filter: the request, and the spec it resolves to.

mod aging;
mod body;
mod error;
mod exchange;
mod kind;
mod layout;

pub use self::{
    aging::Aging,
    body::BodySpec,
    error::SpecError,
    kind::{Kind, KindName, KindOptions},
    layout::Layout,
};
pub use crate::hash::HashFunction;
use crate::{
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
    profile::KeyProfile,
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

    /// Computes the fields that were left out. Takes milliseconds at most, and allocates no filter.
    ///
    /// # Errors
    ///
    /// A [`SpecError`] that names the field, its value and the limit.
    pub fn resolve(&self) -> Result<FilterSpec, SpecError> {
        self.check()?;
        let (layout, function) = (self.layout, self.hash_function);
        if layout != Layout::RedisBloom && !layout.takes(function) {
            return Err(SpecError::HashFunctionOfLayout { function, layout });
        }
        let (body, false_positive_rate) = BodySpec::of(self)?;
        Ok(FilterSpec {
            capacity: self.capacity,
            false_positive_rate,
            hash_function: self.hash_function,
            key_profile: self.key_profile.clone(),
            body,
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
}

/// The requirements of a filter, resolved: every field has its value.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSpec {
    /// The number of distinct keys (n) for which the rate holds.
    pub capacity: u64,
    /// The share of keys never added that are reported as seen, at capacity (p).
    pub false_positive_rate: f64,
    /// The function that turns a key into bits.
    pub hash_function: HashFunction,
    /// The canonical form of keys before they are hashed. `None` if keys are hashed unchanged.
    pub key_profile: Option<KeyProfile>,
    /// The kind, the layout and the sizes.
    pub body: BodySpec,
}

impl FilterSpec {
    /// Returns the memory of the bits, counters or stamps, in bytes. For a filter in layers, that
    /// of the first layer.
    pub fn memory_bytes(&self) -> u64 {
        self.body.bit_count() / 8 * self.body.shape().cell_bits()
    }

    /// Whether this spec satisfies `request`. Fields that the request leaves to be computed are not
    /// compared. So a repeated request still means the same filter after an update that sizes
    /// filters differently.
    pub fn answers(&self, request: &SpecRequest) -> bool {
        let body = &self.body;
        self.capacity == request.capacity
            && body.kind() == request.kind
            && body.layout() == request.layout
            && self.hash_function == request.hash_function
            && self.key_profile == request.key_profile
            && request
                .false_positive_rate
                .is_none_or(|rate| rate == self.false_positive_rate)
            && request
                .hash_count
                .is_none_or(|count| count == body.hash_count())
            && request
                .bit_count
                .is_none_or(|bits| body.rounded(bits) == body.bit_count())
    }
}

impl From<FilterSpec> for SpecRequest {
    /// Returns the request that names every field except those computed from layers. It resolves to
    /// the same spec again.
    fn from(spec: FilterSpec) -> Self {
        let body = &spec.body;
        let is_whole = body.layers().is_none();
        Self {
            capacity: spec.capacity,
            false_positive_rate: Some(spec.false_positive_rate),
            bit_count: is_whole.then(|| body.bit_count()),
            hash_count: is_whole.then(|| body.hash_count()),
            layout: body.layout(),
            hash_function: spec.hash_function,
            kind: body.kind(),
            key_profile: spec.key_profile,
        }
    }
}

#[cfg(test)]
mod tests;
