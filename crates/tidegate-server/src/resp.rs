//! The protocol of Redis, so that every Redis client is a client.
//!
//! Connections have threads of their own ([`crate::lanes`]). What arrives at once is answered at
//! once: all commands that a read brought in are decided one after the other, and their answers leave
//! in one write ([`connection`]). With a store that is waited for they are asked side by side
//! ([`pending`]).

mod check;
mod command;
mod connection;
mod converse;
mod counts;
mod greeting;
mod limits;
mod parse;
mod pending;
mod reply;
mod session;
mod telling;
mod throttle;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

pub(crate) use self::converse::converse;
use self::counts::Counts;
use self::limits::Brought;
use self::reply::Reply;
use crate::config::Config;
use crate::drain::Drain;
use crate::front_end::FrontEnd;
use crate::listen::Listener;
use crate::service::Service;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Resp {
    service: Arc<Service>,
    /// Whether the store has to be waited for.
    waits: bool,
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
        Self {
            waits: service.waits(),
            service,
            brought: Arc::default(),
            password: config.resp_password.clone(),
            threads: config.threads_of_resp(),
            connections_max: config.connections_max,
            counts: Counts::new(),
            is_draining: AtomicBool::new(false),
            draining: Notify::new(),
        }
    }

    /// Says what is wrong with a command, and counts it.
    #[cold]
    fn refuse(&self, reply: &mut Reply<'_>, text: fmt::Arguments<'_>) {
        self.service.metrics().bad_request(FrontEnd::Resp);
        reply.error(text);
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
    let served = Arc::clone(&resp);
    let handle = move |stream, _peer| connection::serve(stream, Arc::clone(&served));
    listener.serve(drain, metrics, config.connections_max, handle).await;
    resp.drain();
}
