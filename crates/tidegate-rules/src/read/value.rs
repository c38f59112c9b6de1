//! Values: text, numbers, flags, durations, shares and words from a list.

use std::time::Duration;

use tidegate_core::parse_duration;

use super::map::{Fields, Reader};
use crate::diagnostic::At;
use crate::field::{Field, Kind as FieldKind, Shape};
use crate::yaml::{Kind, Meaning, Node};

impl<'t> Reader<'_, 't> {
    /// A text, also where it was written without quotes and looks like a number.
    pub(crate) fn text<'n>(&mut self, fields: &Fields<'n, 't>, name: &str) -> Option<&'n str> {
        let node = fields.get(name)?;
        match &node.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => {
                self.type_error(fields, name, node, "string");
                None
            }
        }
    }

    pub(crate) fn flag(&mut self, fields: &Fields<'_, 't>, name: &str) -> Option<bool> {
        let node = fields.get(name)?;
        match node.scalar().map(|scalar| scalar.meaning()) {
            Some(Meaning::Bool(flag)) => Some(flag),
            _ => {
                self.type_error(fields, name, node, "bool");
                None
            }
        }
    }

    /// A whole number up to 2^32-1, and at least what the field's table says.
    pub(crate) fn number(
        &mut self,
        fields: &Fields<'_, 't>,
        shape: &'static Shape,
        name: &str,
    ) -> Option<u32> {
        let node = fields.get(name)?;
        let least = match shape.field(name) {
            Some(Field { kind: FieldKind::Number(least), .. }) => *least,
            _ => 0,
        };
        let found = match node.scalar().map(|scalar| scalar.meaning()) {
            Some(Meaning::Int(number)) => u32::try_from(number).ok(),
            _ => None,
        };
        match found {
            Some(number) if u64::from(number) >= least => Some(number),
            Some(number) => {
                let path = fields.path.key(name);
                let at = At::new(node.place, &path).over(node);
                self.error(at, format!("`{name}` is {number}; it has to be at least {least}"));
                None
            }
            None => {
                self.type_error(fields, name, node, "uint32");
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, fields: &Fields<'_, 't>, name: &str) -> Option<Duration> {
        let node = fields.get(name)?;
        let found = node.scalar().and_then(|scalar| parse_duration(scalar.text.trim()));
        if found.is_none() {
            let path = fields.path.key(name);
            let shown = node.shown();
            let at = At::new(node.place, &path).over(node);
            let hint = match node.scalar().map(|scalar| scalar.meaning()) {
                Some(Meaning::Int(number)) => format!("`{number}s`, if seconds are meant"),
                _ => "one whole number and one unit: `500ms`, `10s`, `5m`, `3h`, `7d`".to_owned(),
            };
            self.error(at.hint(hint), format!("`{shown}` is not a duration"));
        }
        found
    }

    /// A share in hundredths of a percent.
    pub(crate) fn percent(&mut self, fields: &Fields<'_, 't>, name: &str) -> Option<u32> {
        let node = fields.get(name)?;
        let found = node.scalar().and_then(|scalar| parse_percent(&scalar.text));
        if found.is_none() {
            let path = fields.path.key(name);
            let shown = node.shown();
            let at = At::new(node.place, &path).over(node);
            let at = at.hint("a number with at most two decimals: `20%`, `0.5%`");
            self.error(at, format!("`{shown}` is not a percentage"));
        }
        found
    }

    /// One of the words that the field's table lists, by its position among them.
    pub(crate) fn word(
        &mut self,
        fields: &Fields<'_, 't>,
        shape: &'static Shape,
        name: &str,
    ) -> Option<&'static str> {
        let node = fields.get(name)?;
        let known = match shape.field(name).map(|field| field.kind) {
            Some(FieldKind::OneOf(known)) => known,
            _ => &[],
        };
        let text = self.text(fields, name)?;
        let found = known.iter().find(|word| **word == text);
        if found.is_none() {
            let path = fields.path.key(name);
            let at = At::new(node.place, &path).wide(text).suggest(text, known.iter().copied());
            self.error(at, format!("`{text}` is not a value of `{name}`"));
        }
        found.copied()
    }

    /// A list of texts.
    pub(crate) fn texts<'n>(&mut self, fields: &Fields<'n, 't>, name: &str) -> Vec<&'n str> {
        let Some(node) = fields.get(name) else { return Vec::new() };
        let Kind::List(items) = &node.kind else {
            self.type_error(fields, name, node, "list");
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match &item.kind {
                Kind::Scalar(scalar) if !item.is_null() => texts.push(&*scalar.text),
                _ => {
                    let path = fields.path.key(name);
                    let path = path.index(index);
                    let at = At::new(item.place, &path);
                    self.error(at, format!("`{name}` is a list of texts, found {}", item.what()));
                }
            }
        }
        texts
    }

    /// The items of a list of maps.
    pub(crate) fn list<'n>(
        &mut self,
        fields: &Fields<'n, 't>,
        name: &str,
    ) -> &'n [std::rc::Rc<Node<'t>>] {
        let Some(node) = fields.get(name) else { return &[] };
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.type_error(fields, name, node, "list");
                &[]
            }
        }
    }

    /// Says that a value is of the wrong type, in the words of Lyft's YAML library.
    pub(crate) fn type_error(
        &mut self,
        fields: &Fields<'_, 't>,
        name: &str,
        node: &Node<'t>,
        wanted: &str,
    ) {
        let path = fields.path.key(name);
        let shown = node.shown();
        let mut at = At::new(node.place, &path).over(node);
        let quoted = node.scalar().is_some_and(|scalar| !scalar.is_plain);
        let tag = node.tag();
        match wanted {
            "uint32" if quoted && shown.trim().parse::<u32>().is_ok() => {
                at = at.hint(format!("write {} without quotes", shown.trim()));
            }
            "uint32" => at = at.hint("a whole number from 0 to 4294967295"),
            "bool" => at = at.hint("`true` or `false`"),
            "list" if node.scalar().is_some() => at = at.hint(format!("in brackets: `[{shown}]`")),
            "list" => at = at.hint("a list: every entry begins with `- `"),
            _ => {}
        }
        let line = node.place.line;
        let value = match node.kind {
            Kind::Scalar(_) => format!(" `{shown}`"),
            _ => String::new(),
        };
        let message = format!(
            "error loading config file: yaml: line {line}: cannot unmarshal {tag}{value} into {wanted}"
        );
        self.error(at, message);
    }
}

/// `20%`, `0.5%` or `20` in hundredths of a percent.
fn parse_percent(text: &str) -> Option<u32> {
    let text = text.trim();
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 2 {
        return None;
    }
    let hundredths = format!("{fraction:0<2}").parse::<u32>().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact() {
        assert_eq!(parse_percent("20%"), Some(2000));
        assert_eq!(parse_percent("0.5%"), Some(50));
        assert_eq!(parse_percent("12.34 %"), Some(1234));
        assert_eq!(parse_percent("7"), Some(700));
        for wrong in ["", "%", "-1%", "1.234%", "1e2", "99999999999%", ".5%", "20 percent"] {
            assert_eq!(parse_percent(wrong), None, "{wrong}");
        }
    }
}
