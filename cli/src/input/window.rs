//! The distance that a zstd frame looks back, which is the memory that decoding it takes. The frame
//! says it, and nothing beyond a limit is granted (RFC 8878, section 3.1.1.1).

use std::io::{self, ErrorKind, Read};

use super::raw::Raw;

/// The window that `zstd` itself grants by default, and that `zstd --long` takes.
pub(super) const MAX_WINDOW_BYTES: u64 = 128 * 1024 * 1024;

/// The magic number of a frame.
const MAGIC: [u8; 4] = *b"\x28\xb5\x2f\xfd";

/// Fails if the next frame asks for too much. If the data is cut short, the decoder reports that.
pub(super) fn check<R: Read>(raw: &mut Raw<R>) -> io::Result<()> {
    let mut wanted = MAGIC.len() + 1;
    loop {
        let Some(header) = raw.peek(wanted)?.strip_prefix(&MAGIC) else {
            return Ok(());
        };
        match window_bytes(header) {
            Window::Asked(bytes) if bytes > MAX_WINDOW_BYTES => {
                return Err(io::Error::new(
                    ErrorKind::QuotaExceeded,
                    format!(
                        "a zstd frame asks for a window of {bytes} bytes, and the limit is \
                         {MAX_WINDOW_BYTES}: compress it with --long=27 or less, or decompress \
                         it first"
                    ),
                ));
            }
            Window::Asked(_) => return Ok(()),
            Window::Behind(bytes) if MAGIC.len() + bytes > wanted => wanted = MAGIC.len() + bytes,
            Window::Behind(_) => return Ok(()),
        }
    }
}

/// The result of reading the start of a header.
#[derive(Debug, PartialEq, Eq)]
enum Window {
    /// The size of the window in bytes.
    Asked(u64),
    /// The number of bytes that are needed to read the size.
    Behind(usize),
}

fn window_bytes(header: &[u8]) -> Window {
    let Some((descriptor, fields)) = header.split_first() else {
        return Window::Behind(1);
    };
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let Some(&window) = fields.first() else {
            return Window::Behind(2);
        };
        let base = 1_u64 << (10 + (window >> 3));
        return Window::Asked(base + base / 8 * u64::from(window & 7));
    }
    // The window is all of the content. Its size comes after the number of a dictionary.
    let dictionary_bytes = match descriptor & 3 {
        3 => 4,
        bytes => usize::from(bytes),
    };
    let size_bytes = 1_usize << (descriptor >> 6);
    let Some(size) = fields.get(dictionary_bytes..dictionary_bytes + size_bytes) else {
        return Window::Behind(1 + dictionary_bytes + size_bytes);
    };
    let size = size
        .iter()
        .rev()
        .fold(0, |size, byte| size << 8 | u64::from(*byte));
    // A size of two bytes begins at 256, after the values that one byte can hold.
    Window::Asked(if size_bytes == 2 { size + 256 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_what_the_header_says() {
        // The smallest, and the largest.
        assert_eq!(window_bytes(&[0x00, 0x00]), Window::Asked(1 << 10));
        assert_eq!(
            window_bytes(&[0x00, 0xff]),
            Window::Asked((1 << 41) / 8 * 15)
        );
        assert_eq!(window_bytes(&[0x00, 17 << 3]), Window::Asked(128 << 20));
        assert_eq!(window_bytes(&[0x84, 17 << 3 | 1]), Window::Asked(144 << 20));
        // All in one segment, with sizes of 1, 2, 4 and 8 bytes, and a dictionary.
        assert_eq!(window_bytes(&[0x20, 7]), Window::Asked(7));
        assert_eq!(window_bytes(&[0x60, 7, 1]), Window::Asked(263 + 256));
        assert_eq!(window_bytes(&[0xa0, 0, 0, 0, 8]), Window::Asked(1 << 27));
        assert_eq!(
            window_bytes(&[0xe3, 9, 9, 9, 9, 0, 0, 0, 0, 1, 0, 0, 0]),
            Window::Asked(1 << 32)
        );
    }

    #[test]
    fn no_more_is_waited_for_than_the_header_has() {
        for (header, bytes) in [
            (&[][..], 1),
            (&[0x00], 2),
            (&[0x20], 2),
            (&[0x62, 1, 1], 5),
            (&[0xe3, 9, 9, 9, 9, 0, 0, 0, 0, 1, 0, 0], 13),
        ] {
            assert_eq!(window_bytes(header), Window::Behind(bytes), "{header:?}");
        }
    }
}
