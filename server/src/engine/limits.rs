//! What one call may bring.

use std::ops::RangeInclusive;

use super::{EngineError, Keys, workers::Weight};

/// The limits on keys and filters. A call past them is refused before it changes anything.
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
    /// The most filters where nothing else is said.
    pub const MAX_FILTERS: usize = 10_000;

    /// A UUID has 36 bytes as text, and so have most other names of one call.
    pub const MAX_REQUEST_ID_BYTES: usize = 128;

    /// Checks the key of a single call.
    ///
    /// # Errors
    ///
    /// [`EngineError::KeyLength`].
    #[inline]
    pub fn check_key(&self, key: &[u8]) -> Result<(), EngineError> {
        self.check(key, "key", None)
    }

    /// Checks the keys of a batch, and tells how much work they are. A batch may be empty;
    /// its keys may not.
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

    /// Checks what a caller calls its request.
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
