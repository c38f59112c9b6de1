//! Files that are one map of plain values, such as the settings of a service: read with the same
//! care, and the same messages, as rules.

use crate::diagnostic::{At, Findings, Path, Report};
use crate::yaml::{Document, Kind, Meaning, Node, Place};

/// A key and what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlatEntry {
    /// The key, as it is known.
    pub key: String,
    /// The value, or the values of a list; none where nothing is written.
    pub values: Vec<String>,
    /// Where the value was written.
    pub place: Place,
}

/// Reads a file that is one map of plain values and lists of them. Keys may be written with `-` or
/// `_`.
///
/// ```
/// use tidegate_rules::read_flat;
///
/// let entries = read_flat("tidegate.yaml", "http: 127.0.0.1:80\nmax-keys: 10", &["http", "max_keys"])?;
/// assert_eq!((&*entries[1].key, &*entries[1].values[0]), ("max_keys", "10"));
/// # Ok::<(), tidegate_rules::Report>(())
/// ```
///
/// # Errors
/// With everything that is wrong: keys that are not `known`, or that come twice, and values that
/// are maps.
pub fn read_flat(file: &str, text: &str, known: &[&str]) -> Result<Vec<FlatEntry>, Report> {
    let mut findings = Findings::new();
    findings.enter(file, text);
    let mut entries: Vec<FlatEntry> = Vec::new();
    match Document::read(text) {
        Err(error) => findings.error(At::place(error.place), error.message),
        Ok(document) => {
            if let Some(place) = document.second {
                findings.error(At::place(place), "a second document begins here");
            }
            let pairs = match document.root.as_deref().map(|root| &root.kind) {
                None => &[],
                Some(Kind::Map(pairs)) => &pairs[..],
                Some(_) => {
                    let at = At::place(Place { line: 1, column: 1 });
                    findings.error(at, "the file is not a map of names and values");
                    &[]
                }
            };
            for (key, value) in pairs {
                entries.extend(entry(key, value, known, &entries, &mut findings));
            }
        }
    }
    let report = findings.finish();
    if report.is_ok() { Ok(entries) } else { Err(report) }
}

fn entry(
    key: &Node<'_>,
    value: &Node<'_>,
    known: &[&str],
    earlier: &[FlatEntry],
    findings: &mut Findings<'_>,
) -> Option<FlatEntry> {
    let shown = key.shown();
    let name = shown.replace('-', "_");
    let path = Path::ROOT.key(&shown);
    if !known.contains(&&*name) {
        let at = At::new(key.place, &path).over(key).suggest(&name, known.iter().copied());
        findings.error(at, format!("unknown setting `{shown}`"));
        return None;
    }
    if earlier.iter().any(|entry| entry.key == name) {
        findings.error(At::new(key.place, &path).over(key), format!("`{shown}` is set twice"));
        return None;
    }
    let texts: Option<Vec<_>> = match &value.kind {
        Kind::List(items) => items.iter().map(|item| text_of(item)).collect(),
        _ => text_of(value).map(|text| vec![text]),
    };
    let values = texts.map(|texts| texts.into_iter().flatten().collect());
    if values.is_none() {
        let at = At::new(value.place, &path).over(value);
        findings.error(at, format!("the value of `{shown}` is {}", value.what()));
    }
    Some(FlatEntry { key: name, values: values?, place: value.place })
}

/// A plain value as it was written; nothing for null, and no answer for lists and maps.
fn text_of(node: &Node<'_>) -> Option<Option<String>> {
    let scalar = node.scalar()?;
    let is_null = scalar.is_plain && scalar.meaning() == Meaning::Null;
    Some((!is_null).then(|| scalar.text.to_string()))
}
