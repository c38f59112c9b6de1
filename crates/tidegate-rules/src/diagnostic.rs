//! What is wrong with rules, and where.

use std::fmt::{self, Write as _};

use crate::yaml::{Node, Place, beginning};

/// How many errors, and how many warnings, are kept; beyond that they are only counted.
const KEPT_MAX: usize = 1000;
/// How much of a message, a path or a hint is kept.
const KEPT_BYTES_MAX: usize = 2000;
/// The longest piece of a line that is shown.
const SHOWN_CHARS_MAX: usize = 160;
/// Up to which column a line is shown from its beginning.
const SHOWN_FROM_START_MAX: usize = 120;

/// Something found in a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Whether the rules can be used all the same.
    pub severity: Severity,
    /// The file, by the name it was given with.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// The way there through the keys: `descriptors[0].rate_limit.unit`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
    /// The line of the file; of a long one the piece around the place.
    pub line_text: String,
    /// How many characters of the line are left out before that piece.
    pub line_skipped: u32,
    /// How many characters to underline.
    pub width: u32,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The rules cannot be used.
    Error,
    /// They can, but surely something else was meant.
    Warning,
}

/// The escape sequences to print with; all empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// Before an error's place and the marks under a line.
    pub error: &'static str,
    /// The same for a warning.
    pub warning: &'static str,
    /// Before what is secondary.
    pub faint: &'static str,
    /// After all of them.
    pub reset: &'static str,
}

impl Paint {
    /// For a terminal that shows colours.
    pub const COLOURS: Self =
        Self { error: "\x1b[1;31m", warning: "\x1b[1;33m", faint: "\x1b[2m", reset: "\x1b[0m" };
}

impl Diagnostic {
    /// The diagnostic for people: place, message, the line with the spot marked, path, hint.
    #[must_use]
    pub fn render(&self, paint: &Paint) -> String {
        let Paint { faint, reset, .. } = paint;
        let (strong, kind) = match self.severity {
            Severity::Error => (paint.error, ""),
            Severity::Warning => (paint.warning, "warning: "),
        };
        let Place { line, column } = self.place;
        let mut out =
            format!("{strong}{}:{line}:{column}:{reset} {kind}{}\n", self.file, self.message);
        // Writing to a string does not fail.
        if !self.line_text.trim().is_empty() {
            let shown = &self.line_text;
            let offset = column.saturating_sub(1).saturating_sub(self.line_skipped) as usize;
            let number = line.to_string();
            let gutter = " ".repeat(number.len());
            let _ = writeln!(out, "{faint}  {number} |{reset} {shown}");
            let width = (self.width.max(1) as usize)
                .min(shown.chars().count().saturating_sub(offset).max(1));
            let marks = "^".repeat(width);
            let _ = writeln!(
                out,
                "{faint}  {gutter} |{reset} {}{strong}{marks}{reset}",
                " ".repeat(offset)
            );
        }
        if !self.path.is_empty() {
            let _ = writeln!(out, "{faint}  in:{reset} {}", self.path);
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "{faint}  hint:{reset} {hint}");
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Paint::default()))
    }
}

/// Everything found in a set of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many files were read.
    pub files: usize,
    /// How many limits they hold; of those that could be understood, when there are errors.
    pub rules: usize,
    /// What makes the rules unusable.
    pub errors: Vec<Diagnostic>,
    /// What surely was not meant.
    pub warnings: Vec<Diagnostic>,
    /// How many more of each there are than are kept.
    pub dropped: usize,
}

impl Report {
    /// Whether the rules can be used.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.errors.iter().chain(&self.warnings).try_for_each(|found| write!(f, "{found}"))?;
        if self.dropped > 0 {
            writeln!(f, "and {} more", self.dropped)?;
        }
        Ok(())
    }
}

/// A way through the keys of a file, kept on the stack and written out only when it is shown.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
            if !matches!((parent.step, self.step), (Step::Root, _) | (_, Step::Index(_))) {
                f.write_str(".")?;
            }
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Key(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Collects what is found in one file after another.
pub(crate) struct Findings<'t> {
    pub(crate) report: Report,
    file: &'t str,
    lines: Lines<'t>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new() -> Self {
        Self { report: Report::default(), file: "", lines: Lines::new("") }
    }

    /// What is found from here on is in this file.
    pub(crate) fn enter(&mut self, file: &'t str, text: &'t str) {
        self.file = file;
        let lines = Lines::new(text);
        if !std::ptr::eq(self.lines.text, lines.text) {
            self.lines = lines;
        }
    }

    /// Whether further errors would only be counted, so that no hint need be looked for.
    pub(crate) fn is_full(&self) -> bool {
        self.report.errors.len() >= KEPT_MAX
    }

    pub(crate) fn error(&mut self, at: At<'_>, message: impl Into<String>) {
        self.add(Severity::Error, at, message.into());
    }

    pub(crate) fn warn(&mut self, at: At<'_>, message: impl Into<String>) {
        self.add(Severity::Warning, at, message.into());
    }

    fn add(&mut self, severity: Severity, at: At<'_>, message: String) {
        let kept = match severity {
            Severity::Error => &mut self.report.errors,
            Severity::Warning => &mut self.report.warnings,
        };
        if kept.len() >= KEPT_MAX {
            self.report.dropped += 1;
            return;
        }
        let (line_text, line_skipped) = self.lines.piece(at.place);
        let path = match at.path {
            Way::Path(path) => path.to_string(),
            Way::Written(path) => path,
        };
        kept.push(Diagnostic {
            severity,
            file: self.file.to_owned(),
            place: at.place,
            path: cut(path),
            message: cut(message),
            hint: at.hint.map(cut),
            line_text,
            line_skipped,
            width: at.width,
        });
    }

    /// Errors and warnings in the order of the files, for whoever reads from the top.
    pub(crate) fn finish(mut self) -> Report {
        // Within a file the order is that of the lines; files keep theirs, since sorting is stable
        // and findings of a file lie together but for those made when all were read.
        let order = |found: &Diagnostic| found.place;
        sort_within_files(&mut self.report.errors, order);
        sort_within_files(&mut self.report.warnings, order);
        self.report
    }
}

fn sort_within_files(found: &mut [Diagnostic], order: impl Fn(&Diagnostic) -> Place) {
    let mut files: Vec<String> = Vec::new();
    for diagnostic in found.iter() {
        if files.last() != Some(&diagnostic.file) && !files.contains(&diagnostic.file) {
            files.push(diagnostic.file.clone());
        }
    }
    found.sort_by_key(|diagnostic| {
        (files.iter().position(|file| *file == diagnostic.file), order(diagnostic))
    });
}

/// Where something was found, and what to say about it.
pub(crate) struct At<'a> {
    place: Place,
    path: Way<'a>,
    width: u32,
    hint: Option<String>,
}

/// A path, or one that has been written out.
enum Way<'a> {
    Path(&'a Path<'a>),
    Written(String),
}

impl<'a> At<'a> {
    pub(crate) fn new(place: Place, path: &'a Path<'a>) -> Self {
        Self { place, path: Way::Path(path), width: 1, hint: None }
    }

    pub(crate) fn place(place: Place) -> Self {
        Self { place, path: Way::Written(String::new()), width: 1, hint: None }
    }

    /// With a path that has been written out.
    pub(crate) fn way(mut self, path: String) -> Self {
        self.path = Way::Written(path);
        self
    }

    /// Underlines this text.
    pub(crate) fn wide(mut self, text: &str) -> Self {
        self.width = u32::try_from(text.chars().count()).unwrap_or(1);
        self
    }

    /// Underlines this value.
    pub(crate) fn over(mut self, node: &Node<'_>) -> Self {
        self.width = node.width();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With the nearest of the words that are known, if one is near; otherwise with all of them.
    pub(crate) fn suggest<'w>(self, word: &str, known: impl IntoIterator<Item = &'w str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match nearest(word, known.iter().copied()) {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None if (1..=12).contains(&known.len()) => {
                self.hint(format!("one of {}", list(&known)))
            }
            None => self,
        }
    }
}

/// A text that is kept, without the rest of one that nobody would read. What a terminal would obey
/// is shown and not sent: names and values in messages may hold anything.
fn cut(mut text: String) -> String {
    if text.len() > KEPT_BYTES_MAX {
        text.truncate(beginning(&text, KEPT_BYTES_MAX).len());
        text.push('…');
    }
    let is_order = |c: char| c.is_control() && c != '\n';
    if text.contains(is_order) {
        let show = |c: char| if is_order(c) { c.escape_default().to_string() } else { c.into() };
        text = text.chars().map(show).collect();
    }
    text
}

/// Shows lines of a text. It stays where it was asked last, and the next place is seldom far: a
/// thousand findings at the end of a large file would otherwise each read all of it.
struct Lines<'t> {
    text: &'t str,
    line: u32,
    start: usize,
    /// How many characters of the line lie behind, and the byte that follows them.
    skipped: usize,
    at: usize,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        // A byte-order mark is in no column.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text, line: 1, start: 0, skipped: 0, at: 0 }
    }

    /// The piece of the line around a place, and how many characters stand before it.
    fn piece(&mut self, place: Place) -> (String, u32) {
        if !self.go_to_line(place.line.max(1)) {
            return (String::new(), 0);
        }
        let column = (place.column as usize).saturating_sub(1);
        // From its beginning where the place is in sight from there.
        let skipped = match column {
            0..=SHOWN_FROM_START_MAX => 0,
            _ => column - SHOWN_CHARS_MAX / 2,
        };
        self.go_to_column(skipped);
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let rest = self.text[self.at..].chars().take_while(|c| !is_break(*c));
        let shown = rest.take(SHOWN_CHARS_MAX).map(clean).collect();
        (shown, u32::try_from(self.skipped).unwrap_or(u32::MAX))
    }

    fn go_to_line(&mut self, line: u32) -> bool {
        if line != self.line {
            (self.skipped, self.at) = (0, self.start);
        }
        while self.line < line {
            let Some(end) = self.text[self.start..].find(is_break) else { return false };
            let end = self.start + end;
            let both = self.text[end..].starts_with("\r\n");
            self.start = end + if both { 2 } else { 1 };
            (self.line, self.at) = (self.line + 1, self.start);
        }
        while self.line > line {
            let before = &self.text[..self.start];
            let before = before
                .strip_suffix("\r\n")
                .unwrap_or_else(|| before.strip_suffix(is_break).unwrap_or(before));
            self.start = before.rfind(is_break).map_or(0, |at| at + 1);
            (self.line, self.at) = (self.line - 1, self.start);
        }
        true
    }

    fn go_to_column(&mut self, skipped: usize) {
        while self.skipped < skipped {
            match self.text[self.at..].chars().next().filter(|c| !is_break(*c)) {
                Some(c) => self.at += c.len_utf8(),
                None => return,
            }
            self.skipped += 1;
        }
        while self.skipped > skipped {
            let Some(c) = self.text[..self.at].chars().next_back() else { return };
            self.at -= c.len_utf8();
            self.skipped -= 1;
        }
    }
}

fn is_break(c: char) -> bool {
    c == '\n' || c == '\r'
}

/// The known word that was probably meant.
pub(crate) fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(word);
    if wanted.is_empty() || wanted.len() > 64 {
        return None;
    }
    let near = known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate));
    let (distance, candidate) = near.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong, and in a short word one.
    (distance <= (wanted.len() / 3).max(1)).then_some(candidate)
}

/// Words as a list: `a`, `b`, `c`.
pub(crate) fn list(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_named_and_a_stranger_is_not() {
        let units = ["second", "minute", "hour", "day", "week", "month", "year"];
        assert_eq!(nearest("minutes", units), Some("minute"));
        assert_eq!(nearest("Hours", units), Some("hour"));
        assert_eq!(nearest("ratelimit", ["rate_limit", "unit"]), Some("rate_limit"));
        assert_eq!(nearest("unlimied", ["unlimited", "unit"]), Some("unlimited"));
        assert_eq!(nearest("fortnight", units), None);
    }

    #[test]
    fn a_path_reads_like_code() {
        let root = Path::ROOT;
        let list = root.key("descriptors");
        let first = list.index(0);
        assert_eq!(first.key("rate_limit").to_string(), "descriptors[0].rate_limit");
    }

    #[test]
    fn a_long_line_is_shown_around_the_spot() {
        let line = format!("first\n{}here", "ä".repeat(500));
        let (shown, skipped) = Lines::new(&line).piece(Place { line: 2, column: 501 });
        let shown: String = shown.chars().skip(500 - skipped as usize).collect();
        assert_eq!(shown, "here");
    }

    #[test]
    fn lines_are_found_in_any_order() {
        let text = "\u{feff}one\r\ntwo\rthree\n\nfive ä\n";
        let mut lines = Lines::new(text);
        let wanted =
            [(5, "five ä"), (1, "one"), (3, "three"), (2, "two"), (4, ""), (6, ""), (9, "")];
        for (line, wanted) in wanted.into_iter().cycle().take(30) {
            assert_eq!(lines.piece(Place { line, column: 2 }), (wanted.to_owned(), 0), "{line}");
        }
    }
}
