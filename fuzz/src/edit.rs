//! Edits: the changes that an input makes to the files of a directory.
//!
//! Most edits are small and hit fields. Fields stand at multiples of 4 bytes, near the beginning or
//! the end of a file, and few numbers break code.

use arbitrary::Arbitrary;

use crate::files::Files;

/// The most edits of one input. With many edits a file is only noise.
const MOST: usize = 8;
/// The most bytes that an edit adds to a file.
const MOST_ADDED: usize = 4096;

/// A change of one file.
#[derive(Debug, Arbitrary)]
pub struct Edit {
    /// The index of the file, modulo the number of files.
    file: u8,
    change: Change,
}

#[derive(Debug, Arbitrary)]
enum Change {
    /// A field of 8 bytes of the manifest gets another value. The manifest gives the purpose of all
    /// files.
    Manifest(u8, Value),
    /// A field of 8 bytes gets another value.
    Long(Place, Value),
    /// A field of 4 bytes gets another value.
    Short(Place, Value),
    /// A bit is turned.
    Turn(Place, u8),
    /// Bytes are overwritten.
    Write(Place, Vec<u8>),
    /// The file is cut off here.
    Truncate(Place),
    /// The file gets zeros and then these bytes at its end.
    Extend(u16, Vec<u8>),
    /// A piece is repeated after the end.
    Repeat(Place, u16),
    /// The file is removed.
    Remove,
    /// The file gets the bytes of another file.
    Copy(u8),
    /// The file gets the name of another kind or number.
    Rename(Name),
}

/// A place in a file, in words of 4 bytes from either end, modulo the length of the file.
#[derive(Debug, Arbitrary)]
enum Place {
    FromStart(u16),
    FromEnd(u16),
}

/// The new value of a field.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Value {
    /// The old value plus or minus a little.
    Near(i8),
    /// A power of two, plus or minus a little.
    Power(u8, i8),
    /// Any number.
    Any(u64),
}

/// The name of a file.
#[derive(Debug, Arbitrary)]
pub enum Name {
    /// The manifest.
    Manifest,
    /// The name of a filter's snapshot.
    Snapshot(String, u8),
    /// The name of a segment of the log.
    Segment(u8),
    /// The tail of the log.
    Tail,
    /// Any name.
    Other(String),
    /// The name of a file that is being written.
    Temporary(String),
}

impl Name {
    /// Returns the name as text.
    pub fn text(&self) -> String {
        match self {
            Self::Manifest => "MANIFEST".to_owned(),
            Self::Snapshot(filter, number) => format!("{filter}.snapshot.{number:016x}"),
            Self::Segment(number) => format!("{number:016x}.log"),
            Self::Tail => "log.tail".to_owned(),
            Self::Other(name) => name.clone(),
            Self::Temporary(name) => format!("{name}.tmp"),
        }
    }
}

/// Applies edits one after the other.
pub fn apply(edits: &[Edit], files: &mut Files) {
    for Edit { file, change } in edits.iter().take(MOST) {
        let Some(name) = nth(files, *file) else {
            return;
        };
        match change {
            Change::Manifest(word, value) => {
                let change = Change::Long(Place::FromStart(2 * u16::from(*word)), *value);
                change.apply(files.entry("MANIFEST".to_owned()).or_default());
            }
            Change::Remove => {
                files.remove(&name);
            }
            Change::Copy(from) => {
                let from = nth(files, *from).and_then(|from| files.get(&from).cloned());
                files.extend(from.map(|bytes| (name, bytes)));
            }
            Change::Rename(to) => {
                let bytes = files.remove(&name);
                files.extend(bytes.map(|bytes| (to.text(), bytes)));
            }
            change => change.apply(files.get_mut(&name).expect("the name of one of them")),
        }
    }
}

fn nth(files: &Files, number: u8) -> Option<String> {
    let place = usize::from(number).checked_rem(files.len())?;
    files.keys().nth(place).cloned()
}

impl Change {
    /// Changes the bytes of a file.
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Long(place, value) => {
                let at = place.at(bytes);
                if let Some(field) = bytes[at..].first_chunk_mut() {
                    *field = value.of(u64::from_le_bytes(*field)).to_le_bytes();
                }
            }
            Self::Short(place, value) => {
                let at = place.at(bytes);
                if let Some(field) = bytes[at..].first_chunk_mut() {
                    let value = value.of(u32::from_le_bytes(*field).into());
                    *field = (value as u32).to_le_bytes();
                }
            }
            Self::Turn(place, bit) => {
                let at = place.at(bytes) + usize::from(bit / 8 % 4);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Write(place, new) => {
                let at = place.at(bytes);
                let places = bytes[at..].iter_mut();
                places.zip(new).for_each(|(to, from)| *to = *from);
            }
            Self::Truncate(place) => bytes.truncate(place.at(bytes)),
            Self::Extend(zeros, new) => {
                let zeros = usize::from(*zeros).min(MOST_ADDED);
                bytes.resize(bytes.len() + zeros, 0);
                bytes.extend(new);
            }
            Self::Repeat(place, count) => {
                let piece = &bytes[place.at(bytes)..];
                let count = usize::from(*count).min(MOST_ADDED).min(piece.len());
                let piece = piece[..count].to_vec();
                bytes.extend(piece);
            }
            Self::Manifest(..) | Self::Remove | Self::Copy(_) | Self::Rename(_) => {}
        }
    }
}

impl Place {
    /// Returns an offset that is at most the length of the file.
    fn at(&self, bytes: &[u8]) -> usize {
        let words = bytes.len() / 4 + 1;
        match self {
            Self::FromStart(word) => 4 * (usize::from(*word) % words),
            Self::FromEnd(word) => bytes.len() - 4 * (usize::from(*word) % words),
        }
    }
}

impl Value {
    fn of(&self, old: u64) -> u64 {
        match self {
            Self::Near(by) => old.wrapping_add_signed((*by).into()),
            Self::Power(bit, by) => (1_u64 << (bit % 64)).wrapping_add_signed((*by).into()),
            Self::Any(value) => *value,
        }
    }
}
