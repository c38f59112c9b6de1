//! What can be counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;

/// Something to count by: strings, bytes, numbers, addresses, and pairs and triples of them.
///
/// Different keys of one type are different byte strings: the parts of a pair are written with
/// their lengths, so that `("ab", "c")` is not `("a", "bc")`. Use one type of key per limiter; a
/// number and the string of the same bytes are the same key.
pub trait Key {
    /// Calls `f` with the bytes that stand for the key.
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;
}

/// A key's bytes, kept while something is waited for.
pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

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

number_keys!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

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

impl<K: Key + ?Sized> Key for &K {
    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        K::with_bytes(self, f)
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
