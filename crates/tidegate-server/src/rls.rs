//! Envoy's question and its answer, for all front ends that speak of limits in these words.

mod metadata;

use smallvec::SmallVec;
use tidegate::rules::{Descriptor, Entry, Override, Reached, Unit};
use tidegate::{Answered, DESCRIPTORS_MAX, Op, Query, Verdict, lyft};
use tidegate_proto::{
    Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, RateLimitUnit, Unit as WireUnit,
};

use crate::config::{Config, HeaderNames};
use crate::front_end::FrontEnd;
use crate::service::Service;
use crate::stores::StoreError;

/// Why a question cannot be answered. The first two are in Lyft's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RlsError {
    #[error("rate limit domain must not be empty")]
    NoDomain,
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error(
        "rate limit descriptor list must not have more than {DESCRIPTORS_MAX} descriptors: it has {0}"
    )]
    ManyDescriptors(usize),
    #[error("rate limit descriptor must not be empty: descriptors[{0}] has no entries")]
    NoEntries(usize),
    #[error(
        "rate limit override of descriptors[{position}] has no known unit: {unit} is none of \
         SECOND, MINUTE, HOUR, DAY, MONTH, YEAR"
    )]
    Unit { position: usize, unit: String },
    #[error("the store of the limits has no answer: {0}")]
    Store(#[from] StoreError),
}

/// An answer in Envoy's words.
pub(crate) struct Answer {
    pub(crate) response: RateLimitResponse,
    /// Whether it refuses because the store had no answer. Envoy's protocol has no word for that.
    pub(crate) is_unanswered: bool,
}

/// Entries of a request, one after the other; few requests have more.
type Entries<'a> = SmallVec<[Entry<'a>; 8]>;
type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// Decides a request and says so in Envoy's words.
///
/// Descriptors with negative hits are given back, all others are taken, all or nothing. A request
/// with both is two, one after the other: what it gives back is given back first, and stays so
/// when the rest is refused.
pub(crate) async fn answer(
    service: &Service,
    config: &Config,
    front_end: FrontEnd,
    request: &RateLimitRequest,
) -> Result<Answer, RlsError> {
    let bad = |error| {
        service.metrics().bad_request(front_end);
        error
    };
    check(request).map_err(bad)?;
    let entries: Entries<'_> = request
        .descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.entries)
        .map(|entry| Entry::new(&entry.key, &entry.value))
        .collect();
    let descriptors = descriptors(request, &entries).map_err(bad)?;
    let decided = decide(service, front_end, request, &descriptors).await?;
    let is_unanswered = decided.verdict.is_unanswered();
    let response = render(service, config, request, &descriptors, &decided);
    Ok(Answer { response, is_unanswered })
}

fn check(request: &RateLimitRequest) -> Result<(), RlsError> {
    if request.domain.is_empty() {
        return Err(RlsError::NoDomain);
    }
    match request.descriptors.len() {
        0 => Err(RlsError::NoDescriptors),
        1..=DESCRIPTORS_MAX => Ok(()),
        more => Err(RlsError::ManyDescriptors(more)),
    }
}

fn descriptors<'a>(
    request: &RateLimitRequest,
    entries: &'a [Entry<'a>],
) -> Result<Descriptors<'a>, RlsError> {
    let mut rest = entries;
    let each = request.descriptors.iter().enumerate();
    each.map(|(position, descriptor)| {
        let (entries, others) = rest.split_at(descriptor.entries.len());
        rest = others;
        if entries.is_empty() {
            return Err(RlsError::NoEntries(position));
        }
        let limit = descriptor.limit.as_ref().map(|limit| override_of(limit, position));
        Ok(Descriptor { entries, cost: descriptor.hits_addend, limit: limit.transpose()? })
    })
    .collect()
}

fn override_of(limit: &RateLimitOverride, position: usize) -> Result<Override, RlsError> {
    let unit = match RateLimitUnit::try_from(limit.unit) {
        Ok(RateLimitUnit::Second) => Unit::Second,
        Ok(RateLimitUnit::Minute) => Unit::Minute,
        Ok(RateLimitUnit::Hour) => Unit::Hour,
        Ok(RateLimitUnit::Day) => Unit::Day,
        Ok(RateLimitUnit::Month) => Unit::Month,
        Ok(RateLimitUnit::Year) => Unit::Year,
        Ok(RateLimitUnit::Unknown) => {
            return Err(RlsError::Unit { position, unit: "UNKNOWN".into() });
        }
        Err(_) => return Err(RlsError::Unit { position, unit: limit.unit.to_string() }),
    };
    Ok(Override { requests_per_unit: limit.requests_per_unit, unit })
}

/// What was decided.
struct Decided {
    /// About all of the request; about what it takes, if it also gives back.
    verdict: Verdict,
    /// About what it gives back, if it also takes.
    given: Option<Box<Verdict>>,
}

async fn decide(
    service: &Service,
    front_end: FrontEnd,
    request: &RateLimitRequest,
    descriptors: &[Descriptor<'_>],
) -> Result<Decided, StoreError> {
    let cost = u64::from(request.hits_addend.max(1));
    let query = Query::new(&request.domain, descriptors).cost(cost);
    let negative = request.descriptors.iter().filter(|it| it.is_negative_hits).count();
    if negative == 0 || negative == descriptors.len() {
        let op = if negative == 0 { Op::Check } else { Op::Refund };
        return Ok(Decided { verdict: service.ask(front_end, op, &query).await?, given: None });
    }
    let those = |negative: bool| -> Descriptors<'_> {
        let all = request.descriptors.iter().zip(descriptors);
        all.filter(|(asked, _)| asked.is_negative_hits == negative).map(|(_, it)| *it).collect()
    };
    let (given, taken) = (those(true), those(false));
    let given = Query { descriptors: &given, ..query };
    let given = service.ask(front_end, Op::Refund, &given).await?;
    let taken = Query { descriptors: &taken, ..query };
    let verdict = service.ask(front_end, Op::Check, &taken).await?;
    Ok(Decided { verdict, given: Some(Box::new(given)) })
}

impl Decided {
    /// What became of each descriptor, in their order.
    fn each<'a>(&'a self, asked: &'a [RateLimitDescriptor]) -> impl Iterator<Item = Place<'a>> {
        let reported =
            |verdict: &'a Verdict| verdict.reported_each().into_iter().zip(&verdict.reached);
        let mut taken = reported(&self.verdict);
        let mut given = self.given.as_deref().map(reported);
        asked.iter().filter_map(move |asked| {
            let (verdict, places) = match (&self.given, &mut given) {
                (Some(verdict), Some(places)) if asked.is_negative_hits => (&**verdict, places),
                _ => (&self.verdict, &mut taken),
            };
            let (answered, reached) = places.next()?;
            Some(Place { asked, verdict, answered, reached })
        })
    }
}

/// A descriptor of the request and what became of it.
struct Place<'a> {
    asked: &'a RateLimitDescriptor,
    verdict: &'a Verdict,
    /// The limit to report, if one was met.
    answered: Option<&'a Answered>,
    reached: &'a Reached,
}

/// A limit that a status speaks of.
struct Told<'v> {
    verdict: &'v Verdict,
    answered: &'v Answered,
    is_over: bool,
    is_quota: bool,
}

fn render(
    service: &Service,
    config: &Config,
    request: &RateLimitRequest,
    descriptors: &[Descriptor<'_>],
    decided: &Decided,
) -> RateLimitResponse {
    let is_quota = service.limits().modes().quota;
    let mut statuses = Vec::with_capacity(request.descriptors.len());
    let mut all_told: SmallVec<[Told<'_>; 4]> = SmallVec::new();
    for Place { asked, verdict, answered, reached } in decided.each(&request.descriptors) {
        let told = answered.map(|answered| {
            let rule = verdict.rule(answered);
            let watches = rule.is_some_and(|rule| rule.shadow);
            // Nobody is over a limit for giving back.
            let is_over = !answered.decision.allowed && !watches && !asked.is_negative_hits;
            let is_quota = is_quota || rule.is_some_and(|rule| rule.quota);
            Told { verdict, answered, is_over, is_quota }
        });
        statuses.push(match &told {
            Some(told) => status(told),
            None => unlimited(reached),
        });
        all_told.extend(told);
    }
    let gives_back = request.descriptors.iter().all(|descriptor| descriptor.is_negative_hits);
    let allowed = gives_back || decided.verdict.allowed;
    let mut response = RateLimitResponse {
        overall_code: code(!allowed),
        statuses,
        ..RateLimitResponse::default()
    };
    if let Some(names) = &config.response_headers {
        response.response_headers_to_add = headers(names, &all_told);
        let wait = Some(&decided.verdict).filter(|_| !allowed).and_then(lyft::retry_after);
        response.response_headers_to_add.extend(wait.map(|wait| header("Retry-After", wait)));
    }
    if config.dynamic_metadata {
        let rules = decided.verdict.rules();
        let passed = |position: usize| response.statuses[position].code == code(false);
        response.dynamic_metadata = Some(metadata::describe(request, descriptors, rules, passed));
    }
    response
}

fn code(is_over: bool) -> i32 {
    match is_over {
        true => Code::OverLimit.into(),
        false => Code::Ok.into(),
    }
}

/// The status of a descriptor that met a limit.
fn status(told: &Told<'_>) -> DescriptorStatus {
    let Told { verdict, answered, is_over, .. } = *told;
    let seconds = lyft::seconds_until_reset(verdict, answered);
    DescriptorStatus {
        code: code(is_over),
        current_limit: Some(current_limit(verdict, answered)),
        limit_remaining: u32::try_from(answered.decision.remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(prost_types::Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        quota: None,
    }
}

/// The status of a descriptor that met none.
fn unlimited(reached: &Reached) -> DescriptorStatus {
    let is_unlimited = *reached == Reached::Unlimited;
    DescriptorStatus {
        code: code(false),
        limit_remaining: if is_unlimited { u32::MAX } else { 0 },
        ..DescriptorStatus::default()
    }
}

/// The limit as the rules or the request have it.
fn current_limit(verdict: &Verdict, answered: &Answered) -> RateLimit {
    let (requests_per_unit, unit, name) = match verdict.rule(answered) {
        Some(rule) => (rule.requests_per_unit, rule.unit, rule.name.as_deref()),
        None => match verdict.override_of(answered) {
            Some(limit) => (limit.requests_per_unit, Some(limit.unit), None),
            None => (0, None, None),
        },
    };
    RateLimit {
        name: name.unwrap_or_default().to_owned(),
        requests_per_unit,
        unit: wire_unit(unit).into(),
    }
}

fn wire_unit(unit: Option<Unit>) -> WireUnit {
    match unit {
        None => WireUnit::Unknown,
        Some(Unit::Second) => WireUnit::Second,
        Some(Unit::Minute) => WireUnit::Minute,
        Some(Unit::Hour) => WireUnit::Hour,
        Some(Unit::Day) => WireUnit::Day,
        Some(Unit::Week) => WireUnit::Week,
        Some(Unit::Month) => WireUnit::Month,
        Some(Unit::Year) => WireUnit::Year,
    }
}

/// Lyft's three headers: of the last limit that is over and no quota, otherwise of the first of
/// those with the least remaining.
fn headers(names: &HeaderNames, all: &[Told<'_>]) -> Vec<HeaderValue> {
    let over = all.iter().rev().find(|told| told.is_over && !told.is_quota);
    let least = || all.iter().min_by_key(|told| told.answered.decision.remaining);
    let Some(told) = over.or_else(least) else { return Vec::new() };
    let values = lyft::headers(told.verdict, told.answered);
    let names = [&names.limit, &names.remaining, &names.reset];
    names.into_iter().zip(values).map(|(name, value)| header(name, value)).collect()
}

fn header(name: &str, value: u64) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value: value.to_string(), raw_value: Vec::new() }
}
