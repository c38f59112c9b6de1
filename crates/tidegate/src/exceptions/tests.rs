use tidegate_core::Retry;
use tidegate_rules::{File, Options, Rules, Unit};
use tidegate_store::{MemoryStore, Op};

use super::*;
use crate::{ManualClock, Modes, RuleLimiter, Verdict};

type Limiter = RuleLimiter<MemoryStore, ManualClock>;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 3, unit: day } }
  - { key: ip, rate_limit: { requests_per_unit: 3, unit: day } }
  - { key: job, rate_limit: { requests_per_unit: 1, algorithm: concurrency } }
";

fn limiter() -> (Limiter, ManualClock) {
    let loaded = Rules::load(&[File { name: "d.yaml", text: RULES }], &Options::default());
    let clock = ManualClock::new();
    let rules = loaded.rules.unwrap();
    let limiter = RuleLimiter::build(MemoryStore::new(), clock.clone(), rules, Modes::default());
    (limiter.unwrap(), clock)
}

fn ask(limiter: &Limiter, op: Op<'_>, keys: &[(&str, &str)]) -> Verdict {
    let entries: Vec<_> = keys.iter().map(|(key, value)| [Entry::new(key, value)]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    limiter.ask(op, &Query::new("d", &descriptors).holder(7))
}

fn remaining(limiter: &Limiter, key: (&str, &str)) -> u64 {
    ask(limiter, Op::Peek, &[key]).decision.unwrap().remaining
}

const ADA: [Entry<'static>; 1] = [Entry { key: "user", value: "ada", address: None }];
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_blocked_key_is_refused_until_the_block_ends_to_the_nanosecond() {
    let (limiter, clock) = limiter();
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    clock.advance(Duration::from_secs(600));
    let refused = ask(&limiter, Op::Check, &[("user", "ada")]);
    assert!(!refused.allowed);
    assert_eq!(refused.decision.unwrap().retry, Retry::After(Duration::from_secs(3000)));
    let json = refused.to_json();
    assert!(
        json.starts_with(
            "{\"allowed\":false,\"limits\":[{\"rule\":\"block\",\"allowed\":false,\"limit\":0,\
             \"remaining\":0,\"retry_after_ns\":3000000000000,\"reset_after_ns\":3000000000000,\
             \"delay_ns\":0,\"soft\":false,\"shadow\":false,\"descriptor\":0},\
             {\"rule\":\"d.user\",\"allowed\":true,\"limit\":3,\"remaining\":2,"
        ),
        "{json}"
    );
    // Others are not meant, and somebody else's descriptor with the same value is not either.
    assert!(ask(&limiter, Op::Check, &[("user", "bob")]).allowed);
    assert!(ask(&limiter, Op::Check, &[("ip", "ada")]).allowed);
    clock.advance(Duration::from_secs(3000) - Duration::from_nanos(1));
    assert!(!ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    clock.advance(Duration::from_nanos(1));
    // What was used before is kept, and what was refused has used nothing.
    assert_eq!(remaining(&limiter, ("user", "ada")), 2);
    // Nobody has to look for exceptions any more.
    assert!(limiter.exceptions().is_empty());
}

#[test]
fn a_request_with_a_blocked_key_consumes_from_none() {
    let (limiter, _) = limiter();
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    let refused = ask(&limiter, Op::Check, &[("ip", "x"), ("user", "ada")]);
    assert!(!refused.allowed);
    assert_eq!(refused.granted, 0);
    assert_eq!(refused.limits.iter().map(|it| it.descriptor).collect::<Vec<_>>(), [0, 1, 1]);
    assert!(refused.reported().unwrap().is_block());
    assert_eq!(remaining(&limiter, ("ip", "x")), 3);
    let none = ask(&limiter, Op::UpTo, &[("user", "ada")]);
    assert_eq!((none.allowed, none.granted), (false, 0));
}

#[test]
fn another_limit_stands_in_for_a_while() {
    let (limiter, clock) = limiter();
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    let limit = Override { requests_per_unit: 1, unit: Unit::Hour };
    limiter.except("d", &ADA, Exception::Limit(limit), HOUR).unwrap();
    let first = ask(&limiter, Op::Check, &[("user", "ada")]);
    assert_eq!(first.rule_id(&first.limits[0]), "override.1_per_hour");
    assert!(first.allowed);
    assert!(!ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    let more = Override { requests_per_unit: 5, unit: Unit::Hour };
    limiter.except("d", &ADA, Exception::Limit(more), HOUR).unwrap();
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    clock.advance(HOUR);
    assert_eq!(remaining(&limiter, ("user", "ada")), 2);
}

#[test]
fn exceptions_are_listed_and_lifted_each_by_itself() {
    let (limiter, clock) = limiter();
    let limit = Override { requests_per_unit: 1, unit: Unit::Hour };
    limiter.except("d", &ADA, Exception::Limit(limit), HOUR * 2).unwrap();
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    clock.advance(HOUR / 2);
    let listed = limiter.exceptions();
    assert_eq!(listed, limiter.exceptions_of("d", &ADA));
    assert_eq!(listed[0].exception, Exception::Block);
    assert_eq!(listed[0].rest, HOUR / 2);
    assert_eq!(listed[0].entries, [("user".to_owned(), "ada".to_owned())]);
    assert!(limiter.lift("d", &ADA, ExceptionKind::Block));
    assert!(!limiter.lift("d", &ADA, ExceptionKind::Block));
    assert_eq!(limiter.exceptions().len(), 1);
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    clock.advance(HOUR * 2);
    assert_eq!(limiter.exceptions(), []);
    assert!(!limiter.lift("d", &ADA, ExceptionKind::Limit));
}

#[test]
fn there_is_a_bound_and_what_has_ended_makes_room() {
    let (limiter, clock) = limiter();
    for number in 0..EXCEPTIONS_MAX {
        let name = number.to_string();
        let entries = [Entry::new("user", &name)];
        limiter.except("d", &entries, Exception::Block, HOUR).unwrap();
    }
    let full = limiter.except("d", &ADA, Exception::Block, HOUR);
    assert_eq!(full, Err(ExceptionError::TooMany { max: EXCEPTIONS_MAX }));
    // One that is there can be changed all the same.
    let known = [Entry::new("user", "7")];
    limiter.except("d", &known, Exception::Block, HOUR * 2).unwrap();
    clock.advance(HOUR);
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    assert_eq!(limiter.exceptions().len(), 2);
}

#[test]
fn what_is_held_can_be_given_back_while_blocked() {
    let (limiter, _) = limiter();
    let job = [Entry::new("job", "j")];
    assert!(ask(&limiter, Op::Check, &[("job", "j")]).allowed);
    limiter.except("d", &job, Exception::Block, HOUR).unwrap();
    let descriptors = [Descriptor::new(&job)];
    let _ = limiter.release_at(&Query::new("d", &descriptors).holder(7), limiter.now());
    limiter.lift("d", &job, ExceptionKind::Block);
    assert!(ask(&limiter, Op::Check, &[("job", "j")]).allowed);
}

#[test]
fn a_reset_forgets_also_what_was_used_before_the_exception() {
    let (limiter, _) = limiter();
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    let limit = Override { requests_per_unit: 1, unit: Unit::Hour };
    limiter.except("d", &ADA, Exception::Limit(limit), HOUR).unwrap();
    assert!(ask(&limiter, Op::Check, &[("user", "ada")]).allowed);
    ask(&limiter, Op::Reset, &[("user", "ada")]);
    assert_eq!(remaining(&limiter, ("user", "ada")), 1);
    limiter.lift("d", &ADA, ExceptionKind::Limit);
    assert_eq!(remaining(&limiter, ("user", "ada")), 3);
}

#[test]
fn reservations_are_settled_at_their_real_cost() {
    let (limiter, clock) = limiter();
    let descriptors = [Descriptor::new(&ADA)];
    let query = Query::new("d", &descriptors).cost(3);
    let minute = Duration::from_secs(60);
    let reserve = |id| limiter.reserve_at(&query, id, minute, limiter.now()).unwrap();
    assert!(reserve(1).allowed);
    assert!(reserve(1).allowed, "the same id reserves once");
    assert!(!reserve(2).allowed);
    assert!(limiter.settle_at(1, 1, limiter.now()).unwrap());
    assert_eq!(remaining(&limiter, ("user", "ada")), 2);
    assert!(!limiter.settle_at(1, 1, limiter.now()).unwrap());
    assert!(!limiter.settle_at(2, 0, limiter.now()).unwrap(), "a refused one is none");
    // Past its time it stays consumed.
    let query = query.cost(2);
    assert!(limiter.reserve_at(&query, 3, minute, limiter.now()).unwrap().allowed);
    clock.advance(minute);
    assert!(!limiter.settle_at(3, 0, limiter.now()).unwrap());
    assert_eq!(remaining(&limiter, ("user", "ada")), 0);
    // A blocked key reserves nothing.
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    let blocked = limiter.reserve_at(&query.cost(0), 4, minute, limiter.now()).unwrap();
    assert!(!blocked.allowed);
    assert!(!limiter.settle_at(4, 0, limiter.now()).unwrap());
}

#[tokio::test]
async fn asked_without_blocking_it_is_the_same() {
    let (limiter, _) = limiter();
    limiter.except("d", &ADA, Exception::Block, HOUR).unwrap();
    let descriptors = [Descriptor::new(&ADA)];
    let query = Query::new("d", &descriptors);
    let asked = limiter.ask_async(Op::Check, &query).await.unwrap();
    assert_eq!(asked.to_json(), limiter.ask(Op::Check, &query).to_json());
    assert!(!asked.allowed);
    limiter.lift("d", &ADA, ExceptionKind::Block);
    assert!(limiter.ask_async(Op::Check, &query).await.unwrap().allowed);
    assert_eq!(remaining(&limiter, ("user", "ada")), 2);
}

#[test]
fn all_can_be_replaced_at_once() {
    let (exceptions, now) = (Exceptions::default(), Timestamp::from_secs(1000));
    let ada = [Entry::new("user", "ada")];
    exceptions.set("api", &ada, Exception::Block, now + Duration::from_secs(50), now).unwrap();
    let bob = Excepted {
        domain: "api".into(),
        entries: vec![("user".into(), "bob".into())],
        exception: Exception::Block,
        rest: Duration::from_secs(5),
    };
    exceptions.replace(vec![bob.clone()], now);
    assert_eq!(exceptions.list(now), [bob]);
    assert!(exceptions.may_be_any(now + Duration::from_secs(4)));
    assert!(!exceptions.may_be_any(now + Duration::from_secs(5)));
    exceptions.replace(Vec::new(), now);
    assert!(!exceptions.may_be_any(now));
}
