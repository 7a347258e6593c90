//! The traffic of a connection: counted, and limited in each turn of its thread.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{flood::Allowance, frames::Frames, header_table::HeaderTable};

/// The number of bytes that a connection reads in one turn. Then the other connections of the
/// thread have their turn, however much more there is to read.
const TURN_BYTES: usize = 512 << 10;

/// The number of frames that a connection reads in one turn: a short frame costs as much as
/// kilobytes of data.
pub const TURN_FRAMES: usize = 1000;

/// The traffic of a connection, for the task that serves it.
#[derive(Debug, Clone)]
pub struct Traffic(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    frames: Frames,
    header_table: HeaderTable,
    allowance: Allowance,
    /// The number of bytes that may still be read in this turn.
    turn_bytes: usize,
    turn_frames: usize,
    counts: Counts,
}

/// The counts of a connection since it was accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The bytes that were read.
    pub read_bytes: u64,
    /// The frames whose header was read.
    pub read_frames: u64,
    /// The bytes that were written.
    pub written_bytes: u64,
    /// The bytes that the header table keeps.
    pub header_table_bytes: usize,
    /// Whether the socket did not accept the last write.
    pub is_blocked: bool,
    /// Whether the client has sent more frames without a request than allowed.
    pub is_flood: bool,
}

impl Traffic {
    /// Returns the traffic of a connection that has just been accepted.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            frames: Frames::new(),
            header_table: HeaderTable::default(),
            allowance: Allowance::new(),
            turn_bytes: TURN_BYTES,
            turn_frames: TURN_FRAMES,
            counts: Counts::default(),
        })))
    }

    /// Begins a turn: resets the number of bytes and frames that may be read in it. Returns the
    /// counts.
    pub fn begin_turn(&self) -> Counts {
        let mut state = self.0.lock();
        state.turn_bytes = TURN_BYTES;
        state.turn_frames = TURN_FRAMES;
        state.counts
    }

    /// Returns the counts of the connection since it was accepted.
    pub fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// Allows the client more frames, for the time that has passed.
    pub fn passed(&self, seconds: u64) {
        self.0.lock().allowance.passed(seconds);
    }
}

impl State {
    fn may_read(&self) -> bool {
        self.turn_bytes > 0 && self.turn_frames > 0 && !self.counts.is_flood
    }

    fn read(&mut self, mut bytes: &[u8]) {
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes.len());
        self.counts.read_bytes += bytes.len() as u64;
        let table = &mut self.header_table;
        table.at(self.counts.read_bytes);
        while let Some(frame) = self.frames.next(&mut bytes, |payload| table.read(payload)) {
            table.begin(frame);
            self.counts.read_frames += 1;
            self.turn_frames = self.turn_frames.saturating_sub(1);
            self.counts.is_flood |= !self.allowance.take(frame);
        }
        self.counts.header_table_bytes = self.header_table.held_bytes();
    }

    fn written(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.counts.written_bytes += *bytes as u64;
                self.allowance.written(*bytes);
                self.counts.is_blocked = false;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.counts.is_blocked = true,
        }
    }
}

/// A connection whose traffic is counted.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    traffic: Traffic,
}

impl<S> Counted<S> {
    /// Counts the traffic of a stream.
    pub fn new(stream: S, traffic: Traffic) -> Self {
        Self { stream, traffic }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, traffic } = &mut *self;
        if !traffic.0.lock().may_read() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        if let Some(bytes) = buf.filled().get(before..)
            && !bytes.is_empty()
        {
            traffic.0.lock().read(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.traffic.0.lock().written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.traffic.0.lock().written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    /// Returns the number of bytes that can be read in one turn of the data that a client has sent.
    async fn turn(sent: &[u8]) -> (u64, Counts) {
        let (mut client, server) = duplex(sent.len());
        client.write_all(sent).await.unwrap();
        let traffic = Traffic::new();
        let mut server = Counted::new(server, traffic.clone());
        let mut bytes = vec![0; 1 << 10];
        let mut read = 0;
        loop {
            let next = server.read(&mut bytes);
            tokio::select! {
                biased;
                count = next => read += count.unwrap() as u64,
                () = std::future::ready(()) => return (read, traffic.counts()),
            }
        }
    }

    #[tokio::test]
    async fn a_turn_has_an_end() {
        let data = [&[0, 0x40, 0, 0, 0, 0, 0, 0, 1], &[0; 1 << 14][..]].concat();
        let sent = [&[0; 24], &data.repeat(100)[..]].concat();
        let (read, counts) = turn(&sent).await;
        assert_eq!(read, counts.read_bytes);
        assert!(
            (TURN_BYTES..sent.len()).contains(&(read as usize)),
            "{read}"
        );
        assert!(!counts.is_flood);
    }

    #[tokio::test]
    async fn a_turn_has_an_end_for_frames() {
        let pings = PING.repeat(5000);
        let sent = [&[0; 24], &pings[..]].concat();
        let (read, counts) = turn(&sent).await;
        assert!(read < 30_000, "{read}");
        assert!(counts.read_frames >= TURN_FRAMES as u64);
        assert!(!counts.is_flood);
        let (all, _) = turn(&sent[..10_000]).await;
        assert_eq!(all, 10_000);
    }
}
