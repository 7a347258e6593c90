//! The connections of one core, over HTTP/2: the crate `h2`, without a layer in between
//! (`docs/adr/0015-clients.md`).

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use h2::{Ping, PingPong, Reason, server};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Interval, MissedTickBehavior, interval, timeout},
};
use tokio_util::task::TaskTracker;
use tonic::codegen::http::{Request, Response};

use super::{
    call::Responding,
    traffic::{Counted, Counts, TURN_FRAMES, Traffic},
};
use crate::{
    cores::Incoming,
    grpc::{self, Charge, ClientMemory, ConnectionMemory, Received, Sendable},
};

/// The calls that one connection may have in flight.
const MAX_STREAMS: u32 = 256;

/// The longest frame that a client may send: a batch of a thousand keys. It is read with two
/// calls to the system, and with eight in frames of the protocol's default, 16 KiB.
const MAX_FRAME_BYTES: u32 = 64 << 10;

/// The longest headers of a request, with what the protocol counts for each field.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// The data of one response that waits in HTTP/2.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// The calls that a client may cancel before the server has accepted them: more than may come in a
/// turn. There must be a bound (CVE-2023-44487), for each takes memory until it is accepted; this one
/// closes no connection, for a client whose calls have deadlines cancels all of them at times.
const MAX_CANCELLED: usize = 8 * TURN_FRAMES;

/// The calls that were refused before all of their data came, and whose data is ignored for a second:
/// each frame of any other counts as a reset.
const MAX_REFUSED: usize = 2 * MAX_STREAMS as usize;

/// How often a connection may have the server reset a stream, in all its life, before it is
/// closed: a client that makes it do nothing else (RUSTSEC-2024-0003) ends there. One that
/// opens more streams than it may, before it is told, has some hundreds to itself.
const MAX_RESETS: usize = 64 * MAX_STREAMS as usize;

/// The time that a client has for the first bytes of HTTP/2.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a connection is looked at, whether its client is there.
const TICK: Duration = Duration::from_secs(20);

/// The ticks without a frame after which a client is asked whether it is there. It has one more to
/// answer.
const SILENT_TICKS: u32 = 3;

/// The ticks after which a connection is closed whose client reads nothing of what waits for it.
const BLOCKED_TICKS: u32 = 3;

/// What DATA frames of less than 256 bytes may lack of that together before h2 closes the connection:
/// no limit, for calls take each frame as soon as it is there ([`Received`]), and h2 never gives back
/// what frames of cancelled calls use.
const SMALL_FRAMES_BYTES: usize = u32::MAX as usize;

/// Serves connections until no more come; then asks those that are there to close, and returns
/// when they have. `answer` answers a request.
pub async fn serve<A, F, B>(mut incoming: Incoming, memory: ClientMemory, answer: A)
where
    A: Fn(Request<Received>) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Response<B>> + Send + Unpin + 'static,
    B: Sendable,
{
    let connections = TaskTracker::new();
    let stopping = Arc::new(AtomicBool::new(false));
    while let Some(connection) = incoming.next().await {
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "a connection is lost");
                continue;
            }
        };
        let serving = serve_one(
            connection,
            memory.connection(),
            answer.clone(),
            stopping.clone(),
        );
        connections.spawn(serving);
    }
    stopping.store(true, Ordering::Release);
    memory.wake_connections();
    connections.close();
    connections.wait().await;
}

/// Serves a connection until it is closed.
async fn serve_one<S, A, F, B>(
    stream: S,
    memory: Arc<ConnectionMemory>,
    answer: A,
    stopping: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Received>) -> F + Unpin,
    F: Future<Output = Response<B>> + Send + Unpin + 'static,
    B: Sendable,
{
    let traffic = Traffic::new();
    let window_bytes = memory.window_bytes();
    let mut http2 = server::Builder::new();
    http2
        .max_frame_size(MAX_FRAME_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_window_size(grpc::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window_bytes)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .data_frame_budget(SMALL_FRAMES_BYTES)
        .max_pending_accept_reset_streams(MAX_CANCELLED)
        .max_concurrent_reset_streams(MAX_REFUSED)
        .max_local_error_reset_streams(Some(MAX_RESETS));
    let mut handshake = http2.handshake(Counted::new(stream, traffic.clone()));
    let handshake = poll_fn(|cx| {
        memory.wake_to_close(cx.waker());
        match stopping.load(Ordering::Acquire) || memory.is_closing() {
            true => Poll::Ready(None),
            false => Pin::new(&mut handshake).poll(cx).map(Some),
        }
    });
    let mut connection = match timeout(PREFACE_TIMEOUT, handshake).await {
        Ok(Some(Ok(connection))) => connection,
        Ok(Some(Err(error))) => {
            return tracing::debug!(%error, "a connection does not speak HTTP/2");
        }
        Ok(None) => return,
        Err(_) => return tracing::debug!("a connection did not begin to speak HTTP/2 in time"),
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is over at once.
    ticks.tick().await;
    let pings = connection.ping_pong();
    Serving {
        connection,
        answer,
        stopping: Some(stopping),
        pings,
        ticks,
        quiet: Quiet::default(),
        traffic,
        header_table: memory.no_charge(),
        memory,
        window_bytes,
    }
    .await;
}

/// A connection that is served.
struct Serving<S, A> {
    connection: server::Connection<Counted<S>, Bytes>,
    answer: A,
    /// Whether connections are to be closed; `None` once this one has been told.
    stopping: Option<Arc<AtomicBool>>,
    pings: Option<PingPong>,
    ticks: Interval,
    quiet: Quiet,
    traffic: Traffic,
    memory: Arc<ConnectionMemory>,
    header_table: Charge,
    /// The window that the connection has been told of.
    window_bytes: u32,
}

impl<S, A, F, B> Future for Serving<S, A>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Received>) -> F + Unpin,
    F: Future<Output = Response<B>> + Send + Unpin + 'static,
    B: Sendable,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Counts { is_flood, .. } = self.traffic.begin_turn();
        self.memory.wake_to_close(cx.waker());
        if self.memory.is_closing() {
            tracing::debug!(
                held_bytes = self.memory.held_bytes(),
                "a connection is closed that holds too much memory"
            );
            return self.close(cx);
        }
        if is_flood {
            tracing::debug!("a connection is closed that sends too many frames without a request");
            return self.close(cx);
        }
        if let Some(stopping) = &self.stopping
            && stopping.load(Ordering::Acquire)
        {
            self.stopping = None;
            self.connection.graceful_shutdown();
        }
        if self.poll_gone(cx).is_ready() {
            return self.close(cx);
        }
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let memory = self.memory.clone();
                    let request = request.map(|body| Received::new(body, &memory));
                    let answer = (self.answer)(request);
                    tokio::spawn(Responding::new(answer, respond, memory));
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a connection ended before it was closed");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        self.end_turn();
        Poll::Pending
    }
}

impl<S, A> Serving<S, A>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Notes what the turn has left to be written, and how large the window is to be.
    fn end_turn(&mut self) {
        let counts = self.traffic.counts();
        if !counts.is_blocked {
            self.memory.queue_is_empty();
        }
        self.header_table.set(counts.header_table_bytes);
        let window_bytes = self.memory.window_bytes();
        if window_bytes != self.window_bytes {
            self.window_bytes = window_bytes;
            self.connection.set_target_window_size(window_bytes);
        }
    }

    /// Closes the connection at once, with all its calls. Tells the client, if it reads.
    fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        let _ = self.connection.poll_closed(cx);
        Poll::Ready(())
    }

    /// Waits until it is certain that nobody is at the other end, or that nobody reads there.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.ticks.poll_tick(cx));
            self.traffic.passed(TICK.as_secs());
            match self.quiet.tick(self.traffic.counts()) {
                Verdict::Alive => {}
                Verdict::Silent => {
                    if let Some(pings) = &mut self.pings {
                        // What came of the one before says nothing: a frame that comes does.
                        let _ = pings.poll_pong(cx);
                        let _ = pings.send_ping(Ping::opaque());
                    }
                }
                Verdict::Gone => {
                    tracing::debug!("a connection is closed whose client does not answer or read");
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// How long nothing has gone over a connection.
#[derive(Debug, Default)]
struct Quiet {
    counts: Counts,
    /// The ticks since the last frame of the client.
    silent_ticks: u32,
    /// The ticks since the socket has taken something, while something waits for it.
    blocked_ticks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Alive,
    /// The client is to be asked whether it is there.
    Silent,
    Gone,
}

impl Quiet {
    fn tick(&mut self, counts: Counts) -> Verdict {
        let before = std::mem::replace(&mut self.counts, counts);
        self.silent_ticks = match counts.read_frames == before.read_frames {
            true => self.silent_ticks + 1,
            false => 0,
        };
        let is_stuck = counts.is_blocked && counts.written_bytes == before.written_bytes;
        self.blocked_ticks = if is_stuck { self.blocked_ticks + 1 } else { 0 };
        if self.silent_ticks > SILENT_TICKS || self.blocked_ticks >= BLOCKED_TICKS {
            Verdict::Gone
        } else if self.silent_ticks == SILENT_TICKS {
            Verdict::Silent
        } else {
            Verdict::Alive
        }
    }
}

#[cfg(test)]
mod tests;
