//! The place of a filter in the data directory: whether another can have it after a crash.

use std::sync::atomic::Ordering;

use super::Filter;
use crate::engine::error::EngineError;

impl Filter {
    /// Records that after a crash another filter can have the place of this one, or that this is
    /// about to be possible.
    pub fn doubt_place(&self) {
        self.place_in_doubt.store(true, Ordering::Release);
    }

    /// Returns whether after a crash another filter can have the place of this one.
    pub fn is_place_in_doubt(&self) -> bool {
        self.place_in_doubt.load(Ordering::Acquire)
    }

    /// Records that this filter certainly has its place.
    pub fn confirm_place(&self) {
        self.place_in_doubt.store(false, Ordering::Release);
    }

    /// Fails if the place of the filter is in doubt, so that it takes no keys. If another filter
    /// has the place after a crash, keys of this one would be lost.
    #[inline]
    pub fn check_takes_keys(&self) -> Result<(), EngineError> {
        if !self.is_place_in_doubt() {
            return Ok(());
        }
        let reason = format!(
            "whether the filter {} has been reset, or another has taken its place, is not known: \
             it takes no keys until it is stored, or that is done for certain",
            self.name()
        );
        Err(EngineError::StorageFailed(reason.into()))
    }
}
