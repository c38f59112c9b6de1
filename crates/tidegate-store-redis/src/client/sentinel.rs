//! Following a master by asking Sentinels who it is.
//!
//! They are asked every second, and more often while the master does not work. What they publish
//! (`+switch-master`) is not listened to: a message that is missed would be missed for good.

use std::sync::{Arc, Weak};

use tokio::time::{Duration, timeout};

use super::Client;
use super::dial::{Conversation, Dialer};
use super::node::Common;
use super::resp::encoded;
use super::view::View;
use super::{ClientError, Reply};
use crate::target::Address;

/// How often Sentinels are asked while all is well.
const EVERY: Duration = Duration::from_secs(1);
/// How often while there is no master that works.
const IN_TROUBLE_EVERY: Duration = Duration::from_millis(100);
/// However often there is reason to, they are not asked sooner again than this.
const AT_MOST_EVERY: Duration = Duration::from_millis(20);
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// Keeps the client's master up to date, as long as the client is there.
pub(super) async fn follow(client: Weak<Client>, common: Arc<Common>, sentinels: Sentinels) {
    let mut kept = None;
    loop {
        let found = Box::pin(sentinels.master(&common, &client, &mut kept)).await;
        let Some(client) = client.upgrade() else { return };
        let trouble = match found {
            Ok(None) => None,
            Ok(Some(address)) => {
                client.set_master(&address);
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

impl Client {
    fn set_master(self: &Arc<Self>, address: &Address) {
        self.change_view(|old| {
            if let Some(master) = old.masters.first() {
                tracing::warn!(from = %master.address, to = %address, "the master has moved");
            }
            Some(View::of_one(self.new_node(address, 0)))
        });
    }
}

/// Whom to ask for which master.
pub(super) struct Sentinels {
    pub(super) addresses: Vec<Address>,
    pub(super) dialer: Dialer,
    pub(super) master: String,
}

impl Sentinels {
    /// Who is master; `None` if that is known. The Sentinel that last knew is asked first, and then
    /// the others in turn.
    async fn master(
        &self,
        common: &Common,
        client: &Weak<Client>,
        kept: &mut Option<(usize, Conversation)>,
    ) -> Result<Option<Address>, String> {
        let mut why = "there are no Sentinels".to_owned();
        let first = kept.as_ref().map_or(0, |(index, _)| *index);
        for turn in 0..self.addresses.len() {
            let index = (first + turn) % self.addresses.len();
            let Some(sentinel) = self.addresses.get(index) else { break };
            let conversation = match kept.take() {
                Some((kept, conversation)) if kept == index => Some(conversation),
                _ => None,
            };
            let asked = match self.ask(conversation, sentinel).await {
                Err(error) => Err(error),
                Ok((address, conversation)) => {
                    *kept = Some((index, conversation));
                    Ok(address)
                }
            };
            match asked {
                Err(error) => why = format!("the Sentinel {sentinel}: {error}"),
                Ok(address) if is_known(client, &address) => return Ok(None),
                // It may have been told so before it is one, or may be one no more.
                Ok(address) => match common.dialer.connect(&address).await {
                    Ok(_) => return Ok(Some(address)),
                    Err(error) => {
                        why = format!("the Sentinel {sentinel} names {address}, but: {error}");
                    }
                },
            }
        }
        Err(why)
    }

    /// Asks a Sentinel, by a connection that there is or by a new one.
    async fn ask(
        &self,
        conversation: Option<Conversation>,
        sentinel: &Address,
    ) -> Result<(Address, Conversation), String> {
        let mut conversation = match conversation {
            Some(conversation) => conversation,
            None => self.dialer.connect(sentinel).await?,
        };
        let words: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.master.as_bytes()];
        let reply = conversation.ask(&encoded(&words), ANSWER_MAX).await;
        let reply = reply.map_err(|error| error.to_string())?;
        let parts = match reply {
            Ok(Reply::Array(parts)) => parts,
            Ok(_) => return Err(format!("it knows no master called `{}`", self.master)),
            Err(ClientError::Reply(text)) => return Err(text),
            Err(error) => return Err(error.to_string()),
        };
        let text = |part: Option<&Reply>| match part {
            Some(Reply::Bulk(text)) => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        let named = text(parts.first()).zip(text(parts.get(1)).and_then(|port| port.parse().ok()));
        named
            .and_then(|(host, port)| Address::beside(&host, port, sentinel))
            .map(|address| (address, conversation))
            .ok_or_else(|| "its answer cannot be understood".to_owned())
    }
}

fn is_known(client: &Weak<Client>, address: &Address) -> bool {
    client.upgrade().is_some_and(|client| client.view().1.at(address).is_some())
}
