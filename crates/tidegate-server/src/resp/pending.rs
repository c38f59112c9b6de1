//! Answers that wait for a store: commands of one read are asked side by side, and are answered in
//! the order in which they came.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How many commands of one connection may be asked side by side.
pub(crate) const SIDE_BY_SIDE_MAX: usize = 256;

/// An answer on its way.
type Answer = Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;

enum Piece {
    Said(Vec<u8>),
    Asked(Answer),
}

/// Answers in the order of their commands, some of which are not there yet.
#[derive(Default)]
pub(crate) struct Pending {
    pieces: VecDeque<Piece>,
    asked: usize,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether no more may be asked at present.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.asked >= SIDE_BY_SIDE_MAX
    }

    /// Adds an answer that is there.
    pub(crate) fn say(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.pieces.push_back(Piece::Said(std::mem::take(bytes)));
        }
    }

    /// Adds one that is to be waited for.
    pub(crate) fn ask(&mut self, answer: Answer) {
        self.asked += 1;
        self.pieces.push_back(Piece::Asked(answer));
    }

    /// Goes on with all of them, and moves those to `out` that nobody before them is waited for.
    /// Whether all are there.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        for piece in &mut self.pieces {
            if let Piece::Asked(answer) = piece
                && let Poll::Ready(bytes) = answer.as_mut().poll(context)
            {
                *piece = Piece::Said(bytes);
                self.asked -= 1;
            }
        }
        while let Some(Piece::Said(bytes)) = self.pieces.front() {
            out.extend_from_slice(bytes);
            self.pieces.pop_front();
        }
        self.pieces.is_empty()
    }
}

/// Words that outlive the buffer they were read into.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Kept {
    pub(crate) fn new(words: &[&[u8]]) -> Self {
        let mut kept = Self { bytes: words.concat(), ends: Vec::with_capacity(words.len()) };
        let mut end = 0;
        kept.ends.extend(words.iter().map(|word| {
            end += word.len();
            end
        }));
        kept
    }

    pub(crate) fn words(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let word = |end: &usize| &self.bytes[std::mem::replace(&mut start, *end)..*end];
        self.ends.iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn kept_words_are_the_same() {
        for words in [&[][..], &[&b""[..]], &[b"a", b"", b"bc"], &[b"\r\n", b"x"]] {
            assert_eq!(Kept::new(words).words(), words);
        }
    }

    #[test]
    fn answers_leave_in_the_order_of_their_commands() {
        let (first, waiting) = tokio::sync::oneshot::channel::<Vec<u8>>();
        let mut pending = Pending::default();
        pending.ask(Box::pin(async { waiting.await.unwrap_or_default() }));
        pending.say(&mut b"2".to_vec());
        pending.ask(Box::pin(std::future::ready(b"3".to_vec())));
        let context = &mut Context::from_waker(Waker::noop());
        let mut out = Vec::new();
        assert!(!pending.poll(context, &mut out));
        assert!(out.is_empty(), "nothing before the first");
        first.send(b"1".to_vec()).unwrap();
        assert!(pending.poll(context, &mut out));
        assert_eq!(out, b"123");
        assert!(pending.is_empty() && !pending.is_full());
    }
}
