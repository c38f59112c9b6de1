//! What can be counted by.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use tidegate::{Key, Limit};

use crate::limiter;

/// Each of the keys has a count of its own.
fn assert_apart<K: Key>(keys: &[K]) {
    let (_, limiter) = limiter(Limit::per_hour(2));
    for _ in 0..2 {
        assert!(keys.iter().all(|key| limiter.check(key).allowed));
    }
    assert!(keys.iter().all(|key| !limiter.check(key).allowed));
}

#[test]
fn keys_of_every_type_are_counted_apart() {
    assert_apart(&["", "a", "b", "ab", "a\0", "ä"]);
    assert_apart(&["a".to_owned(), "b".to_owned()]);
    assert_apart(&[vec![0_u8], vec![0, 0], vec![]]);
    assert_apart(&[[1_u8, 2], [2, 1]]);
    assert_apart(&[b"a".as_slice(), b"b".as_slice()]);
    assert_apart(&[0_u8, 1, u8::MAX]);
    assert_apart(&[0_u16, 1, 256]);
    assert_apart(&[0_u32, 1, 1 << 24]);
    assert_apart(&[0_u64, 1, u64::MAX]);
    assert_apart(&[0_u128, 1, u128::MAX]);
    assert_apart(&[0_usize, 1, usize::MAX]);
    assert_apart(&[0_isize, 1, -1]);
    assert_apart(&[0_i8, -1, 1]);
    assert_apart(&[0_i16, -1, 1]);
    assert_apart(&[0_i32, -1, 1]);
    assert_apart(&[0_i64, -1, 1]);
    assert_apart(&[0_i128, -1, 1]);
    assert_apart(&[Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]);
    assert_apart(&[Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED]);
    assert_apart(&[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    assert_apart(&[("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]);
    assert_apart(&[("a", 1_u32), ("a", 2), ("b", 1)]);
    assert_apart(&[("a", "b", ""), ("a", "", "b"), ("", "a", "b")]);
    assert_apart(&[()]);
}

#[test]
fn a_key_is_the_same_however_it_is_held() {
    let (_, limiter) = limiter(Limit::per_hour(10));
    let (owned, borrowed) = ("user:42".to_owned(), "user:42");
    assert_eq!(limiter.check(&owned).remaining, 9);
    assert_eq!(limiter.check(borrowed).remaining, 8);
    assert_eq!(limiter.check(&borrowed).remaining, 7);
    assert_eq!(limiter.check(borrowed.as_bytes()).remaining, 6);
    assert_eq!(limiter.check(&borrowed.as_bytes().to_vec()).remaining, 5);
    assert_eq!(limiter.check(b"user:42").remaining, 4);
    assert_eq!(limiter.check(&Cow::Borrowed(borrowed)).remaining, 3);
    assert_eq!(limiter.check(&Arc::<str>::from(borrowed)).remaining, 2);
    assert_eq!(limiter.check(&Rc::<str>::from(borrowed)).remaining, 1);
    assert_eq!(limiter.check(&Box::<str>::from(borrowed)).remaining, 0);
}

#[test]
fn an_address_is_the_same_through_either_protocol() {
    let (_, limiter) = limiter(Limit::per_hour(10));
    let plain = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(limiter.check(&plain).remaining, 9);
    assert_eq!(limiter.check(&IpAddr::V4(plain)).remaining, 8);
    assert_eq!(limiter.check(&IpAddr::V6(plain.to_ipv6_mapped())).remaining, 7);
}

#[test]
fn a_key_may_be_of_ones_own_making() {
    struct Tenant {
        id: u32,
        plan: &'static str,
    }

    impl Key for Tenant {
        fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
            (self.id, self.plan).with_bytes(f)
        }
    }

    assert_apart(&[
        Tenant { id: 1, plan: "free" },
        Tenant { id: 1, plan: "paid" },
        Tenant { id: 2, plan: "free" },
    ]);
}

#[test]
fn a_long_key_is_a_key() {
    let (_, limiter) = limiter(Limit::per_hour(2));
    let long = "x".repeat(100_000);
    assert_eq!(limiter.check(&long).remaining, 1);
    assert_eq!(limiter.check(&long[1..]).remaining, 1);
    assert_eq!(limiter.check(&long).remaining, 0);
}
