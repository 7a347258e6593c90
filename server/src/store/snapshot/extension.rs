//! The extension of a header: the layers of the body and then the key profile, as far as the filter
//! has them. A snapshot of a filter without either has no extension.

use std::path::Path;

use super::{
    body::encode_layers,
    checksum,
    fields::{Hex, number, take},
};
use crate::{
    filter::{
        profile::{KeyProfile, MAX_DROP_PARAMETER_BYTES, MAX_DROP_PARAMETERS},
        scaling::MAX_LAYERS,
        spec::FilterSpec,
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
    encode_layers(&spec.body, &mut bytes);
    if let Some(profile) = &spec.key_profile {
        encode_profile(profile, &mut bytes);
    }
    if !bytes.is_empty() {
        bytes.extend(checksum(&bytes).to_le_bytes());
    }
    bytes
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

/// Verifies the checksum of an extension, and returns the bytes that it covers.
pub(super) fn verified<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a [u8], StoreError> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let (covered, stored) = bytes.split_last_chunk().unwrap_or((bytes, &[0; 8]));
    let (computed, stored) = (checksum(covered), u64::from_le_bytes(*stored));
    if computed != stored {
        let (what, expected) = ("checksum of the extension", Hex(computed).to_string());
        return Err(damaged(path, what, expected, Hex(stored)));
    }
    Ok(covered)
}

/// Decodes and verifies what follows the layers: a key profile, or nothing.
pub(super) fn decode_profile(left: &[u8], path: &Path) -> Result<Option<KeyProfile>, StoreError> {
    match left.is_empty() {
        true => Ok(None),
        false => whole_profile(left, path).map(Some),
    }
}

fn whole_profile(mut left: &[u8], path: &Path) -> Result<KeyProfile, StoreError> {
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
