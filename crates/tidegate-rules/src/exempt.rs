//! Who is exempt from a limit: values and ranges of addresses, in any number.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

/// Values and address ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    values: HashSet<Box<str>>,
    /// Ranges of addresses, first and last, in ascending order and apart from each other. IPv4
    /// addresses are counted as the IPv6 addresses that map them.
    ranges: Vec<(u128, u128)>,
}

impl Exempt {
    /// Reads entries: an address or range where it parses as one, otherwise a value.
    pub(crate) fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut exempt = Self::default();
        for entry in entries {
            match range_of(entry) {
                Some(range) => exempt.ranges.push(range),
                None => {
                    exempt.values.insert(entry.into());
                }
            }
        }
        exempt.ranges.sort_unstable();
        exempt.ranges.dedup_by(|next, last| {
            let joined = next.0 <= last.1.saturating_add(1);
            if joined {
                last.1 = last.1.max(next.1);
            }
            joined
        });
        exempt
    }

    /// Whether nobody is exempt.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.ranges.is_empty()
    }

    /// Whether a value is exempt, or the address that it stands for: the one given, or the one
    /// that is written in it.
    pub fn contains(&self, value: &str, address: Option<IpAddr>) -> bool {
        if self.values.contains(value) {
            return true;
        }
        if self.ranges.is_empty() {
            return false;
        }
        let range = match address {
            Some(address) => Some((number(address), number(address))),
            None => range_of(value),
        };
        range.is_some_and(|range| self.covers(range))
    }

    fn covers(&self, (first, last): (u128, u128)) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= first);
        after.checked_sub(1).is_some_and(|before| self.ranges[before].1 >= last)
    }
}

/// The addresses that a text names: one, or a range.
fn range_of(text: &str) -> Option<(u128, u128)> {
    // Most values are no addresses and need not be tried as one.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b'/')) {
        return None;
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((number(address), number(address)));
    }
    let net: IpNet = text.parse().ok()?;
    Some((number(net.network()), number(net.broadcast())))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_values_stand_side_by_side() {
        let exempt = Exempt::new(["10.0.0.0/8", "2001:db8::/32", "health-check", "192.0.2.7"]);
        for value in ["10.1.2.3", "2001:db8:1::1", "2001:db8:0:7::/64", "health-check", "192.0.2.7"]
        {
            assert!(exempt.contains(value, None), "{value}");
        }
        for value in ["11.0.0.1", "2001:db9::1", "2001::/16", "health", "192.0.2.8", ""] {
            assert!(!exempt.contains(value, None), "{value}");
        }
    }

    #[test]
    fn the_address_behind_a_grouped_value_counts() {
        let exempt = Exempt::new(["2001:db8::1"]);
        let (one, two) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert!(exempt.contains("2001:db8::/64", Some(one)));
        assert!(!exempt.contains("2001:db8::/64", Some(two)));
        assert!(!exempt.contains("2001:db8::/64", None));
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        assert!(Exempt::new(["192.0.2.0/24"]).contains("::ffff:192.0.2.9", None));
    }
}
