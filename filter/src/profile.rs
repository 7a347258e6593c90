//! The key profile `url-v1`: it decides which keys are the same page. It brings keys into a
//! canonical form before they are hashed.
//!
//! Its rules are part of every filter that has the profile. A filter stores only hashes, so if a
//! rule changed, all such filters would forget their keys: a different rule needs a new profile
//! name. The table in `profile/tests.rs` fixes the rules, and the behaviour of the crate `url` from
//! when they were made. `profile/standard/tests.rs` compares rule 1 with another implementation of
//! the standard.
//!
//! The steps for a key, in this order:
//!
//! 1. It is parsed and written as the URL standard says (<https://url.spec.whatwg.org/>): the
//!    scheme and the host in lower case, a host of other letters in its ASCII form (IDNA), no
//!    default port, no dot segments, and characters percent-encoded where required. That includes
//!    `^` in a path, since the standard's change of March 2025.
//! 2. The fragment is removed.
//! 3. Percent-encoded letters, digits, `-`, `.`, `_` and `~` are decoded, and the hexadecimal
//!    digits of the remaining escapes are in upper case (RFC 3986, 6.2.2). A `%` that is not
//!    followed by two hexadecimal digits is written `%25`. Otherwise decoding the text after it
//!    could make an escape that nobody wrote.
//! 4. If the profile sorts the query, or drops parameters, the query is divided at each `&`. Empty
//!    parts and dropped parameters are left out. The others are sorted by name, and parts with the
//!    same name keep their order. If no part is left, the `?` is removed too.
//!
//! A key that is not an absolute URL with a host stays unchanged, byte for byte: a path, a host
//! without a scheme, `mailto:`, `data:`, any text that does not parse, and bytes that are not
//! UTF-8. These URLs stay unchanged too: a URL with a host label that begins with `xn--` and is not
//! a result of IDNA (the standard accepts such a host since 2026), a `file:` URL, which names
//! another file on each machine, and a URL longer than any real one: 64 KiB, or 512 bytes of user,
//! host and port. A canonical form is its own canonical form.

use std::{borrow::Cow, fmt};

use thiserror::Error;

use self::standard::StandardUrl;

mod standard;

/// The most parameters that a profile can drop.
pub const MAX_DROP_PARAMETERS: usize = 64;
/// The longest name of a parameter to be dropped, in bytes.
pub const MAX_DROP_PARAMETER_BYTES: usize = 64;

/// The longest key that is parsed. Such a key takes at most a millisecond.
const MAX_URL_BYTES: usize = 64 << 10;
/// The most characters of a refused name that are shown.
const MAX_SHOWN_CHARS: usize = 100;

/// The reason why a profile was refused. Field names are those of the contract's `KeyProfile`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// No profile has the name.
    #[error("name is {name:?}; it must be {:?}", KeyProfile::NAME)]
    Name {
        /// The requested name, or its beginning.
        name: String,
    },
    /// Too many parameters are to be dropped.
    #[error("drop_parameters has {count} names; it must have at most {MAX_DROP_PARAMETERS}")]
    Count {
        /// The number of names.
        count: usize,
    },
    /// The name is not a possible name of a parameter.
    #[error(
        "drop_parameters has {name:?}; each name must be 1 to {MAX_DROP_PARAMETER_BYTES} visible \
         ASCII characters other than \" # & ' < = >, with * at the end alone: write others \
         percent-encoded"
    )]
    Parameter {
        /// The requested name, or its beginning.
        name: String,
    },
}

/// The rules that bring the keys of a filter into a canonical form: those of `url-v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProfile {
    sort_query: bool,
    /// Sorted by stem. No pattern covers another.
    drop_parameters: Vec<String>,
}

impl KeyProfile {
    /// The name of the rules.
    pub const NAME: &str = "url-v1";

    /// Returns the profile with this name and these options. A parameter is dropped if its name is
    /// in `drop_parameters`, or if an entry ends in `*` and the name begins with the text before
    /// the `*`. Names are compared in the form that they have in a canonical URL, and the entries
    /// are brought into that form. Entries that others cover are left out.
    ///
    /// # Errors
    ///
    /// A [`ProfileError`] that names the field, its value and the limit.
    pub fn new(
        name: &str,
        sort_query: bool,
        drop_parameters: &[String],
    ) -> Result<Self, ProfileError> {
        let shown = |name: &str| name.chars().take(MAX_SHOWN_CHARS).collect();
        if name != Self::NAME {
            return Err(ProfileError::Name { name: shown(name) });
        }
        let count = drop_parameters.len();
        if count > MAX_DROP_PARAMETERS {
            return Err(ProfileError::Count { count });
        }
        let mut normal = Vec::with_capacity(count);
        for pattern in drop_parameters {
            let name = normalised(pattern);
            if !is_pattern(&name) {
                let name = shown(pattern);
                return Err(ProfileError::Parameter { name });
            }
            normal.push(name);
        }
        // A pattern that covers others of its stem comes before them.
        normal.sort_unstable_by_key(|pattern| {
            let (stem, is_open) = stem(pattern);
            (stem.to_owned(), !is_open)
        });
        normal.dedup_by(|pattern, before| covers(before, stem(pattern).0));
        Ok(Self {
            sort_query,
            drop_parameters: normal,
        })
    }

    /// Whether the parameters of a query are sorted.
    pub fn sort_query(&self) -> bool {
        self.sort_query
    }

    /// Returns the names of the parameters that are dropped, in sorted order.
    pub fn drop_parameters(&self) -> &[String] {
        &self.drop_parameters
    }

    /// Returns the canonical form of a key: the key itself if it is not an absolute URL with a
    /// host. It is never empty. Percent-encoding can make it up to about three times as long.
    pub fn canonical<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        let text = str::from_utf8(key).ok();
        match text.and_then(|key| self.canonical_url(key)) {
            Some(url) => Cow::Owned(url.into_bytes()),
            None => Cow::Borrowed(key),
        }
    }

    fn canonical_url(&self, key: &str) -> Option<String> {
        if key.len() > MAX_URL_BYTES {
            return None;
        }
        let url = StandardUrl::parse(key)?;
        let mut canonical = normalised(&url.page);
        let Some(query) = url.query else {
            return Some(canonical);
        };
        let query = normalised(&query);
        if !self.sort_query && self.drop_parameters.is_empty() {
            canonical.push('?');
            canonical.push_str(&query);
            return Some(canonical);
        }
        let parts = query.split('&');
        let mut parts: Vec<&str> = parts
            .filter(|part| !part.is_empty() && !self.drops(name(part)))
            .collect();
        if self.sort_query {
            parts.sort_by(|left, right| name(left).cmp(name(right)));
        }
        let mut before = '?';
        for part in parts {
            canonical.push(before);
            canonical.push_str(part);
            before = '&';
        }
        Some(canonical)
    }

    /// Whether a parameter is dropped. Patterns whose stems begin the name would cover each other,
    /// so at most one pattern matches, and no other stem sorts between it and the name.
    fn drops(&self, name: &str) -> bool {
        let patterns = &self.drop_parameters;
        let behind = patterns.partition_point(|pattern| stem(pattern).0 <= name);
        let last = behind.checked_sub(1).and_then(|last| patterns.get(last));
        last.is_some_and(|pattern| covers(pattern, name))
    }
}

impl fmt::Display for KeyProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)?;
        if self.sort_query {
            f.write_str(", sorted queries")?;
        }
        if !self.drop_parameters.is_empty() {
            write!(f, ", without {}", self.drop_parameters.join(" "))?;
        }
        Ok(())
    }
}

/// Returns a part of a URL with the percent-encoding of a canonical URL.
fn normalised(part: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut normal = String::with_capacity(part.len());
    let mut left = part;
    while let Some((before, behind)) = left.split_once('%') {
        normal.push_str(before);
        let digit = |at| char::from(*behind.as_bytes().get(at)?).to_digit(16);
        left = match (digit(0).zip(digit(1)), behind.get(2..)) {
            (Some((high, low)), Some(rest)) => {
                let byte = (high * 16 + low) as u8;
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    normal.push(byte.into());
                } else {
                    normal.push('%');
                    let digits = [high, low].map(|digit| DIGITS.get(digit as usize));
                    normal.extend(digits.into_iter().flatten().copied().map(char::from));
                }
                rest
            }
            _ => {
                normal.push_str("%25");
                behind
            }
        };
    }
    normal.push_str(left);
    normal
}

/// Returns the name of a parameter.
fn name(parameter: &str) -> &str {
    parameter
        .split_once('=')
        .map_or(parameter, |(name, _)| name)
}

/// Whether parameters can have the name.
fn is_pattern(name: &str) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_graphic() && !b"\"#&'*<=>".contains(byte);
    (1..=MAX_DROP_PARAMETER_BYTES).contains(&name.len())
        && stem(name).0.bytes().all(|byte| is_allowed(&byte))
}

/// Returns the text of a pattern before its `*`, and whether it has a `*`.
fn stem(pattern: &str) -> (&str, bool) {
    match pattern.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (pattern, false),
    }
}

/// Whether a pattern matches a name.
fn covers(pattern: &str, name: &str) -> bool {
    match stem(pattern) {
        (stem, true) => name.starts_with(stem),
        (stem, false) => name == stem,
    }
}

#[cfg(test)]
mod tests;
