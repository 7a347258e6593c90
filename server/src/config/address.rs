//! Addresses to listen on.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A numeric address and a port.
    Socket(SocketAddr),
    /// All addresses of a host name, and a port.
    Host(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "write 127.0.0.1:9090, [::]:9090 (all addresses), a host name and a port, or \
             unix:/PATH";
        if let Some(path) = text.strip_prefix(UNIX) {
            // The forms of gRPC: "unix:path", "unix:/path" or "unix:///path".
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.contains('\0') {
                return Err(format!("the socket has no path; {EXPECTED}"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Socket(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
        let port = port.parse().map_err(|_| EXPECTED)?;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        // A host of digits and dots alone is a mistyped address: no name is looked up for it.
        let is_name = host.contains(|c: char| c.is_ascii_alphabetic());
        if !is_name || !host.chars().all(is_of_name) {
            return Err(EXPECTED.to_owned());
        }
        Ok(Self::Host(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// The form in a configuration file: one address by itself, or several in a list.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "an address in quotes, or a list of them")]
enum Written {
    One(String),
    Several(Vec<String>),
}

/// Writes addresses in the form of a configuration file.
pub fn serialize<S: Serializer>(addresses: &[Address], to: S) -> Result<S::Ok, S::Error> {
    match addresses {
        [one] => Written::One(one.to_string()),
        several => Written::Several(several.iter().map(Address::to_string).collect()),
    }
    .serialize(to)
}

/// Reads addresses from a configuration file.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    let texts = match Written::deserialize(from)? {
        Written::One(text) => vec![text],
        Written::Several(texts) => texts,
    };
    let parsed = texts.iter().map(|text| {
        let address = text.parse();
        address.map_err(|error: String| D::Error::custom(format!("{text:?}: {error}")))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "127.0.0.1:9090",
            "[::]:0",
            "[fe80::1]:65535",
            "localhost:9090",
            "a-b.example_1.com:1",
            "unix:/run/seenset.sock",
            "unix:seenset.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let long: Address = "unix:///run/seenset.sock".parse().unwrap();
        assert_eq!(long, Address::Unix("/run/seenset.sock".into()));
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for text in [
            "",
            "9090",
            ":9090",
            "*:9090",
            "localhost",
            "localhost:",
            "localhost:65536",
            "127.0.0.1",
            "127.0.0.300:1",
            "::1:9090",
            "[::1]",
            "http://a:1",
            "a b:1",
            "a:1/x",
            "unix:",
            "unix://",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains("unix:/PATH"), "{text:?}: {error}");
        }
    }
}
