//! The name of a filter. It can be part of a file name and can never lead to another place.

use std::{borrow::Borrow, fmt, str::FromStr};

use thiserror::Error;

/// A valid name: 1 to 128 characters of `A-Z a-z 0-9 . _ -`.
///
/// `.` and `..` are valid too. No file has such a name: every file that is named after a filter has
/// a suffix, see [`super`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterName(String);

/// The reason why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name:?} is not a filter name; it must have 1 to {} characters, of A-Z a-z 0-9 . _ -",
    FilterName::MAX_BYTES
)]
pub struct NameError {
    /// The given text, cut off if it is far too long.
    name: String,
}

impl FilterName {
    /// The length of the longest name.
    pub const MAX_BYTES: usize = 128;

    /// The name that an empty `filter` field stands for.
    pub const DEFAULT: &str = "default";

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilterName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=Self::MAX_BYTES).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(NameError {
                name: name.chars().take(Self::MAX_BYTES + 1).collect(),
            })
        }
    }
}

/// Names compare, and are ordered, as their texts are.
impl Borrow<str> for FilterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["default", "a", "A-z_0.9", ".", "..", &"x".repeat(128)] {
            assert_eq!(good.parse::<FilterName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "a/b",
            "../x",
            "a b",
            "ä",
            "a\0",
            "a\n",
            "\\",
            &"x".repeat(129),
        ] {
            let message = bad.parse::<FilterName>().unwrap_err().to_string();
            assert!(message.contains("1 to 128 characters"), "{message}");
        }
    }
}
