//! A connection with hand-written frames, which no library would write.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Types of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const UNKNOWN: u8 = 99;

/// Flags of frames.
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The maximum number of calls of a connection at one time.
pub const MAX_STREAMS: u32 = 250;

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the stream number of the call with an index.
pub fn stream(index: u32) -> u32 {
    2 * index + 1
}

/// Returns the headers of a call, without use of the table.
pub fn head(method: &str) -> Vec<u8> {
    // ":method" and ":scheme", entries 3 and 6 of the static table.
    let mut head = vec![0x83, 0x86];
    head.extend(path(&format!("/seenset.v1.{method}")));
    head.extend(content_type("application/grpc"));
    head
}

/// Returns the field ":path". It does not enter the table.
pub fn path(value: &str) -> Vec<u8> {
    [&[0x04, value.len() as u8], value.as_bytes()].concat()
}

/// Returns the field "content-type": entry 31 of the static table.
pub fn content_type(value: &str) -> Vec<u8> {
    [&[0x0f, 0x10, value.len() as u8], value.as_bytes()].concat()
}

/// Returns any other field.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let (name_bytes, value_bytes) = (name.len() as u8, value.len() as u8);
    let name = [&[0, name_bytes], name.as_bytes()].concat();
    [&name[..], &[value_bytes], value.as_bytes()].concat()
}

/// Returns a message with the prefix of gRPC.
pub fn message(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A connection.
pub struct Raw(TcpStream);

impl Raw {
    /// Connects, and announces windows of `window_bytes` for responses.
    pub async fn connect(address: &str, window_bytes: u32) -> io::Result<Self> {
        let mut connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        let [a, b, c, d] = window_bytes.to_be_bytes();
        let settings = frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d]);
        connection.write_all(&[PREFACE, &settings].concat()).await?;
        Ok(Self(connection))
    }

    /// Connects, and sends nothing.
    pub async fn silent(address: &str) -> io::Result<Self> {
        Ok(Self(TcpStream::connect(address).await?))
    }

    /// Connects, and sends bytes unchanged.
    pub async fn with(address: &str, bytes: &[u8]) -> io::Result<Self> {
        let mut connection = Self::silent(address).await?;
        connection.send(bytes).await?;
        Ok(connection)
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Reads and drops the received bytes. Returns whether the connection is open.
    pub fn skip(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        loop {
            match self.0.try_read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Reads until the connection is closed.
    pub async fn drain(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        while matches!(self.0.read(&mut bytes).await, Ok(1..)) {}
    }
}
