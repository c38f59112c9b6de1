//! Why a descriptor meets the limits it meets, and not the others.

use crate::glob;
use crate::matching::Entry;
use crate::rule::{Origin, Rule};
use crate::rules::Rules;
use crate::tree::{How, Limits, Node, Tree};

/// How many rules are listed that were not taken at a step.
const OTHERS_MAX: usize = 12;

/// The way of a descriptor through the rules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation<'r> {
    /// What each entry led to, as far as it went.
    pub steps: Vec<Step>,
    /// What was at the end.
    pub end: End<'r>,
}

/// What one entry led to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The entry's key.
    pub key: String,
    /// The entry's value.
    pub value: String,
    /// The rule that was taken, with the reason.
    pub taken: Option<Candidate>,
    /// Rules that were not, with the reasons: those for the same key, or any where none is.
    pub others: Vec<Candidate>,
    /// How many more there are.
    pub more: usize,
}

/// A descriptor of the rules that an entry might have led to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// As it is written: `user=7`, `user` for any value.
    pub written: String,
    /// Why it was taken or not.
    pub why: String,
    /// Where it is written.
    pub origin: Origin,
}

/// What a descriptor came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum End<'r> {
    /// The rules do not know the domain.
    NoDomain,
    /// No rule for one of the entries.
    NoRule,
    /// A rule without a limit. The keys are those of the rules below it.
    NoLimit {
        /// How the next entry of a descriptor would have to begin.
        below: Vec<String>,
    },
    /// A rule that says there is no limit.
    Unlimited(&'r str),
    /// Limits.
    Limits(Vec<LimitAtEnd<'r>>),
}

/// A limit at the end of the way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitAtEnd<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// Why the request does not meet it, if it does not.
    pub left_out: Option<&'static str>,
}

impl Rules {
    /// Explains where a descriptor leads. Slow: it looks at every rule.
    pub fn explain(&self, domain: &str, entries: &[Entry<'_>]) -> Explanation<'_> {
        let Some(root) = self.root_of(domain) else {
            return Explanation { steps: Vec::new(), end: End::NoDomain };
        };
        let tree = self.tree();
        let (mut steps, mut node) = (Vec::new(), root);
        for entry in entries {
            let next = tree.step(&tree.stop(node), entry.key, entry.value);
            let next = next.map(|(stop, how)| (stop.node, how));
            steps.push(explain_step(tree, node, entry, next));
            match next {
                Some((child, _)) => node = child,
                None => return Explanation { steps, end: End::NoRule },
            }
        }
        let end =
            if entries.is_empty() { End::NoRule } else { self.explain_end(domain, node, entries) };
        Explanation { steps, end }
    }

    fn explain_end(&self, domain: &str, node: u32, entries: &[Entry<'_>]) -> End<'_> {
        let tree = self.tree();
        match tree.node(node).limits {
            Limits::None => {
                let mut below: Vec<String> = tree
                    .children(node)
                    .map(|child| tree.key(tree.node(child)).to_owned())
                    .collect();
                below.sort_unstable();
                below.dedup();
                below.truncate(OTHERS_MAX);
                End::NoLimit { below }
            }
            Limits::Unlimited(rule) => End::Unlimited(&tree.unlimited[rule as usize].id),
            limits @ Limits::Some { .. } => {
                let key = self.key_of(domain, node, entries);
                let rules = tree.rules[limits.range()].iter();
                End::Limits(
                    rules
                        .map(|rule| LimitAtEnd { rule, left_out: left_out(rule, entries, &key) })
                        .collect(),
                )
            }
        }
    }
}

fn left_out(rule: &Rule, entries: &[Entry<'_>], key: &[u8]) -> Option<&'static str> {
    let exempt = rule.exempt.as_ref().zip(entries.last());
    if !rule.enabled {
        Some("it is turned off (`enabled: false`)")
    } else if exempt.is_some_and(|(exempt, last)| exempt.contains(last.value, last.address)) {
        Some("the last entry is exempt")
    } else if !rule.covers(key) {
        Some("the key is not in the share that `percent` gives")
    } else {
        None
    }
}

fn explain_step(tree: &Tree, parent: u32, entry: &Entry<'_>, next: Option<(u32, How)>) -> Step {
    let taken = next.map(|(node, how)| {
        let why = match how {
            How::Value => "the value is the same",
            How::Pattern => "the first pattern that matches",
            How::Key => "for all values that no other rule is for",
        };
        candidate(tree, node, why)
    });
    let mut others: Vec<u32> =
        tree.children(parent).filter(|child| next.is_none_or(|(node, _)| node != *child)).collect();
    let count = others.len();
    let is_near = |child: &u32| glob::matches(tree.key(tree.node(*child)), entry.key);
    if taken.is_some() || others.iter().any(is_near) {
        others.retain(is_near);
    }
    others.truncate(OTHERS_MAX);
    let more = count - others.len();
    let how = next.map(|(_, how)| how);
    let others = others
        .into_iter()
        .map(|child| candidate(tree, child, &why_not(tree, tree.node(child), entry, how)));
    Step {
        key: entry.key.to_owned(),
        value: entry.value.to_owned(),
        taken,
        others: others.collect(),
        more,
    }
}

fn candidate(tree: &Tree, node: u32, why: &str) -> Candidate {
    let (node, origin) = (tree.node(node), tree.origin(node));
    let written = match tree.value(node) {
        Some(value) => format!("{}={value}", tree.key(node)),
        None => tree.key(node).to_owned(),
    };
    Candidate { written, why: why.to_owned(), origin }
}

fn why_not(tree: &Tree, node: &Node, entry: &Entry<'_>, how: Option<How>) -> String {
    let key = tree.key(node);
    if !glob::matches(key, entry.key) {
        return format!("the key is `{}`, not `{key}`", entry.key);
    }
    match (tree.value(node), how) {
        (Some(value), _) if !glob::matches(value, entry.value) => match glob::is_pattern(value) {
            true => format!("`{}` does not match `{value}`", entry.value),
            false => format!("the value is `{}`, not `{value}`", entry.value),
        },
        (Some(_), Some(How::Value)) => "a rule for exactly this value goes first".to_owned(),
        (Some(_), _) => "an earlier pattern matches too".to_owned(),
        (None, _) => "a rule for the value goes first".to_owned(),
    }
}
