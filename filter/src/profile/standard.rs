//! URLs as the URL standard writes them (<https://url.spec.whatwg.org/>), without their fragment.
//!
//! The crate `url` parses everything except the path. Its paths differ from the standard: in URLs
//! of every scheme it keeps a segment like `c:` before `..`, where the standard does so only for
//! `file:`, and it does not percent-encode `^`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::{Position, Url};

/// The longest user, host and port. A name in the domain name system has at most 253 bytes. For
/// longer ones, the time to turn a host into ASCII grows with the square of its length.
pub(super) const MAX_AUTHORITY_BYTES: usize = 512;

/// The schemes whose URLs treat `\` as `/` and always have a host. `file` has rules of its own and
/// is not in this list.
const SPECIAL_SCHEMES: &[&str] = &["http", "https", "ws", "wss", "ftp"];

/// The path percent-encode set. It contains `^` since March 2025.
const PATH_SET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A URL that has a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StandardUrl {
    /// The scheme, user, host, port and path.
    pub(super) page: String,
    /// The text after `?`.
    pub(super) query: Option<String>,
}

impl StandardUrl {
    /// Parses a key. Returns `None` if it is not an absolute URL with a host, is a `file:` URL, or
    /// has a user, host and port of more than [`MAX_AUTHORITY_BYTES`].
    pub(super) fn parse(key: &str) -> Option<Self> {
        let trimmed = key.trim_matches(|c| c <= ' ');
        let text: Cow<'_, str> = if trimmed.contains(['\t', '\n', '\r']) {
            trimmed.replace(['\t', '\n', '\r'], "").into()
        } else {
            trimmed.into()
        };
        let (scheme, rest) = text.split_once(':')?;
        let is_special = SPECIAL_SCHEMES
            .iter()
            .any(|special| special.eq_ignore_ascii_case(scheme));
        let is_separator = |c: char| c == '/' || (is_special && c == '\\');
        let rest = match is_special {
            true => rest.trim_start_matches(is_separator),
            false => rest.strip_prefix("//")?,
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_at(rest.find(is_separator).unwrap_or(rest.len()));
        if authority.is_empty() || authority.len() > MAX_AUTHORITY_BYTES {
            return None;
        }
        // An empty fragment: without it the parser would remove spaces at the end as padding.
        let mark = if query.is_some() { "?" } else { "" };
        let without_path = format!("{scheme}://{authority}/{mark}{}#", query.unwrap_or(""));
        let url = Url::parse(&without_path).ok()?;
        // In all schemes, the crate treats a `\` after the port as the beginning of a path.
        if url.scheme() == "file" || url.host_str().is_none_or(str::is_empty) || url.path() != "/" {
            return None;
        }
        let mut page = url[..Position::BeforePath].to_owned();
        push_path(&mut page, path.split(is_separator).skip(1));
        if is_special && path.is_empty() {
            page.push('/');
        }
        Some(Self {
            page,
            query: url.query().map(str::to_owned),
        })
    }
}

/// Appends the segments of a path to the text before it, and resolves `.` and `..`.
fn push_path<'s>(page: &mut String, segments: impl Iterator<Item = &'s str>) {
    let start = page.len();
    let mut ends_in_dots = false;
    for segment in segments {
        let dots = dots(segment);
        ends_in_dots = dots.is_some();
        match dots {
            None => {
                page.push('/');
                page.extend(utf8_percent_encode(segment, PATH_SET));
            }
            Some(Dots::Same) => {}
            Some(Dots::Parent) => {
                let path = page.get(start..).expect("the path begins in the page");
                page.truncate(start + path.rfind('/').unwrap_or(0));
            }
        }
    }
    if ends_in_dots {
        page.push('/');
    }
}

/// The meaning of a dot segment.
enum Dots {
    /// `.`: the folder itself.
    Same,
    /// `..`: the parent folder.
    Parent,
}

/// Returns the meaning of a segment, if it is one or two dots, percent-encoded or not.
fn dots(segment: &str) -> Option<Dots> {
    let mut count = 0;
    let mut rest = segment;
    while !rest.is_empty() {
        rest = match rest.strip_prefix('.') {
            Some(rest) => rest,
            None => {
                let (escape, rest) = rest.split_at_checked(3)?;
                escape.eq_ignore_ascii_case("%2e").then_some(rest)?
            }
        };
        count += 1;
    }
    match count {
        1 => Some(Dots::Same),
        2 => Some(Dots::Parent),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
