//! What people read when they made a mistake, to the letter.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::report;

/// Compares everything that is said about a file.
#[track_caller]
fn says(text: &str, wanted: &str) {
    let said = report(text).to_string();
    assert!(said == wanted, "said:\n{said}\nwanted:\n{wanted}");
}

#[test]
fn minutes() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit:
      unit: minutes
      requests_per_unit: 5
",
        "\
rules.yaml:5:13: invalid rate limit unit 'minutes'
  5 |       unit: minutes
    |             ^^^^^^^
  in: descriptors[0].rate_limit.unit
  hint: did you mean `minute`?
",
    );
}

#[test]
fn a_unit_that_is_none() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit: { unit: fortnight, requests_per_unit: 5 }
",
        "\
rules.yaml:4:25: invalid rate limit unit 'fortnight'
  4 |     rate_limit: { unit: fortnight, requests_per_unit: 5 }
    |                         ^^^^^^^^^
  in: descriptors[0].rate_limit.unit
  hint: one of `second`, `minute`, `hour`, `day`, `week`, `month`, `year`
",
    );
}

#[test]
fn unlimied() {
    // One mistake, one message: what is missing because of it is not reported too.
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit:
      unlimied: true
",
        "\
rules.yaml:5:7: config error, unknown key 'unlimied'
  5 |       unlimied: true
    |       ^^^^^^^^
  in: descriptors[0].rate_limit
  hint: did you mean `unlimited`?
",
    );
}

/// A key could bring an escape sequence, and the report sent it to the terminal.
#[test]
fn what_a_terminal_would_obey_is_shown() {
    says(
        "domain: api
\"\\e[2Jun\\tit\": 5
",
        "\
rules.yaml:2:1: config error, unknown key '\\u{1b}[2Jun\\tit'
  2 | \"\\e[2Jun\\tit\": 5
    | ^^^^^^^^^
  hint: one of `domain`, `descriptors`, `http`, `defaults`
",
    );
}

#[test]
fn ratelimit() {
    says(
        "domain: api
descriptors:
  - key: user
    ratelimit:
      unit: minute
      requests_per_unit: 5
",
        "\
rules.yaml:4:5: config error, unknown key 'ratelimit'
  4 |     ratelimit:
    |     ^^^^^^^^^
  in: descriptors[0]
  hint: did you mean `rate_limit`?
",
    );
}

#[test]
fn burst_on_a_descriptor() {
    says(
        "domain: api
descriptors:
  - key: user
    burst: 10
    rate_limit: { unit: minute, requests_per_unit: 5 }
",
        "\
rules.yaml:4:5: config error, unknown key 'burst'
  4 |     burst: 10
    |     ^^^^^
  in: descriptors[0]
  hint: `burst` belongs in `rate_limit`
",
    );
}

#[test]
fn burst_of_a_window() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5, burst: 10 }
",
        "\
rules.yaml:4:55: `burst` has no meaning for `fixed_window`
  4 |     rate_limit: { unit: minute, requests_per_unit: 5, burst: 10 }
    |                                                       ^^^^^
  in: descriptors[0].rate_limit.burst
  hint: `burst` goes with `token_bucket`, `leaky_bucket`, `gcra`
",
    );
}

#[test]
fn a_quoted_number() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit:
      unit: minute
      requests_per_unit: \"5\"
",
        "\
rules.yaml:6:26: error loading config file: yaml: line 6: cannot unmarshal !!str `5` into uint32
  6 |       requests_per_unit: \"5\"
    |                          ^^^
  in: descriptors[0].rate_limit.requests_per_unit
  hint: write 5 without quotes
",
    );
}

#[test]
fn two_periods() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 5, unit: minute, per: 30s }
",
        "\
rules.yaml:4:55: `unit` and `per` exclude each other
  4 |     rate_limit: { requests_per_unit: 5, unit: minute, per: 30s }
    |                                                       ^^^
  in: descriptors[0].rate_limit
  hint: keep `unit`, or `per` for a length that no unit has
",
    );
}

#[test]
fn a_time_zone_for_hours() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit:
      requests_per_unit: 5
      unit: hour
      time_zone: Europe/Berlin
",
        "\
rules.yaml:7:18: `time_zone` needs `unit: day`, `week`, `month` or `year` and no multiplier
  7 |       time_zone: Europe/Berlin
    |                  ^^^^^^^^^^^^^
  in: descriptors[0].rate_limit.time_zone
  hint: a calendar has days, weeks, months and years
",
    );
}

#[test]
fn delay_without_a_queue() {
    says(
        "domain: api
descriptors:
  - key: user
    rate_limit:
      requests_per_unit: 5
      unit: second
      excess: delay
",
        "\
rules.yaml:7:15: `excess: delay` needs `queue`
  7 |       excess: delay
    |               ^^^^^
  in: descriptors[0].rate_limit.excess
  hint: `algorithm: leaky_bucket` with `queue: { size: 100, max_delay: 5s }`
",
    );
}

#[test]
fn a_descriptor_without_key() {
    says(
        "domain: api
descriptors:
  - user: { unit: minute, requests_per_unit: 5 }
",
        "\
rules.yaml:3:5: config error, unknown key 'user'
  3 |   - user: { unit: minute, requests_per_unit: 5 }
    |     ^^^^
  in: descriptors[0]
  hint: if it is the key of an entry, write `key: user`
",
    );
}

#[test]
fn a_list_without_dashes() {
    says(
        "domain: api
descriptors:
  key: user
",
        "\
rules.yaml:3:3: error loading config file: yaml: line 3: cannot unmarshal !!map into list
  3 |   key: user
    |   ^
  in: descriptors
  hint: a list: every entry begins with `- `
",
    );
}

#[test]
fn everything_at_once_in_the_order_of_lines() {
    says(
        "domain: api
descriptors:
  - key: a
    rate_limit: { requests_per_unit: 1, per: 30 }
  - key: b
    rate_limit: { requests_per_unit: 1, unit: day, algorithm: tokenbucket }
  - key: a
    rate_limit: { requests_per_unit: 1, unit: day, shadow_mode: true }
",
        "\
rules.yaml:4:46: `30` is not a duration
  4 |     rate_limit: { requests_per_unit: 1, per: 30 }
    |                                              ^^
  in: descriptors[0].rate_limit.per
  hint: `30s`, if seconds are meant
rules.yaml:6:63: `tokenbucket` is not a value of `algorithm`
  6 |     rate_limit: { requests_per_unit: 1, unit: day, algorithm: tokenbucket }
    |                                                               ^^^^^^^^^^^
  in: descriptors[1].rate_limit.algorithm
  hint: did you mean `token_bucket`?
rules.yaml:7:5: duplicate descriptor composite key 'api.a'
  7 |   - key: a
    |     ^
  in: descriptors[2]
  hint: the first is in line 3
rules.yaml:8:52: warning: `shadow_mode` inside `rate_limit` is ignored, as at Lyft
  8 |     rate_limit: { requests_per_unit: 1, unit: day, shadow_mode: true }
    |                                                    ^^^^^^^^^^^
  in: descriptors[2].rate_limit
  hint: write it beside `rate_limit`, one level up
",
    );
}
