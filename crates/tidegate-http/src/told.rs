//! What answers say of limits, beside what they say of them already.

use std::ops::Range;

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, Entry, HeaderMap, HeaderName, HeaderValue};
use tidegate::Verdict;
use tidegate::headers::{Field, Form, Headers, merge_policies, merge_states, stays};

use crate::answers::Answers;
use crate::asked::Asked;

/// The room for the values of headers.
pub(crate) const TEXT_BYTES: usize = 160;

/// What is said of limits, from the decision on until there is an answer to put it on.
#[derive(Debug)]
pub struct Told {
    text: Bytes,
    /// Where in the text the value of each header is; nowhere if it is empty.
    values: [Range<u16>; Field::ALL.len()],
    is_exposed: bool,
}

impl Told {
    /// What is said of an admission; `None` if there is nothing to say.
    pub fn new(answers: &Answers, verdict: &Verdict, asked: &Asked) -> Option<Self> {
        if !answers.on_allowed || verdict.reported().is_none() {
            return None;
        }
        let form = answers.form(verdict.now);
        let told = Self::write(verdict, &form, String::with_capacity(TEXT_BYTES));
        Some(Self { is_exposed: answers.exposes(asked), ..told })
    }

    /// What is said of a verdict, behind a text.
    pub(crate) fn write(verdict: &Verdict, form: &Form, behind: String) -> Self {
        let mut headers = Headers::behind(behind);
        headers.write_as(verdict, form);
        let mut values = [const { 0..0 }; Field::ALL.len()];
        for (field, range) in headers.ranges() {
            // Names and lists have bounds of their own, far below this one.
            let place = |at: usize| u16::try_from(at).ok();
            if let (Some(start), Some(end)) = (place(range.start), place(range.end)) {
                values[field as usize] = start..end;
            }
        }
        Self { text: Bytes::from(headers.into_text()), values, is_exposed: false }
    }

    /// The text that all values are in, behind what it began with.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Puts it on an answer, beside what that says of limits already. Nothing of that is made laxer:
    /// the stricter one is told or leads, and lists have both.
    pub fn put(&self, answers: &Answers, headers: &mut HeaderMap) {
        for (put, (_, name, value)) in self.fields(answers).enumerate() {
            // Most answers say nothing: whether one does is seen when ours are put there.
            match headers.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(_) => {
                    self.merge(answers, headers, put);
                    break;
                }
            }
        }
        if self.is_exposed {
            expose(headers, answers.exposed());
        }
    }

    /// Puts it on an answer that is all ours.
    pub(crate) fn put_all(&self, answers: &Answers, headers: &mut HeaderMap) {
        for (_, name, value) in self.fields(answers) {
            headers.insert(name, value);
        }
    }

    /// Puts it beside what is there already, but for the first `put`, which are ours.
    #[cold]
    fn merge(&self, answers: &Answers, headers: &mut HeaderMap, put: usize) {
        for (_, name, _) in self.fields(answers).take(put) {
            headers.remove(name);
        }
        let they_lead = self.they_lead(answers, headers);
        for (field, name, value) in self.fields(answers) {
            let theirs = || joined(headers, name);
            let merged = match field {
                Field::Limit | Field::Remaining | Field::Reset if they_lead => continue,
                Field::RateLimit => theirs().map(|theirs| merge_states(&theirs, self.ours(field))),
                Field::Policy => theirs().map(|theirs| merge_policies(&theirs, self.ours(field))),
                _ => None,
            };
            let merged = merged.and_then(|merged| HeaderValue::try_from(merged).ok());
            headers.insert(name, merged.unwrap_or(value));
        }
        if let Some(reset) = answers.name(Field::Reset)
            && !they_lead
            && self.ours(Field::Reset).is_empty()
        {
            // Theirs would be of another limit than the rest.
            headers.remove(reset);
        }
    }

    /// Whether the `X-RateLimit-` headers of the answer stay: they speak of a limit that is at least as
    /// strict, or nobody can tell.
    fn they_lead(&self, answers: &Answers, headers: &HeaderMap) -> bool {
        let theirs = |field: Field| answers.name(field).and_then(|name| headers.get(name));
        match theirs(Field::Remaining) {
            Some(theirs) => stays(theirs.as_bytes(), self.ours(Field::Remaining)),
            None => theirs(Field::Limit).is_some() || theirs(Field::Reset).is_some(),
        }
    }

    fn range(&self, field: Field) -> Range<usize> {
        let Range { start, end } = self.values[field as usize];
        start.into()..end.into()
    }

    /// The value of a header; empty if it is not told.
    fn ours(&self, field: Field) -> &str {
        let bytes = self.text.get(self.range(field)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// What is told, by names and values.
    fn fields<'a>(
        &'a self,
        answers: &'a Answers,
    ) -> impl Iterator<Item = (Field, &'a HeaderName, HeaderValue)> {
        Field::ALL.iter().filter_map(|field| {
            let (field, range) = (*field, self.range(*field));
            let name = answers.name(field).filter(|_| !range.is_empty())?;
            // It is visible ASCII, which every header may hold.
            let value = HeaderValue::from_maybe_shared(self.text.slice(range)).ok()?;
            Some((field, name, value))
        })
    }
}

/// Lets scripts in browsers see the headers of limits, beside those that they may see already.
pub(crate) fn expose(headers: &mut HeaderMap, exposed: &HeaderValue) {
    let all = match joined(headers, &ACCESS_CONTROL_EXPOSE_HEADERS) {
        None => Some(exposed.clone()),
        Some(known) if known.split(',').any(|name| name.trim() == "*") => None,
        Some(known) => {
            HeaderValue::try_from(format!("{known}, {}", exposed.to_str().unwrap_or_default())).ok()
        }
    };
    if let Some(all) = all {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, all);
    }
}

/// A list that may be in several headers; `None` if there is none, or it is no text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter().map(HeaderValue::to_str);
    let values = values.collect::<Result<Vec<_>, _>>().ok()?;
    (!values.is_empty()).then(|| values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asking, Gate as _, KeyGate, key};
    use tidegate::{Admission, Limit, Limiter, ManualClock};

    /// What is said of the first request of so many in a minute.
    fn told(units: u64, answers: &Answers) -> Told {
        let clock = ManualClock::new();
        let limit = Limit::per_minute(units);
        let limiter = Limiter::builder().limit(limit).clock(clock).build().unwrap();
        let gate = KeyGate::new(limiter, key::everybody());
        let request = http::Request::get("/").header("origin", "http://a").body(()).unwrap();
        let asked = Asked::new(request.into_parts().0, None);
        let told = |admission: &mut Admission| Told::new(answers, &admission.verdict, &asked);
        gate.admit_at_once(&asked, Asking::default(), told).flatten().unwrap()
    }

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    /// What an answer says that says this already.
    fn beside(units: u64, theirs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = map(theirs);
        let answers = Answers::default();
        told(units, &answers).put(&answers, &mut headers);
        headers
    }

    #[test]
    fn an_answer_that_says_nothing_says_all_of_ours() {
        let ours = [
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", "12"),
            ("ratelimit-policy", "\"limit-0\";q=5;w=60"),
            ("ratelimit", "\"limit-0\";r=4;t=12"),
        ];
        assert_eq!(beside(5, &[]), map(&ours));
    }

    #[test]
    fn the_stricter_one_is_told() {
        let theirs = |remaining| {
            [
                ("x-ratelimit-limit", "7"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", "9"),
            ]
        };
        let plain = |headers: &HeaderMap| {
            ["limit", "remaining", "reset"]
                .map(|name| headers.get(format!("x-ratelimit-{name}")).cloned())
                .map(|value| value.map_or(String::new(), |it| it.to_str().unwrap().to_owned()))
        };
        for (remaining, wanted) in [
            ("3", ["7", "3", "9"]),
            ("4", ["7", "4", "9"]),
            ("5", ["5", "4", "12"]),
            // Nobody can tell, so it stays.
            ("many", ["7", "many", "9"]),
        ] {
            assert_eq!(plain(&beside(5, &theirs(remaining))), wanted);
        }
        // What stands alone stays alone.
        assert_eq!(plain(&beside(5, &[("x-ratelimit-limit", "7")])), ["7", "", ""]);
        assert_eq!(plain(&beside(5, &[("x-ratelimit-reset", "7")])), ["", "", "7"]);
        assert_eq!(plain(&beside(5, &[("x-ratelimit-remaining", "1")])), ["", "1", ""]);
        assert_eq!(plain(&beside(5, &[("x-ratelimit-remaining", "9")])), ["5", "4", "12"]);
    }

    #[test]
    fn lists_have_both_in_one_field() {
        for (theirs, wanted) in [
            (&["\"a\";r=3"][..], "\"a\";r=3, \"limit-0\";r=4;t=12"),
            (&["\"a\";r=9", "\"b\";r=8"], "\"limit-0\";r=4;t=12, \"a\";r=9, \"b\";r=8"),
            // What is no such list would spoil ours.
            (&["limit=100, remaining=5"], "\"limit-0\";r=4;t=12"),
        ] {
            let theirs: Vec<_> = theirs.iter().map(|value| ("ratelimit", *value)).collect();
            let headers = beside(5, &theirs);
            let all: Vec<_> = headers.get_all("ratelimit").iter().collect();
            assert_eq!(all, [wanted]);
            assert_eq!(headers["x-ratelimit-limit"], "5");
        }
        let headers = beside(5, &[("ratelimit-policy", "\"a\";q=7;w=10")]);
        assert_eq!(headers["ratelimit-policy"], "\"a\";q=7;w=10, \"limit-0\";q=5;w=60");
        assert_eq!(headers["ratelimit"], "\"limit-0\";r=4;t=12");
    }

    #[test]
    fn other_names_are_merged_with_other_names() {
        let mut answers = Answers::default();
        answers.rename(Field::Remaining, HeaderName::from_static("x-left"));
        answers.leave_out(Field::Policy).leave_out(Field::Limit).leave_out(Field::Reset);
        let mut headers = map(&[("x-left", "1"), ("x-ratelimit-remaining", "2")]);
        told(5, &answers).put(&answers, &mut headers);
        let wanted = [
            ("x-left", "1"),
            ("x-ratelimit-remaining", "2"),
            ("ratelimit", "\"limit-0\";r=4;t=12"),
        ];
        assert_eq!(headers, map(&wanted));
    }

    #[test]
    fn scripts_see_what_they_saw_and_ours() {
        let mut answers = Answers::default();
        answers.expose = true;
        Field::ALL.into_iter().skip(1).for_each(|field| _ = answers.leave_out(field));
        for (theirs, wanted) in [
            (&[][..], "x-ratelimit-limit"),
            (&["x-a", "x-b"], "x-a, x-b, x-ratelimit-limit"),
            (&["x-a, *"], "x-a, *"),
        ] {
            let name = "access-control-expose-headers";
            let theirs: Vec<_> = theirs.iter().map(|value| (name, *value)).collect();
            let mut headers = map(&theirs);
            told(5, &answers).put(&answers, &mut headers);
            let all: Vec<_> = headers.get_all(name).iter().collect();
            assert_eq!(all, [wanted]);
        }
    }

    #[test]
    fn where_only_refusals_speak_admissions_do_not() {
        let mut answers = Answers::default();
        answers.on_allowed = false;
        let limiter = Limiter::new(Limit::per_minute(5)).unwrap();
        let gate = KeyGate::new(limiter, key::everybody());
        let asked = Asked::new(http::Request::new(()).into_parts().0, None);
        let told = |admission: &mut Admission| Told::new(&answers, &admission.verdict, &asked);
        assert!(matches!(gate.admit_at_once(&asked, Asking::default(), told), Some(None)));
    }
}
