//! What the answer to a request changes of what the request was counted with.

use std::ops::RangeInclusive;

/// What answers change, as an entry of the `http` section says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// The header in which an answer says what its request has cost, in lower case.
    pub(crate) cost_header: Option<Box<str>>,
    pub(crate) statuses: Option<Statuses>,
}

/// Statuses by which requests are free, or only by which they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statuses {
    Free(Box<[RangeInclusive<u16>]>),
    Counted(Box<[RangeInclusive<u16>]>),
}

impl Settling {
    /// What a request has really cost, by the status and the headers of its answer; `None` if what was
    /// counted stays.
    pub fn cost<'h>(
        &self,
        status: u16,
        header: impl FnOnce(&str) -> Option<&'h str>,
    ) -> Option<u64> {
        let are_in = |all: &[RangeInclusive<u16>]| all.iter().any(|range| range.contains(&status));
        let is_free = match &self.statuses {
            None => false,
            Some(Statuses::Free(all)) => are_in(all),
            Some(Statuses::Counted(all)) => !are_in(all),
        };
        if is_free {
            return Some(0);
        }
        header(self.cost_header.as_deref()?)?.trim().parse().ok()
    }
}

/// Statuses as they are written: `404`, `500-599`, `5xx`.
pub fn parse_statuses(text: &str) -> Option<RangeInclusive<u16>> {
    let text = text.trim();
    if let [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] = text.as_bytes() {
        let first = u16::from(class - b'0') * 100;
        return Some(first..=first + 99);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let status = |text: &str| {
        let status = text.trim().parse::<u16>().ok();
        status.filter(|status| (100..=599).contains(status))
    };
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_numbers_ranges_and_classes() {
        for (text, wanted) in [
            ("404", Some(404..=404)),
            (" 500 - 599 ", Some(500..=599)),
            ("5xx", Some(500..=599)),
            ("2XX", Some(200..=299)),
            ("", None),
            ("6xx", None),
            ("99", None),
            ("600", None),
            ("599-500", None),
            ("-1", None),
            ("4x", None),
        ] {
            assert_eq!(parse_statuses(text), wanted, "{text}");
        }
    }

    #[test]
    fn answers_say_what_a_request_has_cost() {
        let free = Settling {
            cost_header: Some("x-cost".into()),
            statuses: Some(Statuses::Free([404..=404, 500..=599].into())),
        };
        let header = |name: &str| (name == "x-cost").then_some(" 7 ");
        assert_eq!(free.cost(200, header), Some(7));
        assert_eq!(free.cost(404, header), Some(0));
        assert_eq!(free.cost(200, |_| None), None);
        assert_eq!(free.cost(200, |_| Some("seven")), None);
        let counted =
            Settling { cost_header: None, statuses: Some(Statuses::Counted([401..=401].into())) };
        assert_eq!(counted.cost(401, header), None);
        assert_eq!(counted.cost(200, header), Some(0));
    }
}
