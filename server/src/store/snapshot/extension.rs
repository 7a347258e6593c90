//! The extension of a header: what a spec has that takes more room than a header has, which so far
//! is its key profile. A snapshot of a filter without one has no extension, and is of format 2.

use std::path::Path;

use super::{checksum, header::Hex};
use crate::{
    filter::profile::{KeyProfile, MAX_DROP_PARAMETER_BYTES, MAX_DROP_PARAMETERS},
    store::StoreError,
};

const NAME_BYTES: usize = 32;
const SORT_QUERY: u32 = 1;

/// The longest extension.
const MAX_BYTES: u64 =
    (NAME_BYTES + 4 + 4 + MAX_DROP_PARAMETERS * (4 + MAX_DROP_PARAMETER_BYTES) + 8) as u64;

/// Encodes a profile; nothing for none.
pub(super) fn encode(profile: Option<&KeyProfile>) -> Vec<u8> {
    let Some(profile) = profile else {
        return Vec::new();
    };
    let mut bytes = KeyProfile::NAME.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    let flags = if profile.sort_query() { SORT_QUERY } else { 0 };
    let names = profile.drop_parameters();
    bytes.extend(flags.to_le_bytes());
    bytes.extend((names.len() as u32).to_le_bytes());
    for name in names {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Checks what a header says of the length of its extension, before anything is allocated.
pub(super) fn check_length(bytes: u64, path: &Path) -> Result<(), StoreError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let expected = format!("at most {MAX_BYTES} bytes");
    Err(damaged(path, "length of the extension", expected, bytes))
}

/// Decodes and verifies an extension.
pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<KeyProfile, StoreError> {
    let (covered, stored) = bytes.split_last_chunk().unwrap_or((bytes, &[0; 8]));
    let (computed, stored) = (checksum(covered), u64::from_le_bytes(*stored));
    if computed != stored {
        let (what, expected) = ("checksum of the extension", Hex(computed).to_string());
        return Err(damaged(path, what, expected, Hex(stored)));
    }
    let mut left = covered;
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
