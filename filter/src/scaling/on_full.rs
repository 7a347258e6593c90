//! The action of a filter that is full.

use super::{Layers, Scaling, ScalingError};
use crate::names::named;

/// The action for new keys when a filter is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnFull {
    /// New keys go to another layer. If no more layers are allowed, new keys are refused.
    Scale(Scaling),
    /// New keys are refused, so that the rate stays as asked for.
    Reject,
    /// New keys are added, and the rate rises.
    Degrade,
}

impl OnFull {
    /// Returns the action with this name and the given values for layers. Values that were not
    /// given are as in [`Scaling::default`].
    ///
    /// # Errors
    ///
    /// [`ScalingError::OneLayer`] if a value was given and there is only one layer.
    pub fn new(
        name: OnFullName,
        growth: Option<u32>,
        max_memory_bytes: Option<u64>,
    ) -> Result<Self, ScalingError> {
        let one_layer = match name {
            OnFullName::Scale => {
                let growth = growth.unwrap_or(Scaling::default().growth);
                return Ok(Self::Scale(Scaling {
                    growth,
                    max_memory_bytes,
                }));
            }
            OnFullName::Reject => Self::Reject,
            OnFullName::Degrade => Self::Degrade,
        };
        let growth = growth.map(|value| ("growth", u64::from(value)));
        let bound = max_memory_bytes.map(|value| ("max_memory_bytes", value));
        match growth.or(bound) {
            None => Ok(one_layer),
            Some((field, value)) => Err(ScalingError::OneLayer {
                field,
                value,
                on_full: name,
            }),
        }
    }

    /// Returns the name that flags and logs use.
    pub const fn name(self) -> OnFullName {
        match self {
            Self::Scale(_) => OnFullName::Scale,
            Self::Reject => OnFullName::Reject,
            Self::Degrade => OnFullName::Degrade,
        }
    }

    /// Returns the layers of a filter with this action, for `capacity` keys at first. If it does
    /// not grow, it has one layer.
    ///
    /// # Errors
    ///
    /// A [`ScalingError`] that names the field, its value and the limit.
    pub fn layers(&self, capacity: u64, rate: f64) -> Result<Layers, ScalingError> {
        match self {
            Self::Scale(scaling) => Layers::plan(capacity, rate, scaling).map(|(layers, _)| layers),
            Self::Reject | Self::Degrade => Layers::plan_one(capacity, rate),
        }
    }
}

named! {
    "policy", as_str,
    /// The name of the action when a filter is full, without its parameters.
    #[derive(Default)]
    pub enum OnFullName {
        /// [`OnFull::Scale`].
        #[default]
        Scale = "scale",
        /// [`OnFull::Reject`].
        Reject = "reject",
        /// [`OnFull::Degrade`].
        Degrade = "degrade",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_as_usual() {
        let new = |growth, bound| OnFull::new(OnFullName::Scale, growth, bound);
        assert_eq!(new(None, None), Ok(OnFull::Scale(Scaling::default())));
        let given = Scaling {
            growth: 4,
            max_memory_bytes: Some(1 << 30),
        };
        assert_eq!(new(Some(4), Some(1 << 30)), Ok(OnFull::Scale(given)));
    }

    #[test]
    fn one_layer_has_no_growth_and_no_bound() {
        for name in [OnFullName::Reject, OnFullName::Degrade] {
            assert_eq!(OnFull::new(name, None, None).unwrap().name(), name);
            for (growth, bound, says) in [
                (Some(3), None, "scaling.growth is 3 and scaling.on_full is"),
                (None, Some(7), "scaling.max_memory_bytes is 7 and scaling."),
            ] {
                let error = OnFull::new(name, growth, bound).unwrap_err().to_string();
                assert!(error.starts_with(says), "{error}");
                assert!(error.contains(name.as_str()), "{error}");
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in OnFullName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let error = "Scale".parse::<OnFullName>().unwrap_err();
        assert!(error.contains("\"Scale\": use scale, reject or degrade"));
    }
}
