//! The bytes of a text file that are not part of its lines: byte order marks, and the padding at
//! the end.

/// The byte order mark of UTF-8. Editors and spreadsheets put it before a text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The byte order marks of encodings that cannot be read. A longer mark comes before a shorter one
/// that it starts with.
const OTHER_MARKS: [(&[u8], &str); 4] = [
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
];

/// Returns whether more bytes are needed to know the encoding of a file that begins with `bytes`.
pub(super) fn needs_more(bytes: &[u8]) -> bool {
    let may_become = |mark: &[u8]| mark.len() > bytes.len() && mark.starts_with(bytes);
    OTHER_MARKS.iter().any(|(mark, _)| may_become(mark))
}

/// Returns the name of the encoding whose mark `bytes` begin with; `None` if there is no mark, or
/// the mark of UTF-8.
pub(super) fn other_encoding(bytes: &[u8]) -> Option<&'static str> {
    let found = OTHER_MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
    found.map(|(_, name)| *name)
}

/// Returns the length of the mark at the start of a line; 0 if there is none. Files that were
/// joined by `cat` can have marks in the middle.
pub(crate) fn mark_bytes(line: &[u8]) -> usize {
    match line.starts_with(MARK) {
        true => MARK.len(),
        false => 0,
    }
}

/// Returns the text of a line, without its mark and its ending.
pub(super) fn text(line: &[u8]) -> &[u8] {
    let text = line.strip_prefix(MARK).unwrap_or(line);
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

/// Returns the end of a file without its padding. Tapes, `dd` and file systems after a power cut
/// leave NULs, and DOS ends a text with Ctrl-Z.
pub(super) fn without_padding(end: &[u8]) -> &[u8] {
    strip_end(end, |byte| matches!(byte, 0 | 0x1a))
}

/// Returns `bytes` without the NULs at their end.
pub(super) fn without_nuls(bytes: &[u8]) -> &[u8] {
    strip_end(bytes, |byte| byte == 0)
}

fn strip_end(bytes: &[u8], is_stripped: impl Fn(u8) -> bool) -> &[u8] {
    let kept = bytes.iter().rposition(|&byte| !is_stripped(byte));
    bytes
        .get(..kept.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_apart_as_soon_as_they_can_be() {
        for (bytes, more, encoding) in [
            (&b""[..], true, None),
            (b"a", false, None),
            (b"\xef\xbb\xbf", false, None),
            (b"\xff", true, None),
            (b"\xff\xfe", true, Some("UTF-16")),
            (b"\xff\xfea", false, Some("UTF-16")),
            (b"\xff\xfe\0", true, Some("UTF-16")),
            (b"\xff\xfe\0\0", false, Some("UTF-32")),
            (b"\xfe", true, None),
            (b"\xfe\xff", false, Some("UTF-16")),
            (b"\0", true, None),
            (b"\0\0\xfe\xff", false, Some("UTF-32")),
            (b"\0\0a", false, None),
        ] {
            assert_eq!(needs_more(bytes), more, "{bytes:?}");
            assert_eq!(other_encoding(bytes), encoding, "{bytes:?}");
        }
    }

    #[test]
    fn text_is_a_line_without_what_surrounds_it() {
        assert_eq!(text(b"\xef\xbb\xbfa\r\n"), b"a");
        assert_eq!(text("\u{feff}\u{feff}a".as_bytes()), "\u{feff}a".as_bytes());
        assert_eq!(text(b"a\xef\xbb\xbf\n"), b"a\xef\xbb\xbf");
        assert_eq!(without_padding(b"a\0\x1a\0"), b"a");
        assert_eq!(without_padding(b"\x1a"), b"");
        assert_eq!(without_nuls(b"a\0\x1a\0"), b"a\0\x1a");
    }
}
