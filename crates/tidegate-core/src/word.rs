//! The two widths of bucket arithmetic: `u64` where it provably fits, `u128` everywhere else.

/// An unsigned integer wide enough for the ticks of a bucket.
///
/// Sums saturate: a bucket that is driven to the end of the number line refuses, it never wraps
/// around into an admission.
pub(crate) trait Word: Copy + Ord + Default {
    fn product(a: u64, b: u64) -> Self;
    /// A product that is known to fit: see `Bucket::is_narrow`.
    fn small_product(a: u64, b: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Rounded down, at most `u64::MAX`.
    fn over(self, divisor: u64) -> u64;
    /// The same where the word is small (see `Bucket::is_narrow`), with the divisor's reciprocal.
    fn small_over(self, divisor: u64, reciprocal: u64) -> u64;
    /// Rounded up, at most `u64::MAX`.
    fn over_up(self, divisor: u64) -> u64;
}

impl Word for u64 {
    #[inline(always)]
    fn product(a: u64, b: u64) -> Self {
        a.saturating_mul(b)
    }

    #[inline(always)]
    fn small_product(a: u64, b: u64) -> Self {
        debug_assert!(a.checked_mul(b).is_some(), "{a} * {b} fits 64 bits");
        a.wrapping_mul(b)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline(always)]
    fn over(self, divisor: u64) -> u64 {
        self / divisor
    }

    #[inline(always)]
    fn small_over(self, divisor: u64, reciprocal: u64) -> u64 {
        // The reciprocal is less than 1/divisor by less than 2^-64, and the word below 2^62, so the
        // product is at most one too small. A division takes three times as long.
        let quotient = ((u128::from(self) * u128::from(reciprocal)) >> 64) as u64;
        let rest = self - quotient * divisor;
        quotient + u64::from(rest >= divisor)
    }

    #[inline(always)]
    fn over_up(self, divisor: u64) -> u64 {
        // Most rates reduce to one unit per so many nanoseconds: no division at all.
        if divisor == 1 { self } else { self.div_ceil(divisor) }
    }
}

impl Word for u128 {
    fn product(a: u64, b: u64) -> Self {
        u128::from(a) * u128::from(b)
    }

    fn small_product(a: u64, b: u64) -> Self {
        Self::product(a, b)
    }

    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn over(self, divisor: u64) -> u64 {
        u64::try_from(self / u128::from(divisor)).unwrap_or(u64::MAX)
    }

    fn small_over(self, divisor: u64, _reciprocal: u64) -> u64 {
        self.over(divisor)
    }

    fn over_up(self, divisor: u64) -> u64 {
        u64::try_from(self.div_ceil(u128::from(divisor))).unwrap_or(u64::MAX)
    }
}

/// 2^64 divided by a number, rounded down; for 1, which has none, the nearest there is.
pub(crate) const fn reciprocal(divisor: u64) -> u64 {
    if divisor == 1 { u64::MAX } else { ((1 << 64) / divisor as u128) as u64 }
}

/// The greatest common divisor; `gcd(0, b)` is `b`.
pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn multiplying_by_the_reciprocal_divides(
            number in 0u64..=1 << 62,
            divisor in prop_oneof![1u64..100, 1u64..=u64::MAX, (0u32..64).prop_map(|bit| 1 << bit)],
            near in 0u64..3,
        ) {
            // Multiples of the divisor and their neighbours are where it could go wrong.
            let multiple = number - number % divisor;
            for word in [number, multiple, multiple.saturating_sub(near), (multiple + near).min(1 << 62)] {
                prop_assert_eq!(word.small_over(divisor, reciprocal(divisor)), word / divisor);
            }
        }
    }
}
