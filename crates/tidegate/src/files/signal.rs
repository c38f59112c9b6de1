//! SIGHUP, the old way to say: read your files again.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};

use super::error::WatchError;
use super::wake::Bell;

/// Rings the bell at every SIGHUP until it is dropped.
#[derive(Debug)]
pub(super) struct Hangups {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Hangups {
    pub(super) fn listen(bell: Arc<Bell>) -> Result<Self, WatchError> {
        let mut signals = Signals::new([SIGHUP]).map_err(WatchError::Signal)?;
        let handle = signals.handle();
        let listen = move || signals.forever().for_each(|_| bell.signal());
        let thread: io::Result<_> =
            thread::Builder::new().name("rules-sighup".into()).spawn(listen);
        Ok(Self { handle, thread: Some(thread.map_err(WatchError::Thread)?) })
    }
}

impl Drop for Hangups {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}
