//! Unix sockets, and the files that they are found by.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a Unix socket, taken away when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been taken away by somebody else, which is as well.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens at a Unix socket, without blocking. A file that nobody answers at any more is cleared away
/// first; one that is no socket, or that somebody answers at, is left alone.
///
/// # Errors
/// If the path is taken, or cannot be used.
pub fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket =
                std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
            if !is_socket || is_answered(path) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    let file = SocketFile(path.to_owned());
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// Whether somebody listens there. Whoever has no time to accept is somebody too, so nobody is waited for.
fn is_answered(path: &Path) -> bool {
    let connected = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    });
    match connected {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_what_nobody_answers_at_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = bind_unix(&path).unwrap();
        assert_eq!(file.path(), path);
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok(), "who was there is still there");
        // Nobody any more, as after a crash.
        drop(listener);
        std::mem::forget(file);
        assert!(path.exists());
        let (_listener, file) = bind_unix(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(file);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn somebody_who_is_too_busy_to_accept_is_somebody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let waiting = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.connect(&SockAddr::unix(&path).unwrap()).map(|()| socket)
        };
        let mut all = Vec::new();
        while let Ok(socket) = waiting() {
            all.push(socket);
        }
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }
}
