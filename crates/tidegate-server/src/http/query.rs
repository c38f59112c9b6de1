//! What follows the `?`.

use super::problem::Problem;

/// The value of a parameter, decoded; the first if there are several.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, Problem> {
    for pair in query.unwrap_or_default().split('&') {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(found)? == name {
            return decode(value).map(Some);
        }
    }
    Ok(None)
}

/// Decodes `%xx`, and `+` as a space.
pub(crate) fn decode(text: &str) -> Result<String, Problem> {
    if !text.contains(['%', '+']) {
        return Ok(text.to_owned());
    }
    let wrong = || Problem::bad(format!("`{text}` in the query is not well encoded"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                u8::try_from(high * 16 + low).map_err(|_| wrong())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// A descriptor as `k=v,k2=v2`. A `\` takes the meaning from a `,`, `=` or `\` behind it.
pub(crate) fn descriptor(text: &str) -> Result<Vec<(String, String)>, Problem> {
    let wrong = || {
        Problem::bad(format!(
            "`{text}` is not a descriptor: write k=v,k2=v2, and \\, for a comma in a value"
        ))
    };
    let mut entries = Vec::new();
    let (mut key, mut part) = (None, String::new());
    let mut rest = text.chars();
    loop {
        match rest.next() {
            Some('\\') => part.push(rest.next().ok_or_else(wrong)?),
            Some('=') if key.is_none() => key = Some(std::mem::take(&mut part)),
            end @ (Some(',') | None) => {
                let key = key.take().filter(|key| !key.is_empty()).ok_or_else(wrong)?;
                entries.push((key, std::mem::take(&mut part)));
                if end.is_none() {
                    return Ok(entries);
                }
            }
            Some(c) => part.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Some("a=1&domain=a%20b+c&a=2&empty&x=%C3%A9");
        let of = |name: &str| parameter(query, name).unwrap();
        assert_eq!(of("a").as_deref(), Some("1"));
        assert_eq!(of("domain").as_deref(), Some("a b c"));
        assert_eq!(of("empty").as_deref(), Some(""));
        assert_eq!(of("x").as_deref(), Some("é"));
        assert_eq!(of("y"), None);
        assert_eq!(parameter(None, "a").unwrap(), None);
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(parameter(Some(wrong), "a").is_err(), "{wrong}");
        }
    }

    #[test]
    fn descriptors_are_read_as_written() {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        for (text, wanted) in [
            ("k=v", owned(&[("k", "v")])),
            ("k=v,k2=v2", owned(&[("k", "v"), ("k2", "v2")])),
            ("k=", owned(&[("k", "")])),
            ("k=a=b", owned(&[("k", "a=b")])),
            (r"k=a\,b,c\=d=e\\", owned(&[("k", "a,b"), ("c=d", r"e\")])),
        ] {
            assert_eq!(descriptor(text).unwrap(), wanted, "{text}");
        }
        for wrong in ["", "k", "=v", "k=v,", ",k=v", r"k=v\"] {
            assert!(descriptor(wrong).is_err(), "{wrong}");
        }
    }
}
