//! Why a filter of another program could not be read, made or written.

use std::{fmt::Display, io};

use thiserror::Error;

/// What is wrong with a file or with what a filter is asked to be.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// A field has a value that it cannot have, or that goes beyond what is served here.
    #[error("{field} is {value}; it must be {limit}")]
    Field {
        /// Which field, of the file or of the request.
        field: String,
        /// What it says.
        value: String,
        /// What it may say.
        limit: String,
    },
    /// The file could not be read, or has become shorter.
    #[error("cannot read the filter: {0}")]
    Read(io::Error),
    /// The file could not be written.
    #[error("cannot write the filter: {0}")]
    Write(io::Error),
}

impl ExchangeError {
    /// A field that says what it may not.
    pub(super) fn field(
        field: impl Into<String>,
        value: impl Display,
        limit: impl Into<String>,
    ) -> Self {
        Self::Field {
            field: field.into(),
            value: value.to_string(),
            limit: limit.into(),
        }
    }
}

/// Refuses the value of a field unless it holds.
pub(super) fn require(
    holds: bool,
    field: impl Into<String>,
    value: impl Display,
    limit: impl Into<String>,
) -> Result<(), ExchangeError> {
    if holds {
        Ok(())
    } else {
        Err(ExchangeError::field(field, value, limit))
    }
}
