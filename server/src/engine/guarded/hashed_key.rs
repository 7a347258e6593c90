//! A key of a call after it is hashed, and its answer.

use crate::{engine::requests::RetrySession, filter::hash::KeyHash};

/// A key of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashedKey {
    pub hash: KeyHash,
    /// The number of the stripe that has its locks.
    pub stripe: u32,
    /// Its index in the batch.
    pub key: u32,
}

/// Marks the keys that a retried request added before as not seen.
pub fn answer_again(
    session: Option<&mut RetrySession<'_>>,
    places: &[HashedKey],
    seen: &mut [bool],
) {
    let Some(session) = session.filter(|session| session.is_repeated()) else {
        return;
    };
    // Equal keys are visited in their order in the batch: the first one was new.
    for place in places {
        if session.has_first_added(place.hash) {
            set(seen, place.key as usize, false);
        }
    }
}

/// Sets the answer for the key with an index.
#[inline]
pub fn set(values: &mut [bool], index: usize, value: bool) {
    if let Some(place) = values.get_mut(index) {
        *place = value;
    }
}
