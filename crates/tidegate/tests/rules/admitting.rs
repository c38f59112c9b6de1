//! Requests over HTTP that somebody sees through to their end: at once, or by waiting.

use std::time::Duration;

use tidegate::rules::{Entry, Mapped, Override, PlainRequest, Reached, Unit};
use tidegate::{
    Admission, Decision, Exception, Keep, ManualClock, MemoryStore, Modes, Query, RuleLimiter,
    Timestamp, Verdict,
};

use super::{TestLimiter, limiter, rules};

const RULES: &str = "
domain: api
http:
  - { match: { path: /login }, on_missing: deny, descriptors: [ { user: \"${header.user}\" } ] }
  - { match: { path: /paid/** }, cost_header: x-cost, descriptors: [ { paid: \"${header.user:-}\" } ] }
  - { match: { path: /slow }, descriptors: [ { slow: yes } ] }
  - { match: { path: /both }, descriptors: [ { user: \"${header.user:-}\" }, { all: yes } ] }
  - { match: { path: /odd }, descriptors: [ { nobody: knows } ] }
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket } }
  - { key: paid, rate_limit: { requests_per_unit: 9, unit: minute, algorithm: token_bucket } }
  - { key: all, rate_limit: { requests_per_unit: 5, unit: second } }
  - key: slow
    rate_limit:
      requests_per_unit: 4
      unit: second
      algorithm: leaky_bucket
      excess: delay
      queue: { size: 3, max_delay: 5s }
";

/// All that a verdict says.
type Said = (bool, u64, bool, bool, Vec<Reached>, Vec<(u32, Decision)>, Option<Decision>);

fn said(verdict: &Verdict) -> Said {
    (
        verdict.allowed,
        verdict.granted,
        verdict.knows_domain,
        verdict.denied_by.is_some(),
        verdict.reached.to_vec(),
        verdict.limits.iter().map(|it| (it.descriptor, it.decision)).collect(),
        verdict.decision,
    )
}

/// What is said of an admission, and whether it has to wait and holds something.
fn seen(admission: &Admission) -> (Said, bool, bool) {
    (said(&admission.verdict), admission.turn.is_some(), admission.held.is_some())
}

#[tokio::test]
async fn at_once_and_by_waiting_say_the_same() {
    let modes = |shadow, quota, independent| {
        let mut modes = Modes::default();
        (modes.shadow, modes.quota, modes.independent) = (shadow, quota, independent);
        modes
    };
    assert!(compare(modes(false, false, false)).await > 200);
    assert!(compare(modes(false, false, true)).await > 200);
    assert!(compare(modes(false, true, false)).await > 200);
    // Only blocks refuse, and what is missing.
    assert!(compare(modes(true, false, false)).await > 50);
}

/// Asks two limiters the same, each in its way; how many were refused.
async fn compare(modes: Modes) -> usize {
    let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
    let limiter = || RuleLimiter::build(MemoryStore::new(), clock.clone(), rules(RULES), modes);
    let (at_once, by_waiting) = (limiter().unwrap(), limiter().unwrap());
    let except = |user: &str, exception: Exception| {
        for limiter in [&at_once, &by_waiting] {
            let span = Duration::from_secs(9);
            limiter.except("api", &[Entry::new("user", user)], exception, span).unwrap();
        }
    };
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..2000u64 {
        let path =
            ["/login", "/paid/x", "/slow", "/both", "/odd", "/other"][(step * 7 % 6) as usize];
        let user = ["ada", "bob"][(step / 3 % 2) as usize];
        let headers = (step % 5 > 0).then_some(("user", user));
        let request = PlainRequest::parse("GET", path, headers, None).unwrap();
        let domain = if step % 11 == 0 { "unknown" } else { "api" };
        let query = Query::new(domain, &[]).cost(1 + step % 2);
        let keep = if step % 13 == 0 { Keep::All } else { Keep::Needed };
        match step {
            // They end some two hundred steps later.
            300 | 1300 => except("ada", Exception::Block),
            700 => except(
                "bob",
                Exception::Limit(Override { requests_per_unit: 1, unit: Unit::Minute }),
            ),
            _ => {}
        }
        let (mut shown, mut mapped) = (None, Mapped::new());
        let one =
            at_once.admit_http_at_once(&query, &request, &mut mapped, keep, |query, admission| {
                shown = Some(query.descriptors.len());
                seen(admission)
            });
        let count = mapped.descriptors().len();
        assert_eq!(shown, Some(count), "step {step}");
        let mut told = None;
        let other = by_waiting.admit_http(&query, &request, &mut mapped, keep, |query, verdict| {
            told = Some((query.descriptors.len(), said(verdict)))
        });
        let other = seen(&other.await);
        assert_eq!(one.unwrap(), other, "step {step}");
        assert_eq!(told, Some((count, other.0.clone())), "step {step}");
        // What is asked about with no descriptors is what the general way says of it.
        if count == 0 && !other.0.3 {
            let general = by_waiting.check(&query);
            assert_eq!(said(&general), other.0, "step {step}");
        }
        if other.0.0 {
            allowed += 1
        } else {
            refused += 1
        }
        clock.advance(Duration::from_millis(step * 37 % 130));
    }
    assert!(allowed > 200, "{allowed} allowed");
    refused
}

#[test]
fn rules_that_are_replaced_are_asked_at_once() {
    let limiter = limiter(RULES);
    let request = PlainRequest::parse("GET", "/both", [("user", "ada")], None).unwrap();
    let ask = |limiter: &TestLimiter| {
        let judge = |_: &Query<'_>, admission: &mut Admission| admission.verdict.limits.len();
        let mapped = &mut Mapped::new();
        limiter.admit_http_at_once(&Query::new("api", &[]), &request, mapped, Keep::Needed, judge)
    };
    assert_eq!(ask(&limiter), Some(2));
    limiter.replace(rules("domain: api")).unwrap();
    assert_eq!(ask(&limiter), Some(0));
}
