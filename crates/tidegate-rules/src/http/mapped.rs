//! From a request to descriptors.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::{DescriptorTemplate, HttpEntry};
use super::render::{Asked, Scratch};
use super::request::HttpRequest;
use super::settling::Settling;
use super::template::Variable;
use crate::matching::{Descriptor, Entry};
use crate::rule::Origin;
use crate::rules::Rules;

/// The descriptors of a request. Use one again for the next request: it then allocates nothing.
#[derive(Debug, Default)]
pub struct Mapped {
    made: Made,
    denied: Option<Origin>,
    scratch: Scratch,
}

/// Descriptors and all their text.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The key and the value of each entry, one after the other.
    text: String,
    entries: Vec<Span>,
    descriptors: Vec<Group>,
}

#[derive(Debug)]
struct Span {
    start: usize,
    middle: usize,
    end: usize,
    address: Option<IpAddr>,
}

#[derive(Debug)]
struct Group {
    entries: Range<usize>,
    cost: Option<u64>,
    settling: Option<Arc<Settling>>,
    origin: Origin,
}

/// A descriptor that was made of a request.
#[derive(Clone, Copy, Debug)]
pub struct MappedDescriptor<'m> {
    made: &'m Made,
    group: &'m Group,
}

impl Mapped {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the request is refused because it lacks what an entry with `on_missing: deny` asks
    /// for. There are no descriptors then: a refused request consumes nothing.
    pub fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// The entry that refuses the request, if one does.
    pub fn denied_by(&self) -> Option<Origin> {
        self.denied
    }

    /// The descriptors, in the order of the entries that they come from.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = MappedDescriptor<'_>> {
        self.made.descriptors()
    }

    /// Gives the descriptors in the form that [`Rules::find`] takes. No text is copied.
    pub fn with<T>(&self, ask: impl FnOnce(&[Descriptor<'_>]) -> T) -> T {
        ask(&self.grouped(&self.entries()))
    }

    /// The entries of all descriptors, one after the other: what [`grouped`](Self::grouped) wants.
    pub fn entries(&self) -> SmallVec<[Entry<'_>; 6]> {
        // To collect them would move them once more.
        let mut entries = SmallVec::new();
        entries.extend(self.made.entries.iter().map(|span| self.made.entry(span)));
        entries
    }

    /// The descriptors in the form that [`Rules::find`] takes, for those who keep them for a
    /// while. `entries` are [all of them](Self::entries).
    pub fn grouped<'a>(&'a self, entries: &'a [Entry<'a>]) -> SmallVec<[Descriptor<'a>; 3]> {
        let mut descriptors = SmallVec::new();
        descriptors.extend(self.made.descriptors.iter().map(|group| Descriptor {
            entries: entries.get(group.entries.clone()).unwrap_or_default(),
            cost: group.cost,
            limit: None,
        }));
        descriptors
    }
}

impl<'m> MappedDescriptor<'m> {
    /// The entries.
    pub fn entries(self) -> impl ExactSizeIterator<Item = Entry<'m>> {
        let Self { made, group } = self;
        made.entries[group.entries.clone()].iter().map(|span| made.entry(span))
    }

    /// The cost, if the entry of the rules gives one.
    pub fn cost(self) -> Option<u64> {
        self.group.cost
    }

    /// What the answer changes of what the descriptor is counted with, if anything.
    pub fn settling(self) -> Option<&'m Arc<Settling>> {
        self.group.settling.as_ref()
    }

    /// Where the descriptor was written.
    pub fn origin(self) -> Origin {
        self.group.origin
    }
}

impl Rules {
    /// Maps an HTTP request to descriptors, as the `http` section of a domain says.
    ///
    /// All entries that match apply, in the order they were written, up to one that is `final`. A
    /// domain that is not known, or has no such section, gives no descriptors.
    ///
    /// Paths are compared decoded and with `.` and `..` resolved; slashes in a row count as one
    /// and one at the end not at all, so that `//v1/posts/` meets the limits of `/v1/posts`.
    /// `${path}` gives this form too.
    ///
    /// Claims (`${jwt.sub}`) are read from the bearer token **without verifying it**: something in
    /// front must have done that. A forged token only chooses which key it is counted by.
    ///
    /// ```
    /// use tidegate_rules::{File, Found, Mapped, Options, PlainRequest, Rules};
    ///
    /// let text = r#"
    /// domain: api
    /// http:
    ///   - match: { path: "/v1/**" }
    ///     descriptors: [ { user: "${header.x-user-id:-anon}" } ]
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { requests_per_unit: 2, unit: second }
    /// "#;
    /// let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
    /// let rules = loaded.rules.ok_or(loaded.report.to_string())?;
    ///
    /// let request = PlainRequest::parse("GET", "/v1/posts", [("X-User-Id", "ada")], None)?;
    /// let (mut mapped, mut found) = (Mapped::new(), Found::new());
    /// rules.map_http("api", &request, &mut mapped);
    /// assert!(!mapped.is_denied());
    /// mapped.with(|descriptors| rules.find("api", descriptors, &mut found));
    /// assert_eq!(&*found.limits[0].rule.id, "api.user");
    /// # Ok::<(), String>(())
    /// ```
    pub fn map_http(
        &self,
        domain: &str,
        request: &(impl HttpRequest + ?Sized),
        mapped: &mut Mapped,
    ) {
        let Mapped { made, denied, scratch } = mapped;
        made.clear();
        *denied = None;
        let Some(index) = self.http_of(domain).filter(|index| !index.entries.is_empty()) else {
            return;
        };
        let mut asked = Asked::new(request, scratch);
        if let Some(all) = index.trie.for_any_path() {
            asked.scratch.candidates.clear();
            asked.scratch.candidates.extend_from_slice(all);
        } else {
            asked.path();
            let Scratch { path, visits, candidates, .. } = &mut *asked.scratch;
            index.trie.find(path, visits, candidates);
        }
        for at in 0..asked.scratch.candidates.len() {
            let entry = &index.entries[asked.scratch.candidates[at] as usize];
            if entry.conditions.unmet(&mut asked).is_some() {
                continue;
            }
            if made.add_all(entry, &mut asked).is_err() {
                made.clear();
                *denied = Some(entry.origin);
                return;
            }
            if entry.is_final {
                return;
            }
        }
    }
}

/// A variable is missing that must not be.
struct Denied;

impl Made {
    pub(crate) fn descriptors(&self) -> impl ExactSizeIterator<Item = MappedDescriptor<'_>> {
        self.descriptors.iter().map(|group| MappedDescriptor { made: self, group })
    }

    fn entry(&self, span: &Span) -> Entry<'_> {
        let Span { start, middle, end, address } = *span;
        Entry { key: &self.text[start..middle], value: &self.text[middle..end], address }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
        self.descriptors.clear();
    }

    fn add_all<R: HttpRequest + ?Sized>(
        &mut self,
        entry: &HttpEntry,
        asked: &mut Asked<'_, R>,
    ) -> Result<(), Denied> {
        for template in &entry.descriptors {
            if self.add(template, entry, asked).is_err() && entry.denies_missing {
                return Err(Denied);
            }
        }
        Ok(())
    }

    /// Adds what a descriptor of the rules makes of a request, or says which variable is missing.
    pub(crate) fn add<'e, R: HttpRequest + ?Sized>(
        &mut self,
        template: &'e DescriptorTemplate,
        entry: &HttpEntry,
        asked: &mut Asked<'_, R>,
    ) -> Result<(), &'e Variable> {
        for tier in 0..asked.tiers(template.tiers) {
            let (text, first) = (self.text.len(), self.entries.len());
            for part in &template.entries {
                let start = self.text.len();
                self.text.push_str(&part.key);
                let middle = self.text.len();
                match part.value.render(asked, tier, &mut self.text) {
                    Ok(address) => {
                        let end = self.text.len();
                        self.entries.push(Span { start, middle, end, address });
                    }
                    Err(missing) => {
                        self.text.truncate(text);
                        self.entries.truncate(first);
                        return Err(missing);
                    }
                }
            }
            self.descriptors.push(Group {
                entries: first..self.entries.len(),
                cost: entry.cost.map(u64::from),
                settling: entry.settling.clone(),
                origin: template.origin,
            });
        }
        Ok(())
    }
}
