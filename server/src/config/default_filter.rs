//! The settings of the default filter, which the first start creates.

use super::Config;
use crate::filter::{
    profile::KeyProfile,
    scaling::OnFull,
    spec::{Aging, Kind, KindName, SpecError, SpecRequest},
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
        let ages = self.max_age.is_some() || self.slices.is_some() || self.refresh;
        let max_memory_bytes = self.max_filter_memory.map(super::Size::bytes);
        let layers = self.on_full.is_some() || self.growth.is_some() || max_memory_bytes.is_some();
        let default = || KindName::default_for(self.bit_count, self.hash_count, self.layout);
        match self.kind.unwrap_or_else(default) {
            kind if ages && kind != KindName::Aging => Err(SpecError::AgesOfKind { kind }),
            kind if layers && kind != KindName::Scaling => Err(SpecError::LayersOfKind { kind }),
            KindName::Aging => Ok(Kind::Aging(Aging {
                max_age: self.max_age.map(super::Period::get).unwrap_or_default(),
                slices: self.slices.unwrap_or(Aging::DEFAULT_SLICES),
                refresh: self.refresh,
            })),
            KindName::Plain => Ok(Kind::Plain),
            KindName::Counting => Ok(Kind::Counting),
            KindName::Scaling => {
                let on_full = self.on_full.unwrap_or_default();
                let on_full = OnFull::new(on_full, self.growth, max_memory_bytes)?;
                Ok(Kind::Scaling(on_full))
            }
        }
    }
}
