//! The JSON that checks and their like are asked with. What can be is borrowed from the body.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;
use tidegate::rules::{Descriptor, Entry, PlainRequest};
use tidegate::{DESCRIPTORS_MAX, Query, holder_named};

use super::problem::Problem;

/// How many checks one call may hold.
pub(crate) const CHECKS_MAX: usize = 1000;

/// A question that makes sense.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) domain: Cow<'a, str>,
    pub(crate) what: What<'a>,
    pub(crate) cost: u64,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) ttl: Option<Cow<'a, str>>,
}

/// What a request is counted by.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, which is not kept")]
pub(crate) enum What<'a> {
    Descriptors(Listed<'a>),
    Http(Box<PlainRequest>),
}

/// One question or several.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, which is not kept")]
pub(crate) enum Questions<'a> {
    One(Asked<'a>),
    Several(Vec<Asked<'a>>),
}

impl<'a> Questions<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::bad("the body is not a JSON object: {\"domain\": …}"));
        }
        let mut raw: Raw<'a> =
            serde_json::from_slice(body).map_err(|error| Problem::json(&error))?;
        let Some(checks) = raw.checks.take() else { return raw.judge().map(Self::One) };
        if !raw.is_empty() {
            return Err(Problem::bad("`checks` stands alone: each check says all of itself"));
        }
        if checks.len() > CHECKS_MAX {
            let detail = format!("{} checks; the most is {CHECKS_MAX}", checks.len());
            return Err(Problem::bad(detail));
        }
        let count = |check: &Raw<'_>| check.descriptors.as_ref().map_or(0, |it| it.groups.len());
        check_count(checks.iter().map(count).sum())?;
        let judged = checks.into_iter().enumerate().map(|(index, check)| {
            check.judge().map_err(|problem| problem.within(format_args!("checks[{index}]")))
        });
        judged.collect::<Result<_, _>>().map(Self::Several)
    }

    /// The only question.
    pub(crate) fn only(self) -> Result<Asked<'a>, Problem> {
        match self {
            Self::One(asked) => Ok(asked),
            Self::Several(_) => Err(Problem::bad("`checks` is for check and peek alone")),
        }
    }
}

impl Asked<'_> {
    /// The query, with descriptors or without.
    pub(crate) fn query<'q>(&'q self, descriptors: &'q [Descriptor<'q>]) -> Query<'q> {
        let query = Query::new(&self.domain, descriptors).cost(self.cost);
        match &self.id {
            Some(id) => query.holder(holder_named(id)),
            None => query,
        }
    }
}

fn check_count(descriptors: usize) -> Result<(), Problem> {
    match descriptors {
        0..=DESCRIPTORS_MAX => Ok(()),
        more => Err(Problem::bad(format!("{more} descriptors; the most is {DESCRIPTORS_MAX}"))),
    }
}

/// A question as it was sent.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw<'a> {
    #[serde(borrow)]
    domain: Option<Text<'a>>,
    #[serde(borrow)]
    descriptors: Option<Listed<'a>>,
    #[serde(borrow)]
    http: Option<Box<Http<'a>>>,
    cost: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    ttl: Option<Text<'a>>,
    #[serde(borrow)]
    checks: Option<Vec<Raw<'a>>>,
}

impl<'a> Raw<'a> {
    fn is_empty(&self) -> bool {
        let Self { domain, descriptors, http, cost, id, ttl, checks } = self;
        domain.is_none()
            && descriptors.is_none()
            && http.is_none()
            && cost.is_none()
            && id.is_none()
            && ttl.is_none()
            && checks.is_none()
    }

    fn judge(self) -> Result<Asked<'a>, Problem> {
        if self.checks.is_some() {
            return Err(Problem::bad("`checks` within `checks`"));
        }
        let domain = self.domain.ok_or_else(|| Problem::bad("`domain` is missing"))?.0;
        let what = match (self.descriptors, self.http) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad("`descriptors` and `http` exclude each other"));
            }
            (None, None) => {
                return Err(Problem::bad("`descriptors` is missing, or `http` in its place"));
            }
            (Some(listed), None) => {
                check_count(listed.groups.len())?;
                What::Descriptors(listed)
            }
            (None, Some(http)) => What::Http(Box::new(http.parse()?)),
        };
        let text = |text: Option<Text<'a>>| text.map(|text| text.0);
        let cost = self.cost.unwrap_or(1);
        Ok(Asked { domain, what, cost, id: text(self.id), ttl: text(self.ttl) })
    }
}

/// A text that is borrowed from the body where it can be.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// An HTTP request instead of descriptors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `url`")]
struct Http<'a> {
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(borrow, default)]
    headers: Headers<'a>,
    #[serde(default)]
    client_ip: Option<IpAddr>,
}

impl Http<'_> {
    fn parse(&self) -> Result<PlainRequest, Problem> {
        let method = self.method.as_ref().map_or("GET", |method| &method.0);
        let headers = self.headers.0.iter().map(|(name, value)| (&**name, &**value));
        PlainRequest::parse(method, &self.url.0, headers, self.client_ip)
            .map_err(|error| Problem::bad(error).within("http"))
    }
}

/// Headers in their order, each with one value or several.
#[derive(Default)]
struct Headers<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Headers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Headers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of headers, each a text or a list of texts")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Headers<'de>, M::Error> {
                let mut headers = Vec::new();
                while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
                    let Values(values) = map.next_value()?;
                    headers.extend(values.into_iter().map(|value| (name.clone(), value)));
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

struct Values<'a>(SmallVec<[Cow<'a, str>; 1]>);

impl<'de: 'a, 'a> Deserialize<'de> for Values<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for OneOrSeveral<'a> {
            type Value = Values<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Values<'a>, E> {
                Ok(Values(SmallVec::from_iter([Cow::Borrowed(text)])))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Values<'a>, E> {
                Ok(Values(SmallVec::from_iter([Cow::Owned(text.to_owned())])))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Values<'a>, S::Error> {
                let mut values = SmallVec::new();
                while let Some(Text(value)) = list.next_element::<Text<'a>>()? {
                    values.push(value);
                }
                Ok(Values(values))
            }
        }

        deserializer.deserialize_any(OneOrSeveral(PhantomData))
    }
}

/// The descriptors of a request: all entries in one list, and which belong together.
#[derive(Debug, Default)]
pub(crate) struct Listed<'a> {
    entries: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>,
    groups: SmallVec<[Group; 2]>,
}

#[derive(Debug, Default)]
struct Group {
    entries: Range<usize>,
    cost: Option<u64>,
}

impl Listed<'_> {
    /// All entries in the form that limiters take, for [`grouped`](Self::grouped). No text is
    /// copied.
    pub(crate) fn entries(&self) -> SmallVec<[Entry<'_>; 8]> {
        self.entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
    }

    /// The descriptors in the form that limiters take; `entries` are all of them.
    pub(crate) fn grouped<'e>(&self, entries: &'e [Entry<'e>]) -> SmallVec<[Descriptor<'e>; 4]> {
        let group = |group: &Group| Descriptor {
            cost: group.cost,
            ..Descriptor::new(&entries[group.entries.clone()])
        };
        self.groups.iter().map(group).collect()
    }

    /// Whether a descriptor says what it costs.
    pub(crate) fn has_costs(&self) -> bool {
        self.groups.iter().any(|group| group.cost.is_some())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Listed<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut listed = Listed::default();
        deserializer.deserialize_seq(Descriptors(&mut listed))?;
        Ok(listed)
    }
}

/// Reads the list of descriptors.
struct Descriptors<'l, 'a>(&'l mut Listed<'a>);

impl<'de: 'a, 'a> Visitor<'de> for Descriptors<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of descriptors")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while list.next_element_seed(OneDescriptor(self.0))?.is_some() {}
        Ok(())
    }
}

/// Reads one descriptor: its entries, or a map that has them.
struct OneDescriptor<'l, 'a>(&'l mut Listed<'a>);

impl<'de: 'a, 'a> DeserializeSeed<'de> for OneDescriptor<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for OneDescriptor<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a descriptor such as {\"entries\": [[\"user\",\"ada\"]]} or [[\"user\",\"ada\"]]",
        )
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let first = self.0.entries.len();
        while let Some(Pair(key, value)) = list.next_element()? {
            self.0.entries.push((key, value));
        }
        self.0.groups.push(Group { entries: first..self.0.entries.len(), cost: None });
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "lowercase")]
        enum Field {
            Entries,
            Cost,
        }
        let first = self.0.entries.len();
        let (mut has_entries, mut cost) = (false, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Entries if has_entries => return Err(de::Error::duplicate_field("entries")),
                Field::Entries => {
                    has_entries = true;
                    map.next_value_seed(Entries(&mut *self.0))?;
                }
                Field::Cost if cost.is_some() => return Err(de::Error::duplicate_field("cost")),
                Field::Cost => cost = Some(map.next_value()?),
            }
        }
        if !has_entries {
            return Err(de::Error::missing_field("entries"));
        }
        self.0.groups.push(Group { entries: first..self.0.entries.len(), cost });
        Ok(())
    }
}

/// Reads a list of entries.
struct Entries<'l, 'a>(&'l mut Listed<'a>);

impl<'de: 'a, 'a> DeserializeSeed<'de> for Entries<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Entries<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries such as [\"user\",\"ada\"]")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(Pair(key, value)) = list.next_element()? {
            self.0.entries.push((key, value));
        }
        Ok(())
    }
}

/// An entry: a pair, or a map with `key` and `value`.
struct Pair<'a>(Cow<'a, str>, Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Pair<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = Pair<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pair of texts such as [\"user\",\"ada\"]")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Pair<'de>, S::Error> {
                let missing = |at| move || de::Error::invalid_length(at, &"a pair of texts");
                let Text(key) = list.next_element()?.ok_or_else(missing(0))?;
                let Text(value) = list.next_element()?.ok_or_else(missing(1))?;
                match list.next_element::<de::IgnoredAny>()? {
                    None => Ok(Pair(key, value)),
                    Some(_) => Err(de::Error::invalid_length(3, &"a pair of texts")),
                }
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Pair<'de>, M::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Named<'a> {
                    #[serde(borrow)]
                    key: Text<'a>,
                    #[serde(borrow)]
                    value: Text<'a>,
                }
                let Named { key, value } =
                    Deserialize::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Pair(key.0, value.0))
            }
        }

        deserializer.deserialize_any(Parts)
    }
}
