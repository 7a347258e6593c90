//! The extension of a header: the parts of a spec that do not fit into the header. These are the
//! layers of a filter in layers, and then its key profile; or the layers of a RedisBloom filter,
//! which has no profile. A snapshot of a filter without either has no extension.

use std::path::Path;

use super::{checksum, fields::Hex};
use crate::{
    filter::{
        exchange::redisbloom::{Chain, ChainLayer},
        profile::{KeyProfile, MAX_DROP_PARAMETER_BYTES, MAX_DROP_PARAMETERS},
        scaling::{LayerSpec, Layers, MAX_LAYERS, OnFull},
        spec::{FilterSpec, Kind, Layout},
    },
    store::StoreError,
};

const NAME_BYTES: usize = 32;
const SORT_QUERY: u32 = 1;

/// The longest part for layers, and for a key profile.
const MAX_LAYERS_BYTES: usize = 8 + 8 + MAX_LAYERS * 5 * 8;
const MAX_PROFILE_BYTES: usize =
    NAME_BYTES + 4 + 4 + MAX_DROP_PARAMETERS * (4 + MAX_DROP_PARAMETER_BYTES);
/// The longest extension.
const MAX_BYTES: u64 = (MAX_LAYERS_BYTES + MAX_PROFILE_BYTES + 8) as u64;

/// Encodes the layers and the key profile of a spec. Returns no bytes if it has neither.
pub(super) fn encode(spec: &FilterSpec) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(layers) = &spec.layers {
        encode_layers(layers, &mut bytes);
    }
    if let Some(chain) = &spec.chain {
        encode_chain(chain, &mut bytes);
    }
    if let Some(profile) = &spec.key_profile {
        encode_profile(profile, &mut bytes);
    }
    if !bytes.is_empty() {
        bytes.extend(checksum(&bytes).to_le_bytes());
    }
    bytes
}

fn encode_layers(layers: &Layers, bytes: &mut Vec<u8>) {
    bytes.extend((layers.partitions() as u64).to_le_bytes());
    bytes.extend((layers.layers().len() as u64).to_le_bytes());
    for layer in layers.layers() {
        let LayerSpec {
            shards,
            shard_bits,
            hash_count,
            full_bits,
            capacity,
        } = *layer.spec();
        for field in [shards, shard_bits, hash_count.into(), full_bits, capacity] {
            bytes.extend(field.to_le_bytes());
        }
    }
}

fn encode_chain(chain: &Chain, bytes: &mut Vec<u8>) {
    bytes.extend((chain.layers().len() as u64).to_le_bytes());
    for layer in chain.layers() {
        for field in [
            layer.word_count(),
            layer.used_bits(),
            layer.hash_count().into(),
            layer.capacity(),
            layer.false_positive_rate().to_bits(),
        ] {
            bytes.extend(field.to_le_bytes());
        }
    }
}

fn encode_profile(profile: &KeyProfile, bytes: &mut Vec<u8>) {
    let mut name = KeyProfile::NAME.as_bytes().to_vec();
    name.resize(NAME_BYTES, 0);
    bytes.extend(name);
    let flags = if profile.sort_query() { SORT_QUERY } else { 0 };
    let names = profile.drop_parameters();
    bytes.extend(flags.to_le_bytes());
    bytes.extend((names.len() as u32).to_le_bytes());
    for name in names {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
    }
}

/// Checks the length of the extension that a header states, before anything is allocated.
pub(super) fn check_length(bytes: u64, path: &Path) -> Result<(), StoreError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let expected = format!("at most {MAX_BYTES} bytes");
    Err(damaged(path, "length of the extension", expected, bytes))
}

/// Decodes and verifies an extension, and adds its contents to the spec.
pub(super) fn decode(bytes: &[u8], spec: &mut FilterSpec, path: &Path) -> Result<(), StoreError> {
    let (covered, stored) = bytes.split_last_chunk().unwrap_or((bytes, &[0; 8]));
    let (computed, stored) = (checksum(covered), u64::from_le_bytes(*stored));
    if computed != stored {
        let (what, expected) = ("checksum of the extension", Hex(computed).to_string());
        return Err(damaged(path, what, expected, Hex(stored)));
    }
    let mut left = covered;
    if let Kind::Scaling(on_full) = spec.kind {
        let layers = decode_layers(&mut left, on_full, path)?;
        spec.shard_count = layers.layer_of(0).shape().shard_count() as u64;
        spec.layers = Some(layers.into());
        if left.is_empty() {
            return Ok(());
        }
    }
    if spec.layout == Layout::RedisBloom {
        let chain = decode_chain(left).ok_or_else(|| {
            let expected = "the layers of a filter of RedisBloom".to_owned();
            damaged(path, "extension", expected, "something else")
        })?;
        spec.chain = Some(chain.into());
        return Ok(());
    }
    spec.key_profile = Some(decode_profile(left, path)?);
    Ok(())
}

fn decode_layers(left: &mut &[u8], on_full: OnFull, path: &Path) -> Result<Layers, StoreError> {
    let whole = |left: &mut &[u8]| {
        let (partitions, count) = (long_number(left)?, long_number(left)?);
        let mut specs = Vec::new();
        for _ in 0..count {
            specs.push(LayerSpec {
                shards: long_number(left)?,
                shard_bits: long_number(left)?,
                hash_count: long_number(left)?.try_into().ok()?,
                full_bits: long_number(left)?,
                capacity: long_number(left)?,
            });
        }
        Some((partitions, specs))
    };
    let Some((partitions, specs)) = whole(left) else {
        let expected = "the layers of a filter".to_owned();
        return Err(damaged(path, "extension", expected, "something else"));
    };
    if specs.len() > 1 && !matches!(on_full, OnFull::Scale(_)) {
        let expected = "1, of a filter that does not grow".to_owned();
        return Err(damaged(path, "number of layers", expected, specs.len()));
    }
    let layers = Layers::restore(partitions, &specs);
    layers.map_err(|error| damaged(path, "layers", "those of a plan".to_owned(), error))
}

fn decode_chain(mut left: &[u8]) -> Option<Chain> {
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

fn decode_profile(mut left: &[u8], path: &Path) -> Result<KeyProfile, StoreError> {
    let mut whole = || {
        let name = text(
            take(&mut left, NAME_BYTES)?
                .split(|&byte| byte == 0)
                .next()?,
        );
        let (flags, count) = (number(&mut left)?, number(&mut left)?);
        let mut names = Vec::new();
        for _ in 0..count {
            let length = number(&mut left)? as usize;
            names.push(text(take(&mut left, length)?));
        }
        left.is_empty().then_some((name, flags, names))
    };
    let Some((name, flags, names)) = whole() else {
        let expected = "one key profile".to_owned();
        return Err(damaged(path, "extension", expected, "something else"));
    };
    if flags & !SORT_QUERY != 0 {
        let expected = format!("0 or {SORT_QUERY}");
        return Err(damaged(path, "flags of the key profile", expected, flags));
    }
    let profile = KeyProfile::new(&name, flags & SORT_QUERY != 0, &names);
    profile.map_err(|error| damaged(path, "key profile", "a known one".to_owned(), error))
}

fn take<'a>(left: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = left.split_at_checked(count)?;
    *left = rest;
    Some(first)
}

fn number(left: &mut &[u8]) -> Option<u32> {
    let (first, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(u32::from_le_bytes(*first))
}

fn long_number(left: &mut &[u8]) -> Option<u64> {
    let (first, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(u64::from_le_bytes(*first))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn damaged(path: &Path, what: &str, expected: String, found: impl ToString) -> StoreError {
    StoreError::Damaged {
        path: path.into(),
        what: what.into(),
        expected,
        found: found.to_string(),
    }
}
