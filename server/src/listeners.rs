//! The sockets that the server listens on.

mod unix;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
};

use futures_util::future::select_all;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixStream, lookup_host};
use tokio_util::either::Either;

use self::unix::UnixSocket;
use crate::config::Address;

/// The number of connections that the kernel keeps until they are accepted: as many as it allows
/// (`net.core.somaxconn`).
const BACKLOG: i32 = i32::MAX;

/// The sockets of one setting. Dropping it closes them.
#[derive(Debug)]
pub struct Listeners(Vec<Listener>);

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixSocket),
}

/// An accepted stream that is not registered with a runtime yet.
#[derive(Debug)]
pub enum Stream {
    /// From another machine, or this one.
    Tcp(std::net::TcpStream),
    /// From this machine.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Returns the address of the client, or `None` for a Unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        match self {
            // An error if the client has gone.
            Self::Tcp(stream) => Some(stream.peer_addr().ok()?.ip().to_canonical()),
            Self::Unix(_) => None,
        }
    }
}

/// A stream of the runtime that it was opened in.
pub type OpenStream = Either<TcpStream, UnixStream>;

/// An address that cannot be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address as configured or, for a host name, as resolved.
    pub address: String,
    /// The error of the operating system.
    pub source: io::Error,
}

impl Listeners {
    /// Listens on all of the addresses.
    ///
    /// # Errors
    ///
    /// [`ListenError`] for the first address that cannot be listened on.
    pub async fn bind(addresses: &[Address]) -> Result<Self, ListenError> {
        let mut listeners = Self(Vec::new());
        // `[::]` comes last, when it is known whether IPv4 has an address of its own.
        let is_all_of_ipv6 = |address: &&Address| matches!(address, Address::Socket(socket) if socket.is_ipv6() && socket.ip().is_unspecified());
        let (last, first): (Vec<_>, Vec<_>) = addresses.iter().partition(is_all_of_ipv6);
        for address in first.into_iter().chain(last) {
            let failed = |source| ListenError {
                address: address.to_string(),
                source,
            };
            match address {
                Address::Socket(socket) => listeners.bind_socket(*socket).map_err(failed)?,
                Address::Host(host, port) => listeners.bind_host(host, *port).await?,
                Address::Unix(path) => {
                    let socket = UnixSocket::bind(path).map_err(failed)?;
                    listeners.0.push(Listener::Unix(socket));
                }
            }
        }
        Ok(listeners)
    }

    /// Listens on all addresses of a host, except those that this machine does not have: in many
    /// containers the hosts file lists `::1`, but there is no IPv6.
    async fn bind_host(&mut self, host: &str, port: u16) -> Result<(), ListenError> {
        let failed = |address: String, source| ListenError { address, source };
        let name = || format!("{host}:{port}");
        let found = lookup_host((host, port)).await;
        let found = found.map_err(|error| failed(name(), error))?;
        let (mut port, mut bound, mut missing) = (port, false, None);
        for mut address in found {
            address.set_port(port);
            match self.bind_socket(address) {
                Ok(()) => {
                    bound = true;
                    // The other addresses of the host get the port that the first one got.
                    port = self.addresses().last().map_or(port, |last| last.port());
                }
                Err(error) if is_not_ours(&error) => {
                    tracing::warn!(%address, %error, "an address of {host} is not listened on");
                    missing = Some(error);
                }
                Err(error) => return Err(failed(format!("{host} ({address})"), error)),
            }
        }
        match (bound, missing) {
            (true, _) => Ok(()),
            (false, missing) => Err(failed(
                name(),
                missing.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()),
            )),
        }
    }

    /// Listens on an address, unless the server already listens on it.
    fn bind_socket(&mut self, address: SocketAddr) -> io::Result<()> {
        if address.port() != 0 && self.addresses().any(|other| other == address) {
            return Ok(());
        }
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        // After a restart, connections of the previous server can still be in TIME-WAIT.
        socket.set_reuse_address(true)?;
        // [::] takes IPv4 too, unless that has an address of its own.
        let is_same_port = |other: SocketAddr| other.is_ipv4() && other.port() == address.port();
        if address.is_ipv6() && self.addresses().any(is_same_port) {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        self.0.push(Listener::Tcp(listener, address));
        Ok(())
    }

    /// Returns the addresses and ports that are listened on, without Unix sockets.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter_map(|listener| match listener {
            Listener::Tcp(_, address) => Some(*address),
            Listener::Unix(_) => None,
        })
    }

    /// Waits for the next connection and returns it. Cancel safe: no connection is lost.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub async fn accept(&self) -> io::Result<Stream> {
        let accepting = self.0.iter().map(|listener| Box::pin(listener.accept()));
        let (accepted, _, _) = select_all(accepting).await;
        accepted
    }
}

impl Listener {
    /// Accepts a stream. It is not registered with this runtime, because another thread serves it.
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener, _) => Ok(Stream::Tcp(listener.accept().await?.0.into_std()?)),
            Self::Unix(socket) => Ok(Stream::Unix(socket.accept().await?.into_std()?)),
        }
    }
}

/// Formats the addresses as the log and the configuration show them.
impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, listener) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            match listener {
                Listener::Tcp(_, address) => address.fmt(f)?,
                Listener::Unix(socket) => write!(f, "unix:{}", socket.path().display())?,
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Registers the stream with the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it can watch no more streams.
    pub fn open(self) -> io::Result<OpenStream> {
        Ok(match self {
            Self::Tcp(stream) => Either::Left(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
        })
    }
}

/// Returns whether the machine does not have the address, or not its family.
fn is_not_ours(error: &io::Error) -> bool {
    let is_family = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::AFNOSUPPORT);
    is_family || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests;
