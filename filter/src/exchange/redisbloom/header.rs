//! The first chunk of a dump: the description of the chain and its layers.
//!
//! | at | bytes | content (`dumpedChainHeader`) |
//! |---|---|---|
//! | 0 | 8 | number of keys in all layers |
//! | 8 | 4 | number of layers |
//! | 12 | 4 | options: 1 bits not rounded to a power of two, 2 the capacity asked for was one of bits, 4 hashes of 64 bits, 8 the chain does not grow |
//! | 16 | 4 | growth factor: the size of the next layer as a multiple of the last |
//! | 20 | | the layers, 53 bytes each |
//!
//! | at | bytes | content (`dumpedChainLink`) |
//! |---|---|---|
//! | 0 | 8 | length of the bits in bytes |
//! | 8 | 8 | number of bits |
//! | 16 | 8 | number of keys in the layer |
//! | 24 | 8 | false-positive rate, IEEE 754 |
//! | 32 | 8 | bits for each key, IEEE 754 |
//! | 40 | 4 | hash count (k) |
//! | 44 | 8 | capacity |
//! | 52 | 1 | binary logarithm of the modulus of positions; 0 if that is the number of bits |
//!
//! These are packed C structures, as a 64-bit machine has them in memory: little-endian. The checks
//! are those that RedisBloom makes before it loads such a header. A header that is not supported
//! here is refused: one with hashes of 32 bits, as filters of its first releases have, and one with
//! hashes under a seed (`bf-hash-seed`, 16 more bytes after the layers).

use super::ChainLayer;
use crate::{
    exchange::{ExchangeError, error::require},
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
};

/// The most layers that a chain can have. Each layer halves the rate of the one before, and so has
/// one hash more.
pub const MAX_LAYERS: u32 = MAX_HASH_COUNT;

const CHAIN_BYTES: u64 = 20;
const LAYER_BYTES: u64 = 53;
const HASH_CONFIG_BYTES: u64 = 16;
pub(super) const MAX_HEADER_BYTES: u64 = CHAIN_BYTES + MAX_LAYERS as u64 * LAYER_BYTES;

const KNOWN_OPTIONS: u32 = 0b1111;
const OPTION_64_BITS: u32 = 4;
/// RedisBloom's value of ln 2.
#[expect(clippy::approx_constant, reason = "it has one digit less than ln 2")]
const LN_2: f64 = 0.693_147_180_559_945;

/// A filter of RedisBloom, without its bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    layers: Vec<ChainLayer>,
    keys_added: u64,
}

impl Chain {
    /// Returns a chain without keys; `None` if it has no layer, too many, or too many bits in them.
    pub fn new(layers: Vec<ChainLayer>) -> Option<Self> {
        let counts = layers.iter().map(ChainLayer::word_count);
        let words = counts.fold(0_u64, u64::saturating_add);
        let is_possible =
            (1..=MAX_LAYERS as usize).contains(&layers.len()) && words <= MAX_BIT_COUNT / 64;
        is_possible.then_some(Self {
            layers,
            keys_added: 0,
        })
    }

    /// Returns the same chain without keys.
    pub fn emptied(&self) -> Self {
        let layers = self.layers.iter();
        let emptied = |layer: &ChainLayer| ChainLayer {
            keys_added: 0,
            ..*layer
        };
        Self {
            layers: layers.map(emptied).collect(),
            keys_added: 0,
        }
    }

    /// Returns the layers, the oldest first: at least one. New keys belong in the last.
    pub fn layers(&self) -> &[ChainLayer] {
        &self.layers
    }

    /// Returns the number of keys that were new when they were added.
    pub fn keys_added(&self) -> u64 {
        self.keys_added
    }

    /// Returns the length of the bits of all layers, in bytes.
    pub(super) fn data_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.word_count * 8).sum()
    }

    /// Decodes a header. `max_data_bytes` is the greatest possible number of bytes of bits.
    pub(super) fn decode(header: &[u8], max_data_bytes: u64) -> Result<Self, ExchangeError> {
        let mut from = Fields { rest: header };
        let keys_added = u64::from_le_bytes(from.take()?);
        let layer_count = u32::from_le_bytes(from.take()?);
        require(
            (1..=MAX_LAYERS).contains(&layer_count),
            "nfilters",
            layer_count,
            format!("1 to {MAX_LAYERS}"),
        )?;
        check_length(header.len() as u64, layer_count)?;
        let options = u32::from_le_bytes(from.take()?);
        require(
            options & !KNOWN_OPTIONS == 0,
            "options",
            options,
            format!("at most {KNOWN_OPTIONS}"),
        )?;
        require(
            options & OPTION_64_BITS != 0,
            "options",
            options,
            "one with hashes of 64 bits (4); a filter with hashes of 32 bits is not read",
        )?;
        // The growth of the chain does not affect its contents.
        let _growth: [u8; 4] = from.take()?;

        let mut layers = Vec::with_capacity(layer_count as usize);
        // A client can claim any length for a file. So this limit keeps its bits from overflowing.
        let mut data_left = max_data_bytes.min(MAX_BIT_COUNT / 8);
        let mut keys_left = keys_added;
        for number in 0..layer_count {
            let layer = from.layer(number, data_left)?;
            data_left -= layer.word_count * 8;
            keys_left = keys_left.checked_sub(layer.keys_added).ok_or_else(|| {
                let limit = format!("at most {keys_left}, or the size of the chain is wrong");
                ExchangeError::field(name(number, "size"), layer.keys_added, limit)
            })?;
            layers.push(layer);
        }
        require(
            keys_left == 0,
            "size",
            keys_added,
            format!(
                "{}, the sum of the sizes of the filters",
                keys_added - keys_left
            ),
        )?;
        Ok(Self { layers, keys_added })
    }
}

fn check_length(found: u64, layer_count: u32) -> Result<(), ExchangeError> {
    let expected = CHAIN_BYTES + u64::from(layer_count) * LAYER_BYTES;
    require(
        found != expected + HASH_CONFIG_BYTES,
        "length of the header",
        found,
        format!("{expected}; a filter with a bf-hash-seed is not read"),
    )?;
    require(
        found == expected,
        "length of the header",
        found,
        format!("{expected}, since nfilters is {layer_count}"),
    )
}

/// Returns the name of a field of a layer.
fn name(number: u32, field: &str) -> String {
    format!("{field} of filter {number}")
}

/// The fields that have not been read yet.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ExchangeError> {
        let short = || {
            let limit = format!("at least {CHAIN_BYTES} bytes");
            ExchangeError::field("length of the header", "too short", limit)
        };
        let (field, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(*field)
    }

    fn u64(&mut self) -> Result<u64, ExchangeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn f64(&mut self) -> Result<f64, ExchangeError> {
        Ok(f64::from_le_bytes(self.take()?))
    }

    fn layer(&mut self, number: u32, data_left: u64) -> Result<ChainLayer, ExchangeError> {
        let (bytes, bits, keys_added) = (self.u64()?, self.u64()?, self.u64()?);
        let (rate, bits_per_key) = (self.f64()?, self.f64()?);
        let hash_count = u32::from_le_bytes(self.take()?);
        let capacity = self.u64()?;
        let [logarithm] = self.take()?;
        let require = |holds, field, value: &dyn std::fmt::Display, limit: String| {
            require(holds, name(number, field), value, limit)
        };

        let some = bytes > 0 && bytes <= data_left && bytes.is_multiple_of(8);
        let limit = format!("a multiple of 8 from 8 to the {data_left} bytes that are left for it");
        require(some, "bytes", &bytes, limit)?;
        let expected = bytes * 8;
        require(
            bits == expected,
            "bits",
            &bits,
            format!("{expected}, 8 for each byte"),
        )?;
        let possible = rate > 0.0 && rate < 1.0;
        require(possible, "error", &rate, "above 0 and below 1".into())?;
        let known = (1..=MAX_HASH_COUNT).contains(&hash_count);
        require(
            known,
            "hashes",
            &hash_count,
            format!("1 to {MAX_HASH_COUNT}"),
        )?;
        let expected = (LN_2 * bits_per_key).ceil();
        let limit = format!("{expected}, since bpe is {bits_per_key}");
        require(
            f64::from(hash_count) == expected,
            "hashes",
            &hash_count,
            limit,
        )?;
        let modulus = match logarithm {
            0 => Some(bits),
            _ => 1_u64
                .checked_shl(logarithm.into())
                .filter(|modulus| *modulus <= bits),
        };
        let modulus = modulus.ok_or_else(|| {
            let limit = format!("0, or the binary logarithm of at most {bits} bits");
            ExchangeError::field(name(number, "n2"), logarithm, limit)
        })?;
        Ok(ChainLayer {
            word_count: bytes / 8,
            modulus,
            hash_count,
            capacity,
            keys_added,
            false_positive_rate: rate,
        })
    }
}
