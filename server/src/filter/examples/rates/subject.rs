//! The kinds and layouts that are measured.

use std::error::Error;

use seenset_filter::{
    hash::{HashFunction, KeyHasher, Secret},
    scaling::{HORIZON, Layers, Scaling},
    shape::Shape,
    spec::{Aging as Ages, Kind, Layout, SpecRequest},
};

use crate::{
    aging::{Aging, SLICES},
    filter::Filter,
    growing::Growing,
    plain::Plain,
};

/// The fills that are measured, in per cent of the capacity.
const PERCENTS: [u64; 15] = [
    1, 2, 5, 10, 25, 50, 75, 100, 150, 200, 400, 800, 1600, 3200, 6400,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Blocked,
    Classic,
    Counting,
    Aging,
    Scaling,
}

impl Subject {
    pub const ALL: [Self; 5] = [
        Self::Blocked,
        Self::Classic,
        Self::Counting,
        Self::Aging,
        Self::Scaling,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Classic => "classic",
            Self::Counting => "counting",
            Self::Aging => "aging",
            Self::Scaling => "scaling",
        }
    }

    /// Up to which fill, in per cent of the capacity, the rate asked for is kept.
    pub fn kept_percent(self) -> u64 {
        match self {
            Self::Scaling => 100 * HORIZON,
            _ => 100,
        }
    }

    /// The fills that are measured, in per cent of the capacity: up to twice the capacity, or as
    /// far as the rate is kept.
    pub fn percents(self) -> impl Iterator<Item = u64> {
        let last = self.kept_percent().max(200);
        PERCENTS.into_iter().filter(move |&percent| percent <= last)
    }

    /// What hashes the keys of a filter: the secret is that of no other.
    pub fn hasher(self, rate: f64) -> KeyHasher {
        let mut secret = [b' '; Secret::BYTES];
        let name = format!("{}/{rate}", self.name());
        secret
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(secret, byte)| *secret = byte);
        KeyHasher::new(HashFunction::default(), &Secret::new(secret))
    }

    /// An empty filter.
    pub fn filter(self, capacity: u64, rate: f64) -> Result<Box<dyn Filter>, Box<dyn Error>> {
        let shape = |kind, layout| {
            let request = SpecRequest {
                kind,
                layout,
                ..SpecRequest::new(capacity, rate)
            };
            request.resolve().map(|spec| Shape::of(&spec))
        };
        Ok(match self {
            Self::Blocked => Box::new(Plain::new(shape(Kind::Plain, Layout::Blocked)?)),
            Self::Classic => Box::new(Plain::new(shape(Kind::Plain, Layout::Classic)?)),
            Self::Counting => Box::new(Plain::new(shape(Kind::Counting, Layout::Blocked)?)),
            Self::Aging => {
                let ages = Ages {
                    max_age: std::time::Duration::from_secs(SLICES.into()),
                    slices: SLICES,
                    refresh: false,
                };
                let shape = shape(Kind::Aging(ages), Layout::Blocked)?;
                Box::new(Aging::new(shape, capacity, &self.hasher(rate)))
            }
            Self::Scaling => {
                let (layers, _) = Layers::plan(capacity, rate, &Scaling::default())?;
                Box::new(Growing::new(layers))
            }
        })
    }
}
