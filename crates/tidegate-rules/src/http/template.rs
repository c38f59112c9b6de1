//! Templates of values: text with variables.

use std::fmt;

use super::address::{PREFIX, PREFIX_MAX};
use super::pattern::Wrong;
use super::request::is_token;
use crate::diagnostic::{list, nearest};

/// A text with variables.
///
/// `${name}` is replaced by the value of a variable, `${name:-text}` by the text where there is no
/// value; `$${` stands for `${`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Box<[Part]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Box<str>),
    /// A variable, and what stands for it where it has no value.
    Variable(Variable, Option<Box<str>>),
}

/// Where a value comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// The address, and how IPv6 is grouped: in several ways, one after the other.
    ClientIp(Box<[u8]>),
    Method,
    Host,
    Path,
    /// A segment that the pattern of the path names.
    Segment {
        name: Box<str>,
        index: usize,
    },
    /// The name is in lower case.
    Header(Box<str>),
    Cookie(Box<str>),
    Query(Box<str>),
    Jwt(Box<str>),
}

/// How much of what is wrong with one template is said.
const WRONG_MAX: usize = 10;

/// The variables, as they are listed for people.
const VARIABLES: [&str; 10] = [
    "client_ip",
    "client_ip/56",
    "method",
    "host",
    "path",
    "path.x",
    "header.x",
    "cookie.x",
    "query.x",
    "jwt.x",
];
/// What may stand before a dot or alone.
const KINDS: [&str; 8] =
    ["client_ip", "method", "host", "path", "header", "cookie", "query", "jwt"];
/// Other systems' words for ours.
const ALIASES: [(&str, &str); 12] = [
    ("ip", "client_ip"),
    ("remote_addr", "client_ip"),
    ("remote_ip", "client_ip"),
    ("remote_address", "client_ip"),
    ("uri", "path"),
    ("url", "path"),
    ("verb", "method"),
    ("http", "header"),
    ("arg", "query"),
    ("args", "query"),
    ("claim", "jwt"),
    ("token", "jwt"),
];

/// The position of a named segment of the entry's path, or why there is none.
pub(crate) type Segments<'a> = &'a dyn Fn(&str) -> Result<usize, Wrong>;

impl Template {
    /// Reads a template, or says what is wrong with it.
    pub(crate) fn parse(source: &str, segments: Segments<'_>) -> Result<Self, Vec<Wrong>> {
        let (mut parts, mut wrong) = (Vec::new(), Vec::new());
        let mut text = String::new();
        let mut rest = source;
        while let Some(at) = rest.find("${").filter(|_| wrong.len() < WRONG_MAX) {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                text.push_str(before);
                text.push_str("${");
                rest = after;
                continue;
            }
            text.push_str(before);
            let Some((inner, after)) = after.split_once('}') else {
                let shown = &rest[at..];
                let missing = Wrong::new(format!("`{shown}` has no `}}` at its end"));
                wrong.push(missing.hint("`$${` writes `${` as it is"));
                rest = "";
                break;
            };
            rest = after;
            match parse_inner(inner, segments) {
                Ok(part) => {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text).into()));
                    }
                    parts.push(part);
                }
                Err(error) => wrong.push(error),
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text.into()));
        }
        if wrong.is_empty() { Ok(Self { parts: parts.into() }) } else { Err(wrong) }
    }

    /// The text, if there is no variable in it.
    pub(crate) fn literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Variable(variable, _) => Some(variable),
        })
    }
}

/// What stands between the braces.
fn parse_inner(inner: &str, segments: Segments<'_>) -> Result<Part, Wrong> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if inner.contains("${") {
        let wrong = Wrong::new(format!("`${{{inner}}}` has a variable inside a variable"));
        return Err(wrong.hint("what follows `:-` is plain text"));
    }
    let variable = Variable::parse(name, segments)?;
    Ok(Part::Variable(variable, default.map(Into::into)))
}

impl Variable {
    fn parse(name: &str, segments: Segments<'_>) -> Result<Self, Wrong> {
        match name {
            "client_ip" => return Ok(Self::ClientIp([PREFIX].into())),
            "method" => return Ok(Self::Method),
            "host" => return Ok(Self::Host),
            "path" => return Ok(Self::Path),
            _ => {}
        }
        if let Some(prefixes) = name.strip_prefix("client_ip/") {
            return parse_prefixes(prefixes).map(Self::ClientIp);
        }
        let (kind, inner) = name.split_once('.').unwrap_or((name, ""));
        match kind {
            "header" | "cookie" | "query" | "jwt" | "path" if inner.is_empty() => {
                let wrong = Wrong::new(format!("`${{{name}}}` does not say which"));
                Err(wrong.hint(format!("such as `${{{kind}.x}}`")))
            }
            "path" => segments(inner).map(|index| Self::Segment { name: inner.into(), index }),
            "header" | "cookie" if !is_token(inner) => {
                Err(Wrong::new(format!("`{inner}` is not the name of a {kind}")))
            }
            "header" => Ok(Self::Header(inner.to_ascii_lowercase().into())),
            "cookie" => Ok(Self::Cookie(inner.into())),
            "query" => Ok(Self::Query(inner.into())),
            "jwt" => Ok(Self::Jwt(inner.into())),
            _ => Err(unknown(name)),
        }
    }
}

/// `56`, or several such as `64,56,48`.
fn parse_prefixes(text: &str) -> Result<Box<[u8]>, Wrong> {
    let mut prefixes: Vec<u8> = Vec::new();
    for part in text.split(',') {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = part.parse().ok().filter(|prefix| digits && (1..=PREFIX_MAX).contains(prefix));
        let Some(prefix) = prefix else {
            let wrong = Wrong::new(format!("`{part}` is not the length of a prefix"));
            return Err(wrong.hint("from 1 to 128, several with commas: `${client_ip/64,56,48}`"));
        };
        if prefixes.contains(&prefix) {
            return Err(Wrong::new(format!("the prefix `/{prefix}` is given twice")));
        }
        prefixes.push(prefix);
    }
    Ok(prefixes.into())
}

fn unknown(name: &str) -> Wrong {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let variables = format!("variables are {}", list(&VARIABLES));
    let environment = !name.is_empty() && name.chars().all(is_upper);
    if environment || name.starts_with("env.") || name.starts_with("env:") {
        let message = format!(
            "`${{{name}}}` is not a variable: environment variables are not expanded in rule files"
        );
        return Wrong::new(message).hint(variables);
    }
    let message = format!("`${{{name}}}` is not a variable");
    let end = name.find(['.', '/']).unwrap_or(name.len());
    let (kind, rest) = name.split_at(end);
    let alias = ALIASES.iter().find(|(alias, _)| kind.eq_ignore_ascii_case(alias));
    match alias.map(|(_, kind)| *kind).or_else(|| nearest(kind, KINDS)) {
        Some(kind) => {
            // `${ip.x}` has no such thing to take the rest to.
            let keeps = match kind {
                "client_ip" => rest.starts_with('/'),
                "method" | "host" => false,
                _ => rest.starts_with('.') && rest.len() > 1,
            };
            let rest = match kind {
                _ if keeps => rest,
                "header" | "cookie" | "query" | "jwt" => ".x",
                _ => "",
            };
            Wrong::new(message).hint(format!("did you mean `${{{kind}{rest}}}`? {variables}"))
        }
        None => Wrong::new(message).hint(variables),
    }
}

/// As it is written between the braces.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp(prefixes) if **prefixes == [PREFIX] => f.write_str("client_ip"),
            Self::ClientIp(prefixes) => {
                let prefixes: Vec<_> = prefixes.iter().map(u8::to_string).collect();
                write!(f, "client_ip/{}", prefixes.join(","))
            }
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Segment { name, .. } => write!(f, "path.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Jwt(name) => write!(f, "jwt.{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str) -> Result<Template, Vec<Wrong>> {
        Template::parse(source, &|name| match name {
            "id" => Ok(1),
            _ => Err(Wrong::new("no such segment")),
        })
    }

    fn only(source: &str) -> Variable {
        let mut parts = Vec::from(parse(source).unwrap().parts);
        match (parts.pop(), parts.pop()) {
            (Some(Part::Variable(variable, None)), None) => variable,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_variable_reads_back_as_written() {
        for name in [
            "client_ip",
            "client_ip/56",
            "client_ip/64,56,48",
            "client_ip/128",
            "method",
            "host",
            "path",
            "path.id",
            "header.x-user",
            "cookie.sid",
            "query.q",
            "jwt.realm.tenant",
        ] {
            assert_eq!(only(&format!("${{{name}}}")).to_string(), name);
        }
        assert_eq!(only("${client_ip/64}").to_string(), "client_ip");
        assert_eq!(only("${header.X-User}"), Variable::Header("x-user".into()));
    }

    #[test]
    fn text_defaults_and_dollars() {
        let parts = |source| Vec::from(parse(source).unwrap().parts);
        let text = |text: &str| Part::Text(text.into());
        assert_eq!(parts("a $ b $$ {c} }"), [text("a $ b $$ {c} }")]);
        assert_eq!(parts("$${header.x}"), [text("${header.x}")]);
        assert_eq!(parts("a$$${b"), [text("a$${b")]);
        let x = || Variable::Header("x".into());
        assert_eq!(
            parts("u-${header.x:-anon}-${method}"),
            [
                text("u-"),
                Part::Variable(x(), Some("anon".into())),
                text("-"),
                Part::Variable(Variable::Method, None)
            ]
        );
        assert_eq!(parts("${header.x:-}"), [Part::Variable(x(), Some("".into()))]);
        assert_eq!(parts("${header.x:-a:-b}"), [Part::Variable(x(), Some("a:-b".into()))]);
        assert_eq!(parse("plain").unwrap().literal(), Some("plain"));
        assert_eq!(parse("${method}").unwrap().literal(), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_was_meant() {
        for (source, message, hint) in [
            ("${clientip}", "not a variable", "`${client_ip}`?"),
            ("${ip}", "not a variable", "`${client_ip}`?"),
            ("${ip/56}", "not a variable", "`${client_ip/56}`?"),
            ("${headers.x-user}", "not a variable", "`${header.x-user}`?"),
            ("${fortnight}", "not a variable", "variables are `client_ip`"),
            ("${}", "not a variable", "variables are"),
            ("${TENANT_ID}", "environment variables are not expanded", "variables are"),
            ("${env.HOME}", "environment variables are not expanded", "variables are"),
            ("${header}", "which", "`${header.x}`"),
            ("${header.}", "which", "`${header.x}`"),
            ("${header.a b}", "name of a header", ""),
            ("${path.other}", "no such segment", ""),
            ("${client_ip/0}", "prefix", "1 to 128"),
            ("${client_ip/129}", "prefix", "1 to 128"),
            ("${client_ip/+1}", "prefix", "1 to 128"),
            ("${client_ip/64,}", "prefix", "1 to 128"),
            ("${client_ip/64,64}", "twice", ""),
            ("${header.x:-${method}}", "inside", "plain text"),
            ("a ${method", "no `}`", "`$${`"),
        ] {
            let wrong = parse(source).expect_err(source);
            assert!(wrong[0].message.contains(message), "{source}: {wrong:?}");
            assert!(wrong[0].hint.as_deref().unwrap_or("").contains(hint), "{source}: {wrong:?}");
        }
        assert_eq!(parse("${a} ${b} ${method").unwrap_err().len(), 3);
    }
}
