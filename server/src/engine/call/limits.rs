//! The limits of one call.

use std::ops::RangeInclusive;

use super::{Keys, workers::Weight};
use crate::engine::error::EngineError;

/// The limits on keys and filters. A call beyond them is refused before it changes anything.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest key, in bytes.
    pub max_key_bytes: usize,
    /// The most keys in a batch.
    pub max_batch_keys: usize,
    /// The most filters.
    pub max_filters: usize,
}

impl Limits {
    /// The default limit on the number of filters.
    pub const MAX_FILTERS: usize = 10_000;

    /// The most imports at one time. Each takes a thread and the memory of its filter before it is
    /// known whether the whole file will come.
    pub const MAX_IMPORTS: usize = 8;

    /// The page size if the call gives none.
    pub const DEFAULT_PAGE_SIZE: usize = 100;
    /// The greatest page size.
    pub const MAX_PAGE_SIZE: usize = 1000;

    /// The most bytes of a request id. A UUID has 36 bytes as text, and so have most other ids.
    pub const MAX_REQUEST_ID_BYTES: usize = 128;

    /// Fails if the key of a single call is empty or too long.
    ///
    /// # Errors
    ///
    /// [`EngineError::KeyLength`].
    #[inline]
    pub fn check_key(&self, key: &[u8]) -> Result<(), EngineError> {
        self.check(key, "key", None)
    }

    /// Fails if a batch is too long, or one of its keys is empty or too long. Returns the weight of
    /// the batch. The batch itself can be empty.
    ///
    /// # Errors
    ///
    /// [`EngineError::BatchLength`] or [`EngineError::KeyLength`].
    pub fn check_batch(&self, keys: &impl Keys) -> Result<Weight, EngineError> {
        let count = keys.iter().len();
        if count > self.max_batch_keys {
            return Err(EngineError::BatchLength {
                field: keys.field(),
                keys: count,
                limit: self.max_batch_keys,
            });
        }
        let is_allowed = |length| self.key_bytes().contains(length);
        if let Some(lengths) = keys.lengths()
            && !(is_allowed(lengths.start()) && is_allowed(lengths.end()))
        {
            for (index, key) in keys.iter().enumerate() {
                self.check(key, keys.field(), Some(index))?;
            }
        }
        Ok(Weight {
            keys: count,
            bytes: keys.bytes(),
        })
    }

    /// Fails if a request id is too long.
    ///
    /// # Errors
    ///
    /// [`EngineError::RequestId`].
    #[inline]
    pub fn check_request_id(&self, id: &str) -> Result<(), EngineError> {
        let (bytes, limit) = (id.len(), Self::MAX_REQUEST_ID_BYTES);
        if bytes <= limit {
            Ok(())
        } else {
            Err(EngineError::RequestId { bytes, limit })
        }
    }

    #[inline]
    fn key_bytes(&self) -> RangeInclusive<usize> {
        1..=self.max_key_bytes
    }

    #[inline]
    fn check(
        &self,
        key: &[u8],
        field: &'static str,
        index: Option<usize>,
    ) -> Result<(), EngineError> {
        if self.key_bytes().contains(&key.len()) {
            Ok(())
        } else {
            Err(EngineError::KeyLength {
                field,
                index,
                bytes: key.len(),
                limit: self.max_key_bytes,
            })
        }
    }
}
