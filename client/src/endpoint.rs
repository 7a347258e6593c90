//! The address of a server, and the channel to it.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use tonic::{
    Response, Status,
    codegen::http::Uri,
    transport::{Channel, Endpoint},
};

use crate::{
    budget::Budget,
    error::Error,
    options::Options,
    retry::{Attempt, Repeat, Rpc},
};

/// The port of a server if the address names none.
const DEFAULT_PORT: u16 = 9090;
/// The number of bytes that the server can send ahead of the reader on one stream. HTTP/2's own 64
/// KiB would make a stream of large batches wait for a round trip.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// The window of a connection. It is meant to be no limit: the windows of the streams are the
/// limit.
///
/// For each DATA frame shorter than 256 bytes, h2 counts the bytes that are missing to 256. When
/// the count reaches half of the window, h2 closes the connection (GOAWAY, `too_many_data_frames`).
/// It never gives back the count of answers to cancelled calls. With this window, two million such
/// answers can come.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// The interval of the TCP keepalive, which detects a peer that went away without closing.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// The address of a server, parsed as [`Client::connect`](crate::Client::connect) does.
///
/// Its text is `host` or `host:port`, both also with `http://`, or `unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port: `http://host:port`, with no path.
    Http(Uri),
    /// The path of a Unix socket.
    Unix(String),
}

/// The address as errors print it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(uri) => f.write_str(uri.to_string().trim_end_matches('/')),
            Self::Unix(path) => write!(f, "{UNIX}{path}"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<Address, Error> {
    let error = |reason: String| Error::Endpoint {
        endpoint: text.to_owned(),
        reason,
    };
    if let Some(path) = text.strip_prefix(UNIX) {
        // As in gRPC: "unix:path", "unix:/path" or "unix:///path".
        let path = path.strip_prefix("//").unwrap_or(path);
        return match path.is_empty() || path.contains('\0') {
            true => Err(error("the socket has no path".to_owned())),
            false => Ok(Address::Unix(path.to_owned())),
        };
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    if scheme != "http" {
        return Err(error(format!("the scheme {scheme} is not supported")));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let uri: Uri = format!("http://{rest}")
        .parse()
        .map_err(|reason| error(format!("{reason}")))?;
    if uri.path_and_query().is_some_and(|path| path != "/") {
        return Err(error("it has a path".to_owned()));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if uri.host().is_none_or(str::is_empty) || authority.contains('@') {
        return Err(error("it has no host, or more than a host".to_owned()));
    }
    if uri.port().is_some() {
        return match uri.port_u16() {
            Some(port) if port > 0 => Ok(Address::Http(uri)),
            _ => Err(error("the port is not 1 to 65535".to_owned())),
        };
    }
    format!("http://{}:{DEFAULT_PORT}", authority.trim_end_matches(':'))
        .parse()
        .map(Address::Http)
        .map_err(|reason| error(format!("{reason}")))
}

/// Connects, with as many attempts as `options` allow. Later the channel reconnects by itself.
pub(crate) async fn connect(
    address: &Address,
    options: &Options,
    budget: &Arc<Budget>,
) -> Result<Channel, Error> {
    let endpoint = match address {
        Address::Http(uri) => Endpoint::from(uri.clone()),
        Address::Unix(_) => {
            let endpoint = Endpoint::from_shared(address.to_string());
            endpoint.map_err(|reason| Error::Endpoint {
                endpoint: address.to_string(),
                reason: reason.to_string(),
            })?
        }
    };
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(TCP_KEEPALIVE))
        // h2 counts an answer to a cancelled call as an error of the server, and after 1,024 errors
        // closes the connection for all calls (GOAWAY, `too_many_internal_resets`).
        .http2_max_local_error_reset_streams(None)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let call = Rpc {
        name: "Connect",
        repeat: Repeat::Safe,
        endpoint: name(address),
        budget: Arc::clone(budget),
    };
    let connected = call.run(options, |_: Attempt| async {
        match endpoint.connect().await {
            Ok(channel) => Ok(Response::new(channel)),
            Err(error) => Err(Status::from_error(error.into())),
        }
    });
    connected.await.map_err(|error| match error {
        // No call was made yet, so nothing can have been applied.
        Error::Deadline {
            endpoint, deadline, ..
        } => {
            let reason = format!("no answer within {deadline:?}");
            Error::Connect {
                endpoint,
                status: Box::new(Status::deadline_exceeded(&reason)),
                reason,
            }
        }
        error => error,
    })
}

/// Returns the address as errors print it.
pub(crate) fn name(address: &Address) -> Arc<str> {
    address.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_scheme_and_port() {
        for (text, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("127.0.0.1:1234", "http://127.0.0.1:1234"),
            ("localhost:1", "http://localhost:1"),
            ("seenset", "http://seenset:9090"),
            ("http://seenset", "http://seenset:9090"),
            ("http://seenset:80/", "http://seenset:80"),
            ("[::1]:9090", "http://[::1]:9090"),
            ("http://[::1]", "http://[::1]:9090"),
            ("unix:/run/seenset.sock", "unix:/run/seenset.sock"),
            ("unix:///run/seenset.sock", "unix:/run/seenset.sock"),
            ("unix:seenset.sock", "unix:seenset.sock"),
        ] {
            assert_eq!(&*name(&parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn no_address_is_refused_with_a_reason() {
        for (text, expected) in [
            ("", "\"\" is no address"),
            ("http://", "is no address"),
            (":9090", "is no address"),
            ("https://a:1", "the scheme https is not supported"),
            ("unix:", "the socket has no path"),
            ("unix://", "the socket has no path"),
            ("a:99999", "is no address"),
            ("a:0", "the port is not 1 to 65535"),
            ("a:1/path", "it has a path"),
            ("user@a:1", "more than a host"),
            ("a b", "is no address"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
