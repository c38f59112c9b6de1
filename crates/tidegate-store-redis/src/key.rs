//! What keys are called in Redis, and in which slot of a cluster they are.
//!
//! `<prefix>1:{<length>:<key>}<part><limit>`, where `1` is the version of this scheme and the part is
//! one letter. The length says where the key ends, so that no two pairs of key and limit are spelled
//! alike. What stands in braces decides the slot: the limits of one key share it, and keys spread.

/// What a limit keeps of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The state, which every limit has.
    State,
    /// The units of each holder of permits.
    Units,
    /// The ends of their leases.
    Ends,
}

impl Kept {
    fn letter(self) -> u8 {
        match self {
            Self::State => b's',
            Self::Units => b'u',
            Self::Ends => b'e',
        }
    }
}

/// Writes a number in decimal digits.
pub(crate) fn put_decimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

/// How many digits that are.
pub(crate) fn decimal_len(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The length of a name.
pub(crate) fn name_len(prefix: &str, key: &[u8], limit: &str) -> usize {
    prefix.len() + 3 + decimal_len(key.len()) + 1 + key.len() + 2 + limit.len()
}

/// Writes the name of what a limit keeps of a key.
pub(crate) fn put_name(out: &mut Vec<u8>, prefix: &str, key: &[u8], limit: &str, kept: Kept) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(b"1:{");
    put_decimal(out, key.len());
    out.push(b':');
    out.extend_from_slice(key);
    out.extend_from_slice(&[b'}', kept.letter()]);
    out.extend_from_slice(limit.as_bytes());
}

/// The name of a reservation, which has a slot of its own.
pub(crate) fn reservation_name(prefix: &str, id: u128) -> Vec<u8> {
    format!("{prefix}1:r{{{id:032x}}}").into_bytes()
}

/// A name in a given slot, for asking whoever keeps that slot.
pub(crate) fn name_in_slot(prefix: &str, slot: u16) -> Vec<u8> {
    // One in 16384 numbers is in the slot; a million of them miss it with a chance of e^-61.
    let number = (0..1_000_000u32)
        .find(|number| slot_of_tag(format!("{number}").as_bytes()) == slot % SLOTS)
        .unwrap_or(0);
    format!("{prefix}1:p{{{number}}}").into_bytes()
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of all that is kept of a key.
pub(crate) fn slot_of_key(key: &[u8]) -> u16 {
    let mut crc = 0;
    let mut length = Vec::with_capacity(20);
    put_decimal(&mut length, key.len());
    length.push(b':');
    // Redis hashes what stands between the first brace and the next closing one.
    let end = key.iter().position(|byte| *byte == b'}').unwrap_or(key.len());
    for byte in length.iter().chain(&key[..end]) {
        crc = crc_step(crc, *byte);
    }
    crc % SLOTS
}

/// The slot of names with this between their braces.
pub(crate) fn slot_of_tag(tag: &[u8]) -> u16 {
    tag.iter().fold(0, |crc, byte| crc_step(crc, *byte)) % SLOTS
}

/// The slot of a name, as Redis works it out.
pub(crate) fn slot_of_name(name: &[u8]) -> u16 {
    let open = name.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &name[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    slot_of_tag(tag.unwrap_or(name))
}

/// CRC-16 with the polynomial 0x1021, beginning with zero: what clusters agree on.
fn crc_step(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)]
}

const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &[u8], limit: &str, kept: Kept) -> Vec<u8> {
        let mut out = Vec::new();
        put_name(&mut out, "tg", key, limit, kept);
        out
    }

    /// The check value that everybody's CRC-16/XMODEM has, and slots that `CLUSTER KEYSLOT` gives.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(b"123456789".iter().fold(0, |crc, byte| crc_step(crc, *byte)), 0x31C3);
        assert_eq!(slot_of_name(b"foo"), 12182);
        assert_eq!(slot_of_name(b"{foo}bar"), 12182);
        assert_eq!(slot_of_name(b"a{}b"), slot_of_tag(b"a{}b"));
    }

    #[test]
    fn all_that_is_kept_of_a_key_is_in_one_slot() {
        for key in [&b"user:1"[..], b"", b"}", b"a}b", b"{x}", &[0xff; 1000]] {
            for kept in [Kept::State, Kept::Units, Kept::Ends] {
                for limit in ["", "a", "{b}", "}"] {
                    let name = name(key, limit, kept);
                    assert_eq!(slot_of_name(&name), slot_of_key(key), "{name:?}");
                    assert_eq!(name.len(), name_len("tg", key, limit));
                }
            }
        }
    }

    #[test]
    fn a_probe_finds_every_slot() {
        for slot in (0..SLOTS).step_by(997) {
            assert_eq!(slot_of_name(&name_in_slot("tg", slot)), slot);
        }
    }
}
