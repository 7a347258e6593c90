//! The secret of a filter, and the secrets of purposes other than its keys.

use std::fmt;

/// The random bytes that make a filter's hash unique.
///
/// `Debug` does not show it: with these bytes an attacker can compute which keys collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; Self::BYTES]);

/// A purpose that hashes something other than keys. Each purpose has its own secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Canaries, see [`canary`](crate::canary).
    Canaries,
    /// The ids of requests.
    Requests,
}

impl Purpose {
    /// Returns the context of BLAKE3's key derivation. Part of the format of stored filters.
    const fn context(self) -> &'static str {
        match self {
            Self::Canaries => "seenset 2026-11-26 hash of canaries",
            Self::Requests => "seenset 2026-11-26 hash of request ids",
        }
    }
}

impl Secret {
    /// The length of a secret in bytes.
    pub const BYTES: usize = 16;

    /// Takes 16 bytes, which must come from the random generator of the operating system (or, on
    /// recovery, from the filter's snapshot).
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the snapshot.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the secret of a purpose other than keys.
    ///
    /// A key can have any bytes, so different inputs cannot separate canaries and request ids from
    /// keys: that needs another hash function. This is the first half of the output that BLAKE3
    /// derives from the secret. Without the secret (2^128 of them) the output cannot be
    /// distinguished from random bytes, even if hashes of any keys are known. So SipHash under it
    /// is a pseudo-random function that is independent of the hash of keys, for every function that
    /// hashes keys and for all bytes of keys.
    ///
    /// It is BLAKE3 and not SipHash because SipHash under the secret hashes the keys: a key with
    /// the bytes of the context would have the derived secret as its hash, and `Explain` shows that
    /// hash.
    #[must_use]
    pub fn of_purpose(&self, purpose: Purpose) -> Self {
        let derived = blake3::derive_key(purpose.context(), &self.0);
        let mut bytes = [0; Self::BYTES];
        bytes
            .iter_mut()
            .zip(derived)
            .for_each(|(to, byte)| *to = byte);
        Self(bytes)
    }

    pub(super) fn halves(&self) -> (u64, u64) {
        let value = u128::from_le_bytes(self.0);
        (value as u64, (value >> 64) as u64)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs on disk depend on these values.
    #[test]
    fn each_purpose_has_a_secret_of_its_own() {
        let secret = Secret::new(std::array::from_fn(|i| i as u8));
        let canaries = secret.of_purpose(Purpose::Canaries);
        let requests = secret.of_purpose(Purpose::Requests);
        assert_eq!(canaries.as_bytes(), &CANARIES);
        assert_eq!(requests.as_bytes(), &REQUESTS);
        let other = Secret::new([7; 16]).of_purpose(Purpose::Canaries);
        assert_ne!(other.as_bytes(), &CANARIES);
    }

    const CANARIES: [u8; 16] = [
        0x16, 0xb2, 0x75, 0xce, 0x6c, 0x8f, 0x0d, 0xd2, 0x98, 0x26, 0xec, 0x16, 0x63, 0x90, 0x61,
        0x41,
    ];
    const REQUESTS: [u8; 16] = [
        0xdf, 0x74, 0x29, 0xa3, 0x94, 0x8a, 0xdc, 0xa9, 0x4b, 0x41, 0xbe, 0xa4, 0xff, 0x14, 0x3d,
        0xc1,
    ];
}
