//! The way in for the programs in `fuzz/`, which bring bytes that no test has thought of.
//!
//! They put files on a simulated disk and read them with [`DataDirectory`](super::DataDirectory),
//! as the start of a server does. Beside that they need no more than this. `cargo fuzz` compiles
//! it, and nobody else does.

use std::{cell::Cell, path::Path};

use super::{StoreError, manifest::Manifest};

pub use super::disk::simulated::SimulatedDisk;

thread_local! {
    static SALTS: Cell<u64> = const { Cell::new(0) };
}

/// Has the segments that are made from now on have the salts that they had after each other call
/// of this: nothing random is in what is written then.
pub fn restart_salts() {
    SALTS.set(0);
}

/// The salt of the next segment.
pub(super) fn next_salt() -> u64 {
    SALTS.set(SALTS.get() + 1);
    SALTS.get()
}

/// Decodes the bytes of a manifest, and encodes what they say.
///
/// # Errors
///
/// [`StoreError`], if they are refused.
pub fn reencode_manifest(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    Manifest::decode(bytes, Path::new("MANIFEST")).map(|manifest| manifest.encode())
}
