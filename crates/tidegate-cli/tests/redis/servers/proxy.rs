//! A proxy between the service and Redis that does what networks do: delay, hold back, cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// What it does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Everything arrives so much later, in both directions.
    Delay(Duration),
    /// Nothing arrives, and nobody is told.
    Stall,
    /// All connections are closed, new ones at once.
    Cut,
}

/// A running proxy; it ends when this is dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    mode: Arc<watch::Sender<Mode>>,
    ending: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// To a server at this port.
    pub(crate) fn to(upstream: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let (ending, ended) = tokio::sync::oneshot::channel();
        let told = Arc::clone(&mode);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = accept(&listener, upstream, &told) => {}
                    _ = ended => {}
                }
            });
        });
        Self { port, mode, ending: Some(ending), thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.ending.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, upstream: u16, mode: &watch::Sender<Mode>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if *mode.borrow() != Mode::Cut {
            tokio::spawn(connect(client, upstream, mode.subscribe()));
        }
    }
}

/// One connection, until somebody ends it or all are cut.
async fn connect(client: TcpStream, upstream: u16, mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], upstream))).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = mode.clone();
    tokio::select! {
        () = carry(from_client, to_server, mode.clone()) => {}
        () = carry(from_server, to_client, mode) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

/// One direction.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(10_000);
    let reading = mode.clone();
    let read = async move {
        loop {
            let mut bytes = Vec::with_capacity(16 * 1024);
            match from.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let later = match *reading.borrow() {
                Mode::Delay(later) => later,
                _ => Duration::ZERO,
            };
            // So many pieces do not come together in the time of a test.
            if sender.send((Instant::now() + later, bytes)).await.is_err() {
                return;
            }
        }
    };
    let mut writing = mode;
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            if writing.wait_for(|mode| *mode != Mode::Stall).await.is_err() {
                return;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
