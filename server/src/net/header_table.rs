//! The memory that the header table of a connection (HPACK, RFC 7541) keeps.
//!
//! h2 keeps the values of `:path`, `:authority` and `:scheme` in its table as slices of the buffers
//! that it read them into, 64 KiB each. So a client that puts one field into the table between
//! large frames makes the server keep some megabytes for a few kilobytes of table. [`HeaderTable`]
//! parses the header blocks of a connection, without decoding text, and computes the bytes that
//! such slices keep.

use std::collections::VecDeque;

use super::frames::{self, Frame};

/// The maximum number of entries of a table of 4,096 bytes: each counts as 32 bytes and its text.
const MAX_ENTRIES: usize = 124;

/// The maximum memory that one entry keeps: a buffer for a frame of the maximum length.
const BUFFER_BYTES: u64 = 72 << 10;

/// The maximum memory of an entry whose text is compressed: h2 decompresses it into a buffer of
/// this size.
const DECOMPRESSED_BYTES: u64 = 4 << 10;

/// The number of entries of the static table, which come first, and the index of its last pseudo
/// header field.
const STATIC_ENTRIES: u64 = 61;
const LAST_PSEUDO_FIELD: u64 = 7;

/// Flags of HEADERS frames.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// The entries that one client has put into the table.
#[derive(Debug, Default)]
pub struct HeaderTable {
    /// Newest first.
    entries: VecDeque<Entry>,
    held_bytes: u64,
    /// The number of bytes of the connection up to the end of the current read.
    position: u64,
    /// The position of the last entry that keeps a buffer.
    last_position: u64,
    payload: Payload,
    next: Next,
    field: Field,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    is_pseudo: bool,
    held_bytes: u64,
}

/// The rest of the payload of a frame.
#[derive(Debug, Default)]
struct Payload {
    /// The length of the padding comes next.
    is_padded: bool,
    skipped_bytes: usize,
    /// The bytes that are left, without the padding at the end once its length is known.
    bytes: usize,
}

/// The next part of a header block.
#[derive(Debug, Clone, Copy, Default)]
enum Next {
    #[default]
    Field,
    /// The rest of an integer.
    Integer {
        value: u64,
        shift: u32,
        of: Integer,
    },
    Name,
    Value,
    Text {
        bytes: u64,
        is_name: bool,
        /// The next byte is the first of a name.
        is_first: bool,
    },
    /// The bytes are no header block. h2 closes the connection.
    Broken,
}

#[derive(Debug, Clone, Copy)]
enum Integer {
    /// An index of a whole field, or a table size.
    Whole,
    NameIndex,
    Length {
        is_name: bool,
    },
}

/// The field that is being read.
#[derive(Debug, Clone, Copy, Default)]
struct Field {
    is_inserted: bool,
    is_pseudo: bool,
    is_compressed: bool,
}

impl HeaderTable {
    /// Returns the bytes that entries of the table keep.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes as usize
    }

    /// Sets the position: the bytes of the connection that have been read.
    pub fn at(&mut self, position: u64) {
        self.position = position;
    }

    /// Begins a frame.
    pub fn begin(&mut self, frame: Frame) {
        match frame.kind {
            frames::HEADERS => {
                let has_priority = frame.flags & PRIORITY != 0;
                self.payload = Payload {
                    is_padded: frame.flags & PADDED != 0,
                    skipped_bytes: if has_priority { PRIORITY_BYTES } else { 0 },
                    bytes: frame.bytes,
                };
                self.next = Next::Field;
            }
            frames::CONTINUATION => {
                self.payload = Payload {
                    bytes: frame.bytes,
                    ..Payload::default()
                };
            }
            _ => self.payload = Payload::default(),
        }
    }

    /// Reads a part of the payload of the frame that was begun last.
    pub fn read(&mut self, mut bytes: &[u8]) {
        while self.payload.bytes > 0
            && let Some((&first, rest)) = bytes.split_first()
        {
            self.payload.bytes -= 1;
            bytes = rest;
            if std::mem::take(&mut self.payload.is_padded) {
                self.payload.bytes = self.payload.bytes.saturating_sub(first.into());
            } else if let Some(left) = self.payload.skipped_bytes.checked_sub(1) {
                self.payload.skipped_bytes = left;
            } else {
                self.next = self.block(first);
                bytes = self.skip(bytes);
            }
        }
    }

    /// Skips all but the last byte of a text, and returns the rest.
    fn skip<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Next::Text {
            bytes: left,
            is_first: false,
            ..
        } = &mut self.next
        else {
            return bytes;
        };
        let skipped = bytes.len().min(self.payload.bytes);
        let skipped = skipped.min((*left - 1) as usize);
        *left -= skipped as u64;
        self.payload.bytes -= skipped;
        bytes.get(skipped..).expect("at most all bytes are skipped")
    }

    /// Takes a byte of a header block.
    fn block(&mut self, byte: u8) -> Next {
        match self.next {
            Next::Field => self.begin_field(byte),
            Next::Integer { value, shift, of } => {
                let value = value + (u64::from(byte & 0x7f) << shift);
                match (byte & 0x80 != 0, shift < 28) {
                    (true, true) => Next::Integer {
                        value,
                        shift: shift + 7,
                        of,
                    },
                    (true, false) => Next::Broken,
                    (false, _) => self.integer(value, of),
                }
            }
            Next::Name => self.text(byte, true),
            Next::Value => self.text(byte, false),
            Next::Text {
                bytes,
                is_name,
                is_first,
            } => {
                if is_first {
                    // ':', as it is or compressed: 1011100 in bits.
                    self.field.is_pseudo = byte == b':' || byte & 0xfe == 0b1011_1000;
                }
                self.text_of(bytes - 1, is_name, false)
            }
            Next::Broken => Next::Broken,
        }
    }

    fn begin_field(&mut self, byte: u8) -> Next {
        let (bits, of) = match byte {
            0x80.. => (7, Integer::Whole),
            0x40.. => (6, Integer::NameIndex),
            0x20.. => (5, Integer::Whole),
            _ => (4, Integer::NameIndex),
        };
        self.field = Field {
            is_inserted: byte & 0xc0 == 0x40,
            ..Field::default()
        };
        self.prefix(byte, bits, of)
    }

    fn text(&mut self, byte: u8, is_name: bool) -> Next {
        if !is_name {
            self.field.is_compressed = byte & 0x80 != 0;
        }
        self.prefix(byte, 7, Integer::Length { is_name })
    }

    /// Takes the first byte of an integer, which has `bits` bits of it.
    fn prefix(&mut self, byte: u8, bits: u32, of: Integer) -> Next {
        let most = (1_u64 << bits) - 1;
        match u64::from(byte) & most {
            value if value == most => Next::Integer {
                value,
                shift: 0,
                of,
            },
            value => self.integer(value, of),
        }
    }

    fn integer(&mut self, value: u64, of: Integer) -> Next {
        match of {
            Integer::Whole => Next::Field,
            Integer::NameIndex if value == 0 => Next::Name,
            Integer::NameIndex => {
                self.field.is_pseudo = self.is_pseudo(value);
                Next::Value
            }
            Integer::Length { is_name } => self.text_of(value, is_name, is_name),
        }
    }

    /// Continues with a text of the given length.
    fn text_of(&mut self, bytes: u64, is_name: bool, is_first: bool) -> Next {
        match (bytes, is_name) {
            (0, true) => Next::Value,
            (0, false) => {
                self.end_field();
                Next::Field
            }
            _ => Next::Text {
                bytes,
                is_name,
                is_first,
            },
        }
    }

    fn is_pseudo(&self, index: u64) -> bool {
        match index.checked_sub(STATIC_ENTRIES + 1) {
            None => index <= LAST_PSEUDO_FIELD,
            Some(index) => {
                let entry = self.entries.get(index as usize);
                entry.is_some_and(|entry| entry.is_pseudo)
            }
        }
    }

    fn end_field(&mut self) {
        let Field {
            is_inserted,
            is_pseudo,
            is_compressed,
        } = self.field;
        if !is_inserted {
            return;
        }
        let mut held_bytes = 0;
        if is_pseudo {
            let most = match is_compressed {
                true => DECOMPRESSED_BYTES,
                false => BUFFER_BYTES,
            };
            // Entries of one buffer keep it once.
            held_bytes = (self.position - self.last_position).min(most);
            self.last_position = self.position;
        }
        self.entries.push_front(Entry {
            is_pseudo,
            held_bytes,
        });
        self.held_bytes += held_bytes;
        if self.entries.len() > MAX_ENTRIES
            && let Some(evicted) = self.entries.pop_back()
        {
            self.held_bytes -= evicted.held_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a header block in a frame with some flags.
    fn read(table: &mut HeaderTable, flags: u8, block: &[u8]) {
        let position = table.position + 100_000;
        table.at(position);
        table.begin(Frame {
            kind: frames::HEADERS,
            flags,
            bytes: block.len(),
        });
        block.chunks(3).for_each(|piece| table.read(piece));
    }

    /// Returns a field that enters the table and whose name is the entry `index`.
    fn inserted(index: u8, value: &[u8]) -> Vec<u8> {
        [&[0x40 | index, value.len() as u8], value].concat()
    }

    #[test]
    fn a_pseudo_header_that_enters_the_table_keeps_its_buffer() {
        let mut table = HeaderTable::default();
        for entries in 1..300 {
            read(&mut table, 0, &inserted(4, b"/path"));
            let entries = entries.min(MAX_ENTRIES as u64);
            assert_eq!(table.held_bytes, entries * BUFFER_BYTES);
        }
        // Entries of one buffer cost nothing after the first.
        let mut table = HeaderTable::default();
        read(&mut table, 0, &inserted(4, b"/path").repeat(3));
        assert_eq!(table.held_bytes, BUFFER_BYTES);
    }

    #[test]
    fn fields_that_keep_no_buffer_cost_nothing() {
        let authority = [&[0x41, 0x83][..], &[1, 2, 3]].concat();
        let literal = |first: u8| [&[first, 4][..], b"name", &[5], b"value"].concat();
        let blocks: [&[u8]; 6] = [
            // An entry of the table, a field that does not enter it, and a table size.
            &[0x82, 0xff, 0x10],
            &[&[0x04, 5][..], b"/path", &[0x1f, 0x20, 1, b'x']].concat(),
            &[0x3f, 0xe1, 0x1f],
            // Fields whose values are copied.
            &literal(0x40),
            &inserted(31, b"application/grpc"),
            &literal(0),
        ];
        let mut table = HeaderTable::default();
        for block in blocks {
            read(&mut table, 0, block);
            assert_eq!(table.held_bytes, 0, "{block:?}");
            assert!(matches!(table.next, Next::Field), "{block:?}");
        }
        read(&mut table, 0, &authority);
        assert_eq!(table.held_bytes, DECOMPRESSED_BYTES);
    }

    #[test]
    fn the_name_of_a_field_is_found_in_any_form() {
        let long = vec![b'x'; 1000];
        // 1000 is 127 and 873, which is 0x69 and 6 times 128.
        let long_value = [&[0x44, 0x7f, 0xe9, 0x06][..], &long].concat();
        let by_text = [&[0x40, 5][..], b":path", &[2], b"/x"].concat();
        let compressed = [&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 2][..], b"/x"].concat();
        for block in [&long_value, &by_text, &compressed] {
            let mut table = HeaderTable::default();
            read(&mut table, 0, block);
            assert_eq!(table.held_bytes, BUFFER_BYTES, "{block:?}");
            // The newest entry of the table has the index 62.
            let again = inserted(0x3e, b"/y");
            read(&mut table, 0, &again);
            assert_eq!(table.held_bytes, 2 * BUFFER_BYTES, "{block:?}");
        }
    }

    #[test]
    fn padding_and_priorities_are_no_fields() {
        let path = inserted(4, b"/path");
        let padded = [&[9][..], &[0; 5], &path, &[0x44; 9]].concat();
        let mut table = HeaderTable::default();
        read(&mut table, PADDED | PRIORITY, &padded);
        assert_eq!(table.entries.len(), 1);
        // A block goes on in the next frame.
        let (first, rest) = path.split_at(3);
        read(&mut table, 0, first);
        table.begin(Frame {
            kind: frames::CONTINUATION,
            flags: 0,
            bytes: rest.len(),
        });
        table.read(rest);
        assert_eq!(table.entries.len(), 2);
    }

    #[test]
    fn bytes_that_are_no_header_block_do_no_harm() {
        let mut table = HeaderTable::default();
        read(&mut table, 0, &[0xff; 50]);
        assert!(matches!(table.next, Next::Broken));
        read(&mut table, PADDED, &[200, 0x44]);
        for byte in 0..=255 {
            read(&mut table, byte, &[byte, 255, 255, 127, byte, 0, 1]);
        }
    }
}
