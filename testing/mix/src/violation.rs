//! A broken promise.

use std::{error::Error, fmt};

/// What the server said or lost, and what it should have.
#[derive(Debug)]
pub struct Violation(String);

/// Fails with a [`Violation`].
pub fn violated<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Violation {}
