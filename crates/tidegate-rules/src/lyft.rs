//! Whether Lyft's own service would load a set of files, and what it would say if not.
//!
//! That service goes over a file three times: it looks at the names of all keys wherever they
//! stand, then at the types of those that it knows, and then builds its tree, in which a descriptor
//! is the text `key` or `key_value`. It stops at the first thing that is wrong. What follows goes
//! the same way and shares nothing with our loader but the tree of the YAML file, so that neither
//! hides a mistake of the other.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::diagnostic::{At, Findings, Path, Report, nearest};
use crate::field::{self, LYFT};
use crate::rules::File;
use crate::yaml::{Document, Kind, Meaning, Node, Place, YamlError, beginning};

/// How many errors of type are listed in one message.
const TYPE_ERRORS_MAX: usize = 10;
/// What its YAML library shows of a longer value.
const VALUE_SHOWN_BYTES: usize = 7;

/// Says whether Lyft's service loads these files, and for each that it refuses, what it says first.
///
/// Its order within a map is random; here it is that of the file. It stops at the first file that
/// is wrong; here every file is looked at.
///
/// ```
/// use tidegate_rules::{File, check_lyft};
///
/// let text = "
/// domain: api
/// descriptors:
///   - key: user
///     rate_limit: { requests_per_unit: 2, unit: second, algorithm: gcra }
/// ";
/// let report = check_lyft(&[File { name: "api.yaml", text }], false);
/// assert_eq!(report.errors[0].message, "config error, unknown key 'algorithm'");
/// ```
pub fn check_lyft(files: &[File<'_>], merge_domains: bool) -> Report {
    let mut findings = Findings::new();
    findings.report.files = files.len();
    let mut domains = Domains::new();
    for file in files {
        findings.enter(file.name, file.text);
        let mut check = Check { findings: &mut findings, domains: &mut domains, merge_domains };
        // What was refused is in the findings.
        let _ = check.file(file.text);
    }
    findings.finish()
}

/// The descriptors at the top of each domain, as Lyft's service names them.
type Domains = HashMap<String, HashSet<String>>;

struct Check<'f, 't> {
    findings: &'f mut Findings<'t>,
    domains: &'f mut Domains,
    merge_domains: bool,
}

/// The file is refused, and the reason has been reported.
struct Refused;

type Outcome = Result<(), Refused>;

impl<'t> Check<'_, 't> {
    fn file(&mut self, text: &'t str) -> Outcome {
        let document = Document::read(text).or_else(|YamlError { place, message }| {
            let message =
                format!("error loading config file: yaml: line {}: {message}", place.line);
            self.refuse(At::place(place), message).map(|()| Document { root: None, second: None })
        })?;
        let Some(root) = document.root.as_deref().filter(|root| !root.is_null()) else {
            return self.refuse(
                At::place(Place { line: 1, column: 1 }),
                "config file cannot have empty domain",
            );
        };
        let path = Path::ROOT;
        if !matches!(root.kind, Kind::Map(_)) {
            let mut errors = TypeErrors::default();
            errors.add(root, "map[interface {}]interface {}", &path);
            return self.types(errors);
        }
        self.names(root, &path)?;
        let mut errors = TypeErrors::default();
        check_types(root, ROOT, &path, &mut errors);
        self.types(errors)?;
        self.tree(root, &path)
    }

    fn refuse(&mut self, at: At<'_>, message: impl Into<String>) -> Outcome {
        self.findings.error(at, message);
        Err(Refused)
    }

    /// The first time: every key of every map is one of the sixteen, wherever it stands.
    fn names(&mut self, map: &Node<'t>, path: &Path<'_>) -> Outcome {
        for (key, value) in self.entries(map, path)? {
            let name = match key.scalar() {
                Some(scalar) if scalar.meaning() == Meaning::Text => &*scalar.text,
                _ => {
                    let at = At::new(key.place, path).over(key);
                    let message =
                        format!("config error, key is not of type string: {}", key.printed());
                    return self.refuse(at, message);
                }
            };
            if !LYFT.contains(&name) {
                let at = hint_at_name(At::new(key.place, path).wide(name), name);
                return self.refuse(at, format!("config error, unknown key '{name}'"));
            }
            // Nobody looks into metadata.
            if name == "metadata" {
                continue;
            }
            self.value(value, &path.key(name))?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Node<'t>, path: &Path<'_>) -> Outcome {
        match &value.kind {
            Kind::Map(_) => self.names(value, path),
            Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.index(index);
                    if !matches!(item.kind, Kind::Map(_)) {
                        let at = At::new(item.place, &path).over(item);
                        let message = format!(
                            "config error, yaml file contains list of type other than map: {}",
                            item.printed()
                        );
                        return self.refuse(at, message);
                    }
                    self.names(item, &path)?;
                }
                Ok(())
            }
            Kind::Scalar(scalar) => match scalar.meaning() {
                Meaning::Float => self.unknown_scalar(value, path),
                // What does not fit a signed number of 64 bits is not an integer there.
                Meaning::Int(number) if i64::try_from(number).is_err() => {
                    self.unknown_scalar(value, path)
                }
                _ => Ok(()),
            },
        }
    }

    fn unknown_scalar(&mut self, value: &Node<'t>, path: &Path<'_>) -> Outcome {
        let shown = value.shown();
        let at = At::new(value.place, path).over(value);
        let at = at.hint(format!("Lyft's service knows no such number; as text: \"{shown}\""));
        self.refuse(at, "error checking config")
    }

    /// The second time: all errors of type in one message.
    fn types(&mut self, errors: TypeErrors) -> Outcome {
        let TypeErrors { first: Some((place, path, shown)), mut texts, more } = errors else {
            return Ok(());
        };
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let message = texts.join("\n  ");
        let message = format!("error loading config file: yaml: unmarshal errors:\n  {message}");
        self.refuse(At::place(place).way(path).wide(&shown), message)
    }

    /// The third time: the domain and its tree.
    fn tree(&mut self, root: &Node<'t>, path: &Path<'_>) -> Outcome {
        let map = self.map(root, path)?;
        let domain = map.text("domain");
        if domain.is_empty() {
            return self.refuse(
                At::new(map.place_of("domain", root), path),
                "config file cannot have empty domain",
            );
        }
        if self.domains.contains_key(domain) && !self.merge_domains {
            let at = At::new(map.place_of("domain", root), path).wide("domain");
            let at = at.hint("MERGE_DOMAIN_CONFIG=true lets its files share a domain");
            return self.refuse(at, format!("duplicate domain '{domain}' in config file"));
        }
        let mut names = self.domains.remove(domain).unwrap_or_default();
        let outcome = self.descriptors(map.list("descriptors"), domain, &mut names, path);
        self.domains.insert(domain.to_owned(), names);
        outcome
    }

    fn descriptors(
        &mut self,
        list: &[Rc<Node<'t>>],
        parent: &str,
        names: &mut HashSet<String>,
        path: &Path<'_>,
    ) -> Outcome {
        let path = path.key("descriptors");
        for (index, node) in list.iter().enumerate() {
            let path = path.index(index);
            let map = self.map(node, &path)?;
            let (key, value) = (map.text("key"), map.text("value"));
            if key.is_empty() {
                return self.refuse(At::new(node.place, &path), "descriptor has empty key");
            }
            let name = match value {
                "" => key.to_owned(),
                value => format!("{key}_{value}"),
            };
            let way = format!("{parent}.{name}");
            if names.contains(&name) {
                let at = At::new(node.place, &path);
                let at = at.hint("to Lyft's service `key: a_b` and `key: a`, `value: b` are one");
                return self.refuse(at, format!("duplicate descriptor composite key '{way}'"));
            }
            self.limit(&map, &path)?;
            if map.flag("share_threshold") && !name.contains('*') {
                let place = map.place_of("share_threshold", node);
                let at = At::new(place, &path).wide("share_threshold");
                return self.refuse(at, format!("share_threshold can only be used with wildcard values (containing '*'), but found key '{name}'"));
            }
            let children = map.list("descriptors");
            self.descriptors(children, &way, &mut HashSet::new(), &path)?;
            names.insert(name);
        }
        Ok(())
    }

    fn limit(&mut self, descriptor: &Map<'_, 't>, path: &Path<'_>) -> Outcome {
        let Some(node) = descriptor.get("rate_limit") else { return Ok(()) };
        self.findings.report.rules += 1;
        let path = path.key("rate_limit");
        let map = self.map(node, &path)?;
        let unit = map.text("unit");
        let known = field::UNITS.iter().any(|known| known.eq_ignore_ascii_case(unit));
        let unit_path = path.key("unit");
        let at = match map.get("unit") {
            Some(node) => At::new(node.place, &unit_path).wide(unit),
            None => At::new(node.place, &path),
        };
        match (map.flag("unlimited"), known) {
            (true, true) => {
                self.refuse(at, "should not specify rate limit unit when unlimited")?;
            }
            (false, false) => {
                let at = if unit.is_empty() { at } else { at.suggest(unit, field::UNITS) };
                self.refuse(at, format!("invalid rate limit unit '{unit}'"))?;
            }
            _ => {}
        }
        let replaces_path = path.key("replaces");
        for (index, entry) in map.list("replaces").iter().enumerate() {
            let path = replaces_path.index(index);
            let replaced = self.map(entry, &path)?;
            let (replaced, own) = (replaced.text("name"), map.text("name"));
            if replaced.is_empty() {
                let at = At::new(entry.place, &path);
                return self.refuse(at, "should not have an empty replaces entry");
            }
            if replaced == own {
                let at = At::new(entry.place, &path);
                return self.refuse(at, "replaces should not contain name of same descriptor");
            }
        }
        Ok(())
    }

    fn map<'n>(&mut self, node: &'n Node<'t>, path: &Path<'_>) -> Result<Map<'n, 't>, Refused> {
        Ok(Map(self.entries(node, path)?))
    }

    /// The entries of a map, those that it merges among them.
    fn entries<'n>(
        &mut self,
        node: &'n Node<'t>,
        path: &Path<'_>,
    ) -> Result<Vec<Pair<'n, 't>>, Refused> {
        let mut entries = Entries::default();
        match entries.add(node) {
            Ok(()) => Ok(entries.pairs),
            Err(place) => {
                let message = "error loading config file: yaml: map merge requires map or sequence of maps as the value";
                Err(self.refuse(At::new(place, path), message).err().unwrap_or(Refused))
            }
        }
    }
}

/// A key that Lyft's service does not know: ours, or one of its own with a mistake in it.
fn hint_at_name<'a>(at: At<'a>, name: &str) -> At<'a> {
    if field::is_known(name) {
        return at.hint(format!("`{name}` is tidegate's; Lyft's service refuses the file"));
    }
    match nearest(name, LYFT) {
        Some(near) => at.hint(format!("did you mean `{near}`?")),
        None => at,
    }
}

type Pair<'n, 't> = (&'n Node<'t>, &'n Node<'t>);

/// The entries of a map in the order in which Lyft's YAML library sets them: one that comes later,
/// also from a merge, takes the place of an earlier one.
#[derive(Default)]
struct Entries<'n, 't> {
    pairs: Vec<Pair<'n, 't>>,
    index: HashMap<&'n str, usize>,
}

impl<'n, 't> Entries<'n, 't> {
    /// Fails with the place of a merge of something else than maps.
    fn add(&mut self, node: &'n Node<'t>) -> Result<(), Place> {
        let Kind::Map(pairs) = &node.kind else { return Ok(()) };
        for (key, value) in pairs {
            if key.is_merge() {
                self.merge(value)?;
                continue;
            }
            let name = key.scalar().filter(|scalar| scalar.meaning() == Meaning::Text);
            let Some(name) = name.map(|scalar| &*scalar.text) else {
                self.pairs.push((key, value));
                continue;
            };
            match self.index.get(name) {
                Some(earlier) => self.pairs[*earlier] = (key, value),
                None => {
                    self.index.insert(name, self.pairs.len());
                    self.pairs.push((key, value));
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, value: &'n Node<'t>) -> Result<(), Place> {
        match &value.kind {
            Kind::Map(_) => self.add(value),
            // Of several the first counts, so it is set last.
            Kind::List(items) => items.iter().rev().try_for_each(|item| match item.kind {
                Kind::Map(_) => self.add(item),
                _ => Err(item.place),
            }),
            Kind::Scalar(_) => Err(value.place),
        }
    }
}

/// A map whose keys and types have been found right.
struct Map<'n, 't>(Vec<Pair<'n, 't>>);

impl<'n, 't> Map<'n, 't> {
    fn pair(&self, name: &str) -> Option<&Pair<'n, 't>> {
        self.0.iter().find(|(key, _)| key.scalar().is_some_and(|scalar| scalar.text == name))
    }

    fn get(&self, name: &str) -> Option<&'n Node<'t>> {
        self.pair(name).map(|(_, value)| *value).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> &'n str {
        self.get(name).and_then(Node::scalar).map_or("", |scalar| &*scalar.text)
    }

    fn flag(&self, name: &str) -> bool {
        let scalar = self.get(name).and_then(Node::scalar);
        scalar.is_some_and(|scalar| scalar.meaning() == Meaning::Bool(true))
    }

    fn list(&self, name: &str) -> &'n [Rc<Node<'t>>] {
        match self.get(name).map(|node| &node.kind) {
            Some(Kind::List(items)) => items,
            _ => &[],
        }
    }

    fn place_of(&self, name: &str, map: &Node<'t>) -> Place {
        self.pair(name).map_or(map.place, |(key, _)| key.place)
    }
}

/// What Lyft's service expects of a key in a map; others it ignores.
type Types = &'static [(&'static str, Type)];

#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Flag,
    Map(fn() -> Types, &'static str),
    List(fn() -> Types, &'static str),
    Free,
}

const ROOT: Types = &[
    ("domain", Type::Text),
    ("descriptors", Type::List(|| DESCRIPTOR, "[]config.YamlDescriptor")),
];
const DESCRIPTOR: Types = &[
    ("key", Type::Text),
    ("value", Type::Text),
    ("rate_limit", Type::Map(|| LIMIT, "config.YamlRateLimit")),
    ("descriptors", Type::List(|| DESCRIPTOR, "[]config.YamlDescriptor")),
    ("shadow_mode", Type::Flag),
    ("quota_mode", Type::Flag),
    ("detailed_metric", Type::Flag),
    ("value_to_metric", Type::Flag),
    ("share_threshold", Type::Flag),
    ("metadata", Type::Free),
];
const LIMIT: Types = &[
    ("requests_per_unit", Type::Number),
    ("unit", Type::Text),
    ("unlimited", Type::Flag),
    ("name", Type::Text),
    ("replaces", Type::List(|| REPLACES, "[]config.yamlReplaces")),
];
const REPLACES: Types = &[("name", Type::Text)];

/// The errors of type of a file, in the words of Lyft's YAML library.
#[derive(Default)]
struct TypeErrors {
    first: Option<(Place, String, String)>,
    texts: Vec<String>,
    more: usize,
}

impl TypeErrors {
    fn add(&mut self, node: &Node<'_>, wanted: &str, path: &Path<'_>) {
        if self.texts.len() >= TYPE_ERRORS_MAX {
            self.more += 1;
            return;
        }
        self.first.get_or_insert_with(|| (node.place, path.to_string(), node.shown()));
        let value = match &node.kind {
            Kind::Scalar(scalar) if scalar.text.len() > VALUE_SHOWN_BYTES + 3 => {
                format!(" `{}...`", beginning(&scalar.text, VALUE_SHOWN_BYTES))
            }
            Kind::Scalar(scalar) => format!(" `{}`", scalar.text),
            _ => String::new(),
        };
        let (line, tag) = (node.place.line, node.tag());
        self.texts.push(format!("line {line}: cannot unmarshal {tag}{value} into {wanted}"));
    }
}

fn check_types(map: &Node<'_>, types: Types, path: &Path<'_>, errors: &mut TypeErrors) {
    let mut entries = Entries::default();
    // What cannot be merged has been refused before.
    let _ = entries.add(map);
    for (key, value) in entries.pairs {
        let known =
            types.iter().find(|(name, _)| key.scalar().is_some_and(|key| key.text == *name));
        let Some((name, wanted)) = known.filter(|_| !value.is_null()) else { continue };
        check_type(value, *wanted, &path.key(name), errors);
    }
}

fn check_type(value: &Node<'_>, wanted: Type, path: &Path<'_>, errors: &mut TypeErrors) {
    let meaning = value.scalar().map(|scalar| scalar.meaning());
    match (wanted, &value.kind) {
        (Type::Text, Kind::Scalar(_)) | (Type::Free, Kind::Map(_)) => {}
        (Type::Text, _) => errors.add(value, "string", path),
        (Type::Free, _) => errors.add(value, "map[string]interface {}", path),
        (Type::Number, _) => match meaning {
            Some(Meaning::Int(number)) if u32::try_from(number).is_ok() => {}
            _ => errors.add(value, "uint32", path),
        },
        (Type::Flag, _) if matches!(meaning, Some(Meaning::Bool(_))) => {}
        (Type::Flag, _) => errors.add(value, "bool", path),
        (Type::Map(types, _), Kind::Map(_)) => check_types(value, types(), path, errors),
        (Type::List(types, _), Kind::List(items)) => {
            for (index, item) in items.iter().enumerate() {
                check_types(item, types(), &path.index(index), errors);
            }
        }
        (Type::Map(_, name) | Type::List(_, name), _) => errors.add(value, name, path),
    }
}
