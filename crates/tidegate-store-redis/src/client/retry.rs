//! Commands that a server sent back without doing anything: once more, or to somebody else.

use std::sync::{Arc, Weak};

use tokio::time::{Duration, sleep, timeout_at};

use super::here::{self, Post};
use super::link::{Before, Refused, Waiting};
use super::node::Node;
use super::view::SLOTS;
use super::{Client, ClientError, Reply};
use crate::target::Address;

/// A slot that moves while its script is unknown to the new owner takes three.
const TURNS_MAX: usize = 5;
/// How long keys of a slot that moves are left to arrive.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1);
const GUESTS_MAX: usize = 64;

/// What to do with a command that was sent back.
#[derive(Debug, PartialEq, Eq)]
enum Turn<'a> {
    LoadScript,
    TryAgain,
    /// The slot is somebody else's.
    Moved {
        slot: u16,
        to: &'a str,
    },
    /// This key is already with somebody else, the slot not yet.
    Ask {
        to: &'a str,
    },
}

impl<'a> Turn<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        match words.next()? {
            "NOSCRIPT" => Some(Self::LoadScript),
            "TRYAGAIN" => Some(Self::TryAgain),
            kind @ ("MOVED" | "ASK") => {
                let slot = words.next()?.parse().ok().filter(|slot| usize::from(*slot) < SLOTS)?;
                let to = words.next()?;
                Some(if kind == "ASK" { Self::Ask { to } } else { Self::Moved { slot, to } })
            }
            _ => None,
        }
    }
}

/// Whether the error of a command may be one that another turn helps with.
pub(super) fn is_worth(text: &str) -> bool {
    ["NOSCRIPT", "MOVED ", "ASK ", "TRYAGAIN"].iter().any(|code| text.starts_with(code))
}

impl Client {
    /// Does what the error of a command says, until there is another reply.
    pub(super) async fn run_again(
        &self,
        post: &Post<'_>,
        waiting: &mut Waiting,
        mut text: String,
    ) -> Result<Reply, ClientError> {
        let (bytes, deadline) = (post.bytes, post.deadline);
        let mut before = Before::default();
        for _ in 0..TURNS_MAX {
            let from = Arc::clone(&waiting.link.node);
            before.script = None;
            let to = match Turn::of(&text) {
                Some(Turn::LoadScript) => {
                    before.script = Some(waiting.scripts);
                    None
                }
                Some(Turn::TryAgain) => {
                    sleep(TRY_AGAIN_AFTER).await;
                    None
                }
                Some(Turn::Moved { slot, to }) => {
                    before.asking = false;
                    Some((Some(slot), to))
                }
                Some(Turn::Ask { to }) => {
                    before.asking = true;
                    Some((None, to))
                }
                None => return Err(ClientError::Reply(text)),
            };
            let node = match to {
                None => None,
                Some((slot, to)) => match Address::named_by(to, &from.address) {
                    Some(to) if self.is_cluster() => Some(match slot {
                        Some(slot) => self.moved(slot, &to),
                        None => self.guest(&to),
                    }),
                    _ => return Err(ClientError::Reply(text)),
                },
            };
            let post = Post { bytes, deadline, before: Some(before) };
            *waiting = match node {
                Some(node) => here::post_to(self, &node, &post)?,
                // By the same connection, so that nothing overtakes the script.
                None => match waiting.link.push(bytes, deadline, Some(before)) {
                    Ok(waiting) => waiting,
                    Err(Refused::Full) => return Err(ClientError::Full),
                    Err(Refused::Dead) => return Err(ClientError::Down),
                },
            };
            // It stands behind commands with later deadlines, for which the link's clock is set.
            match timeout_at(deadline, &mut *waiting).await {
                Err(_) => return Err(ClientError::Deadline),
                Ok(Err(ClientError::Reply(next))) if is_worth(&next) => text = next,
                Ok(result) => return result,
            }
        }
        Err(ClientError::Reply(text))
    }

    /// A slot has another master: that counts at once, and all the rest is asked for.
    fn moved(&self, slot: u16, to: &Address) -> Arc<Node> {
        let node = self.guest(to);
        *self.common.hint.lock() = Some(to.clone());
        self.common.look_again.notify_one();
        self.change_view(|view| view.with_moved(slot, &node));
        node
    }

    /// The node there: one that is known, or a new one that need not be a master yet.
    pub(super) fn guest(&self, address: &Address) -> Arc<Node> {
        let mut guests = self.guests.lock();
        let (_, view) = self.view();
        if let Some(node) = view.at(address).and_then(|index| view.masters.get(index)) {
            return Arc::clone(node);
        }
        let mut known = guests.iter().filter_map(Weak::upgrade);
        if let Some(node) = known.find(|node| node.address == *address && !node.is_gone()) {
            return node;
        }
        let node = self.new_node(address, 0);
        guests.retain(|node| node.strong_count() > 0);
        if guests.len() < GUESTS_MAX {
            guests.push(Arc::downgrade(&node));
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns() {
        assert_eq!(Turn::of("NOSCRIPT No matching script."), Some(Turn::LoadScript));
        assert_eq!(Turn::of("TRYAGAIN Multiple keys"), Some(Turn::TryAgain));
        let moved = Turn::Moved { slot: 3999, to: "127.0.0.1:6381" };
        assert_eq!(Turn::of("MOVED 3999 127.0.0.1:6381"), Some(moved));
        assert_eq!(Turn::of("ASK 1 :7000"), Some(Turn::Ask { to: ":7000" }));
        for other in ["MOVED", "MOVED x y", "MOVED 16384 h:1", "ASK 5", "ERR no", ""] {
            assert_eq!(Turn::of(other), None, "{other}");
        }
    }
}
