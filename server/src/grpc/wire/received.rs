//! The body of a request, as HTTP/2 receives it.
//!
//! A unary call reads its data as soon as it arrives. A stream stops reading while its client does
//! not read answers, or while its batches wait for the WAL. Its data would then wait inside h2,
//! where each frame is a slice of a read buffer: a frame of one byte can keep 64 KiB in memory. So
//! a stream that waits has its data [kept](Kept::keep_waiting) here. Short data is copied, all of
//! it is charged to the connection, and the flow-control window is released when the stream uses
//! the data.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tonic::Status;

use super::memory::{Charge, ConnectionMemory};

/// The length from which on data is not copied. It is charged with the read buffer that it keeps in
/// memory.
const LONG_BYTES: usize = 32 << 10;

/// The size of a read buffer of h2: the longest frame.
const BUFFER_BYTES: usize = 72 << 10;

/// The size of the buffers that short data is copied to.
const COPY_BYTES: usize = 32 << 10;

/// The body of a request.
#[derive(Debug)]
pub struct Received(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    stream: RecvStream,
    /// The data that waits, with the memory of each piece.
    kept: VecDeque<(Bytes, usize)>,
    /// The last part of the data that waits.
    copied: BytesMut,
    /// The memory of all pieces in `kept`.
    kept_memory_bytes: usize,
    charge: Charge,
    /// The end of the data, once it has arrived.
    end: Option<Result<(), h2::Error>>,
}

/// The data of a request that waits.
#[derive(Debug, Clone)]
pub struct Kept(Arc<Mutex<State>>);

impl Received {
    /// Returns the body of a request of a connection.
    pub fn new(stream: RecvStream, connection: &Arc<ConnectionMemory>) -> Self {
        Self(Arc::new(Mutex::new(State {
            stream,
            kept: VecDeque::new(),
            copied: BytesMut::new(),
            kept_memory_bytes: 0,
            charge: connection.empty_charge(),
            end: None,
        })))
    }

    /// Returns the memory of the connection.
    pub fn connection(&self) -> Arc<ConnectionMemory> {
        self.0.lock().charge.connection().clone()
    }

    /// Returns a handle to the same body, for a call that keeps data while it waits.
    pub fn kept(&self) -> Kept {
        Kept(self.0.clone())
    }
}

impl Kept {
    /// Takes all data that has arrived out of h2 and keeps it. More data wakes the task of the
    /// call.
    pub fn keep_waiting(&self, cx: &mut Context<'_>) {
        let mut state = self.0.lock();
        while let Poll::Ready(Some(data)) = state.poll_data(cx) {
            state.keep(data);
        }
    }
}

impl State {
    /// Returns the next data of HTTP/2; `None` if it has ended.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        let end = match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => return Poll::Ready(Some(data)),
            Some(Err(error)) => Err(error),
            None => Ok(()),
        };
        self.end = Some(end);
        Poll::Ready(None)
    }

    fn keep(&mut self, data: Bytes) {
        self.charge.connection().keep(data.len());
        if data.len() < LONG_BYTES {
            if self.copied.len() + data.len() > self.copied.capacity() {
                self.end_copy();
                self.copied.reserve(COPY_BYTES.max(data.len()));
            }
            self.copied.extend_from_slice(&data);
        } else {
            self.end_copy();
            self.push(data, BUFFER_BYTES);
        }
        self.charge_kept();
    }

    fn end_copy(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        if !copied.is_empty() {
            let memory_bytes = copied.capacity();
            self.push(copied.freeze(), memory_bytes);
        }
    }

    fn push(&mut self, data: Bytes, memory_bytes: usize) {
        self.kept.push_back((data, memory_bytes));
        self.kept_memory_bytes += memory_bytes;
    }

    fn take_kept(&mut self) -> Option<Bytes> {
        if self.kept.is_empty() {
            self.end_copy();
        }
        let (data, memory_bytes) = self.kept.pop_front()?;
        self.kept_memory_bytes -= memory_bytes;
        self.charge.connection().end_keep(data.len());
        self.charge_kept();
        Some(data)
    }

    fn charge_kept(&mut self) {
        let bytes = self.kept_memory_bytes + self.copied.capacity();
        self.charge.set(bytes);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let kept: usize = self.kept.iter().map(|(data, _)| data.len()).sum();
        self.charge.connection().end_keep(kept + self.copied.len());
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut state = self.0.lock();
        let data = match state.take_kept() {
            Some(data) => Some(data),
            None => ready!(state.poll_data(cx)),
        };
        if let Some(data) = data {
            // It fails if the stream is over; then nobody waits for the window.
            let _ = state.stream.flow_control().release_capacity(data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let failed = |error: h2::Error| Some(Err(Status::from_error(error.into())));
        if let Some(Err(error)) = state.end.replace(Ok(())) {
            return Poll::Ready(failed(error));
        }
        Poll::Ready(match ready!(state.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => failed(error),
        })
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.kept.is_empty() && state.copied.is_empty() && state.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
