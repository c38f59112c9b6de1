//! What it costs to find the limits of a request, for any number of rules.
//!
//! The rules are spread as in real files: a third of them exact values below one key, a third
//! nested two deep, a third patterns. Requests are drawn over the rules as traffic is, skewed (the
//! n-th rule gets 1/n of what the first one gets), and evenly, which is the worst case for caches.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use tidegate::rules::{Descriptor, Entry, File, Found, Options, Rules};
use tidegate::{Query, RuleLimiter};

const RULES: [usize; 3] = [10, 1_000, 100_000];
const DESCRIPTORS: [usize; 3] = [1, 2, 5];

/// Prints the tables. `rounds` rounds of `requests` each; the middle one counts.
pub fn run(rounds: usize, requests: usize) {
    for (how, skewed) in [("skewed", true), ("drawn evenly", false)] {
        println!("## Matching, rules {how}: ns per request, the middle of {rounds} rounds\n");
        println!("| descriptors | what | 10 rules | 1,000 rules | 100,000 rules | 100,000 to 10 |");
        println!("| --- | --- | --- | --- | --- | --- |");
        let sets: Vec<Set> = RULES.into_iter().map(|count| Set::new(count, skewed)).collect();
        type Measure = fn(&Set, usize, usize) -> f64;
        let measures: [(&str, Measure); 3] = [
            ("the request alone", Set::nothing),
            ("find the limits", Set::find),
            ("and decide", Set::decide),
        ];
        for (what, measure) in measures {
            for descriptors in DESCRIPTORS {
                row(what, &sets, rounds, descriptors, |set| measure(set, requests, descriptors));
            }
        }
        println!();
    }
}

/// Finds the limits of requests with one descriptor, or decides them, and nothing else.
pub fn only(what: &str, rules: usize) {
    let set = Set::new(rules, false);
    let ns = match what {
        "find" => set.find(20_000_000, 1),
        _ => set.decide(20_000_000, 1),
    };
    println!("{ns:.0} ns");
}

fn row(what: &str, sets: &[Set], rounds: usize, descriptors: usize, measure: impl Fn(&Set) -> f64) {
    let mut times = vec![Vec::new(); sets.len()];
    for _ in 0..rounds {
        // In turns, so that a disturbed moment disturbs them all.
        for (times, set) in times.iter_mut().zip(sets) {
            times.push(measure(set));
        }
    }
    let middle = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let middles: Vec<f64> = times.iter_mut().map(middle).collect();
    print!("| {descriptors} | {what} |");
    middles.iter().for_each(|ns| print!(" {ns:.0} |"));
    println!(" {:.2}x |", middles[2] / middles[0]);
}

struct Set {
    rules: Rules,
    limiter: RuleLimiter,
    /// Which rules the requests are for.
    numbers: Vec<usize>,
}

impl Set {
    fn new(count: usize, skewed: bool) -> Self {
        let text = file(count);
        let rules = || {
            let loaded =
                Rules::load(&[File { name: "bench.yaml", text: &text }], &Options::default());
            assert!(loaded.report.is_ok(), "{}", loaded.report);
            loaded.rules.expect("rules")
        };
        let limiter = RuleLimiter::new(rules()).expect("a limiter");
        let numbers = draw(count, skewed);
        Self { rules: rules(), limiter, numbers }
    }

    /// The requests alone, which are written into warm memory as those from a network are.
    fn nothing(&self, requests: usize, descriptors: usize) -> f64 {
        self.each(requests, descriptors, |descriptors| {
            black_box(descriptors);
        })
    }

    fn find(&self, requests: usize, descriptors: usize) -> f64 {
        let mut found = Found::new();
        self.each(requests, descriptors, |descriptors| {
            self.rules.find("api", descriptors, &mut found);
            assert_eq!(black_box(found.limits.len()), descriptors.len());
        })
    }

    fn decide(&self, requests: usize, descriptors: usize) -> f64 {
        self.each(requests, descriptors, |descriptors| {
            assert!(black_box(self.limiter.check(&Query::new("api", descriptors)).allowed));
        })
    }

    fn each(&self, requests: usize, count: usize, mut ask: impl FnMut(&[Descriptor<'_>])) -> f64 {
        let mut texts: [String; 5] = Default::default();
        let mut numbers = self.numbers.iter().cycle();
        let begin = Instant::now();
        for _ in 0..requests {
            let mut lengths = [0; 5];
            for ((text, length), number) in
                texts.iter_mut().zip(&mut lengths).zip(&mut numbers).take(count)
            {
                *length = write_request(text, *number);
            }
            let mut entries = [[Entry::new("method", "GET"); 2]; 5];
            for ((entries, length), text) in entries.iter_mut().zip(lengths).zip(&texts).take(count)
            {
                entries[0] = Entry::new(
                    if length == 2 {
                        "path"
                    } else if text.starts_with('h') {
                        "host"
                    } else {
                        "user"
                    },
                    text,
                );
            }
            let mut descriptors = [Descriptor::new(&[]); 5];
            for ((place, entries), length) in descriptors.iter_mut().zip(&entries).zip(lengths) {
                *place = Descriptor::new(&entries[..length]);
            }
            ask(&descriptors[..count]);
        }
        begin.elapsed().as_nanos() as f64 / requests as f64
    }
}

/// Which rules requests are for.
fn draw(count: usize, skewed: bool) -> Vec<usize> {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut weights: Vec<f64> =
        (1..=count).map(|rank| if skewed { 1.0 / rank as f64 } else { 1.0 }).collect();
    let mut sum = 0.0;
    for weight in &mut weights {
        sum += *weight;
        *weight = sum;
    }
    // Ranks are spread over the file, so that the busiest rules do not lie side by side.
    let rule_of = |rank: usize| rank.wrapping_mul(7919) % count;
    let one = |at: f64| rule_of(weights.partition_point(|weight| *weight <= at).min(count - 1));
    (0..1 << 17).map(|_| one(next() * sum)).collect()
}

/// Writes the value of a request for a rule, and says how many entries it has.
fn write_request(text: &mut String, number: usize) -> usize {
    text.clear();
    let (before, after, entries) = match number % 3 {
        0 => ("user-", "", 1),
        1 => ("/v1/", "", 2),
        _ => ("h", "-eu", 1),
    };
    text.push_str(before);
    let mut digits = [0u8; 8];
    let (mut at, mut rest) = (digits.len(), number);
    while at == digits.len() || rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
    text.push_str(after);
    entries
}

fn file(count: usize) -> String {
    let mut text = String::from("domain: api\ndescriptors:\n");
    let limit = "{ requests_per_unit: 4000000000, unit: hour, algorithm: token_bucket }";
    for number in 0..count {
        let written = match number % 3 {
            0 => writeln!(text, "- {{ key: user, value: user-{number}, rate_limit: {limit} }}"),
            1 => writeln!(
                text,
                "- {{ key: path, value: /v1/{number}, descriptors: [ {{ key: method, value: GET, rate_limit: {limit} }} ] }}"
            ),
            _ => writeln!(text, "- {{ key: host, value: h{number}-*, rate_limit: {limit} }}"),
        };
        written.expect("writing to a string does not fail");
    }
    text
}
