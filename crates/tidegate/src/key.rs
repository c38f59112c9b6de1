//! What can be counted.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

/// Something to count by: strings, bytes, numbers, addresses, and pairs and triples of them.
///
/// Different keys of one type are different byte strings: the parts of a pair are written with
/// their lengths, so that `("ab", "c")` is not `("a", "bc")`. Use one type of key per limiter; a
/// number and the string of the same bytes are the same key.
pub trait Key {
    /// Calls `f` with the bytes that stand for the key.
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;

    /// Calls `f` with the bytes that each limit counts, in their order; the last is for all limits
    /// that are left. One for all, unless the key is [`Each`].
    #[inline(always)]
    fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        self.with_bytes(|bytes| f(&[bytes]))
    }
}

/// A key of its own for each limit: the first for the first limit, and so on.
///
/// All limits still decide together, all or nothing.
///
/// ```
/// use tidegate::{Each, Limit, Limiter};
///
/// // 5 per second for each address, and 100 per second for all of them.
/// let limiter = Limiter::builder()
///     .limit(Limit::per_second(5))
///     .limit(Limit::per_second(100))
///     .build()?;
/// let decision = limiter.check(&Each(("192.0.2.7", "everybody")));
/// assert!(decision.allowed);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Each<T>(pub T);

/// A key's bytes, kept while something is waited for.
pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

/// The bytes that each limit counts, kept while something is waited for.
pub(crate) struct KeyParts {
    /// What stands for the key as a whole.
    pub(crate) whole: KeyBytes,
    joined: KeyBytes,
    ends: SmallVec<[usize; 4]>,
}

impl KeyParts {
    pub(crate) fn new<K: Key + ?Sized>(key: &K) -> Self {
        let whole = key.with_bytes(KeyBytes::from_slice);
        let (mut joined, mut ends) = (KeyBytes::new(), SmallVec::new());
        key.with_parts(|parts| {
            for part in parts {
                joined.extend_from_slice(part);
                ends.push(joined.len());
            }
        });
        Self { whole, joined, ends }
    }

    /// Whether limits count different parts, which other keys may share.
    pub(crate) fn is_compound(&self) -> bool {
        self.ends.len() > 1
    }

    pub(crate) fn slices(&self) -> SmallVec<[&[u8]; 4]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.joined[*start..*end]).collect()
    }
}

impl<A: Key, B: Key> Key for Each<(A, B)> {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(f)
    }

    fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let (a, b) = &self.0;
        a.with_bytes(|a| b.with_bytes(|b| f(&[a, b])))
    }
}

impl<A: Key, B: Key, C: Key> Key for Each<(A, B, C)> {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(f)
    }

    fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let (a, b, c) = &self.0;
        a.with_bytes(|a| b.with_bytes(|b| c.with_bytes(|c| f(&[a, b, c]))))
    }
}

impl Key for str {
    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes())
    }
}

impl Key for String {
    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes())
    }
}

impl Key for [u8] {
    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self)
    }
}

impl Key for Vec<u8> {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self)
    }
}

impl<const N: usize> Key for [u8; N] {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self)
    }
}

macro_rules! number_keys {
    ($($number:ty)*) => {$(
        impl Key for $number {
            #[inline(always)]
            fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
                f(&self.to_be_bytes())
            }
        }
    )*};
}

number_keys!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl Key for Ipv4Addr {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.octets())
    }
}

impl Key for Ipv6Addr {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.octets())
    }
}

/// The address as it is: an IPv4 address mapped into IPv6 counts as the IPv4 address.
impl Key for IpAddr {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self.to_canonical() {
            Self::V4(address) => address.with_bytes(f),
            Self::V6(address) => address.with_bytes(f),
        }
    }
}

/// The whole program, or whatever one limiter is for: a single key for everybody.
impl Key for () {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&[])
    }
}

macro_rules! pointer_keys {
    ($($pointer:ident)*) => {$(
        impl<K: Key + ?Sized> Key for $pointer<K> {
            #[inline(always)]
            fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
                K::with_bytes(self, f)
            }

            #[inline(always)]
            fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
                K::with_parts(self, f)
            }
        }
    )*};
}

pointer_keys!(Arc Rc Box);

impl Key for Cow<'_, str> {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes())
    }
}

impl<K: Key + ?Sized> Key for &K {
    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        K::with_bytes(self, f)
    }

    #[inline(always)]
    fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        K::with_parts(self, f)
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = KeyBytes::new();
        push_part(&mut bytes, &self.0);
        push_part(&mut bytes, &self.1);
        f(&bytes)
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = KeyBytes::new();
        push_part(&mut bytes, &self.0);
        push_part(&mut bytes, &self.1);
        push_part(&mut bytes, &self.2);
        f(&bytes)
    }
}

fn push_part(bytes: &mut KeyBytes, part: &impl Key) {
    part.with_bytes(|part| {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(key: impl Key) -> Vec<u8> {
        key.with_bytes(<[u8]>::to_vec)
    }

    #[test]
    fn parts_cannot_borrow_from_each_other() {
        assert_ne!(bytes(("ab", "c")), bytes(("a", "bc")));
        assert_ne!(bytes(("a", "", "b")), bytes(("a", "b", "")));
        assert_ne!(bytes((1u8, 2u16)), bytes((1u16, 2u8)));
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let plain: IpAddr = "192.0.2.7".parse().unwrap();
        assert_eq!(bytes(mapped), bytes(plain));
    }
}
