//! Rules as they were read, before they are compiled.

use serde_json::Value;

use crate::http::HttpEntry;
use crate::read::Replaced;
use crate::rule::{Origin, Rule, Unlimited};
use crate::tree::Flags;

/// One file.
pub(crate) struct DomainDraft {
    pub(crate) domain: Box<str>,
    pub(crate) origin: Origin,
    pub(crate) descriptors: Vec<DescriptorDraft>,
    pub(crate) http: Vec<HttpEntry>,
    pub(crate) replaced: Vec<Replaced>,
}

/// One descriptor.
pub(crate) struct DescriptorDraft {
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
    pub(crate) limits: LimitsDraft,
    pub(crate) children: Vec<DescriptorDraft>,
    pub(crate) metadata: Option<Value>,
    pub(crate) flags: Flags,
    pub(crate) origin: Origin,
}

/// Its limits.
pub(crate) enum LimitsDraft {
    None,
    Unlimited(Unlimited),
    Some(Vec<Rule>),
}
