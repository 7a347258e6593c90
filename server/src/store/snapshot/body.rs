//! The body of a spec: its tag and its numbers in the header, its layers in the extension.

use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use super::fields::{Checks, long_number, take};
use crate::{
    filter::{
        exchange::{
            guava::{self, Strategy},
            redisbloom::{Chain, ChainLayer},
        },
        limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
        scaling::{GROWTHS, LayerSpec, Layers, OnFull, Scaling},
        shape::Dimensions,
        spec::{Aging, BodySpec},
    },
    store::StoreError,
};

/// The value for no memory limit, in a filter that can grow without end.
const NO_LIMIT: u64 = u64::MAX;
/// The most numbers of a body.
const NUMBERS: usize = 6;

/// Declares the tags of bodies, and the list of them all.
macro_rules! tags {
    ($($name:ident = $tag:literal,)*) => {
        /// The tag of a body in a file.
        #[derive(Debug, Clone, Copy)]
        enum Tag {
            $($name = $tag,)*
        }

        impl Tag {
            const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

tags! {
    Blocked = 1,
    Classic = 2,
    Counting = 3,
    Aging = 4,
    Scale = 5,
    Reject = 6,
    Degrade = 7,
    Guava = 8,
    GuavaMitz32 = 9,
    RedisBloom = 10,
}

/// The bytes of a body in the header: a tag, and the numbers that go with it. The others are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct EncodedBody {
    pub tag: [u8; 4],
    zeros: [u8; 4],
    pub numbers: [[u8; 8]; NUMBERS],
}

impl EncodedBody {
    fn new(tag: Tag, numbers: &[u64]) -> Self {
        let mut encoded = Self::zeroed();
        encoded.tag = (tag as u32).to_le_bytes();
        for (place, number) in encoded.numbers.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        encoded
    }

    /// Encodes a body, without its layers.
    pub fn of(body: &BodySpec) -> Self {
        let sizes = |dimensions: &Dimensions| {
            let Dimensions {
                shard_count,
                shard_bits,
                hash_count,
            } = *dimensions;
            [shard_count, shard_bits, hash_count.into()]
        };
        match body {
            BodySpec::Blocked(dimensions) => Self::new(Tag::Blocked, &sizes(dimensions)),
            BodySpec::Classic(dimensions) => Self::new(Tag::Classic, &sizes(dimensions)),
            BodySpec::Counting(dimensions) => Self::new(Tag::Counting, &sizes(dimensions)),
            BodySpec::Aging(dimensions, aging) => {
                let [shard_count, shard_bits, hash_count] = sizes(dimensions);
                // A spec has no more than a century.
                let max_age = aging.max_age.as_nanos() as u64;
                let (slices, refresh) = (aging.slices.into(), aging.refresh.into());
                let numbers = [
                    shard_count,
                    shard_bits,
                    hash_count,
                    max_age,
                    slices,
                    refresh,
                ];
                Self::new(Tag::Aging, &numbers)
            }
            BodySpec::Layered(OnFull::Scale(scaling), _) => {
                let bytes = scaling.max_memory_bytes.unwrap_or(NO_LIMIT);
                Self::new(Tag::Scale, &[scaling.growth.into(), bytes])
            }
            BodySpec::Layered(OnFull::Reject, _) => Self::new(Tag::Reject, &[]),
            BodySpec::Layered(OnFull::Degrade, _) => Self::new(Tag::Degrade, &[]),
            BodySpec::Guava(shape) => {
                let tag = match shape.strategy() {
                    Strategy::Mitz64 => Tag::Guava,
                    Strategy::Mitz32 => Tag::GuavaMitz32,
                };
                Self::new(tag, &[shape.word_count(), shape.hash_count().into()])
            }
            BodySpec::RedisBloom(_) => Self::new(Tag::RedisBloom, &[]),
        }
    }

    /// Decodes and verifies a body. Takes its layers from the extension.
    pub fn decode(
        &self,
        extension: &mut &[u8],
        checks: &Checks<'_>,
    ) -> Result<BodySpec, StoreError> {
        let number_of_tag = u32::from_le_bytes(self.tag);
        let mut tags = Tag::ALL.iter();
        let tag = tags.find(|&&tag| tag as u32 == number_of_tag);
        let tag = *tag.ok_or_else(|| {
            let expected = format!("1 to {}", Tag::ALL.len());
            checks.damaged("body", &expected, &number_of_tag.to_string())
        })?;
        let [first, second, third, max_age, slices, refresh] = self.numbers.map(u64::from_le_bytes);
        let sizes = [first, second, third];
        let body = match tag {
            Tag::Blocked => sharded(BodySpec::Blocked, sizes, checks)?,
            Tag::Classic => sharded(BodySpec::Classic, sizes, checks)?,
            Tag::Counting => sharded(BodySpec::Counting, sizes, checks)?,
            Tag::Aging => {
                let aging = Aging {
                    max_age: Duration::from_nanos(max_age),
                    slices: number(slices),
                    refresh: refresh == 1,
                };
                let is_known = aging.check().is_ok();
                checks.require("ages", is_known, "those of a spec", &format!("{aging:?}"))?;
                sharded(
                    |dimensions| BodySpec::Aging(dimensions, aging),
                    sizes,
                    checks,
                )?
            }
            Tag::Scale => {
                let growth = number(first);
                let is_known = GROWTHS.contains(&growth);
                checks.require("growth", is_known, &format!("{GROWTHS:?}"), &first)?;
                let on_full = OnFull::Scale(Scaling {
                    growth,
                    max_memory_bytes: Some(second).filter(|&bytes| bytes != NO_LIMIT),
                });
                BodySpec::Layered(on_full, layers(extension, checks)?.into())
            }
            Tag::Reject => BodySpec::Layered(OnFull::Reject, one_layer(extension, checks)?.into()),
            Tag::Degrade => {
                BodySpec::Layered(OnFull::Degrade, one_layer(extension, checks)?.into())
            }
            Tag::Guava => guava(Strategy::Mitz64, first, second, checks)?,
            Tag::GuavaMitz32 => guava(Strategy::Mitz32, first, second, checks)?,
            Tag::RedisBloom => {
                let chain = chain(extension).ok_or_else(|| {
                    let expected = "the layers of a filter of RedisBloom";
                    checks.damaged("extension", expected, "something else")
                })?;
                BodySpec::RedisBloom(chain.into())
            }
        };
        // Each body has one encoding, so the numbers that it does not have are 0.
        checks.require(
            "numbers of the body",
            Self::of(&body) == *self,
            "0 if the body does not have them",
            &format!("{self:?}"),
        )?;
        Ok(body)
    }
}

/// Returns a number that has 32 bits in a spec. One that is greater becomes the greatest, which no
/// spec has.
fn number(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

fn sharded(
    body: impl FnOnce(Dimensions) -> BodySpec,
    [shard_count, shard_bits, hash_count]: [u64; 3],
    checks: &Checks<'_>,
) -> Result<BodySpec, StoreError> {
    checks.require(
        "hash_count",
        (1..=MAX_HASH_COUNT.into()).contains(&hash_count),
        &format!("1 to {MAX_HASH_COUNT}"),
        &hash_count,
    )?;
    let bits = shard_count.checked_mul(shard_bits);
    checks.require(
        "bit_count",
        bits.is_some_and(|bits| (1..=MAX_BIT_COUNT).contains(&bits)),
        &format!("1 to {MAX_BIT_COUNT}"),
        &format!("{shard_count} shards of {shard_bits} bits"),
    )?;
    let body = body(Dimensions {
        shard_count,
        shard_bits,
        hash_count: number(hash_count),
    });
    let shape = body.shape();
    checks.expect("bits per shard", &shape.shard_bits(), &shard_bits)?;
    let expected = "one, or shards of 16 KiB to 4 MiB";
    checks.require(
        "shard count",
        shape.has_good_shards(),
        expected,
        &shard_count,
    )?;
    Ok(body)
}

fn guava(
    strategy: Strategy,
    words: u64,
    hash_count: u64,
    checks: &Checks<'_>,
) -> Result<BodySpec, StoreError> {
    let shape = guava::Shape::new(strategy, number(hash_count), words);
    let shape = shape.map_err(|error| {
        checks.damaged("body", "a possible filter of Guava", &error.to_string())
    })?;
    Ok(BodySpec::Guava(shape))
}

/// Appends the layers of a body, if it has any, to the extension.
pub(super) fn encode_layers(body: &BodySpec, bytes: &mut Vec<u8>) {
    let mut append = |number: u64| bytes.extend(number.to_le_bytes());
    match body {
        BodySpec::Layered(_, layers) => {
            append(layers.partitions() as u64);
            append(layers.layers().len() as u64);
            for layer in layers.layers() {
                let LayerSpec {
                    shards,
                    shard_bits,
                    hash_count,
                    full_bits,
                    capacity,
                } = *layer.spec();
                for field in [shards, shard_bits, hash_count.into(), full_bits, capacity] {
                    append(field);
                }
            }
        }
        BodySpec::RedisBloom(chain) => {
            append(chain.layers().len() as u64);
            for layer in chain.layers() {
                append(layer.word_count());
                append(layer.used_bits());
                append(layer.hash_count().into());
                append(layer.capacity());
                append(layer.false_positive_rate().to_bits());
            }
        }
        BodySpec::Blocked(_)
        | BodySpec::Classic(_)
        | BodySpec::Counting(_)
        | BodySpec::Aging(..)
        | BodySpec::Guava(_) => {}
    }
}

fn layers(extension: &mut &[u8], checks: &Checks<'_>) -> Result<Layers, StoreError> {
    let mut whole = || {
        let (partitions, count) = (long_number(extension)?, long_number(extension)?);
        let mut specs = Vec::new();
        for _ in 0..count {
            specs.push(LayerSpec {
                shards: long_number(extension)?,
                shard_bits: long_number(extension)?,
                hash_count: long_number(extension)?.try_into().ok()?,
                full_bits: long_number(extension)?,
                capacity: long_number(extension)?,
            });
        }
        Some((partitions, specs))
    };
    let Some((partitions, specs)) = whole() else {
        return Err(checks.damaged("extension", "the layers of a filter", "something else"));
    };
    let layers = Layers::restore(partitions, &specs);
    layers.map_err(|error| checks.damaged("layers", "those of a plan", &error.to_string()))
}

/// Returns the layers of a filter that does not grow.
fn one_layer(extension: &mut &[u8], checks: &Checks<'_>) -> Result<Layers, StoreError> {
    let layers = layers(extension, checks)?;
    let (expected, found) = ("1, of a filter that does not grow", layers.layers().len());
    checks.require("number of layers", found == 1, expected, &found)?;
    Ok(layers)
}

/// Returns the layers of a filter of RedisBloom, which has no key profile.
fn chain(extension: &mut &[u8]) -> Option<Chain> {
    let mut left = take(extension, extension.len())?;
    let count = long_number(&mut left)?;
    let mut layers = Vec::new();
    for _ in 0..count {
        layers.push(ChainLayer::new(
            long_number(&mut left)?,
            long_number(&mut left)?,
            long_number(&mut left)?.try_into().ok()?,
            long_number(&mut left)?,
            f64::from_bits(long_number(&mut left)?),
        )?);
    }
    Chain::new(layers).filter(|_| left.is_empty())
}
