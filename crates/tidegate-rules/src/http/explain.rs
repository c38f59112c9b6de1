//! Why a request became the descriptors that it became.

use super::entry::{HttpEntry, Unmet};
use super::mapped::Made;
use super::render::{Asked, Scratch};
use super::request::HttpRequest;
use crate::rule::Origin;
use crate::rules::Rules;

/// What an entry of the `http` section did with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpExplained {
    /// Where the entry was written.
    pub origin: Origin,
    /// What it did.
    pub outcome: HttpOutcome,
}

/// What came of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpOutcome {
    /// It matched.
    Applied {
        /// What each of its descriptors became, up to one that refuses the request.
        descriptors: Vec<HttpDescriptor>,
        /// Whether entries further down do not apply.
        is_final: bool,
    },
    /// It did not match.
    NotMatched(HttpMismatch),
    /// It was not asked, because of the entry written there, which is final.
    Final(Origin),
    /// It was not asked, because the entry written there refuses the request.
    Denied(Origin),
}

/// The first condition that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpMismatch {
    /// The method is none of these.
    Method {
        /// The methods of the entry.
        wanted: Vec<String>,
        /// That of the request.
        found: String,
    },
    /// The host does not match.
    Host {
        /// The pattern.
        wanted: String,
        /// The host of the request, without port and in lower case.
        found: Option<String>,
    },
    /// The path does not match.
    Path {
        /// The pattern.
        wanted: String,
        /// The path of the request, decoded and without dots.
        found: String,
    },
    /// A header does not match.
    Header {
        /// Its name.
        name: String,
        /// The pattern.
        wanted: String,
        /// What the request has there.
        found: Option<String>,
    },
}

/// What a descriptor of an entry became.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpDescriptor {
    /// A descriptor, or several where addresses are grouped in several ways.
    Made {
        /// The keys and values of each.
        descriptors: Vec<Vec<(String, String)>>,
        /// The cost, if the entry gives one.
        cost: Option<u64>,
    },
    /// Nothing: a variable has no value.
    Missing {
        /// The variable, such as `header.x-user-id`.
        variable: String,
        /// Whether the request is refused for that.
        is_denied: bool,
    },
}

impl Rules {
    /// Explains what [`map_http`](Self::map_http) does with a request: one answer for each entry
    /// of the domain's `http` section, in their order. Slow, for people.
    pub fn explain_http(
        &self,
        domain: &str,
        request: &(impl HttpRequest + ?Sized),
    ) -> Vec<HttpExplained> {
        let mut scratch = Scratch::default();
        let mut asked = Asked::new(request, &mut scratch);
        let mut ended: Option<HttpOutcome> = None;
        let entries = self.http_of(domain).map_or(&[][..], |index| &index.entries);
        let explained = entries.iter().map(|entry| {
            let origin = entry.origin;
            if let Some(outcome) = ended.clone() {
                return HttpExplained { origin, outcome };
            }
            let outcome = match mismatch(entry, &mut asked) {
                Some(mismatch) => HttpOutcome::NotMatched(mismatch),
                None => apply(entry, &mut asked),
            };
            if let HttpOutcome::Applied { descriptors, is_final } = &outcome {
                let denies = |it: &_| matches!(it, HttpDescriptor::Missing { is_denied: true, .. });
                if descriptors.iter().any(denies) {
                    ended = Some(HttpOutcome::Denied(origin));
                } else if *is_final {
                    ended = Some(HttpOutcome::Final(origin));
                }
            }
            HttpExplained { origin, outcome }
        });
        explained.collect()
    }
}

fn mismatch<R: HttpRequest + ?Sized>(
    entry: &HttpEntry,
    asked: &mut Asked<'_, R>,
) -> Option<HttpMismatch> {
    if let Some(pattern) = &entry.conditions.path
        && !pattern.matches(asked.path())
    {
        let mut found = String::new();
        asked.path().write(&mut found);
        return Some(HttpMismatch::Path { wanted: pattern.as_str().to_owned(), found });
    }
    Some(match entry.conditions.unmet(asked)? {
        Unmet::Method => HttpMismatch::Method {
            wanted: entry.conditions.methods.iter().map(ToString::to_string).collect(),
            found: asked.request.method().to_owned(),
        },
        Unmet::Host(wanted) => {
            HttpMismatch::Host { wanted: wanted.to_owned(), found: asked.host().map(str::to_owned) }
        }
        Unmet::Header(name, wanted) => HttpMismatch::Header {
            name: name.to_owned(),
            wanted: wanted.to_owned(),
            found: asked.header(name).map(str::to_owned),
        },
    })
}

fn apply<R: HttpRequest + ?Sized>(entry: &HttpEntry, asked: &mut Asked<'_, R>) -> HttpOutcome {
    let mut descriptors = Vec::with_capacity(entry.descriptors.len());
    for template in &entry.descriptors {
        let mut made = Made::default();
        if let Err(missing) = made.add(template, entry, asked) {
            let (variable, is_denied) = (missing.to_string(), entry.denies_missing);
            descriptors.push(HttpDescriptor::Missing { variable, is_denied });
            if is_denied {
                break;
            }
            continue;
        }
        let owned = made.descriptors().map(|descriptor| {
            descriptor.entries().map(|it| (it.key.to_owned(), it.value.to_owned())).collect()
        });
        let cost = entry.cost.map(u64::from);
        descriptors.push(HttpDescriptor::Made { descriptors: owned.collect(), cost });
    }
    HttpOutcome::Applied { descriptors, is_final: entry.is_final }
}
