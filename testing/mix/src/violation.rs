//! A broken promise.

use std::{error::Error, fmt};

use crate::model::Key;

/// A description of the wrong answer or the loss, with the expected result.
#[derive(Debug)]
pub struct Violation {
    what: String,
    /// The key that is affected, if any.
    pub key: Option<Key>,
}

/// Fails with a [`Violation`].
pub fn violated<T>(what: String) -> Result<T, Violation> {
    Err(Violation { what, key: None })
}

/// Fails with a [`Violation`] about a key.
pub fn violated_for<T>(key: Key, what: String) -> Result<T, Violation> {
    let key = Some(key);
    Err(Violation { what, key })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Violation {}
