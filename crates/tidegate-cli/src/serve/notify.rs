//! Telling systemd how it goes: a datagram to the socket that it names.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells whoever started this service, if it wants to know.
pub(super) fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = send(socket.as_bytes(), state);
    if let Err(error) = told {
        tracing::warn!(%error, state, "cannot tell the one named by NOTIFY_SOCKET");
    }
}

fn send(socket: &[u8], state: &str) -> io::Result<()> {
    let address = match socket.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.connect_addr(&address)?;
    sender.send(state.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        let mut buffer = [0; 64];
        send(path.as_os_str().as_bytes(), "READY=1").expect("sent");
        let length = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"READY=1");

        let name = format!("tidegate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("a socket");
        send(format!("@{name}").as_bytes(), "STOPPING=1").expect("sent");
        let length = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"STOPPING=1");
    }
}
