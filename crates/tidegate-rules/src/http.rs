//! How an HTTP request becomes descriptors.
//!
//! An entry says which requests it is for and which descriptors they become; all that match apply,
//! in the order they were written, up to one that is final. Paths are looked up in a trie, so a
//! request pays for the entries whose path matches and not for the others.

mod address;
mod check;
mod entry;
mod escape;
mod explain;
mod jwt;
mod mapped;
mod path;
mod pattern;
mod read;
mod render;
mod request;
mod route;
mod settling;
mod template;
mod trie;

pub(crate) use self::check::warn;
pub(crate) use self::entry::{HttpEntry, Index};
pub use self::explain::{HttpDescriptor, HttpExplained, HttpMismatch, HttpOutcome};
pub use self::mapped::{Mapped, MappedDescriptor};
pub(crate) use self::read::read;
pub use self::request::{HttpRequest, PlainRequest};
pub use self::route::{RouteScratch, RouteTable};
pub use self::settling::{Settling, parse_statuses};
