//! How an HTTP request becomes descriptors.
//!
//! An entry says which requests it is for and which descriptors they become; all that match apply,
//! in the order they were written, up to one that is final. Paths are looked up in a trie, so a
//! request pays for the entries whose path matches and not for the others.

mod address;
mod escape;
mod jwt;
mod path;
mod pattern;
mod render;
mod request;
mod template;
mod trie;

pub use self::request::{HttpRequest, PlainRequest};

use crate::read::{Fields, Reader};

/// An entry of the `http` section.
#[derive(Debug)]
pub(crate) struct HttpEntry;

/// Reads the `http` section.
pub(crate) fn read<'t>(_reader: &mut Reader<'_, 't>, _root: &Fields<'_, 't>) -> Vec<HttpEntry> {
    Vec::new()
}
