//! The protocol of Redis, so that every Redis client is a client.
//!
//! Connections are served by threads of their own ([`worker`]). What arrives at once is answered at
//! once: all commands that a read brought in are decided one after the other, and their answers leave
//! in one write ([`connection`]).

mod check;
mod command;
mod connection;
mod converse;
mod counts;
mod greeting;
mod limits;
mod parse;
mod reply;
mod session;
mod telling;
mod throttle;
mod worker;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

pub(crate) use self::converse::converse;
use self::counts::Counts;
use self::limits::Brought;
use self::worker::{Given, Worker};
use crate::config::{Config, threads_by_default};
use crate::drain::Drain;
use crate::listen::Listener;
use crate::service::Service;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Resp {
    service: Arc<Service>,
    brought: Arc<Brought>,
    password: Option<String>,
    threads: usize,
    connections_max: usize,
    counts: Counts,
    is_draining: AtomicBool,
    draining: Notify,
}

impl Resp {
    fn new(service: Arc<Service>, config: &Config) -> Self {
        let threads = match config.resp_threads {
            0 => threads_by_default(),
            threads => threads,
        };
        Self {
            service,
            brought: Arc::default(),
            password: config.resp_password.clone(),
            threads,
            connections_max: config.connections_max,
            counts: Counts::new(),
            is_draining: AtomicBool::new(false),
            draining: Notify::new(),
        }
    }

    /// Tells all connections to come to an end.
    fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.draining.notify_waiters();
    }

    #[inline]
    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Ready when connections have to come to an end, if they had not before.
    fn drained(&self) -> impl Future<Output = ()> + '_ {
        self.draining.notified()
    }
}

/// Serves until the server drains.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    config: Arc<Config>,
    drain: Drain,
) {
    let metrics = Arc::clone(service.metrics());
    let resp = Arc::new(Resp::new(service, &config));
    let workers: Result<Vec<_>, _> =
        (0..resp.threads).map(|_| Worker::start(&resp, config.drain)).collect();
    let workers = match workers {
        Ok(workers) => workers,
        Err(error) => {
            tracing::error!(%error, "cannot start the threads that serve RESP");
            return;
        }
    };
    let mut turns = workers.iter().cycle();
    let tracker = drain.tracker().clone();
    let give = |connection| {
        if let Some(worker) = turns.next() {
            worker.give(Given { connection, tracked: tracker.token() });
        }
    };
    listener.give_out(drain, metrics, config.connections_max, give).await;
    resp.drain();
}
