//! What a value in Redis begins with: the limit that it was counted under.
//!
//! A byte for the version of the format, a byte for the length of the rest, and the limit as it was
//! written down. No two limits have the same tag, and whoever finds the value under another limit
//! can read it: nodes with two versions of the rules carry keys over for each other.

use std::time::Duration;

use tidegate_core::{
    AlgorithmName, Align, ColdStart, Compare, Lease, Limit, LimitSpec, Queue, Rate, Refill,
    SoftSpec,
};

/// The version of the format; values of any other are left alone.
pub(crate) const FORMAT: u8 = 1;

/// Why a tag cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagError {
    /// Of a version that this one does not know.
    Newer(u8),
    /// Not a tag.
    Garbled,
}

/// The tag of a limit.
pub(crate) fn tag_of(spec: &LimitSpec) -> Vec<u8> {
    let mut tag = vec![FORMAT, 0];
    let out = &mut tag;
    let algorithm = AlgorithmName::ALL.iter().position(|name| *name == spec.algorithm);
    out.push(algorithm.unwrap_or(usize::from(u8::MAX)) as u8);
    put(out, spec.rate.units);
    put_span(out, spec.rate.period);
    let present = [
        spec.burst.is_some(),
        spec.initial.is_some(),
        spec.queue.is_some(),
        spec.queue.is_some_and(|queue| queue.max_delay.is_some()),
        spec.lease.is_some(),
        spec.warm_up.is_some(),
        spec.soft.is_some(),
        spec.count_rejected,
    ];
    let bits = present.iter().enumerate().map(|(bit, is)| u8::from(*is) << bit);
    out.push(bits.sum());
    out.push(variants(spec));
    for number in [spec.burst, spec.initial].into_iter().flatten() {
        put(out, number);
    }
    if let Some(Queue { size, max_delay }) = spec.queue {
        put(out, size);
        max_delay.iter().for_each(|delay| put_span(out, *delay));
    }
    match spec.lease {
        Some(Lease::For(lease)) => put_span(out, lease),
        Some(Lease::Unlimited) => put(out, 0),
        None => {}
    }
    if let Some(ColdStart { period, cold_factor }) = spec.warm_up {
        put_span(out, period);
        put(out, cold_factor);
    }
    if let Some(SoftSpec { over_bp, span }) = spec.soft {
        put(out, over_bp.into());
        put_span(out, span);
    }
    // Nine numbers of at most ten bytes each, and three bytes.
    tag[1] = (tag.len() - 2) as u8;
    tag
}

/// The limit that a value was counted under, and where its state begins.
pub(crate) fn read_tag(value: &[u8]) -> Result<(Limit, usize), TagError> {
    match value {
        [FORMAT, length, rest @ ..] => {
            let length = usize::from(*length);
            let spec = rest.get(..length).and_then(spec).ok_or(TagError::Garbled)?;
            Ok((spec.build().map_err(|_| TagError::Garbled)?, length + 2))
        }
        [version, ..] if *version != FORMAT => Err(TagError::Newer(*version)),
        _ => Err(TagError::Garbled),
    }
}

fn spec(bytes: &[u8]) -> Option<LimitSpec> {
    let mut reader = Reader(bytes);
    let algorithm = *AlgorithmName::ALL.get(usize::from(reader.byte()?))?;
    let rate = Rate::new(reader.number()?, reader.span()?);
    let mut spec = LimitSpec::new(algorithm, rate);
    let (present, variants) = (reader.byte()?, reader.byte()?);
    let has = |bit: u8| present >> bit & 1 == 1;
    spec.refill =
        *[Refill::Greedy, Refill::Interval, Refill::IntervalAligned].get(variants as usize & 3)?;
    spec.align =
        *[Align::Epoch, Align::FirstRequest, Align::Calendar].get(variants as usize >> 2 & 3)?;
    spec.compare = if variants >> 4 & 1 == 1 { Compare::Exact } else { Compare::Floor };
    if has(0) {
        spec.burst = Some(reader.number()?);
    }
    if has(1) {
        spec.initial = Some(reader.number()?);
    }
    if has(2) {
        let size = reader.number()?;
        let max_delay = if has(3) { Some(reader.span()?) } else { None };
        spec.queue = Some(Queue { size, max_delay });
    }
    if has(4) {
        let lease = reader.span()?;
        spec.lease = Some(if lease.is_zero() { Lease::Unlimited } else { Lease::For(lease) });
    }
    if has(5) {
        spec.warm_up = Some(ColdStart { period: reader.span()?, cold_factor: reader.number()? });
    }
    if has(6) {
        let over_bp = u32::try_from(reader.number()?).ok()?;
        spec.soft = Some(SoftSpec { over_bp, span: reader.span()? });
    }
    spec.count_rejected = has(7);
    reader.0.is_empty().then_some(spec)
}

fn variants(spec: &LimitSpec) -> u8 {
    let refill = match spec.refill {
        Refill::Greedy => 0,
        Refill::Interval => 1,
        Refill::IntervalAligned => 2,
    };
    let align = match spec.align {
        Align::Epoch => 0,
        Align::FirstRequest => 1,
        Align::Calendar => 2,
    };
    refill | align << 2 | u8::from(spec.compare == Compare::Exact) << 4
}

/// Seven bits to a byte, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Nanoseconds; a limit that could be built has none longer than 64 bits.
fn put_span(out: &mut Vec<u8>, span: Duration) {
    put(out, u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
}

/// What is left to be read.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (read, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(read)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn span(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn specs() -> impl Strategy<Value = LimitSpec> {
        let number = || prop_oneof![0u64..300, any::<u64>()];
        let span = || number().prop_map(Duration::from_nanos);
        let plain = (0..8usize, number(), span(), option::of(number()), option::of(number()));
        let rare = (
            option::of((number(), option::of(span()))),
            option::of(span()),
            option::of((span(), number())),
            option::of((any::<u32>(), span())),
            (0..3usize, 0..3usize, any::<bool>(), any::<bool>()),
        );
        (plain, rare).prop_map(|((algorithm, units, period, burst, initial), rare)| {
            let mut spec = LimitSpec::new(AlgorithmName::ALL[algorithm], Rate::new(units, period));
            let (queue, lease, warm_up, soft, (refill, align, exact, counts)) = rare;
            (spec.burst, spec.initial) = (burst, initial);
            spec.queue = queue.map(|(size, max_delay)| Queue { size, max_delay });
            spec.lease =
                lease.map(|span| if span.is_zero() { Lease::Unlimited } else { Lease::For(span) });
            spec.warm_up = warm_up.map(|(period, cold_factor)| ColdStart { period, cold_factor });
            spec.soft = soft.map(|(over_bp, span)| SoftSpec { over_bp, span });
            spec.refill = [Refill::Greedy, Refill::Interval, Refill::IntervalAligned][refill];
            spec.align = [Align::Epoch, Align::FirstRequest, Align::Calendar][align];
            spec.compare = if exact { Compare::Exact } else { Compare::Floor };
            spec.count_rejected = counts;
            spec
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// What can be read again is as good as the limit itself, and no two are the same.
        #[test]
        fn tags_can_be_read_again(written in specs()) {
            let tag = tag_of(&written);
            prop_assert_eq!(usize::from(tag[1]) + 2, tag.len());
            prop_assert_eq!(spec(&tag[2..]), Some(written));
        }

        #[test]
        fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read_tag(&bytes);
        }
    }

    #[test]
    fn a_common_tag_is_short() {
        let limit = Limit::per_second(5).burst(10);
        assert!(tag_of(&limit).len() <= 12, "{:?}", tag_of(&limit));
    }

    #[test]
    fn other_versions_are_told_apart() {
        assert_eq!(read_tag(&[2, 0, 0]), Err(TagError::Newer(2)));
        assert_eq!(read_tag(&[]), Err(TagError::Garbled));
        assert_eq!(read_tag(&[FORMAT, 200, 1]), Err(TagError::Garbled));
    }
}
