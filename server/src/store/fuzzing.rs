//! The entry points for the fuzz programs in `fuzz/`.
//!
//! They put files on a simulated disk and read them with [`DataDirectory`](super::DataDirectory),
//! as a server does when it starts. Apart from that they need only the functions here. Only `cargo
//! fuzz` compiles this module.

use std::{cell::Cell, path::Path};

use super::{StoreError, manifest::Manifest};

pub use super::disk::simulated::SimulatedDisk;

thread_local! {
    static SALTS: Cell<u64> = const { Cell::new(0) };
}

/// Restarts the sequence of salts. The segments made after each call of this get the same salts, so
/// that the written bytes hold nothing random.
pub fn restart_salts() {
    SALTS.set(0);
}

/// Returns the salt of the next segment.
pub(super) fn next_salt() -> u64 {
    SALTS.set(SALTS.get() + 1);
    SALTS.get()
}

/// Decodes the bytes of a manifest, and encodes the result again.
///
/// # Errors
///
/// [`StoreError`], if the bytes are refused.
pub fn reencode_manifest(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    Manifest::decode(bytes, Path::new("MANIFEST")).map(|manifest| manifest.encode())
}
