//! Entries of an `http` section that surely were not meant so.

use super::entry::{DescriptorTemplate, EntryTemplate, HttpEntry};
use crate::diagnostic::{At, Findings, Path, list, nearest};
use crate::draft::{DescriptorDraft, DomainDraft, LimitsDraft};
use crate::glob;
use crate::rules::{File, Options};

/// How many descriptors are compared with how many rules, one by one: the product of both.
const COMPARED_MAX: usize = 20_000_000;
/// Among how many keys the one that was probably meant is looked for.
const SUGGESTED_FROM_MAX: usize = 1000;

/// Warns of entries that are never reached, and of descriptors that lead to no rule.
pub(crate) fn warn<'t>(
    domain: &DomainDraft,
    files: &[File<'t>],
    options: &Options,
    findings: &mut Findings<'t>,
) {
    // What leads to a rule with errors would seem to lead to none.
    if !findings.report.is_ok() {
        return;
    }
    let templates = domain.http.iter().map(|entry| entry.descriptors.len()).sum::<usize>();
    let is_compared = templates.saturating_mul(count(&domain.descriptors)) <= COMPARED_MAX;
    let mut last: Option<&HttpEntry> = None;
    for entry in &domain.http {
        let file = files[entry.origin.file as usize];
        findings.enter(file.name, file.text);
        let root = Path::ROOT.key("http");
        let path = root.index(entry.position);
        if let Some(last) = last {
            let hint = format!(
                "the entry in {}:{} is final and matches every request",
                files[last.origin.file as usize].name, last.origin.place.line
            );
            let at = At::new(entry.origin.place, &path).hint(hint);
            findings.warn(at, "this entry is never reached");
            continue;
        }
        for template in entry.descriptors.iter().filter(|_| is_compared) {
            let Some(why) = why_nowhere(domain, template, options.lyft_compat) else { continue };
            let path = path.key("descriptors");
            let path = path.index(template.position);
            let at = At::new(template.origin.place, &path).hint(why);
            findings.warn(at, "this descriptor leads to no rule of the domain");
        }
        if entry.is_final && entry.conditions.are_none() {
            last = Some(entry);
        }
    }
}

fn count(drafts: &[DescriptorDraft]) -> usize {
    drafts.iter().map(|draft| 1 + count(&draft.children)).sum()
}

/// Why a descriptor can lead to no rule; nothing, if it can.
fn why_nowhere(
    domain: &DomainDraft,
    template: &DescriptorTemplate,
    joined: bool,
) -> Option<String> {
    let mut reached: Vec<&[DescriptorDraft]> = vec![&domain.descriptors];
    let mut ends: Vec<&DescriptorDraft> = Vec::new();
    for (position, entry) in template.entries.iter().enumerate() {
        ends = reached.iter().flat_map(|children| steps(children, entry, joined)).collect();
        if ends.is_empty() {
            return Some(why_no_step(&reached, entry, position, template));
        }
        reached = ends.iter().map(|draft| &*draft.children).collect();
    }
    if ends.iter().any(|draft| !matches!(draft.limits, LimitsDraft::None)) {
        return None;
    }
    let next = words(&reached, |draft| &draft.key);
    Some(match next.is_empty() {
        true => "the rules know it but set no limit".to_owned(),
        false => format!("the rules go on with {}", list(&next)),
    })
}

fn why_no_step(
    reached: &[&[DescriptorDraft]],
    entry: &EntryTemplate,
    position: usize,
    template: &DescriptorTemplate,
) -> String {
    let key = &*entry.key;
    let keys = words(reached, |draft| &draft.key);
    let after = match position.checked_sub(1) {
        Some(before) => format!(" after `{}`", template.entries[before].key),
        None => String::new(),
    };
    if keys.contains(&key) {
        let value = entry.value.literal().unwrap_or_default();
        return format!("no rule{after} has the key `{key}` with the value `{value}`");
    }
    let candidates: &[&str] = if keys.len() <= SUGGESTED_FROM_MAX { &keys } else { &[] };
    let known = match nearest(key, candidates.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if keys.is_empty() || keys.len() > 12 => String::new(),
        None => format!("; there are {}", list(&keys)),
    };
    format!("no rule{after} has the key `{key}`{known}")
}

fn words<'d>(
    reached: &[&'d [DescriptorDraft]],
    word: impl Fn(&'d DescriptorDraft) -> &'d str,
) -> Vec<&'d str> {
    let mut words: Vec<&str> = reached.iter().copied().flatten().map(word).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Where an entry may lead. A literal leads where matching a request would; a value with variables
/// may be anything.
fn steps<'d>(
    children: &'d [DescriptorDraft],
    entry: &EntryTemplate,
    joined: bool,
) -> Vec<&'d DescriptorDraft> {
    let is_pattern = |draft: &DescriptorDraft| {
        glob::is_pattern(&draft.key) || draft.value.as_deref().is_some_and(glob::is_pattern)
    };
    let key = &*entry.key;
    let Some(value) = entry.value.literal() else {
        let may_match = |draft: &&DescriptorDraft| match joined {
            // A pattern over `key_value` may begin with any part of the key.
            true => *draft.key == *key || is_pattern(draft),
            false => glob::matches(&draft.key, key),
        };
        return children.iter().filter(may_match).collect();
    };
    let exact = |draft: &&DescriptorDraft| {
        *draft.key == *key && draft.value.as_deref().is_some_and(|it| it == value)
    };
    let by_pattern = |draft: &&DescriptorDraft| {
        is_pattern(draft)
            && match (joined, &draft.value) {
                (false, None) => glob::matches(&draft.key, key),
                (false, Some(pattern)) => {
                    glob::matches(&draft.key, key) && glob::matches(pattern, value)
                }
                (true, None) => glob::matches(&draft.key, &format!("{key}_{value}")),
                (true, Some(pattern)) => {
                    glob::matches(&format!("{}_{pattern}", draft.key), &format!("{key}_{value}"))
                }
            }
    };
    let by_key = |draft: &&DescriptorDraft| *draft.key == *key && draft.value.is_none();
    let found = children.iter().find(exact);
    let found = found.or_else(|| children.iter().find(by_pattern));
    found.or_else(|| children.iter().find(by_key)).into_iter().collect()
}
