//! Descriptors that lead somewhere, found by asking the rules what they might have led to.

use std::collections::HashMap;

use tidegate_rules::{Descriptor, End, Entry, Found, Override, Reached, Rule, Rules, Unit};

/// How many descriptors are asked about, and of how many entries.
const ASKED_MAX: usize = 48;
const DEPTH_MAX: usize = 4;

type Owned = Vec<(String, String)>;

pub(crate) fn check(rules: &Rules) {
    let mut domains: Vec<_> = rules.domains().collect();
    domains.sort_unstable();
    let mut keys: HashMap<Vec<u8>, (&str, Owned, bool)> = HashMap::new();
    for domain in domains {
        let all = descriptors(rules, domain);
        for one in &all {
            for (key, is_plain) in check_one(rules, domain, one) {
                let this = (domain, one.clone(), is_plain);
                let known = keys.entry(key).or_insert_with(|| this.clone());
                // Only what shares a counter shares a key.
                let may_be_same = !is_plain && !known.2;
                assert!(may_be_same || *known == this, "{known:?} and {this:?}");
            }
        }
        check_all(rules, domain, &all);
    }
    let mut found = Found::new();
    rules.find("no domain\0", &[Descriptor::new(&[Entry::new("a", "b")])], &mut found);
    assert!(!found.knows_domain && found.limits.is_empty());
}

/// Descriptors in the order of their length: those that the rules name, and near misses.
fn descriptors(rules: &Rules, domain: &str) -> Vec<Owned> {
    let mut all: Vec<Owned> = vec![Vec::new()];
    let mut at = 0;
    while at < all.len() && all.len() < ASKED_MAX {
        let before = all[at].clone();
        at += 1;
        if before.len() >= DEPTH_MAX {
            break;
        }
        let mut probe = before.clone();
        probe.push(("\0".to_owned(), "\0".to_owned()));
        let explained = rules.explain(domain, &entries(&probe));
        let Some(step) = explained.steps.get(before.len()) else { continue };
        for candidate in step.taken.iter().chain(&step.others) {
            let (key, value) =
                candidate.written.split_once('=').unwrap_or((&candidate.written, ""));
            for (key, value) in [
                (key.to_owned(), value.to_owned()),
                (key.replace('*', "x"), value.replace('*', "_é")),
                (key.to_owned(), "other".to_owned()),
            ] {
                let mut longer = before.clone();
                longer.push((key, value));
                if !all.contains(&longer) {
                    all.push(longer);
                }
            }
        }
    }
    all.truncate(ASKED_MAX);
    all
}

fn entries(owned: &Owned) -> Vec<Entry<'_>> {
    owned.iter().map(|(key, value)| Entry::new(key, value)).collect()
}

/// Asks about one descriptor in several ways. Gives the keys, and whether they are of one
/// descriptor alone.
fn check_one(rules: &Rules, domain: &str, owned: &Owned) -> Vec<(Vec<u8>, bool)> {
    let entries = entries(owned);
    let asked = [Descriptor::new(&entries)];
    let (mut found, mut again) = (Found::new(), Found::new());
    rules.find(domain, &asked, &mut found);
    // One that was used before.
    rules.find("no domain\0", &asked, &mut again);
    rules.find(domain, &asked, &mut again);
    let met = |found: &Found<'_>| -> Vec<_> {
        let key = |met| found.key(met).to_vec();
        found.limits.iter().map(|met| (met.index, met.descriptor, key(met))).collect()
    };
    assert_eq!(met(&found), met(&again));
    assert_eq!(found.reached, again.reached);
    for met in &found.limits {
        assert!(std::ptr::eq(met.rule, &rules.all()[met.index as usize]));
    }

    let explained = rules.explain(domain, &entries);
    let (reached, wanted) = match &explained.end {
        End::Limits(limits) => {
            let met = limits.iter().filter(|limit| limit.left_out.is_none());
            (Reached::Limits, without_replaced(met.map(|limit| limit.rule).collect()))
        }
        End::Unlimited(_) => (Reached::Unlimited, Vec::new()),
        _ => (Reached::Nothing, Vec::new()),
    };
    assert_eq!(found.reached[..], [reached], "{owned:?}");
    let counters: Vec<_> = found.limits.iter().map(|met| &*met.rule.counter).collect();
    let wanted: Vec<_> = wanted.iter().map(|rule| &*rule.counter).collect();
    assert_eq!(counters, wanted, "{owned:?}");
    let has_stats = rules.stats_key(domain, &found, 0, &entries).is_some();
    assert_eq!(has_stats, found.reached[0] != Reached::Nothing);
    let _ = rules.metadata(&found, 0);

    let plain = plain_key(domain, owned);
    let keys = found.limits.iter().map(|met| {
        let key = found.key(met).to_vec();
        let is_plain = key == plain;
        assert!(is_plain || key.contains(&b'~'), "{owned:?}");
        (key, is_plain)
    });
    keys.collect()
}

fn without_replaced(rules: Vec<&Rule>) -> Vec<&Rule> {
    let replaced = |rule: &Rule| {
        let names = rules.iter().flat_map(|other| &other.replaces);
        names.into_iter().any(|name| rule.name.as_ref() == Some(name))
    };
    rules.iter().copied().filter(|rule| !replaced(rule)).collect()
}

/// The key of a descriptor that shares its counter with no other.
fn plain_key(domain: &str, owned: &Owned) -> Vec<u8> {
    let part = |text: &str| format!("{}:{text}", text.len());
    let entries = owned.iter().map(|(key, value)| format!(",{}={}", part(key), part(value)));
    entries.fold(part(domain), |all, entry| all + &entry).into_bytes()
}

/// Asks about all at once, some of which bring a limit along.
fn check_all(rules: &Rules, domain: &str, all: &[Owned]) {
    let entries: Vec<_> = all.iter().map(entries).collect();
    let limit = Override { requests_per_unit: 1, unit: Unit::Day };
    let asked = entries.iter().enumerate().map(|(at, entries)| Descriptor {
        limit: (at % 5 == 4).then_some(limit),
        ..Descriptor::new(entries)
    });
    let asked: Vec<_> = asked.collect();
    let mut found = Found::new();
    rules.find(domain, &asked, &mut found);
    assert_eq!(found.reached.len(), asked.len());
    for (at, over) in found.overrides().enumerate() {
        assert_eq!(over, asked[at].limit);
        if over.is_some() {
            assert_eq!(found.override_key(at), plain_key(domain, &all[at]));
        }
        let _ = rules.stats_key(domain, &found, at, asked[at].entries);
    }
    for met in &found.limits {
        // Together they meet what each meets alone, or less where one replaces another.
        let alone = &asked[met.descriptor as usize..][..1];
        let mut one = Found::new();
        rules.find(domain, alone, &mut one);
        let same = one.limits.iter().find(|one| one.index == met.index).expect("met alone too");
        assert_eq!(one.key(same), found.key(met));
    }
}
