//! `ImportFilter`: passes the messages of a file to a thread of the engine that reads it.
//!
//! At most a few messages wait for the thread; then the flow control of HTTP/2 makes the client
//! wait. A request that breaks off is distinguished from one that ends. So the engine never takes a
//! file whose client broke off for a whole one.

use std::{
    io::{self, Read},
    time::Duration,
};

use futures_util::stream::{Stream, StreamExt};
use seenset_proto::v1::{self, ImportFilterRequest};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tonic::Status;

use crate::engine::{Engine, FileFormat, FilterStatus, Import};
use crate::grpc::{
    status::{status, unapplied},
    wire::calls::Drain,
};

/// The maximum time between two messages. The name of the filter and its memory are reserved
/// meanwhile.
const SILENCE: Duration = Duration::from_secs(60);

/// The minimum rate of the whole file, on top of the time [`SILENCE`]. Without it a client could
/// keep the name and the memory for ever with a byte a minute.
const LEAST_BYTES_A_SECOND: u64 = 1 << 20;

/// The maximum number of messages that wait for the thread that reads them.
const WAITING: usize = 4;

/// Imports the filter that the messages describe.
pub async fn run(
    engine: &Engine,
    messages: impl Stream<Item = Result<ImportFilterRequest, Status>> + Unpin,
    drain: watch::Receiver<Drain>,
) -> Result<FilterStatus, Status> {
    let mut messages = Messages { messages, drain };
    let first = messages.next().await?;
    let first = first.ok_or_else(|| {
        Status::invalid_argument(
            "there is no message; the first must give name, format and size_bytes",
        )
    })?;
    let (import, data) = import(first)?;
    let longest = SILENCE + Duration::from_secs(import.file_bytes / LEAST_BYTES_A_SECOND);
    let (sender, receiver) = mpsc::channel(WAITING);
    let imported = engine.import_filter(import, File::new(receiver));
    let mut imported = std::pin::pin!(imported);
    let feed = async {
        let mut data = Some(data);
        while let Some(piece) = data {
            // Sending fails if the engine stops reading, because the data is too long or not valid.
            // The engine returns the reason.
            if !piece.is_empty() && sender.send(Piece::Data(piece)).await.is_err() {
                return Ok(());
            }
            data = messages.next().await?.map(data_alone).transpose()?;
        }
        let _ = sender.send(Piece::End).await;
        Ok(())
    };
    let fed: Result<(), Status> = tokio::select! {
        biased;
        imported = &mut imported => return imported.map_err(status),
        fed = timeout(longest, feed) => fed.unwrap_or_else(|_| Err(too_slow(longest))),
    };
    // If the client broke off, the engine has removed everything before this is answered.
    drop(sender);
    let imported = imported.await;
    fed?;
    imported.map_err(status)
}

fn too_slow(longest: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "the file has not come within {} s, and the filter was not imported; a minute and a second \
         for each MiB of size_bytes is the longest that it may take",
        longest.as_secs()
    ))
}

/// Reads the fields of the first message.
fn import(first: ImportFilterRequest) -> Result<(Import, Vec<u8>), Status> {
    let format = match v1::FileFormat::try_from(first.format) {
        Ok(v1::FileFormat::Guava) => FileFormat::Guava,
        Ok(v1::FileFormat::Redisbloom) => FileFormat::RedisBloom,
        Ok(v1::FileFormat::Unspecified) | Err(_) => {
            return Err(Status::invalid_argument(format!(
                "format is {}; it must be FILE_FORMAT_GUAVA or FILE_FORMAT_REDISBLOOM, in the \
                 first message",
                first.format
            )));
        }
    };
    let import = Import {
        name: first.name,
        format,
        file_bytes: first.size_bytes,
        capacity: Some(first.capacity).filter(|&capacity| capacity != 0),
    };
    Ok((import, first.data))
}

/// Returns the data of a message after the first.
fn data_alone(message: ImportFilterRequest) -> Result<Vec<u8>, Status> {
    let ImportFilterRequest { data, .. } = message;
    if data.is_empty() {
        return Err(Status::invalid_argument(
            "data is empty; each message behind the first must have some",
        ));
    }
    Ok(data)
}

struct Messages<S> {
    messages: S,
    drain: watch::Receiver<Drain>,
}

impl<S: Stream<Item = Result<ImportFilterRequest, Status>> + Unpin> Messages<S> {
    /// Returns the next message; `None` at the end of the request.
    async fn next(&mut self) -> Result<Option<ImportFilterRequest>, Status> {
        let stopping =
            || unapplied("the server is stopping, and the filter was not imported; try again");
        tokio::select! {
            biased;
            _ = self.drain.wait_for(|drain| *drain >= Drain::Begun) => Err(stopping()),
            next = timeout(SILENCE, self.messages.next()) => next.map_err(|_| {
                Status::deadline_exceeded(format!(
                    "nothing came for {} s, and the filter was not imported; begin again",
                    SILENCE.as_secs()
                ))
            })?.transpose(),
        }
    }
}

/// A piece of a file on its way to the thread that reads it.
enum Piece {
    Data(Vec<u8>),
    /// The end of the file.
    End,
}

/// A file whose pieces are still arriving.
struct File {
    pieces: mpsc::Receiver<Piece>,
    /// The current piece, and the position up to which it was read.
    piece: io::Cursor<Vec<u8>>,
    has_ended: bool,
}

impl File {
    fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Self {
            pieces,
            piece: io::Cursor::default(),
            has_ended: false,
        }
    }
}

impl Read for File {
    /// Blocks the thread until the next piece arrives.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(bytes)?;
            if count > 0 || self.has_ended || bytes.is_empty() {
                return Ok(count);
            }
            match self.pieces.blocking_recv() {
                Some(Piece::Data(piece)) => self.piece = io::Cursor::new(piece),
                Some(Piece::End) => self.has_ended = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
