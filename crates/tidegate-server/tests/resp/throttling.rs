//! `CL.THROTTLE` and `GCRA` against their formulas, to the nanosecond.

use std::time::Duration;

use proptest::prelude::*;

use crate::support::{Answer, Client, Running, bulk, ints, start};

#[test]
fn the_example_of_redis_cell() {
    let server = start(|_| {});
    let mut client = server.client();
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60 1"), ints([0, 16, 15, -1, 2]));
    for used in 2..=16 {
        let answer = client.say("cl.throttle user123 15 30 60");
        assert_eq!(answer, ints([0, 16, 16 - used, -1, 2 * used]));
    }
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60"), ints([1, 16, 0, 2, 32]));
    // Rounded up, and never a moment too early.
    server.clock.advance(Duration::from_millis(1));
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60"), ints([1, 16, 0, 2, 32]));
    server.clock.advance(Duration::from_millis(1000));
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60"), ints([1, 16, 0, 1, 31]));
    server.clock.advance(Duration::from_millis(998));
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60"), ints([1, 16, 0, 1, 31]));
    server.clock.advance(Duration::from_millis(1));
    assert_eq!(client.say("CL.THROTTLE user123 15 30 60"), ints([0, 16, 0, -1, 32]));
}

#[test]
fn a_quantity_of_none_looks_and_one_of_too_many_never_comes() {
    let server = start(|_| {});
    let mut client = server.client();
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 0"), ints([0, 3, 3, -1, 0]));
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 2"), ints([0, 3, 1, -1, 2]));
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 0"), ints([0, 3, 1, -1, 2]));
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 2"), ints([1, 3, 1, 1, 2]));
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 4"), ints([1, 3, 1, -1, 2]));
    assert_eq!(client.say("CL.THROTTLE k 2 1 1 0"), ints([0, 3, 1, -1, 2]));
}

#[test]
fn gcra_answers_in_parts_of_seconds() {
    let server = start(|_| {});
    let mut client = server.client();
    let texts = |numbers: [i64; 3], retry: &str, full: &str| {
        let mut all: Vec<Answer> = numbers.map(Answer::Int).to_vec();
        all.extend([bulk(retry), bulk(full)]);
        Answer::Array(all)
    };
    assert_eq!(client.say("GCRA k 1 4 1"), texts([0, 2, 1], "-1", "0.25"));
    assert_eq!(client.say("GCRA k 1 4 1 TOKENS 1"), texts([0, 2, 0], "-1", "0.5"));
    assert_eq!(client.say("gcra k 1 4 1.0 num_requests 2"), texts([1, 2, 0], "0.5", "0.5"));
    assert_eq!(client.say("GCRA k 1 4 1 TOKENS 3"), texts([1, 2, 0], "-1", "0.5"));
    assert_eq!(client.say("GCRA half 0 1 0.5"), texts([0, 1, 0], "-1", "0.5"));
    client.say("HELLO 3");
    let doubles = |numbers: [i64; 3], retry: f64, full: f64| {
        let mut all: Vec<Answer> = numbers.map(Answer::Int).to_vec();
        all.extend([Answer::Double(retry), Answer::Double(full)]);
        Answer::Array(all)
    };
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(client.say("GCRA k 1 4 1"), doubles([1, 2, 0], 0.249_999_999, 0.499_999_999));
    assert_eq!(client.say("GCRA k 1 4 1 TOKENS 0"), doubles([0, 2, 0], -1.0, 0.499_999_999));
}

#[test]
fn both_commands_and_all_numbers_count_a_key_together() {
    let server = start(|_| {});
    let mut client = server.client();
    assert_eq!(client.say("CL.THROTTLE k 9 10 10 4"), ints([0, 10, 6, -1, 4]));
    client.say("HELLO 3");
    let looked = client.say("GCRA k 9 10 10 TOKENS 0");
    assert_eq!(looked, {
        let numbers = [0, 10, 6].map(Answer::Int).to_vec();
        Answer::Array([numbers, vec![Answer::Double(-1.0), Answer::Double(4.0)]].concat())
    });
    // Four of ten used are four of twenty used, at whatever rate they come back.
    assert_eq!(client.say("CL.THROTTLE k 19 10 10 0"), ints([0, 20, 16, -1, 4]));
    assert_eq!(client.say("CL.THROTTLE k 19 1 60 0"), ints([0, 20, 16, -1, 240]));
    // And of three there is none left, until they have come back.
    assert_eq!(client.say("CL.THROTTLE k 2 10 10 1"), ints([1, 3, 0, 2, 4]));
}

#[test]
fn what_makes_no_sense_is_told_so() {
    let server = start(|_| {});
    let mut client = server.client();
    let mut said = |line: &str| match client.say(line) {
        Answer::Error(text) => text,
        other => panic!("{line}: {other:?}"),
    };
    let arity = "ERR wrong number of arguments for 'cl.throttle' command";
    for line in ["CL.THROTTLE", "CL.THROTTLE k 1 1", "cl.throttle k 1 1 1 1 1"] {
        assert_eq!(said(line), arity);
    }
    assert_eq!(said("GCRA k 1 1"), "ERR wrong number of arguments for 'gcra' command");
    for (line, name) in [
        ("CL.THROTTLE k x 1 1", "max_burst"),
        ("CL.THROTTLE k -1 1 1", "max_burst"),
        ("CL.THROTTLE k 9223372036854775807 1 1", "max_burst"),
        ("CL.THROTTLE k 1 0 1", "count"),
        ("CL.THROTTLE k 1 1.5 1", "count"),
        ("CL.THROTTLE k 1 1 0", "period"),
        ("CL.THROTTLE k 1 1 1 -1", "quantity"),
        ("GCRA k -1 1 1", "max_burst"),
        ("GCRA k 1 0 1", "requests_per_period"),
        ("GCRA k 1 1 1 TOKENS x", "the number of tokens"),
    ] {
        assert!(
            said(line).starts_with(&format!("ERR {name} must be an integer between")),
            "{line}"
        );
    }
    for period in ["0", "-1", "nan", "inf", "x", "1e300", "0.0000000001"] {
        let text = said(&format!("GCRA k 1 1 {period}"));
        assert!(text.starts_with("ERR period must be a number of seconds above 0"), "{text}");
    }
    for line in ["GCRA k 1 1 1 TOKENS", "GCRA k 1 1 1 BURST 1", "GCRA k 1 1 1 TOKENS 1 TOKENS 1"] {
        assert_eq!(said(line), "ERR syntax error");
    }
    // What only the engine knows: too long, too fine.
    for line in
        ["CL.THROTTLE k 1 1 9223372036854775806", "CL.THROTTLE k 9223372036854775806 1 9223372036"]
    {
        let text = said(line);
        assert!(text.starts_with("ERR ") && !text.contains("must be an integer"), "{text}");
    }
    // None of that has counted anything.
    assert_eq!(client.say("CL.THROTTLE k 1 1 1 0"), ints([0, 2, 2, -1, 0]));
}

/// One theoretical arrival time in parts of a unit's time, as in the books.
struct Model {
    capacity: u128,
    units: u128,
    period: u128,
    arrival: u128,
}

impl Model {
    fn check(&mut self, now: u64, cost: u64) -> [i64; 5] {
        let (now, cost) = (u128::from(now) * self.units, u128::from(cost) * self.period);
        let full = self.capacity * self.period;
        let arrival = self.arrival.max(now);
        let is_allowed = arrival + cost <= now + full;
        if is_allowed {
            self.arrival = arrival + cost;
        }
        let used = self.arrival.max(now) - now;
        let seconds = |ticks: u128| {
            let seconds = ticks.div_ceil(self.units).div_ceil(1_000_000_000);
            i64::try_from(seconds).unwrap()
        };
        let whole = |number: u128| i64::try_from(number).unwrap();
        let retry = match is_allowed {
            false if cost <= full => seconds(arrival + cost - now - full),
            _ => -1,
        };
        let remaining = full.saturating_sub(used) / self.period;
        [i64::from(!is_allowed), whole(self.capacity), whole(remaining), retry, seconds(used)]
    }
}

fn replay(server: &Running, client: &mut Client, key: &str, limit: [u64; 3], steps: &[(u64, u64)]) {
    let [burst, units, period] = limit;
    let mut model = Model {
        capacity: u128::from(burst) + 1,
        units: units.into(),
        period: u128::from(period) * 1_000_000_000,
        arrival: 0,
    };
    for (wait, cost) in steps {
        server.clock.advance(Duration::from_nanos(*wait));
        let expected = model.check(server.service.limits().now().as_nanos(), *cost);
        let answer = client.say(&format!("CL.THROTTLE {key} {burst} {units} {period} {cost}"));
        assert_eq!(answer, ints(expected), "{limit:?} {steps:?}");
    }
}

#[test]
fn decisions_are_those_of_the_formulas() {
    let server = start(|_| {});
    let client = std::cell::RefCell::new(server.client());
    let keys = std::cell::Cell::new(0);
    let wait = prop_oneof![Just(0), 0..3_000_000_000u64, Just(500_000_000), Just(1_000_000_000)];
    let steps = prop::collection::vec((wait, 0..5u64), 1..30);
    let mut runner = proptest::test_runner::TestRunner::default();
    let limits = (0..6u64, 1..20u64, 1..20u64);
    runner
        .run(&(limits, steps), |((burst, units, period), steps)| {
            keys.set(keys.get() + 1);
            let key = format!("model:{}", keys.get());
            replay(&server, &mut client.borrow_mut(), &key, [burst, units, period], &steps);
            Ok(())
        })
        .unwrap();
}
