//! The kinds of filters, by their extra ability.

use std::fmt;

use super::{Aging, Layout};
use crate::{names::by_name, scaling::OnFull};

/// The kind of a filter: its ability beyond reporting the keys that it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// No extra ability: keys that were added stay.
    #[default]
    Plain,
    /// Keys can be removed: see [`crate::counting`].
    Counting,
    /// Keys are forgotten after a time: see [`crate::aging`].
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

/// The name of a kind, without its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KindName {
    /// [`Kind::Plain`].
    Plain,
    /// [`Kind::Counting`].
    Counting,
    /// [`Kind::Aging`].
    Aging,
    /// [`Kind::Scaling`].
    Scaling,
}

impl KindName {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Counting, Self::Aging, Self::Scaling];

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

    /// Returns the name that flags and logs use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Counting => "counting",
            Self::Aging => "aging",
            Self::Scaling => "scaling",
        }
    }
}

by_name!(KindName, as_str, "kind of filter", Self::ALL);
