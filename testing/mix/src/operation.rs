//! Operations on whole filters.

use std::time::Duration;

use clap::ValueEnum;
use seenset_proto::v1::{Aging, Counting, FilterSpec, Layout, Plain, Scaling, filter_spec};

use crate::model::Name;

/// The capacity of filters. All keys fit.
pub const CAPACITY: u64 = 20_000;

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    Plain,
    Classic,
    Scaling,
    Counting,
    Aging,
    Guava,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create {
        name: Name,
        kind: Kind,
    },
    Delete {
        name: Name,
    },
    Reset {
        name: Name,
    },
    Rename {
        name: Name,
        to: Name,
    },
    Copy {
        name: Name,
        to: Name,
    },
    Merge {
        name: Name,
        target: Name,
    },
    StartRebuild {
        name: Name,
        to: Name,
        /// The kind of the new filter. `None` keeps the spec.
        kind: Option<Kind>,
    },
    FinishRebuild {
        name: Name,
        to: Name,
    },
    /// An export to a file of Guava's format, and an import of that file.
    Exchange {
        name: Name,
        to: Name,
    },
    Store {
        name: Name,
    },
}

impl Kind {
    /// Returns a spec for which no false positive is expected.
    pub fn spec(self) -> FilterSpec {
        let kind = match self {
            Self::Plain | Self::Classic | Self::Guava => filter_spec::Kind::Plain(Plain {}),
            Self::Scaling => filter_spec::Kind::Scaling(Scaling::default()),
            Self::Counting => filter_spec::Kind::Counting(Counting {}),
            Self::Aging => filter_spec::Kind::Aging(Aging {
                max_age: Duration::from_secs(30 * 86_400).try_into().ok(),
                ..Aging::default()
            }),
        };
        let layout = match self {
            Self::Guava => Layout::Guava,
            Self::Classic => Layout::Classic,
            _ => Layout::Unspecified,
        };
        FilterSpec {
            capacity: if self == Self::Scaling {
                1000
            } else {
                CAPACITY
            },
            false_positive_rate: 1e-10,
            layout: layout.into(),
            kind: Some(kind),
            ..FilterSpec::default()
        }
    }
}

impl Operation {
    /// Returns the operation's first name.
    pub fn name(self) -> Name {
        match self {
            Self::Create { name, .. }
            | Self::Delete { name }
            | Self::Reset { name }
            | Self::Rename { name, .. }
            | Self::Copy { name, .. }
            | Self::Merge { name, .. }
            | Self::StartRebuild { name, .. }
            | Self::FinishRebuild { name, .. }
            | Self::Exchange { name, .. }
            | Self::Store { name } => name,
        }
    }

    /// Returns all names that the operation concerns.
    pub fn names(self) -> Vec<Name> {
        let second = match self {
            Self::Rename { to, .. }
            | Self::Copy { to, .. }
            | Self::StartRebuild { to, .. }
            | Self::FinishRebuild { to, .. }
            | Self::Exchange { to, .. } => Some(to),
            Self::Merge { target, .. } => Some(target),
            _ => None,
        };
        [Some(self.name()), second].into_iter().flatten().collect()
    }

    /// Returns the operation's name in the summary.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::Reset { .. } => "reset",
            Self::Rename { .. } => "rename",
            Self::Copy { .. } => "copy",
            Self::Merge { .. } => "merge",
            Self::StartRebuild { .. } => "start rebuild",
            Self::FinishRebuild { .. } => "finish rebuild",
            Self::Exchange { .. } => crate::operator::EXCHANGE,
            Self::Store { .. } => "store",
        }
    }
}
