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

/// The maximum number of calls in flight on one connection.
const MAX_STREAMS: u32 = 256;

/// The longest frame that a client may send: a batch of a thousand keys. It is read with two system
/// calls; in frames of the protocol's default, 16 KiB, it would take eight.
const MAX_FRAME_BYTES: u32 = 64 << 10;

/// The maximum length of the headers of a request, with the overhead that the protocol counts for
/// each field.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// The maximum data of one response that waits in HTTP/2.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// The maximum number of calls that a client may cancel before the server has accepted them. A
/// bound is needed (CVE-2023-44487), because each such call takes memory until it is accepted. This
/// bound is above the number of calls that can arrive in a turn, so it closes no connection: a
/// client whose calls have deadlines sometimes cancels all of them.
const MAX_CANCELLED: usize = 8 * TURN_FRAMES;

/// The maximum number of refused calls whose data is still ignored. A call that is refused before
/// all of its data has arrived is remembered for a second. Each frame of a call beyond this number
/// counts as a reset.
const MAX_REFUSED: usize = 2 * MAX_STREAMS as usize;

/// The maximum number of stream resets that a connection may cause in all its life before it is
/// closed. It stops a client that causes nothing but resets (RUSTSEC-2024-0003). A client that
/// opens more streams than allowed, before it knows the limit, causes only some hundreds.
const MAX_RESETS: usize = 64 * MAX_STREAMS as usize;

/// The time that a client has to send the first bytes of HTTP/2.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which the server checks whether the client of a connection is there.
const TICK: Duration = Duration::from_secs(20);

/// The number of ticks without a frame after which the server pings the client. The client has one
/// more tick to answer.
const SILENT_TICKS: u32 = 3;

/// The number of ticks after which a connection is closed if its client reads none of the data that
/// waits for it.
const BLOCKED_TICKS: u32 = 3;

/// The total by which DATA frames may fall short of 256 bytes before h2 closes the connection.
/// There is no limit, because calls take each frame as soon as it arrives ([`Received`]), and h2
/// never gives back the amount that frames of cancelled calls use.
const SMALL_FRAMES_BYTES: usize = u32::MAX as usize;

/// Serves connections until `incoming` ends. Then asks the open connections to close, and returns
/// when they have closed. `answer` answers a request.
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
    // The first tick is over at once.
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
        header_table: memory.empty_charge(),
        memory,
        window_bytes,
    }
    .await;
}

/// A connection that is served.
struct Serving<S, A> {
    connection: server::Connection<Counted<S>, Bytes>,
    answer: A,
    /// Set when connections are to be closed; `None` once this connection has been asked to close.
    stopping: Option<Arc<AtomicBool>>,
    pings: Option<PingPong>,
    ticks: Interval,
    quiet: Quiet,
    traffic: Traffic,
    memory: Arc<ConnectionMemory>,
    header_table: Charge,
    /// The window that the connection was last set to.
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
    /// Updates the queue, the charge of the header table, and the window of the connection after a
    /// turn.
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

    /// Closes the connection at once, with all its calls. The client gets the reason if it reads.
    fn close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        let _ = self.connection.poll_closed(cx);
        Poll::Ready(())
    }

    /// Waits until it is certain that the client does not answer or does not read.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.ticks.poll_tick(cx));
            self.traffic.passed(TICK.as_secs());
            match self.quiet.tick(self.traffic.counts()) {
                Verdict::Alive => {}
                Verdict::Silent => {
                    if let Some(pings) = &mut self.pings {
                        // The result of the last ping does not matter: any frame that arrives shows
                        // that the client is there.
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

/// The time in which nothing has gone over a connection.
#[derive(Debug, Default)]
struct Quiet {
    counts: Counts,
    /// The number of ticks since the last frame of the client.
    silent_ticks: u32,
    /// The number of ticks since the socket last accepted data, while data waits for it.
    blocked_ticks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Alive,
    /// The server should ping the client.
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
