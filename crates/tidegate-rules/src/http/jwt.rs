//! Claims of a bearer token, read and **not verified**.
//!
//! Whatever stands in front has to have verified the token. Where nothing does, a forged token
//! only chooses its own key: it can share the limit of somebody else or have a fresh one, and so
//! claims should not be the only thing that such requests are counted by.

use std::fmt::{self, Write as _};

use serde_core::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Decodes the payload of the token in an `Authorization` header; whether there is one.
pub(crate) fn decode_payload(authorization: &[u8], out: &mut Vec<u8>) -> bool {
    const SCHEME: &[u8] = b"bearer ";
    let Some((scheme, token)) = authorization.split_at_checked(SCHEME.len()) else { return false };
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return false;
    }
    // Header, payload, signature; the last may be empty.
    let mut parts = token.trim_ascii().split(|byte| *byte == b'.');
    let (Some(_), Some(payload), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    decode_base64url(payload, out)
}

/// Decodes base64 of the kind for URLs. Padding is not needed, and nor are zeros in the bits that
/// are left over.
fn decode_base64url(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let text = &text[..end];
    for four in text.chunks(4) {
        let mut bits = 0u32;
        for byte in four {
            let Some(six) = six_bits(*byte) else { return false };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * (4 - four.len());
        let bytes = bits.to_be_bytes();
        match four.len() {
            4 => out.extend_from_slice(&bytes[1..]),
            3 => out.extend_from_slice(&bytes[1..3]),
            2 => out.push(bytes[1]),
            _ => return false,
        }
    }
    true
}

fn six_bits(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

/// Writes a claim, if the payload has it as a string, a number or a flag.
///
/// A dot in the name leads into an object, or is a dot in the name: `https://example.com/plan` is
/// found as well as `realm.tenant`. Of several the first counts.
pub(crate) fn write_claim(payload: &[u8], name: &str, out: &mut String) {
    let start = out.len();
    let mut json = serde_json::Deserializer::from_slice(payload);
    let search = Search { name: Some(name), start, out: &mut *out };
    let read = search.deserialize(&mut json).and_then(|()| json.end());
    if read.is_err() {
        out.truncate(start);
    }
}

/// Looks for a claim without building the object that it is in.
struct Search<'a> {
    /// What is looked for inside this value; nothing, when this is it.
    name: Option<&'a str>,
    /// The length of `out` while nothing has been found.
    start: usize,
    out: &'a mut String,
}

impl Search<'_> {
    fn found<E>(self, write: impl FnOnce(&mut String)) -> Result<(), E> {
        if self.name.is_none() {
            write(self.out);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("claims")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found(|out| out.push_str(text))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.found(|out| out.push_str(if flag { "true" } else { "false" }))
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.found(|out| write_number(out, number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.found(|out| write_number(out, number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.found(|out| write_number(out, number))
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { name, start, out } = self;
        while let Some(step) = map.next_key_seed(Key { name })? {
            match step {
                Step::Into(name) if out.len() == start => {
                    map.next_value_seed(Search { name, start, out: &mut *out })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn write_number(out: &mut String, number: impl fmt::Display) {
    // Writing to a string does not fail.
    let _ = write!(out, "{number}");
}

/// Compares the key of an object with the name that is looked for.
struct Key<'a> {
    name: Option<&'a str>,
}

enum Step<'a> {
    Past,
    /// This is it, or what is left of the name is looked for inside.
    Into(Option<&'a str>),
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Step<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Step<'a>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Step<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a claim")
    }

    fn visit_str<E>(self, key: &str) -> Result<Step<'a>, E> {
        let rest = self.name.and_then(|name| name.strip_prefix(key));
        Ok(match rest {
            Some("") => Step::Into(None),
            Some(rest) => rest.strip_prefix('.').map_or(Step::Past, |rest| Step::Into(Some(rest))),
            None => Step::Past,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(payload: &str, name: &str) -> String {
        let mut out = String::from("before ");
        write_claim(payload.as_bytes(), name, &mut out);
        out.split_off("before ".len())
    }

    #[test]
    fn strings_numbers_and_flags_are_claims() {
        let payload = r#"{"sub":"ada","n":7,"m":-7,"f":1.5,"yes":true,"no":false,"esc":"a\"\u00e9",
            "null":null,"list":["x"],"realm":{"tenant":"t1","deep":{"er":3}},"a.b":"dotted",
            "https://example.com/plan":"gold","empty":""}"#;
        for (name, wanted) in [
            ("sub", "ada"),
            ("n", "7"),
            ("m", "-7"),
            ("f", "1.5"),
            ("yes", "true"),
            ("no", "false"),
            ("esc", "a\"é"),
            ("realm.tenant", "t1"),
            ("realm.deep.er", "3"),
            ("a.b", "dotted"),
            ("https://example.com/plan", "gold"),
            ("null", ""),
            ("list", ""),
            ("list.0", ""),
            ("realm", ""),
            ("realm.other", ""),
            ("sub.x", ""),
            ("tenant", ""),
            ("su", ""),
            ("empty", ""),
        ] {
            assert_eq!(claim(payload, name), wanted, "{name}");
        }
    }

    #[test]
    fn what_is_no_object_has_no_claims() {
        for payload in ["", "7", "\"sub\"", "[]", "{\"sub\":\"ada\"", "{\"sub\":\"ada\"} x"] {
            assert_eq!(claim(payload, "sub"), "", "{payload}");
        }
        assert_eq!(claim(&"{\"sub\":".repeat(10_000), "sub.sub"), "");
    }

    #[test]
    fn the_first_of_a_name_counts() {
        assert_eq!(claim(r#"{"a":"1","a":"2"}"#, "a"), "1");
        assert_eq!(claim(r#"{"a":{"x":1},"a.b":"2","a":{"b":"3"}}"#, "a.b"), "2");
    }

    #[test]
    fn a_token_has_three_parts() {
        let mut out = Vec::new();
        assert!(decode_payload(b"Bearer e30.eyJzdWIiOiJhZGEifQ.c2ln", &mut out));
        assert_eq!(out, br#"{"sub":"ada"}"#);
        assert!(decode_payload(b"bearer  e30.e30=.", &mut out));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer e30",
            "Bearer e30.e30",
            "Basic e30.e30.x",
            "Bearer a.b.c.d",
            "Bearer a.b.c",
            "Bearer a.e+/0.c",
        ] {
            assert!(!decode_payload(wrong.as_bytes(), &mut out), "{wrong}");
        }
    }

    /// The definition: bits in a row, six at a time.
    fn encode(bytes: &[u8]) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let sixes = bits.as_bytes().chunks(6).map(|six| {
            let six = format!("{:0<6}", std::str::from_utf8(six).unwrap());
            ALPHABET[usize::from_str_radix(&six, 2).unwrap()] as char
        });
        sixes.collect()
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            prop_assert!(decode_base64url(encode(&bytes).as_bytes(), &mut out));
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn no_payload_panics(payload in "[{}\\[\\]\",:a.\\\\0-9e]{0,40}", name in "[a.]{0,4}") {
            claim(&payload, &name);
        }
    }
}
