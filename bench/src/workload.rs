//! Which keys are asked for, in which order.

/// A pattern of requests over a number of keys.
#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub keys: u32,
    pub zipf: bool,
}

pub const WORKLOADS: [Workload; 5] = [
    Workload { name: "1 key", keys: 1, zipf: false },
    Workload { name: "10k uniform", keys: 10_000, zipf: false },
    Workload { name: "10k zipf", keys: 10_000, zipf: true },
    Workload { name: "1M uniform", keys: 1_000_000, zipf: false },
    Workload { name: "1M zipf", keys: 1_000_000, zipf: true },
];

impl Workload {
    /// The order of keys: long enough not to be learnt, short enough to stay out of the way.
    pub fn order(&self, seed: u64) -> Vec<u32> {
        let mut random = Random(seed);
        let zipf = self.zipf.then(|| zipf_table(self.keys));
        let one = |random: &mut Random| match &zipf {
            None => (random.next() % u64::from(self.keys)) as u32,
            Some(table) => {
                let point = random.next() as f64 / u64::MAX as f64;
                table.partition_point(|share| *share < point) as u32
            }
        };
        (0..1 << 20).map(|_| one(&mut random).min(self.keys - 1)).collect()
    }
}

/// Cumulative shares of keys whose popularity falls with the power 0.99 of their rank.
fn zipf_table(keys: u32) -> Vec<f64> {
    let mut sum = 0.0;
    let mut table: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / f64::from(rank).powf(0.99);
            sum
        })
        .collect();
    table.iter_mut().for_each(|share| *share /= sum);
    table
}

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A key of 16 characters, rewritten in place: `user:abc` and eight hexadecimal digits.
pub struct KeyBuffer {
    text: String,
}

impl KeyBuffer {
    pub fn new() -> Self {
        Self { text: "user:abc00000000".to_owned() }
    }

    /// The key of a number. One store of eight bytes, so that no rival waits for single bytes to
    /// come together again.
    #[inline(always)]
    pub fn set(&mut self, number: u32) -> &String {
        let digits = hex_digits(number).to_be_bytes();
        // SAFETY: the digits are ASCII, so the text stays valid UTF-8.
        unsafe { self.text.as_bytes_mut()[8..16].copy_from_slice(&digits) };
        &self.text
    }
}

/// Eight hexadecimal digits as bytes, all at once.
#[inline(always)]
fn hex_digits(number: u32) -> u64 {
    let x = u64::from(number);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 0 to 9 become '0' to '9', 10 to 15 become 'a' to 'f'.
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    x + 0x3030_3030_3030_3030 + letters * 0x27
}
