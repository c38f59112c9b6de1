//! The connections of this thread: each thread has its own, so that none waits for another.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::link::{Before, Link, Refused, Waiting};
use super::node::Node;
use super::view::View;
use super::{Client, ClientError};

/// So many clients and runtimes are remembered by a thread; more are seen in no program, only in
/// long rows of tests.
const PLACES_MAX: usize = 64;
/// Connections to nodes that are no masters yet, while slots move.
const GUESTS_MAX: usize = 64;

thread_local! {
    static HERE: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// What a thread has of one client on one runtime. A runtime that is not run at present would not
/// drive its connections, so another runtime on the same thread has others.
struct Place {
    client: u64,
    runtime: Id,
    version: u64,
    view: Arc<View>,
    /// By the index of the master.
    links: Vec<Option<Owned>>,
    guests: Vec<Owned>,
}

/// A link of this thread. It closes when the thread has no use for it any more.
struct Owned(Arc<Link>);

impl Deref for Owned {
    type Target = Arc<Link>;

    fn deref(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A command on its way out.
pub(super) struct Post<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) deadline: Instant,
    pub(super) before: Option<Before>,
}

/// Gives a command to the master of a slot.
pub(super) fn post(client: &Client, slot: u16, post: &Post<'_>) -> Result<Waiting, ClientError> {
    at(client, |place, runtime| {
        let index = place.view.master_of(slot).ok_or(ClientError::Down)?;
        match place.post(index, post, runtime) {
            // Somebody else has just learnt that it is no master any more.
            Err(ClientError::Down) if place.is_outdated(client) => {
                place.update(client);
                let index = place.view.master_of(slot).ok_or(ClientError::Down)?;
                place.post(index, post, runtime)
            }
            result => result,
        }
    })
}

/// Gives a command to a node, which need not be a master.
pub(super) fn post_to(
    client: &Client,
    node: &Arc<Node>,
    post: &Post<'_>,
) -> Result<Waiting, ClientError> {
    at(client, |place, runtime| {
        match place.view.masters.iter().position(|master| master.id == node.id) {
            Some(index) => place.post(index, post, runtime),
            None => place.post_to_guest(node, post, runtime),
        }
    })
}

/// What this thread has of the client, up to date.
fn at<R>(
    client: &Client,
    act: impl FnOnce(&mut Place, &Handle) -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    // Without a runtime, or at the end of the thread, there is nobody to ask for us.
    let runtime = Handle::try_current().map_err(|_| ClientError::Down)?;
    let id = runtime.id();
    HERE.try_with(|here| {
        let mut here = here.try_borrow_mut().map_err(|_| ClientError::Down)?;
        let index = here.iter().position(|at| at.client == client.id && at.runtime == id);
        let index = index.unwrap_or_else(|| {
            if here.len() >= PLACES_MAX {
                here.remove(0);
            }
            here.push(Place::new(client, id));
            here.len() - 1
        });
        let place = here.get_mut(index).ok_or(ClientError::Down)?;
        if place.is_outdated(client) {
            place.update(client);
        }
        act(place, &runtime)
    })
    .map_err(|_| ClientError::Down)?
}

impl Place {
    fn new(client: &Client, runtime: Id) -> Self {
        let (version, view) = client.view();
        let mut links = Vec::new();
        links.resize_with(view.masters.len(), || None);
        Self { client: client.id, runtime, version, view, links, guests: Vec::new() }
    }

    fn is_outdated(&self, client: &Client) -> bool {
        self.version != client.version()
    }

    /// Masters have changed. Links to those that still are masters stay.
    fn update(&mut self, client: &Client) {
        let (version, view) = client.view();
        let mut old: Vec<Owned> = self.links.drain(..).flatten().collect();
        old.append(&mut self.guests);
        let keep = |master: &Arc<Node>| {
            let at = old.iter().position(|link| link.node.id == master.id)?;
            Some(old.swap_remove(at))
        };
        self.links = view.masters.iter().map(keep).collect();
        (self.version, self.view) = (version, view);
    }

    fn post(
        &mut self,
        index: usize,
        post: &Post<'_>,
        runtime: &Handle,
    ) -> Result<Waiting, ClientError> {
        let (Some(node), Some(link)) = (self.view.masters.get(index), self.links.get_mut(index))
        else {
            return Err(ClientError::Down);
        };
        send(link, node, post, runtime)
    }

    fn post_to_guest(
        &mut self,
        node: &Arc<Node>,
        post: &Post<'_>,
        runtime: &Handle,
    ) -> Result<Waiting, ClientError> {
        let at = self.guests.iter().position(|link| link.node.id == node.id);
        let mut link = at.map(|at| self.guests.swap_remove(at));
        let sent = send(&mut link, node, post, runtime);
        if self.guests.len() >= GUESTS_MAX {
            self.guests.remove(0);
        }
        self.guests.extend(link);
        sent
    }
}

/// Sends a command by the link that is there, or by a new one if that is of no use any more.
fn send(
    link: &mut Option<Owned>,
    node: &Arc<Node>,
    post: &Post<'_>,
    runtime: &Handle,
) -> Result<Waiting, ClientError> {
    if node.is_down() || node.is_gone() {
        return Err(ClientError::Down);
    }
    if let Some(link) = link.as_ref().filter(|link| link.is_in_order()) {
        match link.push(post.bytes, post.deadline, post.before) {
            Ok(waiting) => return Ok(waiting),
            Err(Refused::Full) => return Err(ClientError::Full),
            Err(Refused::Dead) => {}
        }
    }
    let new = Owned(Link::start(node, runtime, link.is_some()));
    let sent = new.push(post.bytes, post.deadline, post.before);
    *link = Some(new);
    sent.map_err(|refused| match refused {
        Refused::Full => ClientError::Full,
        Refused::Dead => ClientError::Down,
    })
}

/// Lets go of what this thread has of a client.
pub(super) fn forget(client: u64) {
    // At the end of the thread it is gone already.
    let _ = HERE.try_with(|here| {
        if let Ok(mut here) = here.try_borrow_mut() {
            here.retain(|place| place.client != client);
        }
    });
}
