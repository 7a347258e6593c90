//! The rules of `url-v1`, which never change.

use std::time::Instant;

use super::{standard::MAX_AUTHORITY_BYTES, *};

fn profile(sort_query: bool, drop_parameters: &[&str]) -> KeyProfile {
    let names: Vec<String> = drop_parameters.iter().copied().map(str::to_owned).collect();
    KeyProfile::new("url-v1", sort_query, &names).unwrap()
}

fn canonical(profile: &KeyProfile, key: &str) -> String {
    String::from_utf8(profile.canonical(key.as_bytes()).into_owned()).unwrap()
}

/// Keys and their canonical forms. A canonical form must stay the same if it is put in again.
/// Stored filters of others depend on each of these. If one fails after an update of the crate
/// `url` (or of `idna`, or of its tables), the update must not be made, or needs a profile with
/// another name.
const PLAIN: &[(&str, &str)] = &[
    // Scheme and host.
    ("https://example.com/", "https://example.com/"),
    ("https://example.com", "https://example.com/"),
    ("HTTPS://Example.COM/", "https://example.com/"),
    (
        "https://example.com/Path?Query=A",
        "https://example.com/Path?Query=A",
    ),
    ("https:example.com", "https://example.com/"),
    ("https:///example.com//a", "https://example.com//a"),
    ("https:\\\\example.com\\a\\b", "https://example.com/a/b"),
    ("  https://example.com/a b  ", "https://example.com/a%20b"),
    ("ht\ntps://exam\tple.com/a\r\nb", "https://example.com/ab"),
    ("\u{1}https://example.com/\u{1f}", "https://example.com/"),
    ("https://example.com./", "https://example.com./"),
    ("https://ex%41mple.com/", "https://example.com/"),
    ("http://127.0.0.1/", "http://127.0.0.1/"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://2130706433/", "http://127.0.0.1/"),
    ("http://[0:0:0:0:0:0:0:1]/", "http://[::1]/"),
    ("http://[2001:DB8::A]:8080/", "http://[2001:db8::a]:8080/"),
    ("http://[::ffff:1.2.3.4]/", "http://[::ffff:102:304]/"),
    // Hosts of other letters.
    ("https://BÜCHER.example/", "https://xn--bcher-kva.example/"),
    (
        "https://b%C3%BCcher.example/",
        "https://xn--bcher-kva.example/",
    ),
    (
        "https://xn--bcher-kva.example/",
        "https://xn--bcher-kva.example/",
    ),
    ("https://faß.example/", "https://xn--fa-hia.example/"),
    ("https://例え.テスト/", "https://xn--r8jz45g.xn--zckzah/"),
    (
        "https://пример.испытание/",
        "https://xn--e1afmkfd.xn--80akhbyknj4f/",
    ),
    ("https://ｅｘａｍｐｌｅ。com/", "https://example.com/"),
    ("https://☃.example/", "https://xn--n3h.example/"),
    // User and port.
    ("http://example.com:80/", "http://example.com/"),
    ("https://example.com:443/", "https://example.com/"),
    ("https://example.com:80/", "https://example.com:80/"),
    ("https://example.com:/", "https://example.com/"),
    ("http://example.com:0080/", "http://example.com/"),
    ("ftp://example.com:21/", "ftp://example.com/"),
    ("ws://example.com:80/", "ws://example.com/"),
    ("wss://example.com:443/", "wss://example.com/"),
    (
        "https://User:Pass@example.com/",
        "https://User:Pass@example.com/",
    ),
    (
        "https://%75ser:p%3a@example.com/",
        "https://user:p%3A@example.com/",
    ),
    ("https://@example.com/", "https://example.com/"),
    ("https://user:@example.com/", "https://user@example.com/"),
    ("https://a@b@example.com/", "https://a%40b@example.com/"),
    // Dot segments.
    ("https://example.com/a/./b/../c", "https://example.com/a/c"),
    ("https://example.com/../../a", "https://example.com/a"),
    ("https://example.com/a/%2e%2E/b", "https://example.com/b"),
    ("https://example.com/a/.%2e/", "https://example.com/"),
    ("https://example.com/a/..", "https://example.com/"),
    ("https://example.com/a/.", "https://example.com/a/"),
    ("https://example.com/a/...", "https://example.com/a/..."),
    ("https://example.com//a///b", "https://example.com//a///b"),
    // Segments that are drives in a `file:` URL.
    ("https://example.com/c:/../x", "https://example.com/x"),
    ("https://example.com/C|/../x", "https://example.com/x"),
    ("https://example.com/a/c:/..", "https://example.com/a/"),
    ("https://example.com/c:/%2e%2e/x", "https://example.com/x"),
    ("https://example.com/c:/./x", "https://example.com/c:/x"),
    ("ws://example.com\\c:\\..\\x", "ws://example.com/x"),
    ("foo://host/c:/../x", "foo://host/x"),
    ("foo://host/c:\\../x", "foo://host/c:\\../x"),
    (
        "https://example.com/a?b=/../c",
        "https://example.com/a?b=/../c",
    ),
    // Percent-encoding.
    ("https://example.com/%7euser", "https://example.com/~user"),
    (
        "https://example.com/%41%7a%30%2d%2e%5f",
        "https://example.com/Az0-._",
    ),
    (
        "https://example.com/a%2fb%3f%23",
        "https://example.com/a%2Fb%3F%23",
    ),
    (
        "https://example.com/%e4%bd%a0",
        "https://example.com/%E4%BD%A0",
    ),
    (
        "https://example.com/你?ü=ß",
        "https://example.com/%E4%BD%A0?%C3%BC=%C3%9F",
    ),
    ("https://example.com/%ff%fe", "https://example.com/%FF%FE"),
    ("https://example.com/100%", "https://example.com/100%25"),
    ("https://example.com/%zz%4", "https://example.com/%25zz%254"),
    (
        "https://example.com/%%32%65%",
        "https://example.com/%252e%25",
    ),
    ("https://example.com/%252e", "https://example.com/%252e"),
    ("https://example.com/%%", "https://example.com/%25%25"),
    ("https://example.com/%é", "https://example.com/%25%C3%A9"),
    (
        "https://example.com/\"<>`{}|^[]'!$&()*+,;=:@",
        "https://example.com/%22%3C%3E%60%7B%7D|%5E[]'!$&()*+,;=:@",
    ),
    ("https://example.com/a%5eb^", "https://example.com/a%5Eb%5E"),
    (
        "https://example.com/?\"<>`{}|^[]'!$&()*+,;=:@/?",
        "https://example.com/?%22%3C%3E`{}|^[]%27!$&()*+,;=:@/?",
    ),
    (
        "https://example.com/\u{7f}\u{80}",
        "https://example.com/%7F%C2%80",
    ),
    // Query and fragment.
    (
        "https://example.com?b=2&a=1",
        "https://example.com/?b=2&a=1",
    ),
    ("https://example.com/?", "https://example.com/?"),
    (
        "https://example.com/?&&a=%31&",
        "https://example.com/?&&a=1&",
    ),
    (
        "https://example.com/?a+b%20c d",
        "https://example.com/?a+b%20c%20d",
    ),
    ("https://example.com/a#top", "https://example.com/a"),
    ("https://example.com/#", "https://example.com/"),
    ("https://example.com/a?b#c?d#e", "https://example.com/a?b"),
    ("https://example.com/#!/page", "https://example.com/"),
    ("https://example.com/a%23b", "https://example.com/a%23b"),
    // Other schemes that have hosts.
    ("GOPHER://Host/A/../B%7e", "gopher://Host/B~"),
    ("foo://host", "foo://host"),
    ("foo://host:80/%2e%2e/a", "foo://host:80/a"),
    ("foo://h%c3%bc%41/?'#x", "foo://h%C3%BCA/?'"),
];

/// Keys that stay as they are, byte for byte.
const UNTOUCHED: &[&str] = &[
    "",
    " ",
    "%7e",
    "a key of words",
    "example.com/a/../b",
    "EXAMPLE.com:80/%7e",
    "/a/../b",
    "//example.com/a/../b",
    "?a=%7e",
    "https://",
    "https://?a",
    "https:///",
    "https://exa mple.com/",
    "https://example.com:99999/%7e",
    "https://example.com:port/%7e",
    "https://[::1/%7e",
    "https://256.256.256.256/%7e",
    "https://a<b/%7e",
    "https://%00/%7e",
    "1http://example.com/%7e",
    "mailto:A%7e@EXAMPLE.com",
    "javascript:alert('%7e')//host",
    "data:text/html,%7e#a",
    "urn:ISBN:0-486-27557-4#%7e",
    "tel:+1-816-555-1212",
    "blob:https://EXAMPLE.com/%7e",
    "file:///etc/../%7e",
    "file://HOST/a/../%7e",
    "file://HOST/C:/../%7e",
    "foo:/a/../%7e",
    "foo:///a/../%7e",
    "foo://host:443\\a",
    "foo://host\\a",
    "https://xn--a.example/%7e",
    "https://xn--zn7c.com/%7e",
];

#[test]
fn keys_become_what_they_always_did() {
    let plain = profile(false, &[]);
    for (key, expected) in PLAIN {
        assert_eq!(canonical(&plain, key), *expected, "{key:?}");
        assert_eq!(canonical(&plain, expected), *expected, "{key:?}, twice");
    }
    for key in UNTOUCHED {
        assert_eq!(canonical(&plain, key), *key);
        let all = profile(true, &["*"]);
        assert_eq!(canonical(&all, key), *key);
    }
    assert_eq!(
        *plain.canonical(b"https://example.com/\xff#a"),
        *b"https://example.com/\xff#a"
    );
}

/// Queries after `https://example.com/`.
#[test]
fn queries_become_what_they_always_did() {
    let cases: &[(bool, &[&str], &str, &str)] = &[
        (true, &[], "", ""),
        (true, &[], "?", ""),
        (true, &[], "?&&", ""),
        (true, &[], "?b=2&a=1", "?a=1&b=2"),
        (true, &[], "?b&a=&a&=c", "?=c&a=&a&b"),
        (true, &[], "?a=2&b=0&a=1", "?a=2&a=1&b=0"),
        (true, &[], "?a=%7e&%61=1&A=0", "?A=0&a=~&a=1"),
        (true, &[], "?b=%26&a=%3d", "?a=%3D&b=%26"),
        (true, &[], "?b;a&c", "?b;a&c"),
        (true, &[], "?a-b=1&a=2&a.b=3", "?a=2&a-b=1&a.b=3"),
        (true, &[], "?&b=1&&a=2&#c", "?a=2&b=1"),
        (true, &[], "?ü=1&z=2", "?%C3%BC=1&z=2"),
        (false, &["sid"], "?sid=1", ""),
        (false, &["sid"], "?b&sid&a&sid=2", "?b&a"),
        (
            false,
            &["sid"],
            "?Sid=1&sid2=2&asid=3",
            "?Sid=1&sid2=2&asid=3",
        ),
        (false, &["sid"], "?a=sid&b=sid=1", "?a=sid&b=sid=1"),
        (false, &["sid"], "?%73%69d=1&a", "?a"),
        (
            false,
            &["utm_*"],
            "?utm_source=a&utm_=b&utm=c&b=d",
            "?utm=c&b=d",
        ),
        (false, &["utm_*"], "?utm%5Fsource=a", ""),
        (false, &["utm%5f*"], "?utm_source=a&b", "?b"),
        (false, &["*"], "?a&b=c&", ""),
        (false, &["f[]"], "?f[]=1&f=2&f%5B%5D=3", "?f=2&f%5B%5D=3"),
        (false, &["%c3%bc"], "?ü=1&%C3%BC=2&u=3", "?u=3"),
        (
            false,
            &["a", "ab*", "abc", "b*"],
            "?a&aa&ab&abc&b&ba&c",
            "?aa&c",
        ),
        (
            false,
            &["phpsessid", "utm_*", "fbclid"],
            "?x=1&fbclid=2&y",
            "?x=1&y",
        ),
        (
            true,
            &["utm_*", "gclid"],
            "?z&utm_x=1&a&gclid=1&&m",
            "?a&m&z",
        ),
    ];
    for (sort_query, drop, query, expected) in cases {
        let profile = profile(*sort_query, drop);
        let [key, expected] = [query, expected].map(|query| format!("https://example.com/{query}"));
        assert_eq!(canonical(&profile, &key), expected, "{profile} {query}");
        assert_eq!(
            canonical(&profile, &expected),
            expected,
            "{profile} {query}, twice"
        );
    }
}

#[test]
fn values_of_one_name_keep_their_order_however_many_there_are() {
    let names = ["c", "a", "b"].into_iter().cycle();
    let parts: Vec<String> = (0..99)
        .rev()
        .zip(names)
        .map(|(value, name)| format!("{name}={value}"))
        .collect();
    let mut sorted = parts.clone();
    for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
        let of_name = parts.iter().filter(|part| part.starts_with(name));
        sorted.splice(33 * place..33 * (place + 1), of_name.cloned());
    }
    let [key, expected] =
        [parts.join("&"), sorted.join("&")].map(|query| format!("https://example.com/?{query}"));
    assert_eq!(canonical(&profile(true, &[]), &key), expected);
}

/// For all keys made of these pieces: a canonical key stays unchanged, if it is not too long.
#[test]
fn a_canonical_key_is_its_own_canonical_form() {
    const PIECES: &[&str] = &[
        "http:",
        "https:",
        "file:",
        "foo:",
        "//",
        "/",
        "\\",
        "example.com",
        "EXAMPLE",
        "[::1]",
        "@",
        ":",
        "80",
        "443",
        "C:",
        "C|",
        ".",
        "..",
        "%2e",
        "%2E",
        "%",
        "%%",
        "%25",
        "%32",
        "%65",
        "2e",
        "%41",
        "%7C",
        "%3a",
        "%2F",
        "%23",
        "%26",
        "%ff",
        "a",
        "B",
        "é",
        "ß",
        "你",
        "xn--",
        "-",
        "~",
        "|",
        "^",
        "'",
        " ",
        "\t",
        "\n",
        "\u{0}",
        "\u{200d}",
        "?",
        "&",
        "=",
        "&&",
        "sid=1",
        "utm_a",
        "#",
        ";",
        "+",
    ];
    let profiles = [
        profile(false, &[]),
        profile(true, &[]),
        profile(false, &["sid", "%41*"]),
        profile(true, &["utm_*", "a"]),
    ];
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let mut changed = 0;
    for _ in 0..200_000 {
        let pieces = 1 + below(12);
        let mut key = ["", "http://", "https://example.com/", "foo://h/"][below(4)].to_owned();
        key.extend((0..pieces).map(|_| PIECES[below(PIECES.len())]));
        for profile in &profiles {
            let once = canonical(profile, &key);
            assert_eq!(canonical(profile, &once), once, "{profile} {key:?}");
            assert!(
                !once.is_empty() && once.len() <= 4 * key.len() + 8,
                "{key:?}"
            );
            changed += usize::from(once != key);
        }
    }
    assert!(changed > 300_000, "{changed}: most are no URLs");
}

/// The longest keys, each made of the pieces that take the most time.
#[test]
fn no_key_takes_a_time_that_others_notice() {
    let names: Vec<String> = (0..MAX_DROP_PARAMETERS)
        .map(|i| format!("a{i:062}*"))
        .collect();
    let profile = KeyProfile::new("url-v1", true, &names).unwrap();
    let long_name = format!("a{:063}&", 0);
    let letters: String = ('\u{4e00}'..).take(MAX_AUTHORITY_BYTES / 3).collect();
    for (start, piece) in [
        ("https://example.com/?", "a&"),
        ("https://example.com/?", long_name.as_str()),
        ("https://example.com/", "../"),
        ("https://example.com/", "%"),
        ("https://", "@"),
        ("https://", "a."),
        ("https://", "你"),
        (&format!("https://{letters}/"), "/"),
    ] {
        let pieces = (MAX_URL_BYTES - start.len()) / piece.len();
        let key = format!("{start}{}", piece.repeat(pieces));
        let begun = Instant::now();
        profile.canonical(key.as_bytes());
        // A thousand times the usual time: this machine may be busy with something else.
        assert!(begun.elapsed().as_secs() < 1, "{start} and {piece:?}");
    }
}

#[test]
fn what_is_too_long_for_a_url_stays_as_it_is() {
    let plain = profile(false, &[]);
    let is_changed = |key: String| canonical(&plain, &key) != key;
    let path = |bytes| format!("https://example.com/%41{}", "a".repeat(bytes - 23));
    assert!(is_changed(path(MAX_URL_BYTES)));
    assert!(!is_changed(path(MAX_URL_BYTES + 1)));
    let user = |bytes| format!("https:\\{}@Example.com/", "a".repeat(bytes - 12));
    assert!(is_changed(user(MAX_AUTHORITY_BYTES)));
    assert!(!is_changed(user(MAX_AUTHORITY_BYTES + 1)));
}

#[test]
fn names_that_others_cover_are_left_out() {
    let shown = |names| profile(false, names).drop_parameters().join(" ");
    assert_eq!(shown(&["b", "a", "b", "a"]), "a b");
    assert_eq!(shown(&["ab", "a*", "a", "abc*", "b"]), "a* b");
    assert_eq!(shown(&["sid", "*", "utm_*"]), "*");
    assert_eq!(shown(&["a*", "a-*", "a.b", "b*", "a"]), "a* b*");
    assert_eq!(shown(&["%5futm", "%3a"]), "%3A _utm");
    // The displayed names make the same profile again.
    let names = ["ab*", "a", "%c3*", "x%"].map(str::to_owned);
    let once = KeyProfile::new("url-v1", true, &names).unwrap();
    let again = KeyProfile::new("url-v1", true, once.drop_parameters());
    assert_eq!(again, Ok(once));
}

#[test]
fn bad_profiles_are_refused_by_field_and_value() {
    let refused = |name: &str, drop: &[&str]| {
        let names: Vec<String> = drop.iter().copied().map(str::to_owned).collect();
        let error = KeyProfile::new(name, false, &names).unwrap_err();
        error.to_string()
    };
    for name in ["", "url", "url-v2", "URL-v1", "url-v1 "] {
        let expected = format!("name is {name:?}; it must be \"url-v1\"");
        assert_eq!(refused(name, &[]), expected);
    }
    assert!(refused(&"x".repeat(60_000), &[]).len() < 200);
    let long = "a".repeat(65);
    for name in [
        "", "a b", "a=b", "a&b", "a#", "ü", "a*b", "**", "*a", "<", "'", "\n", &long,
    ] {
        let message = refused("url-v1", &["good", name]);
        let expected = format!("drop_parameters has {name:?}; each name must be 1 to 64 visible");
        assert!(message.starts_with(&expected), "{message}");
    }
    // The length in a canonical URL.
    assert!(refused("url-v1", &["%".repeat(30).as_str()]).contains("1 to 64"));
    let expected = "drop_parameters has 65 names; it must have at most 64";
    assert_eq!(refused("url-v1", &["a"; 65]), expected);
    profile(true, &["a"; 64]);
    profile(true, &[&"a".repeat(64)]);
}
