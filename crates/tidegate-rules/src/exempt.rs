//! Who is exempt from a limit: values and ranges of addresses, in any number.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Values and address ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    values: HashSet<Box<str>>,
    /// Ranges of addresses, first and last, in ascending order and apart from each other. IPv4
    /// addresses are counted as the IPv6 addresses that map them.
    ranges: Vec<(u128, u128)>,
    /// Who is exempt besides: from all limits of the descriptor, or of the domain. Shared, since
    /// many limits with many exempt from all of them would otherwise take their product.
    around: Option<Arc<Self>>,
}

impl Exempt {
    /// Reads entries: an address or range where it parses as one, otherwise a value. Without any,
    /// those around are all there are.
    pub(crate) fn within(around: Option<&Arc<Self>>, entries: &[&str]) -> Option<Arc<Self>> {
        match entries {
            [] => around.cloned(),
            _ => Some(Arc::new(Self { around: around.cloned(), ..Self::new(entries) })),
        }
    }

    fn new(entries: &[&str]) -> Self {
        let mut exempt = Self::default();
        for entry in entries {
            match range_of(entry) {
                // A range of IPv6 is not for the IPv4 addresses that lie in it.
                Some((first, last)) if first < MAPPED.0 && last > MAPPED.1 => {
                    exempt.ranges.extend([(first, MAPPED.0 - 1), (MAPPED.1 + 1, last)]);
                }
                Some(range) => exempt.ranges.push(range),
                None => {
                    exempt.values.insert((*entry).into());
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

    /// Whether a value is exempt, or the address that it stands for: the one given, or the one
    /// that is written in it.
    pub fn contains(&self, value: &str, address: Option<IpAddr>) -> bool {
        if self.levels().any(|level| level.values.contains(value)) {
            return true;
        }
        if self.levels().all(|level| level.ranges.is_empty()) {
            return false;
        }
        let range = match address {
            Some(address) => Some((number(address), number(address))),
            None => range_of(value),
        };
        range.is_some_and(|range| self.covers(range))
    }

    /// This one and those around it.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |level| level.around.as_deref())
    }

    /// Whether all addresses of a range are exempt, some here and others around.
    fn covers(&self, (mut first, last): (u128, u128)) -> bool {
        loop {
            match self.levels().filter_map(|level| level.end_of(first)).max() {
                Some(end) if end >= last => return true,
                Some(end) => first = end + 1,
                None => return false,
            }
        }
    }

    /// Where the range ends that an address lies in.
    fn end_of(&self, address: u128) -> Option<u128> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let (_, end) = self.ranges[after.checked_sub(1)?];
        (end >= address).then_some(end)
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

/// The IPv6 addresses that map those of IPv4, first and last.
const MAPPED: (u128, u128) = (0xffff << 32, (0xffff << 32) | 0xffff_ffff);

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
        let exempt = Exempt::new(&["10.0.0.0/8", "2001:db8::/32", "health-check", "192.0.2.7"]);
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
        let exempt = Exempt::new(&["2001:db8::1"]);
        let (one, two) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert!(exempt.contains("2001:db8::/64", Some(one)));
        assert!(!exempt.contains("2001:db8::/64", Some(two)));
        assert!(!exempt.contains("2001:db8::/64", None));
    }

    #[test]
    fn those_around_are_exempt_too() {
        let domain = Exempt::within(None, &["10.0.0.0/9", "everywhere"]);
        let descriptor = Exempt::within(domain.as_ref(), &[]);
        let limit = Exempt::within(descriptor.as_ref(), &["10.128.0.0/9", "here"]).unwrap();
        for value in ["everywhere", "here", "10.1.1.1", "10.200.1.1", "10.0.0.0/8"] {
            assert!(limit.contains(value, None), "{value}");
        }
        for value in ["there", "11.0.0.0", "10.0.0.0/7", "9.255.255.255"] {
            assert!(!limit.contains(value, None), "{value}");
        }
        assert_eq!(Exempt::within(None, &[]), None);
    }

    #[test]
    fn all_of_one_family_is_nobody_of_the_other() {
        let exempt = Exempt::new(&["::/0"]);
        assert!(exempt.contains("2001:db8::1", None) && exempt.contains("::1", None));
        assert!(!exempt.contains("192.0.2.7", None) && !exempt.contains("::ffff:192.0.2.7", None));
        assert!(!Exempt::new(&["0.0.0.0/0"]).contains("2001:db8::1", None));
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        assert!(Exempt::new(&["192.0.2.0/24"]).contains("::ffff:192.0.2.9", None));
    }
}
