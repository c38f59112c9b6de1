//! The entries of an `http` section, compiled.

use std::sync::Arc;

use super::pattern::PathPattern;
use super::render::Asked;
use super::request::HttpRequest;
use super::settling::Settling;
use super::template::{Template, Variable};
use super::trie::Trie;
use crate::glob;
use crate::rule::Origin;

/// The `http` section of a domain.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) entries: Vec<HttpEntry>,
    pub(crate) trie: Trie,
}

impl Index {
    pub(crate) fn new(entries: Vec<HttpEntry>) -> Self {
        let trie = Trie::new(entries.iter().map(|entry| entry.conditions.path.as_ref()));
        Self { entries, trie }
    }
}

/// An entry of the `http` section.
#[derive(Debug)]
pub(crate) struct HttpEntry {
    pub(crate) origin: Origin,
    /// Its position in the list of its file.
    pub(crate) position: usize,
    pub(crate) conditions: Conditions,
    pub(crate) descriptors: Box<[DescriptorTemplate]>,
    pub(crate) cost: Option<u32>,
    /// What answers change of it.
    pub(crate) settling: Option<Arc<Settling>>,
    /// Refuse a request that lacks a variable, instead of leaving the descriptor out.
    pub(crate) denies_missing: bool,
    /// No entry after this one applies.
    pub(crate) is_final: bool,
}

/// Which requests an entry is for. What is absent is any.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) methods: Box<[Box<str>]>,
    /// A pattern in lower case, without port.
    pub(crate) host: Option<Box<str>>,
    pub(crate) path: Option<PathPattern>,
    /// Names in lower case, and patterns.
    pub(crate) headers: Box<[(Box<str>, Box<str>)]>,
}

/// A condition that a request does not meet.
pub(crate) enum Unmet<'e> {
    Method,
    Host(&'e str),
    Header(&'e str, &'e str),
}

impl Conditions {
    /// The first condition other than the path that a request does not meet.
    pub(crate) fn unmet<R: HttpRequest + ?Sized>(
        &self,
        asked: &mut Asked<'_, R>,
    ) -> Option<Unmet<'_>> {
        let method = asked.request.method();
        if !self.methods.is_empty() && !self.methods.iter().any(|wanted| **wanted == *method) {
            return Some(Unmet::Method);
        }
        if let Some(wanted) = &self.host
            && !asked.host().is_some_and(|host| glob::matches(wanted, host))
        {
            return Some(Unmet::Host(wanted));
        }
        let unmet = self.headers.iter().find(|(name, wanted)| {
            !asked.header(name).is_some_and(|value| glob::matches(wanted, value))
        });
        unmet.map(|(name, wanted)| Unmet::Header(name, wanted))
    }

    /// Whether every request meets them.
    pub(crate) fn are_none(&self) -> bool {
        self.methods.is_empty()
            && self.host.is_none()
            && self.headers.is_empty()
            && self.path.as_ref().is_none_or(PathPattern::is_everything)
    }
}

/// A descriptor whose values are templates.
#[derive(Debug)]
pub(crate) struct DescriptorTemplate {
    pub(crate) origin: Origin,
    /// Its position in the list of its entry.
    pub(crate) position: usize,
    pub(crate) entries: Box<[EntryTemplate]>,
    /// How many descriptors it makes for an IPv6 client.
    pub(crate) tiers: usize,
}

#[derive(Debug)]
pub(crate) struct EntryTemplate {
    pub(crate) key: Box<str>,
    pub(crate) value: Template,
}

impl EntryTemplate {
    /// How many values it has for an IPv6 client.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = usize> {
        self.value.variables().filter_map(|variable| match variable {
            Variable::ClientIp(prefixes) => Some(prefixes.len()),
            _ => None,
        })
    }
}
