//! The address of a client as a value to count by.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How IPv6 addresses are grouped where nothing else is said: a network of this size is what one
/// customer gets at least, and can choose any address from.
pub(crate) const PREFIX: u8 = 64;
/// The prefix that is the whole address.
pub(crate) const PREFIX_MAX: u8 = 128;

/// Writes an address: IPv4 whole, IPv6 as its network of this prefix. An IPv6 address that maps an
/// IPv4 one is that one.
pub(crate) fn write(out: &mut String, address: IpAddr, prefix: u8) {
    // Writing to a string does not fail.
    let _ = match address.to_canonical() {
        IpAddr::V4(address) => {
            write_v4(out, address);
            Ok(())
        }
        IpAddr::V6(address) if prefix >= PREFIX_MAX => write!(out, "{address}"),
        IpAddr::V6(address) => {
            let kept = u32::from(PREFIX_MAX - prefix);
            let mask = u128::MAX.checked_shl(kept).unwrap_or(0);
            let network = Ipv6Addr::from_bits(address.to_bits() & mask);
            write!(out, "{network}/{prefix}")
        }
    };
}

/// What `Display` writes, which takes a thousand instructions for it: a thirtieth of a refusal.
fn write_v4(out: &mut String, address: Ipv4Addr) {
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            out.push('.');
        }
        if octet >= 100 {
            out.push(char::from(b'0' + octet / 100));
        }
        if octet >= 10 {
            out.push(char::from(b'0' + octet / 10 % 10));
        }
        out.push(char::from(b'0' + octet % 10));
    }
}

/// Whether an address is grouped at all.
pub(crate) fn is_grouped(address: IpAddr) -> bool {
    address.to_canonical().is_ipv6()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(address: &str, prefix: u8) -> String {
        let mut out = String::new();
        write(&mut out, address.parse().unwrap(), prefix);
        out
    }

    #[test]
    fn ipv4_is_written_as_everywhere() {
        for octet in 0..=255 {
            let address = Ipv4Addr::new(octet, 255 - octet, 0, octet);
            assert_eq!(written(&address.to_string(), 64), address.to_string());
        }
    }

    #[test]
    fn only_ipv6_is_grouped() {
        for (address, prefix, wanted) in [
            ("192.0.2.7", 64, "192.0.2.7"),
            ("192.0.2.7", 1, "192.0.2.7"),
            ("::ffff:192.0.2.7", 64, "192.0.2.7"),
            ("2001:db8:0:1:2:3:4:5", 64, "2001:db8:0:1::/64"),
            ("2001:db8:0:1ff:2:3:4:5", 56, "2001:db8:0:100::/56"),
            ("2001:db8:7:1ff::5", 48, "2001:db8:7::/48"),
            ("2001:db8::5", 128, "2001:db8::5"),
            ("2001:db8::5", 127, "2001:db8::4/127"),
            ("ffff::5", 1, "8000::/1"),
            ("2001:db8::5", 0, "::/0"),
        ] {
            assert_eq!(written(address, prefix), wanted, "{address}/{prefix}");
        }
    }
}
