//! The PROXY protocol, by which a proxy says whom it speaks for before anything else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How a version 2 header begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest version 1 header.
const LINE_MAX: usize = 107;
/// The longest version 2 header that is read: addresses, and extensions that are skipped.
const BLOCK_MAX: usize = 16 + 2048;

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The beginning of a header: more has to come.
    Partial,
    /// No header, or none that makes sense.
    Wrong,
    /// A header of so many bytes, and the client's address if it tells one.
    Whole(usize, Option<IpAddr>),
}

/// Reads the first bytes of a connection.
pub(crate) fn parse(bytes: &[u8]) -> Header {
    if bytes.starts_with(SIGNATURE) {
        return parse_block(bytes);
    }
    if SIGNATURE.starts_with(bytes) || b"PROXY ".starts_with(bytes) {
        return Header::Partial;
    }
    match bytes.starts_with(b"PROXY ") {
        true => parse_line(bytes),
        false => Header::Wrong,
    }
}

fn parse_line(bytes: &[u8]) -> Header {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE_MAX { Header::Partial } else { Header::Wrong };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let Some(line) = line else { return Header::Wrong };
    let parts: Vec<&str> = line.split(' ').collect();
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    match parts[..] {
        ["PROXY", "UNKNOWN", ..] => Header::Whole(end + 1, None),
        ["PROXY", family, source, target, from, to] if is_port(from) && is_port(to) => {
            let address = |text: &str| match family {
                "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
                "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
                _ => None,
            };
            match (address(source), address(target)) {
                (Some(source), Some(_)) => Header::Whole(end + 1, Some(source)),
                _ => Header::Wrong,
            }
        }
        _ => Header::Wrong,
    }
}

fn parse_block(bytes: &[u8]) -> Header {
    let Some(fixed) = bytes.get(12..16) else { return Header::Partial };
    let end = 16 + usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if fixed[0] >> 4 != 2 || end > BLOCK_MAX {
        return Header::Wrong;
    }
    let Some(rest) = bytes.get(16..end) else { return Header::Partial };
    let source = match (fixed[0] & 0xf, fixed[1] >> 4) {
        // The proxy speaks for itself.
        (0, _) | (1, 0 | 3) => None,
        (1, 1) => rest.get(..12).and_then(|all| {
            let four: [u8; 4] = all[..4].try_into().ok()?;
            Some(IpAddr::from(four))
        }),
        (1, 2) => rest.get(..36).and_then(|all| {
            let sixteen: [u8; 16] = all[..16].try_into().ok()?;
            Some(IpAddr::from(sixteen))
        }),
        _ => return Header::Wrong,
    };
    match (fixed[0] & 0xf, fixed[1] >> 4, source) {
        (1, 1 | 2, None) => Header::Wrong,
        _ => Header::Whole(end, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | command, family << 4 | 1]);
        bytes.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn both_versions_are_read() {
        let ip = |text: &str| Some(text.parse().unwrap());
        let line = b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\nGET";
        assert_eq!(parse(line), Header::Whole(line.len() - 3, ip("198.51.100.7")));
        let line = b"PROXY TCP6 2001:db8::7 ::1 4711 80\r\n";
        assert_eq!(parse(line), Header::Whole(line.len(), ip("2001:db8::7")));
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Header::Whole(15, None));
        let four = block(1, 1, &[198, 51, 100, 7, 1, 2, 3, 4, 0, 80, 0, 81, 9, 9]);
        assert_eq!(parse(&four), Header::Whole(four.len(), ip("198.51.100.7")));
        let mut addresses = [0; 36];
        (addresses[0], addresses[1], addresses[15]) = (0x20, 1, 7);
        let six = block(1, 2, &addresses);
        assert_eq!(parse(&six), Header::Whole(six.len(), ip("2001::7")));
        let local = block(0, 0, &[]);
        assert_eq!(parse(&local), Header::Whole(16, None));
    }

    #[test]
    fn what_is_no_header_is_wrong() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 198.51.100.7 192.0.2.1 4711\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            b"PROXY FOO\r\n",
        ] {
            assert_eq!(parse(wrong), Header::Wrong, "{}", String::from_utf8_lossy(wrong));
        }
        assert_eq!(parse(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()), Header::Wrong);
        assert_eq!(parse(&block(1, 1, &[1, 2, 3])), Header::Wrong);
        assert_eq!(parse(&block(2, 1, &[0; 12])), Header::Wrong);
        assert_eq!(parse(&block(1, 1, &[0; 4000])), Header::Wrong);
    }

    proptest! {
        #[test]
        fn a_header_in_pieces_is_partial(at in 0usize..43) {
            let line = b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n";
            prop_assert_eq!(parse(&line[..at.min(line.len() - 1)]), Header::Partial);
            let four = block(1, 1, &[0; 12]);
            prop_assert_eq!(parse(&four[..at.min(four.len() - 1)]), Header::Partial);
        }

        #[test]
        fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..60), signed in any::<bool>()) {
            let bytes = if signed { [SIGNATURE.as_slice(), &bytes].concat() } else { bytes };
            if let Header::Whole(length, _) = parse(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
