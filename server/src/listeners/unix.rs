//! Unix sockets: files that processes of the same machine connect to.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::BACKLOG;

/// The mode of the socket file: the user and the group of the server may connect.
const MODE: u32 = 0o660;

/// A Unix socket that is listened on. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The device and the inode of the file. Another server may have put its own file there.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens on a socket. An existing socket is removed if no process listens on it.
    ///
    /// # Errors
    ///
    /// The error of the operating system: [`io::ErrorKind::AddrInUse`] if a process listens on the
    /// socket, [`io::ErrorKind::AlreadyExists`] if the file is not a socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = identity(path)?;
        // A process that connects before `listen` is refused. So no process gets in with the mode
        // that the file has at first.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(socket.into())?,
            path: path.to_owned(),
            file,
        })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next connection and returns it.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // An error does no harm: the next server removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes the socket of a server that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !file.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Connects without waiting: if the queue is full, a server is there.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}
