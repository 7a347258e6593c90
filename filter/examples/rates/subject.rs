//! The kinds and layouts that are measured.

use seenset_filter::{
    blocked::Blocked,
    classic::Classic,
    counters::Counters,
    exchange::redisbloom::Chain,
    hash::{HashFunction, KeyHasher, Secret},
    key_set::KeySet,
    scaling::{HORIZON, OnFull, Scaling},
    shape::Dimensions,
    spec::{Aging as Ages, FilterSpec, Kind, Layout, SpecRequest},
};

use crate::{
    Outcome,
    aging::{Aging, SLICES},
    array::Array,
    chain,
    filter::Filter,
    growing::Growing,
    plain::Plain,
};

/// The fills that are measured, in per cent of the capacity.
const PERCENTS: [u64; 15] = [
    1, 2, 5, 10, 25, 50, 75, 100, 150, 200, 400, 800, 1600, 3200, 6400,
];
/// The divisor of the capacity that gives the initial capacity of a growing filter.
const INITIAL: u64 = 10;
/// The factor on the capacity of a filter whose bits are chosen unevenly: the effect shows in large
/// filters.
const UNEVEN: u64 = 5;

type Made = Outcome<Box<dyn Filter>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Blocked,
    Classic,
    Counting,
    Aging,
    Scaling,
    /// A scaling filter whose layers are four times as large as the one before.
    ScalingBy4,
    /// A filter that is full when it has its keys. It then refuses more keys, and is the same
    /// filter up to that point, or it accepts them. The second case is measured.
    OneLayer,
    Guava,
    GuavaMitz32,
    RedisBloom,
    /// A filter of RedisBloom that has grown once.
    RedisBloomLayers,
}

impl Subject {
    pub const ALL: [Self; 11] = [
        Self::Blocked,
        Self::Classic,
        Self::Counting,
        Self::Aging,
        Self::Scaling,
        Self::ScalingBy4,
        Self::OneLayer,
        Self::Guava,
        Self::GuavaMitz32,
        Self::RedisBloom,
        Self::RedisBloomLayers,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Classic => "classic",
            Self::Counting => "counting",
            Self::Aging => "aging",
            Self::Scaling => "scaling",
            Self::ScalingBy4 => "growth 4",
            Self::OneLayer => "one layer",
            Self::Guava => "guava",
            Self::GuavaMitz32 => "guava-mitz-32",
            Self::RedisBloom => "redisbloom",
            Self::RedisBloomLayers => "redisbloom, two layers",
        }
    }

    /// Whether it gets more layers.
    pub fn grows(self) -> bool {
        matches!(self, Self::Scaling | Self::ScalingBy4)
    }

    /// Returns the capacity of its filters, if others have `usual`. For filters that grow it is the
    /// initial capacity.
    pub fn capacity(self, usual: u64) -> u64 {
        match self {
            Self::GuavaMitz32 => usual * UNEVEN,
            _ if self.grows() => usual / INITIAL,
            _ => usual,
        }
    }

    /// Returns the fill up to which the filter is made to be used, in per cent of the capacity.
    pub fn full_percent(self) -> u64 {
        match self.grows() {
            true => 100 * HORIZON,
            false => 100,
        }
    }

    /// Whether the rate asked for is promised up to that fill. Other programs have their own sizes,
    /// and some of these miss the rate.
    pub fn keeps_rate(self) -> bool {
        !matches!(
            self,
            Self::Guava | Self::GuavaMitz32 | Self::RedisBloom | Self::RedisBloomLayers
        )
    }

    /// Returns the fills that are measured, in per cent of the capacity: up to twice the capacity,
    /// or as far as the filter grows.
    pub fn percents(self) -> impl Iterator<Item = u64> {
        let last = self.full_percent().max(200);
        PERCENTS.into_iter().filter(move |&percent| percent <= last)
    }

    fn hash_function(self) -> HashFunction {
        match self {
            Self::Guava | Self::GuavaMitz32 => Layout::Guava.hash_function(),
            Self::RedisBloom | Self::RedisBloomLayers => Layout::RedisBloom.hash_function(),
            _ => HashFunction::default(),
        }
    }

    /// Returns the hasher for the keys of a filter. If the hash has a secret, no other filter has
    /// the same one.
    pub fn hasher(self, rate: f64) -> KeyHasher {
        let mut secret = [b' '; Secret::BYTES];
        let name = format!("{}/{rate}", self.name());
        secret
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(secret, byte)| *secret = byte);
        KeyHasher::new(self.hash_function(), &Secret::new(secret))
    }

    /// Returns the first key of a filter. If the hash has no secret, it is far from the first key
    /// of any other.
    pub fn first_key(self, rate: f64) -> u64 {
        if self.hash_function() == HashFunction::default() {
            return 0;
        }
        let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([b' '; Secret::BYTES]));
        hasher
            .hash(format!("{}/{rate}", self.name()).as_bytes())
            .low
            >> 1
    }

    /// Returns an empty filter.
    pub fn filter(self, capacity: u64, rate: f64) -> Made {
        let spec = |kind, layout| {
            let request = SpecRequest {
                kind,
                layout,
                hash_function: self.hash_function(),
                ..SpecRequest::new(capacity, rate)
            };
            request.resolve()
        };
        let sizes = |kind, layout| spec(kind, layout).map(|spec| spec.body.shape().dimensions());
        let growing = |on_full: OnFull| -> Made {
            Ok(Box::new(Growing::new(on_full.layers(capacity, rate)?)))
        };
        let scaling = |growth| {
            growing(OnFull::Scale(Scaling {
                growth,
                ..Scaling::default()
            }))
        };
        let array = |spec: &FilterSpec| -> Made {
            let array = Array::new(spec).ok_or("the layout is of no other program")?;
            Ok(Box::new(array))
        };
        let chain = |chain: Option<Chain>| {
            let chain = chain.ok_or("RedisBloom has no such filter")?;
            array(&FilterSpec::of_chain(&chain, None))
        };
        match self {
            Self::Blocked => plain::<Blocked>(sizes(Kind::Plain, Layout::Blocked)?),
            Self::Classic => plain::<Classic>(sizes(Kind::Plain, Layout::Classic)?),
            Self::Counting => plain::<Counters>(sizes(Kind::Counting, Layout::Blocked)?),
            Self::Aging => {
                let ages = Ages {
                    max_age: std::time::Duration::from_secs(SLICES.into()),
                    slices: SLICES,
                    refresh: false,
                };
                let stamps = sizes(Kind::Aging(ages), Layout::Blocked)?.into();
                Ok(Box::new(Aging::new(stamps, capacity, &self.hasher(rate))))
            }
            Self::Scaling => scaling(2),
            Self::ScalingBy4 => scaling(4),
            Self::OneLayer => growing(OnFull::Degrade),
            Self::Guava => array(&spec(Kind::Plain, Layout::Guava)?),
            Self::GuavaMitz32 => array(&spec(Kind::Plain, Layout::GuavaMitz32)?),
            Self::RedisBloom => chain(chain::single(capacity, rate)),
            // The second layer is twice as large as the first.
            Self::RedisBloomLayers => chain(chain::doubling(capacity / 3, rate, 2)),
        }
    }
}

fn plain<F: KeySet + 'static>(sizes: Dimensions) -> Made {
    Ok(Box::new(Plain::new(F::from(sizes))))
}
