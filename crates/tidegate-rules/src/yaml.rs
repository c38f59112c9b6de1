//! YAML as a tree in which every node knows where it was written.
//!
//! The parser is `granit-parser`. What is added here is what rule files need: scalars keep their
//! text (`value: 010` is the string `010`), aliases are shared and not copied, `<<` merges, and
//! bounds on size, depth and on what aliases unfold to, so that no file can exhaust the process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span};

/// The largest file, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// The deepest nesting, counted through aliases. A descriptor takes two levels.
pub(crate) const DEPTH_MAX: usize = 100;
/// The most nodes, counted as if every alias were written out.
pub(crate) const NODES_MAX: u64 = 16_000_000;

/// The most nodes that aliases may add to those that are written; in a large file this share of all
/// instead, if that is more. Lyft's YAML library stops earlier, save that it does not count the
/// length of texts. A file of a few lines then takes about a second at worst.
const ALIASED_MAX: u64 = 1_250_000;
const ALIASED_SHARE: u64 = 10;

/// How many bytes of text count as one more node, so that what aliases unfold to is bounded too.
const NODE_BYTES: usize = 16;
/// How much of a value is shown in a message.
const SHOWN_BYTES_MAX: usize = 200;

/// A place in a file; both count from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Place {
    fn of(span: &Span) -> Self {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { line: place(span.start.line()), column: place(span.start.col() + 1) }
    }
}

/// A node of the tree.
#[derive(Debug)]
pub(crate) struct Node<'t> {
    pub(crate) place: Place,
    pub(crate) kind: Kind<'t>,
    /// How many nodes there are from here down, aliases unfolded.
    size: u64,
    /// How many of them are there by an alias.
    aliased: u64,
    height: usize,
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Kind<'t> {
    Scalar(Scalar<'t>),
    List(Vec<Rc<Node<'t>>>),
    Map(Vec<(Rc<Node<'t>>, Rc<Node<'t>>)>),
}

/// A text, a number, a flag or nothing: which, depends on who asks.
#[derive(Debug)]
pub(crate) struct Scalar<'t> {
    pub(crate) text: Cow<'t, str>,
    /// Written without quotes, so that it may be more than text.
    pub(crate) is_plain: bool,
}

/// What an unquoted scalar means to Lyft's YAML library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meaning {
    Null,
    Bool(bool),
    Int(i128),
    Float,
    Text,
}

/// A file that is not a tree.
#[derive(Debug)]
pub(crate) struct YamlError {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// A file that is one.
pub(crate) struct Document<'t> {
    /// Absent when the file holds nothing but comments.
    pub(crate) root: Option<Rc<Node<'t>>>,
    /// Where a second document begins, which nobody will read.
    pub(crate) second: Option<Place>,
}

impl<'t> Document<'t> {
    /// Reads the first document of a file.
    pub(crate) fn read(text: &'t str) -> Result<Self, YamlError> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("the file is larger than {} MiB", TEXT_BYTES_MAX >> 20);
            return Err(YamlError { place: Place { line: 1, column: 1 }, message });
        }
        // A byte-order mark is no part of the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: DEPTH_MAX,
            block_nesting_limit: DEPTH_MAX,
        };
        let mut builder = Builder::default();
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| YamlError {
                place: Place {
                    line: u32::try_from(error.marker().line()).unwrap_or(u32::MAX),
                    column: u32::try_from(error.marker().col() + 1).unwrap_or(u32::MAX),
                },
                message: error.info(),
            })?;
            if builder.documents > 0 && matches!(event, Event::DocumentStart(..)) {
                return builder.finish(Some(Place::of(&span)));
            }
            builder.take(event, Place::of(&span))?;
        }
        builder.finish(None)
    }
}

/// A collection that has begun and not ended.
struct Open<'t> {
    place: Place,
    anchor: usize,
    is_map: bool,
    items: Vec<Rc<Node<'t>>>,
    aliased: u64,
}

#[derive(Default)]
struct Builder<'t> {
    open: Vec<Open<'t>>,
    anchors: HashMap<usize, Rc<Node<'t>>>,
    root: Option<Rc<Node<'t>>>,
    documents: usize,
    /// How many nodes were read, aliases not unfolded.
    read: u64,
    /// The alias of the most nodes, and how many these are.
    largest: Option<(u64, Place)>,
}

impl<'t> Builder<'t> {
    fn take(&mut self, event: Event<'t>, place: Place) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // A tag says that it is text, as quotes do.
                let is_plain = style == ScalarStyle::Plain && !tag.is_some_and(|tag| is_text(&tag));
                let size = 1 + (text.len() / NODE_BYTES) as u64;
                let kind = Kind::Scalar(Scalar { text, is_plain });
                self.add(Node { place, kind, size, aliased: 0, height: 0 }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(place, anchor, false);
                Ok(())
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(place, anchor, true);
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    let message = "an alias stands inside what it refers to".to_owned();
                    return Err(YamlError { place, message });
                };
                if self.largest.is_none_or(|(size, _)| size < node.size) {
                    self.largest = Some((node.size, place));
                }
                let aliased = node.size;
                self.put(node, aliased)
            }
            Event::DocumentEnd => {
                self.documents += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, place: Place, anchor: usize, is_map: bool) {
        self.open.push(Open { place, anchor, is_map, items: Vec::new(), aliased: 0 });
    }

    fn close(&mut self) -> Result<(), YamlError> {
        let Some(Open { place, anchor, is_map, items, aliased }) = self.open.pop() else {
            return Ok(());
        };
        let size = items.iter().fold(1u64, |size, item| size.saturating_add(item.size));
        let height = 1 + items.iter().map(|item| item.height).max().unwrap_or(0);
        if size > NODES_MAX {
            return Err(too_many(place));
        }
        if height > DEPTH_MAX {
            let message = format!("nested more than {DEPTH_MAX} levels deep");
            return Err(YamlError { place, message });
        }
        let kind = if is_map { Kind::Map(pairs(items)) } else { Kind::List(items) };
        self.add(Node { place, kind, size, aliased, height }, anchor)
    }

    fn add(&mut self, node: Node<'t>, anchor: usize) -> Result<(), YamlError> {
        // Before they fill the memory, and not when the list that holds them ends.
        self.read += 1;
        if self.read > NODES_MAX {
            return Err(too_many(node.place));
        }
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let aliased = node.aliased;
        self.put(node, aliased)
    }

    fn put(&mut self, node: Rc<Node<'t>>, aliased: u64) -> Result<(), YamlError> {
        match self.open.last_mut() {
            Some(open) => {
                open.items.push(node);
                open.aliased = open.aliased.saturating_add(aliased);
            }
            None if self.root.is_none() => self.root = Some(node),
            None => {}
        }
        Ok(())
    }
}

impl<'t> Builder<'t> {
    fn finish(self, second: Option<Place>) -> Result<Document<'t>, YamlError> {
        let (size, aliased) = self.root.as_ref().map_or((0, 0), |root| (root.size, root.aliased));
        match self.largest {
            Some((_, place)) if aliased > ALIASED_MAX.max(size / ALIASED_SHARE) => {
                let message = format!(
                    "document contains excessive aliasing: {aliased} values more than are written"
                );
                Err(YamlError { place, message })
            }
            _ => Ok(Document { root: self.root, second }),
        }
    }
}

fn too_many(place: Place) -> YamlError {
    let message = format!("more than {NODES_MAX} values, aliases written out");
    YamlError { place, message }
}

/// Whether a tag says that a scalar is text.
fn is_text(tag: &granit_parser::Tag) -> bool {
    tag.is_yaml_core_schema_tag("str") || (tag.handle().is_empty() && tag.suffix() == "!")
}

fn pairs<'t>(items: Vec<Rc<Node<'t>>>) -> Vec<(Rc<Node<'t>>, Rc<Node<'t>>)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

impl<'t> Node<'t> {
    pub(crate) fn scalar(&self) -> Option<&Scalar<'t>> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Nothing was written here: `key:` alone, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.meaning() == Meaning::Null)
    }

    /// The key `<<`, which merges what follows it. In quotes it is a key like others.
    pub(crate) fn is_merge(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.is_plain && scalar.text == "<<")
    }

    /// How many characters it takes where it was written, if that is one line.
    pub(crate) fn width(&self) -> u32 {
        let Kind::Scalar(scalar) = &self.kind else { return 1 };
        let quotes = if scalar.is_plain { 0 } else { 2 };
        u32::try_from(scalar.text.chars().count() + quotes).unwrap_or(1)
    }

    /// What it is, as YAML writes it.
    pub(crate) fn tag(&self) -> &'static str {
        match &self.kind {
            Kind::List(_) => "!!seq",
            Kind::Map(_) => "!!map",
            Kind::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => "!!null",
                Meaning::Bool(_) => "!!bool",
                Meaning::Int(_) => "!!int",
                Meaning::Float => "!!float",
                Meaning::Text => "!!str",
            },
        }
    }

    /// A word for what it is, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match &self.kind {
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
            Kind::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => "nothing",
                Meaning::Bool(_) => "true or false",
                Meaning::Int(_) => "a whole number",
                Meaning::Float => "a number with a fraction",
                Meaning::Text => "text",
            },
        }
    }

    /// The text as it would be shown on one line, or the beginning of it.
    pub(crate) fn shown(&self) -> String {
        let mut out = String::new();
        self.show(&mut out);
        out
    }

    /// The same as Lyft's service prints it.
    pub(crate) fn printed(&self) -> String {
        match self.scalar().map(|scalar| scalar.meaning()) {
            Some(Meaning::Null) => "<nil>".to_owned(),
            Some(Meaning::Bool(flag)) => flag.to_string(),
            Some(Meaning::Int(number)) => number.to_string(),
            _ => self.shown(),
        }
    }

    fn show(&self, out: &mut String) {
        if out.len() >= SHOWN_BYTES_MAX {
            return;
        }
        match &self.kind {
            Kind::Scalar(scalar) => {
                let shown = beginning(&scalar.text, SHOWN_BYTES_MAX);
                out.push_str(shown);
                if shown.len() < scalar.text.len() {
                    out.push('…');
                }
            }
            Kind::List(items) => {
                out.push('[');
                for (index, item) in items.iter().take(5).enumerate() {
                    if index > 0 {
                        out.push(' ');
                    }
                    item.show(out);
                }
                out.push(']');
            }
            Kind::Map(_) => out.push_str("a map"),
        }
    }
}

impl Scalar<'_> {
    /// What it means where anything may stand.
    pub(crate) fn meaning(&self) -> Meaning {
        if !self.is_plain {
            return Meaning::Text;
        }
        let text = self.text.as_ref();
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
                Meaning::Bool(true)
            }
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n"
            | "N" => Meaning::Bool(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "-.inf" | ".nan" | ".NaN" | ".NAN" => {
                Meaning::Float
            }
            _ => number(text),
        }
    }
}

/// What of a text fits in so many bytes.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Numbers as YAML 1.1 writes them: `1_000`, `0x1f`, `0b101`, `017`.
fn number(text: &str) -> Meaning {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Meaning::Text;
    }
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let radix = |prefix: &str, radix| {
        let digits = digits.strip_prefix(prefix)?;
        // Signs were taken off; one more is no number.
        if digits.starts_with(['+', '-']) {
            return None;
        }
        i128::from_str_radix(digits, radix).ok()
    };
    let octal = || (digits.len() > 1).then(|| radix("0", 8)).flatten();
    let found = (radix("0x", 16).or_else(|| radix("0b", 2)).or_else(|| radix("0o", 8)))
        .or_else(octal)
        .or_else(|| radix("", 10));
    match found {
        Some(number) => Meaning::Int(sign * number),
        None if is_float(digits) => Meaning::Float,
        None => Meaning::Text,
    }
}

fn is_float(digits: &str) -> bool {
    digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.parse::<f64>().is_ok()
}
