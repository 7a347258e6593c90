//! The connections of the server, accepted up to a limit.
//!
//! Each connection takes a file descriptor and some memory, and snapshots need descriptors too. So
//! the limit is below the number of files that the kernel allows the process. A connection above
//! the limit is closed at once; its client can distinguish that from a slow server.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use crate::listeners::{Listeners, OpenStream, Stream};

/// The file descriptors that are kept for everything but connections.
pub const OTHER_FILES: usize = 64;

/// The pause after the kernel refused to accept a connection: it would refuse the next attempt just
/// the same.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The TCP keepalive settings: the silence after which the kernel probes the client, the interval
/// of the probes, and their number. HTTP/2 has pings for that, but to know when they are due it
/// takes the time with every frame, which costs some 3 % of a single call.
const SILENCE: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Accepts connections. Cheap to clone: clones accept from the same sockets and share one limit.
/// Dropping the last clone closes the sockets.
#[derive(Debug, Clone)]
pub struct Connections {
    listeners: Arc<Listeners>,
    slots: Arc<Slots>,
}

/// The limits on connections that are open at once.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// In all.
    pub connections: usize,
    /// From one address.
    pub for_each_address: usize,
}

/// The connections that are open.
#[derive(Debug)]
struct Slots {
    limits: ConnectionLimits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// A slot for one open connection; given back when dropped.
#[derive(Debug)]
struct Slot {
    slots: Arc<Slots>,
    address: Option<IpAddr>,
}

impl Slots {
    /// Takes a slot for a connection.
    ///
    /// # Errors
    ///
    /// The name and the value of the limit that is reached.
    fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Slot, (&'static str, usize)> {
        let ConnectionLimits {
            connections,
            for_each_address,
        } = self.limits;
        let mut open = self.open.lock();
        if open.connections >= connections {
            return Err(("max_connections", connections));
        }
        if let Some(address) = address {
            let count = open.addresses.entry(address).or_default();
            if *count >= for_each_address {
                return Err(("max_connections_per_address", for_each_address));
            }
            *count += 1;
        }
        open.connections += 1;
        Ok(Slot {
            slots: self.clone(),
            address,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock();
        open.connections -= 1;
        let Some(address) = self.address else {
            return;
        };
        if let Entry::Occupied(mut count) = open.addresses.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Connections {
    /// Accepts from `listeners`, up to the limits on connections. The limit is lower if the kernel
    /// does not allow the process enough files.
    pub fn new(listeners: Listeners, limits: ConnectionLimits) -> Self {
        let limit = limits.connections;
        let allowed = allow_files(limit.saturating_add(OTHER_FILES)).saturating_sub(OTHER_FILES);
        if allowed < limit {
            tracing::warn!(
                max_connections = limit,
                allowed,
                "the limit of open files allows fewer connections; raise it (ulimit -n)"
            );
        }
        let connections = allowed.clamp(1, limit);
        Self {
            listeners: Arc::new(listeners),
            slots: Arc::new(Slots {
                limits: ConnectionLimits {
                    connections,
                    ..limits
                },
                open: Mutex::default(),
            }),
        }
    }

    /// The sockets that connections come from.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Waits for the next connection and returns it. Cancel safe: no connection is lost.
    pub async fn accept(&self) -> Accepted {
        loop {
            let stream = match self.listeners.accept().await {
                Ok(stream) => stream,
                // The client closed the connection before the server accepted it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let slot = match self.slots.take(stream.client()) {
                Ok(slot) => slot,
                Err((name, limit)) => {
                    tracing::warn!(
                        limit = name,
                        connections = limit,
                        "a connection is refused: there are as many as allowed"
                    );
                    continue;
                }
            };
            if let Stream::Tcp(stream) = &stream {
                set_options(stream);
            }
            return Accepted { stream, slot };
        }
    }
}

fn set_options(stream: &std::net::TcpStream) {
    // Answers are small, and a client waits for each of them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "answers on a connection may be delayed");
    }
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "a connection may outlive its client");
    }
}

/// Raises the limit of open files to `wanted` as far as the process is allowed to, and returns the
/// number of files that it may have open.
pub fn allow_files(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let allowed = |soft: Option<u64>| {
        soft.map_or(usize::MAX, |files| {
            usize::try_from(files).unwrap_or(usize::MAX)
        })
    };
    if allowed(limit.current) >= wanted {
        return wanted;
    }
    let raised = Rlimit {
        current: limit
            .maximum
            .map_or(Some(wanted as u64), |hard| Some(hard.min(wanted as u64))),
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => allowed(raised.current),
        Err(_) => allowed(limit.current),
    }
}

/// A connection that is not served yet, with its slot.
#[derive(Debug)]
pub struct Accepted {
    stream: Stream,
    slot: Slot,
}

impl Accepted {
    /// Registers the connection with the runtime that this is called in. `seat` is dropped with the
    /// connection.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it can watch no more connections.
    pub fn open(self, seat: Arc<()>) -> io::Result<Connection> {
        Ok(Connection {
            stream: self.stream.open()?,
            _slot: self.slot,
            _seat: seat,
        })
    }
}

/// A connection that is served.
#[derive(Debug)]
pub struct Connection {
    stream: OpenStream,
    _slot: Slot,
    _seat: Arc<()>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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
