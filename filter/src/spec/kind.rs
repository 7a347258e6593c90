//! The kinds of filters, by their extra ability.

use std::{fmt, time::Duration};

use super::{Aging, Layout, SpecError};
use crate::{
    names::named,
    scaling::{OnFull, OnFullName},
};

/// The kind of a filter: its ability beyond reporting the keys that it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// No extra ability: keys that were added stay.
    #[default]
    Plain,
    /// Keys can be removed: see [`crate::counters`].
    Counting,
    /// Keys are forgotten after a time: see [`crate::stamps`].
    Aging(Aging),
    /// It detects when it is full, and then grows or takes another configured action: see
    /// [`crate::scaling`].
    Scaling(OnFull),
}

impl Kind {
    /// Whether each bit has a counter or a stamp in its place.
    pub fn has_cells(self) -> bool {
        match self {
            Self::Counting | Self::Aging(_) => true,
            Self::Plain | Self::Scaling(_) => false,
        }
    }

    /// Returns the name that flags and logs use.
    pub const fn name(self) -> KindName {
        match self {
            Self::Plain => KindName::Plain,
            Self::Counting => KindName::Counting,
            Self::Aging(_) => KindName::Aging,
            Self::Scaling(_) => KindName::Scaling,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)?;
        match self {
            Self::Plain | Self::Counting => Ok(()),
            Self::Aging(aging) => {
                let refresh = if aging.refresh { ", refresh" } else { "" };
                let (max_age, slices) = (aging.max_age, aging.slices);
                write!(f, " (max_age {max_age:?}, {slices} slices{refresh})")
            }
            Self::Scaling(OnFull::Scale(scaling)) => {
                write!(f, " (growth {}", scaling.growth)?;
                if let Some(bytes) = scaling.max_memory_bytes {
                    write!(f, ", at most {bytes} bytes")?;
                }
                f.write_str(")")
            }
            Self::Scaling(on_full) => write!(f, " (on_full {})", on_full.name()),
        }
    }
}

named! {
    "kind of filter", as_str,
    /// The name of a kind, without its parameters.
    pub enum KindName {
        /// [`Kind::Plain`].
        Plain = "plain",
        /// [`Kind::Counting`].
        Counting = "counting",
        /// [`Kind::Aging`].
        Aging = "aging",
        /// [`Kind::Scaling`].
        Scaling = "scaling",
    }
}

impl KindName {
    /// Returns the kind of a filter whose request names none. It is scaling, so that no key is lost
    /// when more are added than the filter is made for. It is plain if the request gives bits,
    /// hashes or another layout than blocked, because a scaling filter chooses these by itself.
    pub fn default_for(bit_count: Option<u64>, hash_count: Option<u32>, layout: Layout) -> Self {
        let has_own_bits = bit_count.is_some() || hash_count.is_some();
        match has_own_bits || layout != Layout::Blocked {
            true => Self::Plain,
            false => Self::Scaling,
        }
    }
}

/// The options of the kinds, as flags give them.
#[derive(Debug, Clone, Copy, Default)]
pub struct KindOptions {
    /// See [`Aging::max_age`].
    pub max_age: Option<Duration>,
    /// See [`Aging::slices`].
    pub slices: Option<u32>,
    /// See [`Aging::refresh`].
    pub refresh: bool,
    /// The action of a scaling filter when it is full.
    pub on_full: Option<OnFullName>,
    /// See [`Scaling::growth`](crate::scaling::Scaling::growth).
    pub growth: Option<u32>,
    /// See [`Scaling::max_memory_bytes`](crate::scaling::Scaling::max_memory_bytes).
    pub max_memory_bytes: Option<u64>,
}

impl KindOptions {
    /// Returns a kind with these options.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if options are given that the kind does not have, or that contradict each
    /// other.
    pub fn kind(&self, name: KindName) -> Result<Kind, SpecError> {
        let ages = self.max_age.is_some() || self.slices.is_some() || self.refresh;
        let layers =
            self.on_full.is_some() || self.growth.is_some() || self.max_memory_bytes.is_some();
        match name {
            kind if ages && kind != KindName::Aging => Err(SpecError::AgesOfKind { kind }),
            kind if layers && kind != KindName::Scaling => Err(SpecError::LayersOfKind { kind }),
            KindName::Plain => Ok(Kind::Plain),
            KindName::Counting => Ok(Kind::Counting),
            KindName::Aging => Ok(Kind::Aging(Aging {
                max_age: self.max_age.unwrap_or_default(),
                slices: self.slices.unwrap_or(Aging::DEFAULT_SLICES),
                refresh: self.refresh,
            })),
            KindName::Scaling => {
                let on_full = self.on_full.unwrap_or_default();
                let on_full = OnFull::new(on_full, self.growth, self.max_memory_bytes)?;
                Ok(Kind::Scaling(on_full))
            }
        }
    }
}
