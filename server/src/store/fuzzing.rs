//! The way in for the programs in `fuzz/`, which bring bytes that no test has thought of.
//!
//! They put files on a simulated disk and read them with [`DataDirectory`](super::DataDirectory),
//! as the start of a server does. Beside that they need no more than this. `cargo fuzz` compiles
//! it, and nobody else does.

use std::path::Path;

use super::{StoreError, manifest::Manifest};

pub use super::disk::simulated::SimulatedDisk;

/// Decodes the bytes of a manifest, and encodes what they say.
///
/// # Errors
///
/// [`StoreError`], if they are refused.
pub fn reencode_manifest(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    Manifest::decode(bytes, Path::new("MANIFEST")).map(|manifest| manifest.encode())
}
