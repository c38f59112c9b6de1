//! Following the masters of a cluster by asking its nodes for the map of slots.
//!
//! That map is asked for when a slot turns out to be somebody else's and while a master does not
//! work; and now and then, for what happens without either.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::time::{Duration, timeout};

use super::Client;
use super::dial::Conversation;
use super::node::Common;
use super::resp::encoded;
use super::view::{MASTERS_MAX, NONE, SLOTS, View};
use super::{ClientError, Reply};
use crate::target::Address;

/// How often nodes are asked while all is well.
const EVERY: Duration = Duration::from_secs(10);
/// How often while a master does not work, or is not known.
const IN_TROUBLE_EVERY: Duration = Duration::from_millis(100);
/// However often there is reason to, they are not asked sooner again than this.
const AT_MOST_EVERY: Duration = Duration::from_millis(50);
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// Nodes that are remembered for being asked, replicas included.
const KNOWN_MAX: usize = 4_096;

/// Keeps the client's masters up to date, as long as the client is there.
pub(super) async fn follow(client: Weak<Client>, common: Arc<Common>, seeds: Vec<Address>) {
    let mut asker = Asker { known: Vec::new(), seeds, kept: None };
    loop {
        let candidates = match client.upgrade() {
            Some(client) => asker.candidates(&client),
            None => return,
        };
        let found = Box::pin(asker.map(&common, candidates)).await;
        let Some(client) = client.upgrade() else { return };
        let trouble = match found {
            Ok(map) => {
                client.set_masters(&map);
                asker.known = map.nodes;
                None
            }
            Err(why) => Some(why),
        };
        common.set_trouble(trouble);
        let (_, view) = client.view();
        drop(client);
        let pause = if view.is_whole() { EVERY } else { IN_TROUBLE_EVERY };
        tokio::time::sleep(AT_MOST_EVERY).await;
        // Whichever comes first.
        let _ = timeout(pause, common.look_again.notified()).await;
    }
}

/// Which slots belong to whom.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// The slots of each master, as ranges with both ends.
    masters: BTreeMap<Address, Vec<(u16, u16)>>,
    /// All nodes.
    nodes: Vec<Address>,
}

impl Map {
    /// Reads the reply to `CLUSTER SLOTS` of the node at `from`.
    pub(super) fn read(reply: &Reply, from: &Address) -> Option<Self> {
        let Reply::Array(ranges) = reply else { return None };
        let (mut masters, mut nodes) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for range in ranges {
            let Reply::Array(parts) = range else { return None };
            let (Some(first), Some(last)) = (slot(parts.first()), slot(parts.get(1))) else {
                return None;
            };
            let mut servers = parts.iter().skip(2).map(|server| address(server, from));
            if let Some(Some(master)) = servers.next() {
                if nodes.len() < KNOWN_MAX {
                    nodes.push(master.clone());
                }
                masters.entry(master).or_default().push((first, last));
            }
            nodes.extend(servers.flatten().take(KNOWN_MAX - nodes.len()));
        }
        nodes.sort();
        nodes.dedup();
        (!masters.is_empty() && masters.len() <= MASTERS_MAX).then_some(Self { masters, nodes })
    }
}

fn slot(part: Option<&Reply>) -> Option<u16> {
    match part {
        Some(Reply::Integer(n)) => u16::try_from(*n).ok().filter(|n| usize::from(*n) < SLOTS),
        _ => None,
    }
}

/// A server of a range; one without a host is at the host that was asked.
fn address(server: &Reply, from: &Address) -> Option<Address> {
    let Reply::Array(parts) = server else { return None };
    let host = match parts.first()? {
        Reply::Bulk(host) => std::str::from_utf8(host).ok()?,
        Reply::Null => "",
        _ => return None,
    };
    let Some(Reply::Integer(port)) = parts.get(1) else { return None };
    Address::beside(host, u16::try_from(*port).ok()?, from)
}

impl Client {
    fn set_masters(&self, map: &Map) {
        let masters: Vec<_> = map.masters.keys().map(|address| self.guest(address)).collect();
        let mut slots = vec![NONE; SLOTS];
        for ((index, ranges), master) in (0..).zip(map.masters.values()).zip(&masters) {
            for (first, last) in ranges {
                let range = usize::from(*first)..=usize::from(*last);
                slots.get_mut(range).unwrap_or_default().fill(index);
            }
            if let Some((first, _)) = ranges.first() {
                master.set_slot(*first);
            }
        }
        self.change_view(|old| {
            let same =
                old.masters.iter().map(|node| node.id).eq(masters.iter().map(|node| node.id));
            if same && old.slots == slots {
                return None;
            }
            if !old.masters.is_empty() {
                tracing::info!(masters = masters.len(), "the masters of the cluster have changed");
            }
            Some(View { masters, slots })
        });
    }
}

/// Who asks for maps.
struct Asker {
    /// All nodes of the latest map.
    known: Vec<Address>,
    seeds: Vec<Address>,
    /// The connection that was last of use.
    kept: Option<(Address, Conversation)>,
}

impl Asker {
    /// Whom to ask, best first: who was named as the new master of a slot, who answered last,
    /// masters that work, all others.
    fn candidates(&self, client: &Client) -> Vec<Address> {
        let (_, view) = client.view();
        let mut all: Vec<Address> = client.common.take_hint().into_iter().collect();
        all.extend(self.kept.iter().map(|(address, _)| address.clone()));
        let works = view.masters.iter().filter(|node| !node.is_down());
        all.extend(works.map(|node| node.address.clone()));
        all.extend(self.known.iter().chain(&self.seeds).cloned());
        let mut seen = std::collections::HashSet::new();
        all.retain(|address| seen.insert(address.clone()));
        all
    }

    async fn map(&mut self, common: &Common, candidates: Vec<Address>) -> Result<Map, String> {
        let mut why = "there is nobody to ask".to_owned();
        for address in candidates {
            let conversation = match self.kept.take() {
                Some((kept, conversation)) if kept == address => Some(conversation),
                other => {
                    self.kept = other;
                    None
                }
            };
            match ask(common, conversation, &address).await {
                Ok((map, conversation)) => {
                    self.kept = Some((address, conversation));
                    return Ok(map);
                }
                Err(error) => why = format!("{address}: {error}"),
            }
        }
        Err(why)
    }
}

/// Asks a node, by a connection that there is or by a new one.
async fn ask(
    common: &Common,
    conversation: Option<Conversation>,
    address: &Address,
) -> Result<(Map, Conversation), String> {
    let mut conversation = match conversation {
        Some(conversation) => conversation,
        None => common.dialer.connect(address).await?,
    };
    let bytes = encoded(&[b"CLUSTER", b"SLOTS"]);
    match conversation.ask(&bytes, ANSWER_MAX).await.map_err(|error| error.to_string())? {
        Ok(reply) => match Map::read(&reply, address) {
            Some(map) => Ok((map, conversation)),
            None => Err("it knows no masters".to_owned()),
        },
        Err(ClientError::Reply(text)) => Err(text),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn range(first: i64, last: i64, servers: &[(Option<&str>, i64)]) -> Reply {
        let mut parts = vec![Reply::Integer(first), Reply::Integer(last)];
        parts.extend(servers.iter().map(|(host, port)| {
            let host = host.map_or(Reply::Null, |host| Reply::Bulk(host.to_owned().into()));
            Reply::Array(vec![host, Reply::Integer(*port), Reply::Bulk("id".into())])
        }));
        Reply::Array(parts)
    }

    #[test]
    fn maps_are_read() {
        let reply = Reply::Array(vec![
            range(0, 99, &[(Some("b"), 1), (Some("r"), 9)]),
            range(100, 200, &[(Some(""), 2)]),
            range(300, 16_383, &[(Some("b"), 1)]),
            range(201, 299, &[(None, 3)]),
            // Nobody knows where that one is.
            range(250, 260, &[(Some("?"), 4)]),
        ]);
        let map = Map::read(&reply, &tcp("me", 7)).unwrap();
        let masters: Vec<_> = map.masters.into_iter().collect();
        assert_eq!(
            masters,
            [
                (tcp("b", 1), vec![(0, 99), (300, 16_383)]),
                (tcp("me", 2), vec![(100, 200)]),
                (tcp("me", 3), vec![(201, 299)]),
            ]
        );
        assert_eq!(map.nodes, [tcp("b", 1), tcp("me", 2), tcp("me", 3), tcp("r", 9)]);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let from = tcp("me", 7);
        for reply in [
            Reply::Null,
            Reply::Array(vec![]),
            Reply::Array(vec![Reply::Integer(1)]),
            Reply::Array(vec![range(0, 16_384, &[(Some("a"), 1)])]),
            Reply::Array(vec![range(-1, 5, &[(Some("a"), 1)])]),
            Reply::Array(vec![range(0, 5, &[(Some("a"), 70_000)])]),
        ] {
            assert_eq!(Map::read(&reply, &from), None, "{reply:?}");
        }
        // Ends the wrong way round cover nothing.
        let reply = Reply::Array(vec![range(5, 0, &[(Some("a"), 1)])]);
        assert!(Map::read(&reply, &from).is_some());
    }
}
