//! The frames in the bytes of a connection. The header of each frame contains its length.
//!
//! <https://www.rfc-editor.org/rfc/rfc9113#section-4.1>

/// The length of the header of a frame.
const HEADER_BYTES: usize = 9;

/// The length of the preface that a client sends before its first frame.
const PREFACE_BYTES: usize = 24;

/// The types of frames: data, the beginning of a request, and the rest of its headers.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const CONTINUATION: u8 = 9;

/// Follows the frames that a client sends.
#[derive(Debug)]
pub struct Frames {
    /// The bytes that are left of the preface or of the payload of the last frame.
    left: usize,
    header: [u8; HEADER_BYTES],
    /// The number of header bytes that have arrived.
    header_bytes: usize,
}

/// A frame whose header has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    pub flags: u8,
    /// The length of its payload.
    pub bytes: usize,
}

impl Frames {
    /// Returns the parser for a connection that has just been accepted.
    pub fn new() -> Self {
        Self {
            left: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
        }
    }

    /// Returns the next frame in `bytes`, or `None` if there is no further header in them. Moves
    /// `bytes` past everything it has parsed, and passes payloads to `payload`.
    pub fn next(&mut self, bytes: &mut &[u8], mut payload: impl FnMut(&[u8])) -> Option<Frame> {
        let (skipped, rest) = bytes.split_at(self.left.min(bytes.len()));
        payload(skipped);
        *bytes = rest;
        self.left -= skipped.len();
        if self.left > 0 {
            return None;
        }
        let missing = self.header.get_mut(self.header_bytes..)?;
        let count = missing.len().min(bytes.len());
        let (come, rest) = bytes.split_at_checked(count)?;
        missing.get_mut(..count)?.copy_from_slice(come);
        *bytes = rest;
        self.header_bytes += count;
        if self.header_bytes < HEADER_BYTES {
            return None;
        }
        self.header_bytes = 0;
        let [high, middle, low, kind, flags, ..] = self.header;
        self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(Frame {
            kind,
            flags,
            bytes: self.left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let sent = [(4, 0), (1, 30), (0, 70_000), (0, 0), (6, 8)];
        let mut bytes = vec![7; PREFACE_BYTES];
        for (kind, length) in sent {
            bytes.extend(frame(kind, &vec![9; length]));
        }
        for piece in (1..100).chain([1000, 65_536, bytes.len()]) {
            let mut frames = Frames::new();
            let mut found = Vec::new();
            for mut piece in bytes.chunks(piece) {
                while let Some(frame) = frames.next(&mut piece, |_| {}) {
                    found.push((frame.kind, frame.bytes));
                }
                assert!(piece.is_empty());
            }
            assert_eq!(found, sent);
            assert_eq!(frames.left, 0);
        }
    }
}
