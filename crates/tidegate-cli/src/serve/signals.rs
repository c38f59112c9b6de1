//! Signals of the service.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What somebody wants of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// That it ends.
    End,
    /// That it reads its files again.
    Reload,
}

/// What the service is told by signals.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on they do not end the process by themselves.
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// What somebody wants next.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Somebody wants the service to end.
    pub(super) async fn end(&mut self) {
        while self.next().await != Wish::End {}
    }
}
