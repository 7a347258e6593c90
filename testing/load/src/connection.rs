//! Connections on which calls are sent as bytes.

use std::{io, sync::Arc};

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use seenset_client::{Address, Error, Options};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task,
    time::timeout,
};
use tonic::{ConnectError, Status, codegen::http::Request};

/// The window in bytes. It is larger than the data in flight, so the client never blocks a server.
const WINDOW_BYTES: u32 = 1 << 24;

/// A connection; clones share it.
#[derive(Clone)]
pub(super) struct Connection(SendRequest<Bytes>);

impl Connection {
    /// Connects. Later a task of the current local set moves the bytes.
    pub async fn open(address: &Address, options: &Options) -> Result<Self, Error> {
        let connecting = timeout(options.connect_timeout, connect(address));
        let connected = connecting.await.unwrap_or_else(|_| {
            let reason = format!("no answer within {:?}", options.connect_timeout);
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        });
        connected.map_err(|error| {
            let endpoint: Arc<str> = address.to_string().into();
            let status = Status::from_error(Box::new(ConnectError(Box::new(error))));
            Error::from_status("Connect", &endpoint, options.deadline, status, false)
        })
    }

    /// Opens a call as soon as the server allows one more on this connection.
    pub async fn call(
        self,
        head: Request<()>,
    ) -> Result<(ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        self.0.ready().await?.send_request(head, false)
    }
}

async fn connect(address: &Address) -> io::Result<Connection> {
    match address {
        Address::Http(uri) => {
            let address = uri.authority().map_or("", |authority| authority.as_str());
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            shake_hands(stream).await
        }
        Address::Unix(path) => shake_hands(UnixStream::connect(path).await?).await,
    }
}

async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) -> io::Result<Connection> {
    let (send, connection) = client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buffer_size(WINDOW_BYTES as usize)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    // An error that ends the connection also ends the calls on it, and they report it.
    task::spawn_local(async move { drop(connection.await) });
    Ok(Connection(send))
}
