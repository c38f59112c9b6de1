//! Rules: loaded from files, compiled, asked.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::diagnostic::{At, Findings, Report};
use crate::draft::{DescriptorDraft, DomainDraft, LimitsDraft};
use crate::http::{self, Index};
use crate::read::{Reader, Replaced, read_file};
use crate::rule::{Origin, Rule, Unlimited};
use crate::tree::Tree;
use crate::yaml::Place;

/// Among how many names the one that was probably meant is looked for.
const SUGGESTED_FROM_MAX: usize = 1000;
/// How much text is compared to find patterns that others cover: each pattern may be compared with
/// all of every other one.
const COVERED_BYTES_MAX: usize = 1_000_000_000;

/// How many bytes the names of all limits may take: each is named by the whole way to it.
const NAMES_BYTES_MAX: usize = 256 << 20;
/// How many limits a set of files may have: as many as stores know at the most.
const RULES_MAX: usize = 1_000_000;

/// A file to load.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The name to use in messages.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// How to load.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Whether several files may name one domain; their descriptors then follow one another.
    pub merge_domains: bool,
    /// Be like Lyft's service also where it is worse: refused requests count, and patterns match
    /// over `key_value` as one text.
    pub lyft_compat: bool,
    /// Says why a name is not that of a time zone. Rules know nothing of time zones themselves;
    /// without this any name will do.
    pub check_time_zone: fn(&str) -> Result<(), String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { merge_domains: false, lyft_compat: false, check_time_zone: |_| Ok(()) }
    }
}

/// Compiled rules.
#[derive(Debug, Default)]
pub struct Rules {
    tree: Tree,
    /// The `http` section of each domain.
    domains: BTreeMap<Box<str>, Index>,
    files: Vec<Source>,
    /// Where the limits of each domain begin among all, and its rules that say there is none.
    planted: Vec<(Box<str>, usize, usize)>,
}

/// A file that rules were loaded from.
#[derive(Debug)]
struct Source {
    name: Box<str>,
    text: Box<str>,
    /// Where each line begins.
    lines: Vec<u32>,
}

impl Source {
    fn new(file: &File<'_>) -> Self {
        let begins = |(at, _): (usize, &str)| u32::try_from(at + 1).ok();
        let lines = file.text.match_indices('\n').filter_map(begins);
        let lines = std::iter::once(0).chain(lines).collect();
        Self { name: file.name.into(), text: file.text.into(), lines }
    }
}

/// What came of loading.
#[derive(Debug)]
pub struct Loaded {
    /// The rules, unless there are errors.
    pub rules: Option<Rules>,
    /// Everything that was found.
    pub report: Report,
}

impl Rules {
    /// Loads a set of files. All that is wrong with any of them is reported at once.
    ///
    /// ```
    /// use tidegate_rules::{Descriptor, Entry, File, Found, Options, Rules};
    ///
    /// let text = "
    /// domain: api
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { requests_per_unit: 2, unit: second }
    /// ";
    /// let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
    /// let rules = loaded.rules.ok_or(loaded.report.to_string())?;
    ///
    /// let mut found = Found::new();
    /// rules.find("api", &[Descriptor::new(&[Entry::new("user", "ada")])], &mut found);
    /// assert_eq!(&*found.limits[0].rule.id, "api.user");
    /// # Ok::<(), String>(())
    /// ```
    pub fn load(files: &[File<'_>], options: &Options) -> Loaded {
        let mut findings = Findings::new();
        findings.report.files = files.len();
        let mut drafts = Vec::new();
        let mut names = NAMES_BYTES_MAX;
        for (number, file) in (0u32..).zip(files) {
            findings.enter(file.name, file.text);
            let mut reader = Reader {
                findings: &mut findings,
                options,
                file: number,
                replaced: Vec::new(),
                names: &mut names,
            };
            drafts.extend(read_file(&mut reader, file.text));
        }
        let domains = join_domains(drafts, files, options, &mut findings);
        domains.iter().for_each(|domain| warn_of_replaces(domain, files, &mut findings));
        domains.iter().for_each(|domain| http::warn(domain, files, options, &mut findings));
        let rules = Self::compile(domains, files, options);
        findings.report.rules = rules.tree.rules.len() + rules.tree.unlimited.len();
        if rules.tree.rules.len() > RULES_MAX {
            let message = format!("{} limits; the most is {RULES_MAX}", rules.tree.rules.len());
            findings.error(At::place(Place { line: 1, column: 1 }), message);
        }
        warn_of_covered(&rules.tree, files, &mut findings);
        let report = findings.finish();
        Loaded { rules: report.is_ok().then_some(rules), report }
    }

    fn compile(domains: Vec<DomainDraft>, files: &[File<'_>], options: &Options) -> Self {
        let mut rules = Self { tree: Tree::new(options.lyft_compat), ..Self::default() };
        rules.files = files.iter().map(Source::new).collect();
        for DomainDraft { domain, origin, descriptors, http, .. } in domains {
            let begin = (rules.tree.rules.len(), rules.tree.unlimited.len());
            rules.planted.push((domain.clone(), begin.0, begin.1));
            let root = rules.tree.plant(&domain, origin);
            rules.tree.grow(root, descriptors);
            rules.tree.open(&domain, root);
            rules.domains.insert(domain, Index::new(http));
        }
        rules
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    #[inline]
    pub(crate) fn root_of(&self, domain: &str) -> Option<u32> {
        self.tree.root(domain).map(|root| root.node)
    }

    pub(crate) fn http_of(&self, domain: &str) -> Option<&Index> {
        self.domains.get(domain)
    }

    /// All limits, in the order they were written.
    pub fn all(&self) -> &[Rule] {
        &self.tree.rules
    }

    /// All rules that say there is no limit, in the order they were written.
    pub fn unlimited(&self) -> &[Unlimited] {
        &self.tree.unlimited
    }

    /// The domain of a limit, by its position among [`all`](Self::all).
    pub fn domain_of(&self, index: usize) -> &str {
        let later = self.planted.partition_point(|(_, begin, _)| *begin <= index);
        later.checked_sub(1).map_or("", |at| &self.planted[at].0)
    }

    /// The domain of a rule that says there is no limit, by its position among
    /// [`unlimited`](Self::unlimited).
    pub fn domain_of_unlimited(&self, index: usize) -> &str {
        let later = self.planted.partition_point(|(_, _, begin)| *begin <= index);
        later.checked_sub(1).map_or("", |at| &self.planted[at].0)
    }

    /// Whether there is such a domain.
    pub fn knows(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Whether a domain says how HTTP requests become descriptors.
    pub fn maps_http(&self, domain: &str) -> bool {
        self.http_of(domain).is_some_and(|index| !index.entries.is_empty())
    }

    /// The domains, in the order of their names.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(|domain| &**domain)
    }

    /// Where something was written, as `file:line`.
    pub fn origin(&self, origin: Origin) -> String {
        format!("{}:{}", self.file(origin), origin.place.line)
    }

    /// The file that something was written in.
    pub fn file(&self, origin: Origin) -> &str {
        self.files.get(origin.file as usize).map_or("", |file| &file.name)
    }

    /// The line that something was written in, without its end.
    pub fn source_line(&self, origin: Origin) -> &str {
        let line = || {
            let file = self.files.get(origin.file as usize)?;
            let start = *file.lines.get(origin.place.line.checked_sub(1)? as usize)? as usize;
            file.text.get(start..)?.lines().next()
        };
        line().unwrap_or_default()
    }
}

/// Brings files of one domain together, or says that there are two.
fn join_domains<'t>(
    drafts: Vec<DomainDraft>,
    files: &[File<'t>],
    options: &Options,
    findings: &mut Findings<'t>,
) -> Vec<DomainDraft> {
    let mut joined: Vec<(DomainDraft, Names)> = Vec::new();
    let mut known: HashMap<Box<str>, usize> = HashMap::new();
    for draft in drafts {
        let place = match known.entry(draft.domain.clone()) {
            MapEntry::Vacant(free) => {
                free.insert(joined.len());
                let names = draft.descriptors.iter().map(name_of).collect();
                joined.push((draft, names));
                continue;
            }
            MapEntry::Occupied(taken) => *taken.get(),
        };
        let file = files[draft.origin.file as usize];
        findings.enter(file.name, file.text);
        let (earlier, names) = &mut joined[place];
        if !options.merge_domains {
            let first = files[earlier.origin.file as usize].name;
            let at = At::place(draft.origin.place)
                .hint(format!("the domain is in `{first}` too; --merge-domains joins such files"));
            findings.error(at, format!("duplicate domain '{}' in config file", draft.domain));
            continue;
        }
        for descriptor in draft.descriptors {
            if !names.insert(name_of(&descriptor)) {
                let value = descriptor.value.as_deref();
                let value = value.map_or(String::new(), |value| format!("_{value}"));
                let message = format!(
                    "duplicate descriptor composite key '{}.{}{value}'",
                    draft.domain, descriptor.key
                );
                findings.error(At::place(descriptor.origin.place), message);
                continue;
            }
            earlier.descriptors.push(descriptor);
        }
        earlier.http.extend(draft.http);
        earlier.replaced.extend(draft.replaced);
    }
    joined.into_iter().map(|(draft, _)| draft).collect()
}

/// The descriptors of a list by key and value.
type Names = HashSet<(Box<str>, Option<Box<str>>)>;

fn name_of(draft: &DescriptorDraft) -> (Box<str>, Option<Box<str>>) {
    (draft.key.clone(), draft.value.clone())
}

/// Warns of a `replaces` that names no limit of its domain.
fn warn_of_replaces<'t>(domain: &DomainDraft, files: &[File<'t>], findings: &mut Findings<'t>) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    visit(&domain.descriptors, &mut |limits| {
        if let LimitsDraft::Some(rules) = limits {
            names.extend(rules.iter().filter_map(|rule| rule.name.as_deref()));
        }
    });
    for Replaced { name, own, origin, path } in &domain.replaced {
        if names.contains(&**name) {
            continue;
        }
        let file = files[origin.file as usize];
        findings.enter(file.name, file.text);
        let at = At::place(origin.place).way(path.clone());
        let at = match names.len() {
            0..=SUGGESTED_FROM_MAX => {
                let others = names.iter().copied().filter(|name| Some(*name) != own.as_deref());
                at.suggest(name, others)
            }
            _ => at,
        };
        findings.warn(at, format!("replaces '{name}', but no limit of the domain has that name"));
    }
}

fn visit<'d>(drafts: &'d [DescriptorDraft], look: &mut impl FnMut(&'d LimitsDraft)) {
    for draft in drafts {
        look(&draft.limits);
        visit(&draft.children, look);
    }
}

/// Warns of a pattern that an earlier one leaves nothing to match.
fn warn_of_covered<'t>(tree: &Tree, files: &[File<'t>], findings: &mut Findings<'t>) {
    // Patterns that begin and end alike are compared one by one.
    let (count, bytes) = tree.patterns().fold((0usize, 0usize), |(count, bytes), (_, node)| {
        (count + 1, bytes + tree.text_len(node))
    });
    if bytes.saturating_mul(count) > COVERED_BYTES_MAX {
        return;
    }
    for (parent, node) in tree.patterns() {
        let Some(earlier) = tree.covered_by(parent, node) else { continue };
        let (origin, place) = (tree.origin(node), tree.origin(earlier).place);
        let (node, earlier) = (tree.node(node), tree.node(earlier));
        let shown = |node| tree.value(node).unwrap_or(tree.key(node));
        let file = files[origin.file as usize];
        findings.enter(file.name, file.text);
        let hint = format!(
            "`{}` in line {} comes first and matches all that it matches",
            shown(earlier),
            place.line
        );
        let message = format!("`{}` can never match", shown(node));
        findings.warn(At::place(origin.place).hint(hint), message);
    }
}
