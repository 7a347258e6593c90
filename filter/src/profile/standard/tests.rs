//! Compared with Ada, another implementation of the URL standard.

use super::*;
use crate::profile::KeyProfile;

const SCHEMES: &[&str] = &[
    "http", "https", "HTTPS", "Ws", "wss", "ftp", "ht\ttp", "file", "FILE", "gopher", "foo",
    "a+b.c-", "git", "about", "mailto", "1a", "",
];
const SLASHES: &[&str] = &[
    "//", "//", "//", "//", "//", "//", "//", "/", "", "///", "\\\\", "\\/", "/\n/", "////",
];
const USERS: &[&str] = &[
    "",
    "",
    "",
    "",
    "",
    "",
    "u@",
    "u:p@",
    "@",
    ":@",
    "u:@",
    ":p@",
    "a@b@",
    "a:b:c@",
    "%41%3a@",
    "é@",
    "a|b^c`{}@",
    "[\\]@",
    "'!$&()*+,;=@",
    "\u{7f}\u{1}@",
    "<>\"@",
    "%@",
    "/@",
    " @",
];
const HOSTS: &[&str] = &[
    "example.com",
    "example.com",
    "EXAMPLE.com",
    "h",
    "h",
    "a.",
    "a..b",
    ".",
    "..",
    "a_b",
    "-a-",
    // IPv4 and IPv6.
    "127.0.0.1",
    "0x7f.1",
    "0300.0.0.1",
    "1.2.3",
    "1",
    "256",
    "4294967295",
    "4294967296",
    "0x",
    "09",
    "1.2.3.4.5",
    "1.2.3.08",
    "1.2.3.4.",
    "0x7f.0x0.0x0.1.",
    "%30x7f.1",
    "a.1",
    "1.a",
    "[::1]",
    "[1::2:3]",
    "[::FFFF:1.2.3.4]",
    "[1:2:3:4:5:6:7:8]",
    "[1:0:0:2:0:0:0:3]",
    "[1:0:0:2::]",
    "[::1%25eth0]",
    "[::127.0.0.1]",
    "[::1",
    "::1",
    "[]",
    "[1:2:3:4:5:6:7::8]",
    // Characters that a host cannot have, in some schemes or in all.
    "a b",
    "a%20b",
    "a%41b",
    "%C3%BC",
    "a*b",
    "a!b",
    "a$b",
    "a&b",
    "a'b",
    "a(b)",
    "a+b",
    "a,b",
    "a;b",
    "a=b",
    "a{b}",
    "a`b",
    "a\"b",
    "a|b",
    "a^b",
    "a<b",
    "a%b",
    "a%2fb",
    "a%00b",
    "a%zz",
    "%",
    "C:",
    "C|",
    "",
    "a\u{7f}b",
    "a\u{1}b",
    "a\u{0}b",
    // Other letters.
    "ü.de",
    "faß.de",
    "bücher.example",
    "xn--bcher-kva.de",
    "XN--BCHER-KVA.de",
    "☃",
    "例え。テスト",
    "１２７.0.0.1",
    "0Ⅹ7f.1",
    "a\u{ad}b",
    "\u{200d}a",
    "a\u{200c}b",
    "नी\u{200d}",
    "א1",
    "1א",
    "aא",
    "ſ",
    "K",
    "ℌ",
    "≠",
    "\u{338}",
    "a\u{338}",
    "💩",
    "👨\u{200d}👩",
    "\u{10ffff}",
    "\u{e000}",
    "xn--",
    "xn--a",
    "xn--ls8h",
    "xn--zn7c.com",
    "xn--4db.1x",
];
const PORTS: &[&str] = &[
    "", "", "", "", "", "", "", ":", ":80", ":443", ":21", ":0", ":00080", ":65535", ":65536",
    ":8a", ":+80", ":٣", ":8\t0", ":-1",
];
const SEPARATORS: &[&str] = &["/", "/", "/", "/", "/", "/", "/", "\\", "", "/\t", "//"];
const SEGMENTS: &[&str] = &[
    "a",
    "b",
    "c:",
    "C|",
    "c:d",
    "C%7C",
    "c%3A",
    "Z:",
    ".",
    "..",
    "..",
    "%2e",
    "%2E%2e",
    ".%2e",
    "%2e.",
    "...",
    "%2e%2e%2e",
    "%2",
    "%",
    "%4",
    "%zz",
    "%41",
    "%2f",
    "%5c",
    "%00",
    "%25",
    "",
    "",
    "a b",
    " ",
    "é",
    "你",
    "^",
    "|",
    "`",
    "{",
    "}",
    "<",
    ">",
    "\"",
    "'",
    "[",
    "]",
    "~",
    "\u{7f}",
    "\u{80}",
    "\u{1}",
    "\u{0}",
    "\t",
    "\r\n",
    ";",
    "=",
    "@",
    "!",
    "$",
    "&",
    "(",
    ")",
    "*",
    "+",
    ",",
    ":",
    "\u{fffe}",
    "\u{10ffff}",
];
const QUERY: &[&str] = &[
    "a", "b=c", "=", "&", "+", " ", "'", "\"", "<", ">", "#", "^", "`", "{", "}", "|", "\\", "/",
    "?", "/../", "%41", "%", "%zz", "é", "\u{0}", "\u{7f}", "\u{1}", "\t", "[", "]", "~", ":", "@",
    "!", "\u{fffe}",
];
const PADDING: &[&str] = &[
    "", "", "", "", "", "", "", "", " ", "\u{1}", "\t", "\n ", "\u{0}",
];

/// Makes URLs, the same in each run.
struct Urls {
    state: u64,
}

impl Urls {
    fn below(&mut self, bound: usize) -> usize {
        let factor = 6_364_136_223_846_793_005;
        self.state = self.state.wrapping_mul(factor).wrapping_add(1);
        (self.state >> 33) as usize % bound
    }

    fn push(&mut self, url: &mut String, pieces: &[&str]) {
        url.push_str(pieces[self.below(pieces.len())]);
    }

    fn next(&mut self) -> String {
        let mut url = String::new();
        self.push(&mut url, PADDING);
        self.push(&mut url, SCHEMES);
        url.push(':');
        for pieces in [SLASHES, USERS, HOSTS] {
            self.push(&mut url, pieces);
        }
        if self.below(8) == 0 {
            url.push('.');
            self.push(&mut url, HOSTS);
        }
        self.push(&mut url, PORTS);
        for _ in 0..self.below(7) {
            self.push(&mut url, SEPARATORS);
            self.push(&mut url, SEGMENTS);
            if self.below(5) == 0 {
                self.push(&mut url, SEGMENTS);
            }
        }
        for start in ['?', '#'] {
            if self.below(3) == 0 {
                url.push(start);
                for _ in 0..self.below(6) {
                    self.push(&mut url, QUERY);
                }
            }
        }
        self.push(&mut url, PADDING);
        url
    }
}

/// Returns Ada's form of a URL, without the fragment; `None` for URLs that `url-v1` does not
/// change.
fn by_ada(url: &str) -> Option<String> {
    let url = ada_url::Url::parse(url, None).ok()?;
    let has_place = url.protocol() != "file:" && !url.hostname().is_empty();
    let (text, _) = url.href().split_once('#').unwrap_or((url.href(), ""));
    has_place.then(|| text.to_owned())
}

fn by_us(url: &str) -> Option<String> {
    let StandardUrl { page, query } = StandardUrl::parse(url)?;
    Some(page + &query.map_or(String::new(), |query| format!("?{query}")))
}

/// Whether a host is ASCII, but not a result of IDNA. The standard accepts and keeps such a host
/// since 2026. IDNA, and so `url-v1`, refuses it, and the key stays unchanged.
fn is_no_idna(url: &str) -> bool {
    let host = ada_url::Url::parse(url, None).map(|url| url.hostname().to_owned());
    host.is_ok_and(|host| host.contains("xn--"))
}

#[test]
fn urls_become_what_the_standard_says() {
    let profile = KeyProfile::new("url-v1", false, &[]).unwrap();
    let mut urls = Urls { state: 5 };
    let (mut same, mut refused, mut no_idna) = (0, 0, 0);
    for _ in 0..400_000 {
        let url = urls.next();
        let (ours, adas) = (by_us(&url), by_ada(&url));
        let canonical = profile.canonical(url.as_bytes());
        match (&ours, &adas) {
            (Some(ours), Some(adas)) => {
                assert_eq!(ours, adas, "{url:?}");
                let expected = super::super::normalised(adas);
                assert_eq!(str::from_utf8(&canonical), Ok(&*expected), "{url:?}");
                same += 1;
                continue;
            }
            (None, None) => refused += 1,
            (None, Some(adas)) => {
                assert!(is_no_idna(&url), "{url:?} is {adas:?} for Ada");
                no_idna += 1;
            }
            (Some(ours), None) => panic!("{url:?} is none for Ada, and {ours:?} here"),
        }
        assert_eq!(*canonical, *url.as_bytes(), "{url:?}");
    }
    println!("{same} the same, {refused} refused by both, {no_idna} hosts refused by IDNA");
    assert!(same > 100_000 && refused > 100_000, "{same}, {refused}");
    assert!((1..6_000).contains(&no_idna), "{no_idna}");
}

/// For each character that IDNA knows, alone and next to others. The two implementations have
/// tables of different versions of Unicode, so one can refuse a host that the other accepts.
#[test]
fn hosts_of_all_letters_become_what_the_standard_says() {
    let (mut same, mut differ) = (0_u32, 0);
    for letter in ('\u{80}'..=char::MAX).step_by(7) {
        for url in [format!("http://{letter}/"), format!("http://a{letter}b/")] {
            match (by_us(&url), by_ada(&url)) {
                (Some(ours), Some(adas)) => {
                    assert_eq!(ours, adas);
                    same += 1;
                }
                (None, None) => {}
                _ => differ += 1,
            }
        }
    }
    assert!(same > 35_000 && differ < same / 10, "{same}, {differ}");
}
