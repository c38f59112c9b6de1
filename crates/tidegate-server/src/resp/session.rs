//! What is known of a client, and what becomes of the bytes that it sends.

use std::future::Future;
use std::sync::Arc;

use tidegate::Registered;

use super::Resp;
use super::command::run;
use super::limits::Numbers;
use super::parse::{Garbled, Parsed, Words, parse};
use super::pending::Pending;
use super::reply::{Protocol, Reply};
use crate::front_end::FrontEnd;

/// How many bytes of answers may wait until a client reads them. One that has more is not listened
/// to until it does.
pub(crate) const UNSENT_MAX: usize = 64 * 1024;
/// How many bytes the name of a connection may have.
pub(crate) const NAME_MAX: usize = 256;

/// A client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) has_said_password: bool,
    pub(crate) name: Option<Box<[u8]>>,
    /// The limit that it brought along last, which is mostly the one that it brings along next.
    pub(crate) last: Option<(Numbers, Arc<Registered>)>,
    /// Answers that wait for the store, and those behind them.
    pub(crate) pending: Pending,
    /// Whether to hang up once it has got its answers.
    pub(crate) is_over: bool,
}

/// What became of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fed {
    /// How many of them were commands.
    pub(crate) used: usize,
    /// What to do next.
    pub(crate) next: Next,
}

/// What to do once the answers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read until there are so many bytes from where the commands ended.
    Read(usize),
    /// Give the rest again: there was no room for more answers.
    Again,
    /// Hang up.
    Close,
}

/// One command on its way: who asks, and where the answer goes.
pub(crate) struct Turn<'a> {
    pub(crate) resp: &'a Arc<Resp>,
    pub(crate) session: &'a mut Session,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Turn<'_> {
    /// Where the answer goes, in the version that the client speaks by now.
    #[inline]
    pub(crate) fn reply(&mut self) -> Reply<'_> {
        Reply { out: self.out, protocol: self.session.protocol }
    }

    /// Says what is wrong with the command, and counts it.
    #[cold]
    pub(crate) fn refuse(&mut self, text: std::fmt::Arguments<'_>) {
        let resp = self.resp;
        resp.refuse(&mut self.reply(), text);
    }

    /// Answers when the store has, behind all that was answered before.
    pub(crate) fn later(&mut self, answer: impl Future<Output = Vec<u8>> + Send + 'static) {
        self.session.pending.say(self.out);
        self.session.pending.ask(Box::pin(answer));
    }
}

impl Session {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            protocol: Protocol::default(),
            has_said_password: false,
            name: None,
            last: None,
            pending: Pending::default(),
            is_over: false,
        }
    }

    /// Whether it has yet to say the password.
    #[inline]
    pub(crate) fn is_stranger(&self, resp: &Resp) -> bool {
        !self.has_said_password && resp.password.is_some()
    }

    /// Does what the bytes say, and appends the answers to `out`; those that wait for the store, and
    /// all that come behind them, are [pending](Self::pending).
    pub(crate) fn feed(&mut self, resp: &Arc<Resp>, bytes: &[u8], out: &mut Vec<u8>) -> Fed {
        let (mut used, mut commands) = (0, 0u64);
        let next = loop {
            if self.is_over {
                break Next::Close;
            }
            if out.len() >= UNSENT_MAX || self.pending.is_full() {
                break Next::Again;
            }
            match parse(&bytes[used..], self.is_stranger(resp)) {
                Ok(Parsed::Command(length, words)) => {
                    (used, commands) = (used + length, commands + 1);
                    run(&mut Turn { resp, session: self, out }, &words);
                }
                Ok(Parsed::Partial(least)) => break Next::Read(least),
                Ok(Parsed::Nothing(length)) => used += length,
                Ok(Parsed::Quoted(length, words)) => {
                    (used, commands) = (used + length, commands + 1);
                    let words: Words<'_> = words.iter().map(Vec::as_slice).collect();
                    run(&mut Turn { resp, session: self, out }, &words);
                }
                Err(garbled) => self.give_up(resp, garbled, out),
            }
        };
        if !self.pending.is_empty() {
            self.pending.say(out);
        }
        if commands > 0 {
            resp.counts.commands(commands);
        }
        Fed { used, next }
    }

    /// Nobody can tell where the next command begins.
    #[cold]
    fn give_up(&mut self, resp: &Resp, garbled: Garbled, out: &mut Vec<u8>) {
        resp.service.metrics().bad_request(FrontEnd::Resp);
        garbled.write(out);
        self.is_over = true;
    }
}
