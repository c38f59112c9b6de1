//! A body in chunks, followed to its end.

/// How long the line before a chunk may be, and all trailers together.
const LINE_MAX: usize = 256;
const TRAILERS_MAX: usize = 8192;

/// Where in a body the next byte is.
#[derive(Debug)]
pub(crate) struct Chunks {
    at: At,
    /// Bytes of the line, or of the trailers.
    length: usize,
    /// Digits of the size that were read.
    digits: u8,
    left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    /// White space behind the size, before an extension.
    Gap,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    /// At the beginning of a line of the trailers.
    Trailer,
    /// In the name of a trailer.
    TrailerName,
    /// In its value.
    TrailerLine,
    TrailerEnd,
    LastEnd,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { at: At::Size, length: 0, digits: 0, left: 0 }
    }

    /// How many of the bytes are good, and whether the body ends there. An error is a body that is
    /// none.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Result<(usize, bool), ()> {
        let mut good = 0;
        while good < bytes.len() {
            if self.at == At::Data {
                let some = usize::try_from(self.left).unwrap_or(usize::MAX);
                let some = some.min(bytes.len() - good);
                self.left -= some as u64;
                good += some;
                if self.left == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            let is_over = self.step(bytes[good])?;
            good += 1;
            if is_over {
                return Ok((good, true));
            }
        }
        Ok((good, false))
    }

    /// Takes one byte that is none of the data. Whether it is the last one of the body.
    fn step(&mut self, byte: u8) -> Result<bool, ()> {
        self.length += 1;
        let in_trailers = matches!(
            self.at,
            At::Trailer | At::TrailerName | At::TrailerLine | At::TrailerEnd | At::LastEnd
        );
        if self.length > if in_trailers { TRAILERS_MAX } else { LINE_MAX } {
            return Err(());
        }
        self.at = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digits += 1;
                // Sixteen digits are the whole of a number, and more than anybody sends.
                if self.digits > 15 {
                    return Err(());
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.left = self.left * 16 + u64::from(digit);
                At::Size
            }
            (At::Size, _) if self.digits == 0 => return Err(()),
            (At::Size | At::Gap | At::Extension, b'\r') => At::SizeEnd,
            (At::Size | At::Gap | At::Extension, b';') => At::Extension,
            (At::Size | At::Gap, b' ' | b'\t') => At::Gap,
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => At::Extension,
            (At::SizeEnd, b'\n') => {
                self.length = 0;
                if self.left == 0 { At::Trailer } else { At::Data }
            }
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => {
                *self = Self::new();
                At::Size
            }
            (At::Trailer, b'\r') => At::LastEnd,
            (At::Trailer | At::TrailerName, byte) if is_name(byte) => At::TrailerName,
            (At::TrailerName, b':') => At::TrailerLine,
            (At::TrailerLine, b'\r') => At::TrailerEnd,
            (At::TrailerLine, b'\t' | b' '..=b'~' | 0x80..) => At::TrailerLine,
            (At::TrailerEnd, b'\n') => At::Trailer,
            (At::LastEnd, b'\n') => return Ok(true),
            _ => return Err(()),
        };
        Ok(false)
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
