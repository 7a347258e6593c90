//! The settings of the default filter, which the first start creates.

use super::Config;
use crate::filter::{
    profile::KeyProfile,
    spec::{Kind, KindName, KindOptions, SpecError, SpecRequest},
};

/// The rate of the default filter if neither a rate nor bits are configured.
pub(super) const FALSE_POSITIVE_RATE: f64 = 0.001;

impl Config {
    /// Returns the spec of the filter named `default`.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if the key profile or the kind is not possible.
    pub fn default_filter(&self) -> Result<SpecRequest, SpecError> {
        let rate = match self.bit_count {
            None => self.false_positive_rate.or(Some(FALSE_POSITIVE_RATE)),
            Some(_) => self.false_positive_rate,
        };
        let (sort, names) = (self.sort_query, &self.drop_parameter);
        // Options without a profile are refused like those of a profile without a name.
        let has_profile = self.key_profile.is_some() || sort || !names.is_empty();
        let profile = self.key_profile.as_deref().unwrap_or_default();
        let profile = has_profile.then(|| KeyProfile::new(profile, sort, names));
        Ok(SpecRequest {
            capacity: self.capacity,
            false_positive_rate: rate,
            bit_count: self.bit_count,
            hash_count: self.hash_count,
            layout: self.layout,
            hash_function: self.hash_function.unwrap_or(self.layout.hash_function()),
            key_profile: profile.transpose()?,
            kind: self.kind()?,
        })
    }

    fn kind(&self) -> Result<Kind, SpecError> {
        let options = KindOptions {
            max_age: self.max_age.map(super::Period::get),
            slices: self.slices,
            refresh: self.refresh,
            on_full: self.on_full,
            growth: self.growth,
            max_memory_bytes: self.max_filter_memory.map(super::Size::bytes),
        };
        let default = || KindName::default_for(self.bit_count, self.hash_count, self.layout);
        options.kind(self.kind.unwrap_or_else(default))
    }
}
