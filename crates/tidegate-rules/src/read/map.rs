//! Maps: which keys stand in them, which should not, and which were probably meant.

use std::rc::Rc;

use crate::diagnostic::{At, Findings, Path, nearest};
use crate::field::{DESCRIPTOR, Field, LYFT, ROOT, SHAPES, Shape};
use crate::rule::Origin;
use crate::rules::Options;
use crate::yaml::{Kind, Meaning, Node, Place};

/// How every file begins.
pub(crate) const FIRST_LINE: &str = "begin the file with `domain: name`";

/// Reads one file.
pub(crate) struct Reader<'r, 't> {
    pub(crate) findings: &'r mut Findings<'t>,
    pub(crate) options: &'r Options,
    /// The position of the file among those that are loaded.
    pub(crate) file: u32,
    /// The names in `replaces`, to be looked for when all files are read.
    pub(crate) replaced: Vec<Replaced>,
    /// How many bytes are left for the names of limits, over all files.
    pub(crate) names: &'r mut usize,
}

/// A name in `replaces`.
pub(crate) struct Replaced {
    pub(crate) name: Box<str>,
    /// The name of the limit that it stands in.
    pub(crate) own: Option<Box<str>>,
    pub(crate) origin: Origin,
    pub(crate) path: String,
}

impl<'r, 't> Reader<'r, 't> {
    pub(crate) fn origin(&self, place: Place) -> Origin {
        Origin { file: self.file, place }
    }

    pub(crate) fn error(&mut self, at: At<'_>, message: impl Into<String>) {
        self.findings.error(at, message);
    }

    pub(crate) fn warn(&mut self, at: At<'_>, message: impl Into<String>) {
        self.findings.warn(at, message);
    }

    /// The fields of a map. Keys that do not belong there are reported.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node<'t>,
        shape: &'static Shape,
        path: &'n Path<'n>,
    ) -> Option<Fields<'n, 't>> {
        let mut fields =
            Fields { place: node.place, path, found: Vec::new(), has_strangers: false };
        match &node.kind {
            _ if node.is_null() => return Some(fields),
            Kind::Map(pairs) => self.add_pairs(pairs, shape, &mut fields, None),
            _ => {
                let at = At::new(node.place, path).over(node);
                let message = format!(
                    "error loading config file: {} should be a map, found {}",
                    shape.title,
                    node.what()
                );
                let at = if shape.title == ROOT.title { at.hint(FIRST_LINE) } else { at };
                self.error(at, message);
                return None;
            }
        }
        Some(fields)
    }

    /// Whether an item of a list is a map, as those of all lists but ours have to be.
    pub(crate) fn is_map(&mut self, item: &Node<'t>, path: &Path<'_>) -> bool {
        if matches!(item.kind, Kind::Map(_)) {
            return true;
        }
        let at = At::new(item.place, path).over(item);
        let printed = item.printed();
        let message =
            format!("config error, yaml file contains list of type other than map: {printed}");
        self.error(at, message);
        false
    }

    fn add_pairs<'n>(
        &mut self,
        pairs: &'n [(Rc<Node<'t>>, Rc<Node<'t>>)],
        shape: &'static Shape,
        fields: &mut Fields<'n, 't>,
        merged_at: Option<Place>,
    ) {
        for (key, value) in pairs {
            if key.is_merge() {
                continue;
            }
            let Some(name) = self.key_name(key, fields.path) else { continue };
            let Some(field) = shape.field(name) else {
                fields.has_strangers |= !LYFT.contains(&name);
                self.strange_key(name, key.place, shape, fields.path);
                continue;
            };
            let earlier = fields.found.iter().position(|found| found.field.name == field.name);
            let found = Found { field, key: key.place, value, merged: merged_at.is_some() };
            match (earlier, merged_at) {
                (None, _) => fields.found.push(found),
                (Some(at), None) => {
                    let at_key = At::new(key.place, fields.path).wide(name);
                    self.warn(at_key, format!("`{name}` is given twice; the last one counts"));
                    fields.found[at] = found;
                }
                // What a map says itself counts, and not what it merges.
                (Some(at), Some(merge)) => {
                    self.warn_of_order(&fields.found[at], merge, fields.path)
                }
            }
        }
        for (key, value) in pairs {
            if key.is_merge() {
                self.merge(value, shape, fields, merged_at.unwrap_or(key.place));
            }
        }
    }

    /// Lyft's YAML library lets the later of a key and a merge count.
    fn warn_of_order(&mut self, own: &Found<'_, 't>, merge: Place, path: &Path<'_>) {
        if own.merged || own.key > merge {
            return;
        }
        let name = own.field.name;
        let at = At::new(merge, path).wide("<<").hint("write `<<` first");
        self.warn(
            at,
            format!(
                "`{name}` stands before `<<`, which gives it too; it counts here, but not at Lyft"
            ),
        );
    }

    fn merge<'n>(
        &mut self,
        value: &'n Node<'t>,
        shape: &'static Shape,
        fields: &mut Fields<'n, 't>,
        at: Place,
    ) {
        match &value.kind {
            Kind::Map(pairs) => self.add_pairs(pairs, shape, fields, Some(at)),
            Kind::List(items) => items.iter().for_each(|item| self.merge(item, shape, fields, at)),
            Kind::Scalar(_) => {
                let at = At::new(value.place, fields.path);
                self.error(at, "error loading config file: yaml: map merge requires map or sequence of maps as the value");
            }
        }
    }

    fn key_name<'n>(&mut self, key: &'n Node<'t>, path: &Path<'_>) -> Option<&'n str> {
        match key.scalar() {
            Some(scalar) if scalar.meaning() == Meaning::Text => Some(&scalar.text),
            _ => {
                let at = At::new(key.place, path).over(key);
                let printed = key.printed();
                self.error(at, format!("config error, key is not of type string: {printed}"));
                None
            }
        }
    }

    fn strange_key(&mut self, name: &str, place: Place, shape: &'static Shape, path: &Path<'_>) {
        let at = At::new(place, path).wide(name);
        if self.findings.is_full() {
            return self.error(at, "");
        }
        let home = home_of(name, shape);
        if LYFT.contains(&name) {
            let at = match home {
                Some(home) => at.hint(format!("`{name}` belongs in {home}")),
                None => at,
            };
            let message = format!("`{name}` has no meaning in {} and is ignored", shape.title);
            return self.warn(at, message);
        }
        let at = match (home, nearest(name, shape.names()), nearest(name, all_names())) {
            (Some(home), ..) => at.hint(format!("`{name}` belongs in {home}")),
            (_, Some(near), _) => at.hint(format!("did you mean `{near}`?")),
            (_, _, Some(near)) => {
                let home = home_of(near, shape).unwrap_or(shape.title);
                at.hint(format!("did you mean `{near}`? it belongs in {home}"))
            }
            _ if shape.title == DESCRIPTOR.title => {
                at.hint(format!("if it is the key of an entry, write `key: {name}`"))
            }
            _ => at.suggest(name, shape.names()),
        };
        self.error(at, format!("config error, unknown key '{name}'"));
    }
}

fn home_of(name: &str, here: &'static Shape) -> Option<&'static str> {
    let mut homes = SHAPES.into_iter().filter(|shape| shape.title != here.title);
    homes.find(|shape| shape.field(name).is_some()).map(|shape| shape.home)
}

fn all_names() -> impl Iterator<Item = &'static str> {
    SHAPES.into_iter().flat_map(|shape| shape.names())
}

/// The fields that were found in a map.
pub(crate) struct Fields<'n, 't> {
    pub(crate) place: Place,
    pub(crate) path: &'n Path<'n>,
    found: Vec<Found<'n, 't>>,
    /// A key that nobody knows is among them, and has been reported.
    has_strangers: bool,
}

struct Found<'n, 't> {
    field: &'static Field,
    key: Place,
    value: &'n Node<'t>,
    /// It came with `<<`.
    merged: bool,
}

impl<'n, 't> Fields<'n, 't> {
    /// The value of a field, unless there is none or nothing in it.
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node<'t>> {
        self.found(name).map(|found| found.value).filter(|value| !value.is_null())
    }

    /// Where the key of a field stands; that of the map if it is not there.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.found(name).map_or(self.place, |found| found.key)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The fields that are there, and where their keys stand.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, Place)> {
        let written = self.found.iter().filter(|found| !found.value.is_null());
        written.map(|found| (found.field.name, found.key))
    }

    /// Whether a field that is missing may be there under a wrong name, which has been reported.
    pub(crate) fn may_hold(&self, name: &str) -> bool {
        self.has_strangers && !self.has(name)
    }

    fn found(&self, name: &str) -> Option<&Found<'n, 't>> {
        self.found.iter().find(|found| found.field.name == name)
    }
}
