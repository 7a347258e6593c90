//! The secret of a filter, and those of purposes other than its keys.

use std::fmt;

/// The random bytes that make a filter's hash its own.
///
/// Not shown by `Debug`: with them an attacker can compute which keys collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; Self::BYTES]);

/// A purpose for which something else than a key is hashed. Each has a secret of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Canaries, see [`canary`](crate::canary).
    Canaries,
    /// The ids of requests.
    Requests,
}

impl Purpose {
    /// The context of BLAKE3's key derivation. Part of the format of stored filters.
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

    /// Takes 16 bytes, which must come from the system's random generator (or, on
    /// recovery, from the filter's snapshot).
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the snapshot.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The secret of a purpose other than keys.
    ///
    /// Keys are any bytes, so no input sets canaries and request ids apart from keys: another hash
    /// function must. This is the first half of what BLAKE3 derives from the secret. Without the
    /// secret (2^128 of them) that cannot be told from random bytes, also with the hashes of any
    /// keys at hand. So SipHash under it is a pseudo-random function that is independent of the
    /// hash of keys, whichever function that is and whichever bytes the keys have.
    ///
    /// BLAKE3 and not SipHash, for SipHash under the secret is what keys are hashed with: a key of
    /// the bytes of the context would have the derived secret as its hash, and `Explain` shows that.
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
