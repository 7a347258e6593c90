//! The format of a file, recognised by its first bytes.
//!
//! No text begins like these formats. Each beginning has a control character, or a byte that UTF-8
//! does not have there. The exception is bzip2, which begins with a text that no
//! list of keys has.

use std::{
    io::{self, Read},
    iter,
};

use super::raw::Raw;

/// A format of compressed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zstd,
    /// A format that has a name, but no decoder here. Its bytes would be taken for lines.
    Unsupported(&'static str),
}

/// The first bytes of a format. Each byte is at least the one in `least`, and at most the one in
/// `most`.
struct Beginning {
    least: &'static [u8],
    most: &'static [u8],
    format: Format,
}

const BEGINNINGS: [Beginning; 5] = [
    Beginning {
        least: b"\x1f\x8b\x08",
        most: b"\x1f\x8b\x08",
        format: Format::Gzip,
    },
    Beginning {
        least: b"\x28\xb5\x2f\xfd",
        most: b"\x28\xb5\x2f\xfd",
        format: Format::Zstd,
    },
    // Data that decoders skip, for instance the sizes that pzstd puts before each frame.
    Beginning {
        least: b"\x50\x2a\x4d\x18",
        most: b"\x5f\x2a\x4d\x18",
        format: Format::Zstd,
    },
    Beginning {
        least: b"\xfd7zXZ\0",
        most: b"\xfd7zXZ\0",
        format: Format::Unsupported("xz"),
    },
    // The digit is the level.
    Beginning {
        least: b"BZh11AY&SY",
        most: b"BZh91AY&SY",
        format: Format::Unsupported("bzip2"),
    },
];

impl Format {
    /// Returns the format of the next bytes; `None` if it is none of these. Waits for no more bytes
    /// than it needs to decide.
    pub(super) fn of<R: Read>(raw: &mut Raw<R>) -> io::Result<Option<Self>> {
        let mut wanted = 1;
        loop {
            let bytes = raw.peek(wanted)?;
            let may_be = |beginning: &&Beginning| beginning.agrees_with(bytes);
            let Some(beginning) = BEGINNINGS.iter().find(may_be) else {
                return Ok(None);
            };
            if bytes.len() >= beginning.least.len() {
                return Ok(Some(beginning.format));
            }
            if bytes.len() < wanted {
                return Ok(None);
            }
            wanted = bytes.len() + 1;
        }
    }
}

impl Beginning {
    /// Returns whether `bytes` agree with this beginning, as far as there are bytes.
    fn agrees_with(&self, bytes: &[u8]) -> bool {
        let bounds = iter::zip(self.least, self.most);
        iter::zip(bytes, bounds).all(|(byte, (least, most))| (least..=most).contains(&byte))
    }
}
