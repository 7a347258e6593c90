//! The reasons why a filter of another program could not be read, created or written.

use std::{fmt::Display, io};

use thiserror::Error;

/// An error in a file or in a request for a filter.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// A field has a value that is impossible, or that is not supported here.
    #[error("{field} is {value}; it must be {limit}")]
    Field {
        /// The name of the field, in the file or in the request.
        field: String,
        /// The value of the field.
        value: String,
        /// The allowed values.
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
    /// Returns the error for a field with a value that is not allowed.
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

/// Fails with the field and its value unless `holds` is true.
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
