//! `/json`: Envoy's question as JSON, as Lyft's service takes it.
//!
//! The JSON of protocol buffers: names in either case, numbers also as texts, what is nought left
//! out, and unknown names refused.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use prost_types::value::Kind;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use tidegate_proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitUnit, Unit,
};

use super::App;
use super::answer::{JSON, Response, respond};
use super::problem::Problem;
use crate::front_end::FrontEnd;
use crate::rls::{self, Answer, RlsError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    domain: Option<String>,
    descriptors: Option<Vec<Object<Descriptor>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Descriptor {
    entries: Option<Vec<Object<Pair>>>,
    limit: Option<Object<Limit>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Limit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Whole>,
    unit: Option<UnitName>,
}

/// A map, and nothing that could stand for one.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Object<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Only(PhantomData))
    }
}

/// A whole number from nought on, also as text or with nothing behind the point.
#[derive(Clone, Copy)]
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Whole, E> {
                // Up to here every whole number is one of these.
                match (0.0..=9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0 {
                    true => Ok(Whole(number as u64)),
                    false => Err(E::invalid_value(de::Unexpected::Float(number), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Whole, E> {
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
                let number = text.parse().ok().filter(|_| is_number);
                number.map(Whole).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl Whole {
    fn narrow<E: de::Error>(self) -> Result<u32, E> {
        u32::try_from(self.0).map_err(|_| E::custom(format_args!("{} is too large", self.0)))
    }
}

/// A unit by its name or its number.
struct UnitName(i32);

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i32),
            Name(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Name(name) => match RateLimitUnit::from_str_name(&name) {
                Some(unit) => Ok(Self(unit.into())),
                None => Err(de::Error::custom(format_args!("`{name}` is not a unit"))),
            },
        }
    }
}

/// Reads a request.
fn parse(body: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    let Object(request): Object<Request> = serde_json::from_slice(body)?;
    let descriptors = request.descriptors.unwrap_or_default().into_iter();
    let descriptors = descriptors.map(|Object(it)| it.into_proto()).collect::<Result<_, _>>()?;
    let hits_addend = request.hits_addend.map_or(Ok(0), Whole::narrow)?;
    Ok(RateLimitRequest { domain: request.domain.unwrap_or_default(), descriptors, hits_addend })
}

impl Descriptor {
    fn into_proto(self) -> Result<RateLimitDescriptor, serde_json::Error> {
        let entries = self.entries.unwrap_or_default().into_iter().map(|Object(pair)| Entry {
            key: pair.key.unwrap_or_default(),
            value: pair.value.unwrap_or_default(),
        });
        let limit = self.limit.map(|Object(limit)| {
            Ok(RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(Ok(0), Whole::narrow)?,
                unit: limit.unit.map_or(0, |unit| unit.0),
            })
        });
        Ok(RateLimitDescriptor {
            entries: entries.collect(),
            limit: limit.transpose()?,
            hits_addend: self.hits_addend.map(|hits| hits.0),
            is_negative_hits: self.is_negative_hits.unwrap_or_default(),
        })
    }
}

/// Writes an answer.
fn render(answer: &RateLimitResponse) -> Value {
    let mut out = Map::new();
    put_code(&mut out, "overallCode", answer.overall_code);
    let statuses: Vec<Value> = answer.statuses.iter().map(status).collect();
    put(&mut out, "statuses", statuses.into());
    for (name, headers) in [
        ("responseHeadersToAdd", &answer.response_headers_to_add),
        ("requestHeadersToAdd", &answer.request_headers_to_add),
    ] {
        let all = headers.iter().map(|header| json!({ "key": header.key, "value": header.value }));
        put(&mut out, name, all.collect::<Vec<_>>().into());
    }
    if let Some(metadata) = &answer.dynamic_metadata {
        out.insert("dynamicMetadata".into(), object(metadata));
    }
    Value::Object(out)
}

/// Adds what is not nought.
fn put(out: &mut Map<String, Value>, name: &str, value: Value) {
    let is_nought = match &value {
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if !is_nought {
        out.insert(name.into(), value);
    }
}

fn put_code(out: &mut Map<String, Value>, name: &str, code: i32) {
    match Code::try_from(code) {
        Ok(Code::Unknown) => {}
        Ok(code) => put(out, name, code.as_str_name().into()),
        Err(_) => put(out, name, code.into()),
    }
}

fn status(status: &DescriptorStatus) -> Value {
    let mut out = Map::new();
    put_code(&mut out, "code", status.code);
    if let Some(limit) = &status.current_limit {
        let mut shown = Map::new();
        put(&mut shown, "name", limit.name.as_str().into());
        put(&mut shown, "requestsPerUnit", limit.requests_per_unit.into());
        match Unit::try_from(limit.unit) {
            Ok(Unit::Unknown) => {}
            Ok(unit) => put(&mut shown, "unit", unit.as_str_name().into()),
            Err(_) => put(&mut shown, "unit", limit.unit.into()),
        }
        out.insert("currentLimit".into(), Value::Object(shown));
    }
    put(&mut out, "limitRemaining", status.limit_remaining.into());
    if let Some(until) = &status.duration_until_reset {
        // Whole seconds, which is all that is ever said.
        out.insert("durationUntilReset".into(), format!("{}s", until.seconds).into());
    }
    Value::Object(out)
}

fn object(object: &prost_types::Struct) -> Value {
    let fields = object.fields.iter().map(|(name, value)| (name.clone(), any(value)));
    Value::Object(fields.collect())
}

fn any(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::BoolValue(is)) => json!(is),
        Some(Kind::StructValue(fields)) => object(fields),
        Some(Kind::ListValue(list)) => list.values.iter().map(any).collect(),
    }
}

impl App {
    /// Answers 200 or 429 with the same body, and 400 to whatever is not understood: as Lyft's
    /// service does, also where all else here says more of what is wrong.
    pub(crate) async fn json(&self, body: &Bytes) -> Response {
        let request = match parse(body) {
            Ok(request) => request,
            Err(error) => {
                self.service.metrics().bad_request(FrontEnd::Http);
                tracing::debug!(%error, "a question to /json was not understood");
                return bad_request();
            }
        };
        match rls::answer(&self.service, &self.config, FrontEnd::Http, &request).await {
            Ok(Answer { response, is_unanswered }) => {
                let status = match Code::try_from(response.overall_code) {
                    Ok(Code::Ok) => StatusCode::OK,
                    Ok(Code::OverLimit) if is_unanswered => StatusCode::SERVICE_UNAVAILABLE,
                    Ok(Code::OverLimit) => StatusCode::TOO_MANY_REQUESTS,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                let mut answer = respond(status, JSON, render(&response).to_string());
                if is_unanswered {
                    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                }
                answer
            }
            Err(RlsError::Store(error)) => Problem::from(error).into_response(),
            Err(error) => {
                tracing::debug!(%error, "a question to /json makes no sense");
                bad_request()
            }
        }
    }
}

pub(crate) fn bad_request() -> Response {
    respond(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", "Bad Request\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(json: &str) -> Result<u32, String> {
        parse(json.as_bytes()).map(|it| it.hits_addend).map_err(|error| error.to_string())
    }

    #[test]
    fn names_come_in_either_case_and_numbers_as_texts() {
        for json in [
            r#"{"hitsAddend":7}"#,
            r#"{"hits_addend":7}"#,
            r#"{"hitsAddend":"7"}"#,
            r#"{"hitsAddend":7.0}"#,
            r#"{"hitsAddend":7,"domain":null,"descriptors":null}"#,
        ] {
            assert_eq!(hits(json), Ok(7), "{json}");
        }
        assert_eq!(hits("{}"), Ok(0));
        for json in [
            "",
            "[]",
            "7",
            "{",
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":1.5}"#,
            r#"{"hitsAddend":"+7"}"#,
            r#"{"hitsAddend":4294967296}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"unknown":1}"#,
            r#"{"descriptors":[[["k","v"]]]}"#,
            r#"{"descriptors":[{"entries":[["k","v"]]}]}"#,
            r#"{"domain":"d"} x"#,
        ] {
            assert!(hits(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_descriptor_has_everything_that_envoy_says() {
        let json = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"},{"key":"e"}],
            "limit":{"requests_per_unit":5,"unit":"MINUTE"},"hits_addend":"3",
            "isNegativeHits":true},{"limit":{"requestsPerUnit":"6","unit":4}}]}"#;
        let request = parse(json.as_bytes()).unwrap();
        let [first, second] = &request.descriptors[..] else { panic!("{request:?}") };
        assert_eq!((&*first.entries[0].key, &*first.entries[0].value), ("k", "v"));
        assert_eq!((&*first.entries[1].key, &*first.entries[1].value), ("e", ""));
        let limit = first.limit.unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (5, RateLimitUnit::Minute.into()));
        assert_eq!((first.hits_addend, first.is_negative_hits), (Some(3), true));
        assert_eq!(second.limit.unwrap().unit(), RateLimitUnit::Day);
        assert_eq!(second.hits_addend, None);
        assert!(parse(br#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#).is_err());
    }

    #[test]
    fn what_is_nought_is_left_out() {
        let empty = RateLimitResponse::default();
        assert_eq!(render(&empty), json!({}));
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(Default::default()),
            duration_until_reset: Some(prost_types::Duration { seconds: 58, nanos: 0 }),
            ..Default::default()
        };
        let answer = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![status],
            ..Default::default()
        };
        assert_eq!(
            render(&answer),
            json!({"overallCode": "OVER_LIMIT", "statuses": [
                {"code": "OK", "currentLimit": {}, "durationUntilReset": "58s"},
            ]})
        );
    }
}
