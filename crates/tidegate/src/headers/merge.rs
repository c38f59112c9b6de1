//! Fields that an upstream has sent itself, together with ours: the stricter one leads, and nothing
//! that was told is lost.

/// `RateLimit` with an upstream's own items and ours, the one with the least remaining first.
/// What is no such field is left out, as readers would have to ignore it with all the rest.
///
/// ```
/// use tidegate::headers::merge_states;
///
/// assert_eq!(merge_states(r#""a";r=5"#, r#""b";r=9;t=1"#), r#""a";r=5, "b";r=9;t=1"#);
/// assert_eq!(merge_states(r#""a";r=50"#, r#""b";r=9;t=1"#), r#""b";r=9;t=1, "a";r=50"#);
/// assert_eq!(merge_states("100, 100;w=60", r#""b";r=9;t=1"#), r#""b";r=9;t=1"#);
/// ```
#[must_use]
pub fn merge_states(theirs: &str, ours: &str) -> String {
    let (Some(their_least), Some(our_least)) = (least(theirs, "r"), least(ours, "r")) else {
        return ours.to_owned();
    };
    match their_least <= our_least {
        true => format!("{}, {ours}", theirs.trim()),
        false => format!("{ours}, {}", theirs.trim()),
    }
}

/// `RateLimit-Policy` with an upstream's own items and ours.
///
/// ```
/// use tidegate::headers::merge_policies;
///
/// assert_eq!(merge_policies(r#""a";q=5"#, r#""b";q=9;w=1"#), r#""a";q=5, "b";q=9;w=1"#);
/// assert_eq!(merge_policies("5;w=1", r#""b";q=9;w=1"#), r#""b";q=9;w=1"#);
/// ```
#[must_use]
pub fn merge_policies(theirs: &str, ours: &str) -> String {
    match least(theirs, "q") {
        Some(_) => format!("{}, {ours}", theirs.trim()),
        None => ours.to_owned(),
    }
}

/// Whether what an upstream says in `X-RateLimit-Remaining` is at least as strict as what we say: then
/// its `X-RateLimit-` headers stay as they are. What is no number stays too, since nobody can tell.
///
/// ```
/// use tidegate::headers::stays;
///
/// assert!(stays(b"3", "4") && stays(b"many", "4"));
/// assert!(!stays(b"5", "4"));
/// ```
pub fn stays(theirs: &[u8], ours: &str) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let theirs = std::str::from_utf8(theirs).ok().and_then(number);
    match (theirs, number(ours)) {
        (Some(theirs), Some(ours)) => theirs <= ours,
        _ => true,
    }
}

/// The least value of a parameter among the items of a list of strings; `None` if it is no such
/// list, or an item lacks the parameter.
fn least(list: &str, wanted: &str) -> Option<u64> {
    let mut least = None;
    let mut rest = list.trim();
    loop {
        rest = skip_string(rest)?;
        let mut found = None;
        while let Some(after) = rest.strip_prefix(';') {
            let after = after.trim_start_matches(' ');
            let end = after.find([';', ',', '=', ' ', '\t']).unwrap_or(after.len());
            let name = &after[..end];
            if name.is_empty() {
                return None;
            }
            rest = &after[end..];
            if let Some(value) = rest.strip_prefix('=') {
                let after = skip_value(value)?;
                if name == wanted {
                    found = value[..value.len() - after.len()].parse::<u64>().ok();
                }
                rest = after;
            }
        }
        let found = found?;
        least = Some(least.map_or(found, |least: u64| least.min(found)));
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start_matches([' ', '\t']),
            None => return least.filter(|_| rest.is_empty()),
        }
    }
}

/// What follows a string.
fn skip_string(text: &str) -> Option<&str> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next()?;
            }
            '"' => return text.get(at + 2..),
            ' '..='~' => {}
            _ => return None,
        }
    }
    None
}

/// What follows the value of a parameter.
fn skip_value(text: &str) -> Option<&str> {
    if text.starts_with('"') {
        return skip_string(text);
    }
    let end = text.find([';', ',', ' ', '\t']).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_structured_fields_are() {
        for (list, wanted) in [
            (r#""a";r=5"#, Some(5)),
            (r#" "a";r=5;t=1 ,"b"; t=2;r=3 "#, Some(3)),
            (r#""a,\"b;r=1";r=7;pk=:YQ==:;x"#, Some(7)),
            (r#""a";x="y;r=1,";r=7"#, Some(7)),
            (r#""a";t=5"#, None),
            (r#""a";r=5, "b""#, None),
            (r#""a";r=-5"#, None),
            (r#""a";r=5,"#, None),
            (r#"a;r=5"#, None),
            (r#""a;r=5"#, None),
            ("", None),
            ("limit=100, remaining=5", None),
        ] {
            assert_eq!(least(list, "r"), wanted, "{list}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[\"\\\\;=,ar5 é]{0,20}") {
            let merged = merge_states(&text, "\"b\";r=9");
            prop_assert!(merged.contains("\"b\";r=9"));
        }
    }
}
