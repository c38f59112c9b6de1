//! The pictures: which traffic meets which limits.

use std::error::Error;

use super::draw::{Body, Curve, Picture, Row, Span, Stay};
use super::drive::{self, Event, Millis, Outcome, drive, hold, most_within, remaining, rolling};

type Drawn<T = Picture> = Result<T, Box<dyn Error>>;

const SECOND: Millis = 1000;
/// How close requests of a burst come, and how fine curves are.
const GRAIN: Millis = 50;

/// Every picture.
pub(crate) fn all() -> Drawn<Vec<Picture>> {
    Ok(vec![
        overview()?,
        token_bucket()?,
        leaky_bucket()?,
        window_edge()?,
        window_start()?,
        sliding()?,
        warm_up()?,
        concurrency()?,
        soft()?,
    ])
}

/// `per_step` requests at once, every 50 ms, from `from` until before `to`.
fn flow(from: Millis, to: Millis, per_step: usize) -> Vec<Millis> {
    let step = usize::try_from(GRAIN).unwrap_or(1);
    (from..to).step_by(step).flat_map(|at| vec![at; per_step]).collect()
}

/// One request every `step`.
fn paced(from: Millis, to: Millis, step: usize) -> Vec<Millis> {
    (from..to).step_by(step).collect()
}

fn span(from: Millis, to: Millis, text: impl Into<String>) -> Span {
    Span { from, to, text: text.into() }
}

fn plain(name: &'static str, note: &'static str, body: Body, tally: Vec<String>) -> Row {
    Row {
        name,
        note,
        body,
        shapes: false,
        curve: None,
        windows: Vec::new(),
        spans: Vec::new(),
        tally,
    }
}

fn arrivals(traffic: &[Millis]) -> Row {
    let tally = vec![format!("{} requests", traffic.len())];
    plain("what arrives", "", Body::Arrivals(traffic.to_vec()), tally)
}

fn passed<'a>(events: impl IntoIterator<Item = &'a Event>) -> usize {
    events.into_iter().filter(|event| event.outcome != Outcome::Refused).count()
}

/// How many went on, and the most of them within a second.
fn tally(events: &[Event]) -> Vec<String> {
    vec![
        format!("{} of {} pass", passed(events), events.len()),
        format!("most in 1 s: {}", most_within(events, SECOND)),
    ]
}

fn decided(name: &'static str, note: &'static str, limit: &str, traffic: &[Millis]) -> Drawn<Row> {
    let events = drive(limit, traffic)?;
    let tally = tally(&events);
    let shapes = limit.contains("queue=") || limit.starts_with("warm_up");
    Ok(Row { shapes, ..plain(name, note, Body::Events(events), tally) })
}

/// [`decided`], with what passed in the second before each moment.
fn with_rolling(mut row: Row, end: Millis, top: u64) -> Row {
    if let Body::Events(events) = &row.body {
        let values = rolling(events, SECOND, (GRAIN / 5, end));
        row.curve = Some(Curve { values, label: "in the last second", limit: Some(10), top });
    }
    row
}

fn overview() -> Drawn {
    let end = 5 * SECOND;
    let traffic = [
        paced(100, 1000, 300),
        flow(1300, 1450, 5),
        flow(2850, 2950, 5),
        flow(3000, 3100, 5),
        flow(3550, 5000, 1),
    ]
    .concat();
    let row = |name, note, limit: &str| decided(name, note, limit, &traffic);
    let bucket =
        row("token bucket", "leaky bucket (meter)\nand GCRA do the same", "token_bucket 10/1s")?;
    for same in ["leaky_bucket 10/1s", "gcra 10/1s"] {
        if drive(same, &traffic)? != drive("token_bucket 10/1s", &traffic)? {
            return Err(format!(
                "`{same}` has no row of its own, and no longer decides as `token_bucket` does"
            )
            .into());
        }
    }
    let busy: Vec<(Millis, Millis)> = traffic.iter().map(|at| (*at, 400)).collect();
    let in_flight = hold("concurrency 10", &busy)?;
    let tallied = tally(&in_flight);
    Ok(Picture {
        file: "overview.svg",
        title: "The same traffic through every algorithm",
        subtitle: "Every limit is 10 per second. One square is one request; requests of the same moment stand on each other.",
        end,
        spans: vec![
            span(100, 700, "quiet"),
            span(1300, 1400, "burst of 15"),
            span(2850, 3050, "10 + 10 across 3 s"),
            span(3550, 4950, "steady, 20 per second"),
        ],
        rows: vec![
            arrivals(&traffic),
            bucket,
            row("token bucket", "refill: interval", "token_bucket 10/1s refill=interval")?,
            row("fixed window", "", "fixed_window 10/1s")?,
            row("sliding window log", "", "sliding_window_log 10/1s")?,
            row("sliding window counter", "", "sliding_window_counter 10/1s")?,
            row(
                "token bucket",
                "soft: 20% over, for 1 s",
                "token_bucket 10/1s soft_over_bp=2000 soft_for=1s",
            )?,
            plain("concurrency", "10 permits,\neach held 0.4 s", Body::Events(in_flight), tallied),
            row("leaky bucket", "queue: size 10", "leaky_bucket 10/1s queue=10")?,
            row(
                "warm-up",
                "period: 1s,\nheld 1 s at the most",
                "warm_up 10/1s warm_up=1s max_delay=1s",
            )?,
        ],
    })
}

fn token_bucket() -> Drawn {
    let end = 4 * SECOND;
    let traffic = [flow(200, 350, 5), flow(1600, 1700, 3), flow(2200, 3400, 1)].concat();
    let row = |name, note, limit: &str, size| {
        let mut row = decided(name, note, limit, &traffic)?;
        let values = remaining(limit, &traffic, (GRAIN / 5, end))?;
        row.curve = Some(Curve { values, label: "tokens left", limit: None, top: size });
        Ok::<Row, Box<dyn Error>>(row)
    };
    Ok(Picture {
        file: "token_bucket.svg",
        title: "Token bucket: the burst is apart from the rate",
        subtitle: "10 tokens per second. A request takes one; with none left it is refused. The curve is what is left in the bucket.",
        end,
        spans: vec![
            span(200, 300, "burst of 15"),
            span(1600, 1650, "burst of 6"),
            span(2200, 3350, "steady, 20 per second"),
        ],
        rows: vec![
            arrivals(&traffic),
            row("burst: 10", "refill: greedy", "token_bucket 10/1s", 10)?,
            row("burst: 3", "refill: greedy", "token_bucket 10/1s burst=3", 10)?,
            row("burst: 10", "refill: interval", "token_bucket 10/1s refill=interval", 10)?,
        ],
    })
}

fn leaky_bucket() -> Drawn {
    let end = 4 * SECOND;
    let traffic = [flow(200, 350, 5), flow(1700, 3000, 1)].concat();
    let row = |name, note, limit: &str| decided(name, note, limit, &traffic);
    Ok(Picture {
        file: "leaky_bucket.svg",
        title: "Leaky bucket: as a meter it refuses, as a queue it holds",
        subtitle: "10 per second. Thin lines lead from a request's arrival to the moment it goes on.",
        end,
        spans: vec![span(200, 300, "burst of 15"), span(1700, 2950, "steady, 20 per second")],
        rows: vec![
            arrivals(&traffic),
            row("meter", "burst: 10", "leaky_bucket 10/1s")?,
            row("queue", "size: 10", "leaky_bucket 10/1s queue=10")?,
            row(
                "queue",
                "size: 10,\nmax_delay: 300ms",
                "leaky_bucket 10/1s queue=10 max_delay=300ms",
            )?,
        ],
    })
}

fn window_edge() -> Drawn {
    let end = 3 * SECOND;
    let traffic = [flow(850, 950, 5), flow(1000, 1100, 5)].concat();
    let row = |name, limit: &str| {
        let mut row = with_rolling(decided(name, "", limit, &traffic)?, end, 20);
        if let Body::Events(events) = &row.body {
            row.tally = vec![format!("{} in 0.2 s", passed(events))];
        }
        Ok::<Row, Box<dyn Error>>(row)
    };
    Ok(Picture {
        file: "window_edge.svg",
        title: "Ten before and ten after the edge of a window",
        subtitle: "10 per second; windows begin at each full second. The curve counts what passed in the second before each moment.",
        end,
        spans: vec![span(850, 1050, "20 requests in 0.2 s, across the edge")],
        rows: vec![
            row("fixed window", "fixed_window 10/1s")?,
            row("token bucket", "token_bucket 10/1s")?,
            row("sliding window counter", "sliding_window_counter 10/1s")?,
            row("sliding window log", "sliding_window_log 10/1s")?,
        ],
    })
}

fn window_start() -> Drawn {
    let end = 5 * SECOND;
    let traffic = [flow(600, 1300, 1), flow(2400, 3200, 1), flow(3800, 4600, 1)].concat();
    let row = |name, note, limit: &str| {
        let mut row = decided(name, note, limit, &traffic)?;
        row.windows = drive::windows(limit, &traffic, SECOND)?;
        if let Body::Events(events) = &row.body {
            let counted = |(from, to): &(Millis, Millis)| {
                let passed = passed(events.iter().filter(|event| (*from..*to).contains(&event.at)));
                span(from + 30, to - 30, passed.to_string())
            };
            row.spans = row.windows.iter().map(counted).collect();
        }
        Ok::<Row, Box<dyn Error>>(row)
    };
    Ok(Picture {
        file: "window_start.svg",
        title: "Fixed window: where windows begin",
        subtitle: "10 per second. Brackets are the windows that were counted, with what passed in each.",
        end,
        spans: Vec::new(),
        rows: vec![
            arrivals(&traffic),
            row("align: epoch", "at full seconds,\nfor all keys", "fixed_window 10/1s")?,
            row(
                "align: first_request",
                "at a key's first\nrequest",
                "fixed_window 10/1s align=first_request",
            )?,
        ],
    })
}

fn sliding() -> Drawn {
    let end = 5 * SECOND;
    let traffic = [paced(50, 2600, 70), flow(3700, 3850, 3), flow(4000, 5000, 1)].concat();
    let row = |name, limit: &str| {
        Ok::<Row, Box<dyn Error>>(with_rolling(decided(name, "", limit, &traffic)?, end, 20))
    };
    Ok(Picture {
        file: "sliding.svg",
        title: "Sliding windows: one is exact, the other estimates",
        subtitle: "10 per second. The curve counts what passed in the second before each moment.",
        end,
        spans: vec![
            span(50, 2570, "even, 14 per second"),
            span(3700, 3800, "burst of 9"),
            span(4000, 4950, "20 per second"),
        ],
        rows: vec![
            arrivals(&traffic),
            row("sliding window log", "sliding_window_log 10/1s")?,
            row("sliding window counter", "sliding_window_counter 10/1s")?,
            row("fixed window", "fixed_window 10/1s")?,
        ],
    })
}

fn warm_up() -> Drawn {
    let end = 7 * SECOND;
    let traffic = [paced(100, 2000, 100), paced(5200, 6100, 100)].concat();
    let row = |name, note, limit: &str| decided(name, note, limit, &traffic);
    Ok(Picture {
        file: "warm_up.svg",
        title: "Warm-up: slow after a rest, then the full rate",
        subtitle: "10 per second, and no more than that arrive. A cold key starts three times slower and takes 2 s to get warm.",
        end,
        spans: vec![
            span(100, 1900, "10 per second"),
            span(2100, 5000, "rest: the key gets cold again"),
            span(5200, 6000, "10 per second"),
        ],
        rows: vec![
            arrivals(&traffic),
            row("leaky bucket", "queue: size 10,\nfor comparison", "leaky_bucket 10/1s queue=10")?,
            row("warm-up", "period: 2s,\ncold_factor: 3", "warm_up 10/1s warm_up=2s")?,
            row(
                "warm-up",
                "the same, but held\n300 ms at the most",
                "warm_up 10/1s warm_up=2s max_delay=300ms",
            )?,
        ],
    })
}

fn concurrency() -> Drawn {
    const LEASE: Millis = 1500;
    let end = 6500;
    let quick = paced(100, 1800, 100).into_iter().map(|at| (at, 250));
    let slow = paced(2000, 3700, 100).into_iter().map(|at| (at, 900));
    let lost = [(4700, 60 * SECOND)];
    let after = paced(4800, 6300, 100).into_iter().map(|at| (at, 250));
    let requests: Vec<(Millis, Millis)> = quick.chain(slow).chain(lost).chain(after).collect();
    let events = hold("concurrency 4 lease=1500ms", &requests)?;
    let stay = |(event, (at, busy)): (&Event, &(Millis, Millis))| Stay {
        event: *event,
        until: at + busy.min(&LEASE),
        lost: *busy > LEASE,
    };
    let stays: Vec<Stay> = events.iter().zip(&requests).map(stay).collect();
    let tally = vec![format!("{} of {} pass", passed(&events), events.len())];
    Ok(Picture {
        file: "concurrency.svg",
        title: "Concurrency: how many at once, not how many per second",
        subtitle: "4 permits, 10 requests per second. A bar is one request from start to end; the dashed one never gave its permit back.",
        end,
        spans: vec![
            span(100, 1700, "quick: 0.25 s each"),
            span(2000, 3600, "slow: 0.9 s each"),
            span(4700, 6200, "one is lost until its lease ends"),
        ],
        rows: vec![plain("4 permits", "lease: 1500ms", Body::Permits(stays), tally)],
    })
}

fn soft() -> Drawn {
    let end = 6 * SECOND;
    let pairs = |from, to| paced(from, to, 100).into_iter().flat_map(|at| [at, at]);
    let traffic: Vec<Millis> = pairs(100, 3900).chain(pairs(5000, 6000)).collect();
    let row = |name, note, limit: &str| {
        Ok::<Row, Box<dyn Error>>(with_rolling(decided(name, note, limit, &traffic)?, end, 20))
    };
    Ok(Picture {
        file: "soft.svg",
        title: "Soft limit: above the limit for a while",
        subtitle: "10 per second; the soft ones may be exceeded by 40%, for 1.5 s. The curve counts what passed in the second before each moment.",
        end,
        spans: vec![span(100, 3800, "20 per second"), span(5000, 5900, "after a rest")],
        rows: vec![
            row("sliding window log", "hard", "sliding_window_log 10/1s")?,
            row(
                "sliding window log",
                "soft",
                "sliding_window_log 10/1s soft_over_bp=4000 soft_for=1500ms",
            )?,
            row("token bucket", "soft", "token_bucket 10/1s soft_over_bp=4000 soft_for=1500ms")?,
            row("fixed window", "soft", "fixed_window 10/1s soft_over_bp=4000 soft_for=1500ms")?,
        ],
    })
}
