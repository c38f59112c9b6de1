//! The values that a request gives to variables.

use std::fmt::Write as _;
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use super::path::NormalPath;
use super::request::{HttpRequest, write_host};
use super::template::{Part, Template, Variable};
use super::trie::{Candidates, Visits};
use super::{address, escape, jwt};

/// The longest value; what is longer is hashed.
pub(crate) const VALUE_BYTES_MAX: usize = 1024;

/// What has been worked out of a request, and the room to do it in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) path: NormalPath,
    /// Whether the path has been written down, which not all rules ask for.
    knows_path: bool,
    pub(crate) visits: Visits,
    pub(crate) candidates: Candidates,
    pub(crate) value: String,
    host: String,
    /// Whether the host has been written down, which few rules ask for.
    knows_host: bool,
    payload: Vec<u8>,
    /// Whether there is a payload, once somebody has asked.
    has_payload: Option<bool>,
    bytes: Vec<u8>,
}

/// A request that is asked for values.
pub(crate) struct Asked<'a, R: ?Sized> {
    pub(crate) request: &'a R,
    pub(crate) scratch: &'a mut Scratch,
}

impl<'a, R: HttpRequest + ?Sized> Asked<'a, R> {
    pub(crate) fn new(request: &'a R, scratch: &'a mut Scratch) -> Self {
        (scratch.knows_path, scratch.knows_host) = (false, false);
        scratch.has_payload = None;
        Self { request, scratch }
    }

    /// The path in one form.
    pub(crate) fn path(&mut self) -> &NormalPath {
        let Self { request, scratch } = self;
        if !scratch.knows_path {
            scratch.path.set(request.path());
            scratch.knows_path = true;
        }
        &scratch.path
    }

    /// The host in one form.
    pub(crate) fn host(&mut self) -> Option<&str> {
        let Self { request, scratch } = self;
        if !scratch.knows_host {
            scratch.host.clear();
            write_host(&mut scratch.host, request.host().unwrap_or_default());
            scratch.knows_host = true;
        }
        Some(&*scratch.host).filter(|host| !host.is_empty())
    }

    /// A header as one text, if it is there.
    pub(crate) fn header(&mut self, name: &str) -> Option<&str> {
        self.scratch.value.clear();
        write_header(self.request, name, &mut self.scratch.value).then_some(&*self.scratch.value)
    }

    /// How many descriptors are made with these prefixes.
    pub(crate) fn tiers(&self, prefixes: usize) -> usize {
        match self.request.client_ip().is_some_and(address::is_grouped) {
            true => prefixes,
            false => 1,
        }
    }

    /// Writes the value of a variable; nothing, if it has none.
    fn write(&mut self, variable: &Variable, tier: usize, out: &mut String) {
        let Self { request, scratch } = self;
        match variable {
            Variable::ClientIp(prefixes) => {
                let prefix = prefixes.get(tier).or(prefixes.first());
                let prefix = prefix.copied().unwrap_or(address::PREFIX);
                if let Some(client) = request.client_ip() {
                    address::write(out, client, prefix);
                }
            }
            Variable::Method => out.push_str(request.method()),
            Variable::Host => out.push_str(self.host().unwrap_or_default()),
            Variable::Path => self.path().write(out),
            Variable::Segment { index, .. } => {
                out.push_str(self.path().segment(*index).unwrap_or_default());
            }
            Variable::Header(name) => drop(write_header(*request, name, out)),
            Variable::Cookie(name) => write_cookie(*request, name, out),
            Variable::Query(name) => {
                let query = request.query().unwrap_or_default();
                write_query(query, name, &mut scratch.bytes, out);
            }
            Variable::Jwt(name) => {
                if self.has_payload() {
                    jwt::write_claim(&self.scratch.payload, name, out);
                }
            }
        }
    }

    fn has_payload(&mut self) -> bool {
        let Self { request, scratch } = self;
        if let Some(known) = scratch.has_payload {
            return known;
        }
        let mut found = false;
        request.header("authorization", &mut |value| {
            found = found || jwt::decode_payload(value, &mut scratch.payload);
        });
        scratch.has_payload = Some(found);
        found
    }
}

impl Template {
    /// Writes the value for a request, or says which variable has none. Where the value is the
    /// client's address and nothing else, the address is given too.
    pub(crate) fn render<R: HttpRequest + ?Sized>(
        &self,
        asked: &mut Asked<'_, R>,
        tier: usize,
        out: &mut String,
    ) -> Result<Option<IpAddr>, &Variable> {
        let start = out.len();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Variable(variable, default) => {
                    let before = out.len();
                    asked.write(variable, tier, out);
                    if out.len() == before {
                        out.push_str(default.as_deref().ok_or(variable)?);
                    }
                }
            }
        }
        // What looks like a hash is hashed too, so that nobody can name the counter of a long value.
        let value = &out[start..];
        let is_hashed = value.len() > VALUE_BYTES_MAX || value.starts_with(HASH_MARK);
        if is_hashed && self.literal().is_none() {
            hash_from(out, start);
        }
        Ok(match &*self.parts {
            [Part::Variable(Variable::ClientIp(_), _)] => asked.request.client_ip(),
            _ => None,
        })
    }
}

/// What hashes begin with.
const HASH_MARK: &str = "sha256:";

/// Puts a hash in the place of a text: the same for the same text, in every process.
fn hash_from(out: &mut String, start: usize) {
    let digest = Sha256::digest(&out.as_bytes()[start..]);
    out.truncate(start);
    out.push_str(HASH_MARK);
    for byte in digest {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
}

/// Writes the values of a header with commas between them; whether it is there.
fn write_header<R: HttpRequest + ?Sized>(request: &R, name: &str, out: &mut String) -> bool {
    let start = out.len();
    let mut is_there = false;
    request.header(name, &mut |value| {
        is_there = true;
        if out.len() > start && !value.is_empty() {
            out.push(',');
        }
        escape::push_lossy(out, value);
    });
    is_there
}

/// Writes the first cookie of a name.
fn write_cookie<R: HttpRequest + ?Sized>(request: &R, name: &str, out: &mut String) {
    let mut found = false;
    request.header("cookie", &mut |value| {
        if found {
            return;
        }
        let cookies = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        for cookie in cookies {
            let Some(value) = cookie.strip_prefix(name.as_bytes()) else { continue };
            if let Some(value) = value.strip_prefix(b"=") {
                found = true;
                escape::push_lossy(out, value);
                return;
            }
        }
    });
}

/// Writes the first parameter of a name, without its escapes.
fn write_query(query: &str, name: &str, bytes: &mut Vec<u8>, out: &mut String) {
    for pair in query.split('&') {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        escape::decode(found, true, bytes);
        if *bytes == name.as_bytes() {
            escape::decode(value, true, bytes);
            return escape::push_lossy(out, bytes);
        }
    }
}

#[cfg(test)]
mod tests;
