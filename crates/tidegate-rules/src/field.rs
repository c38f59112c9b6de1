//! Every field of a rules file: its place, its kind, its default and what it is for.
//!
//! One table serves three: the loader knows by it which keys may stand where, the JSON Schema and
//! the rule reference are written from it.

use tidegate_core::AlgorithmName;

/// A field that may stand in a map.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What holds when it is absent, as it would be written; empty if nothing does.
    pub(crate) default: &'static str,
    /// With what it may stand; empty for anything.
    pub(crate) with: &'static str,
    pub(crate) about: &'static str,
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A whole number up to 2^32-1, from this one on.
    Number(u64),
    Flag,
    /// `500ms`, `10s`, `5m`, `3h`, `7d`.
    Duration,
    /// A duration, or `none`.
    DurationOrNone,
    /// A share such as `20%`.
    Percent,
    OneOf(&'static [&'static str]),
    /// Another map, or a list of them.
    Map(&'static Shape),
    List(&'static Shape),
    Texts,
    /// One text or a list of them.
    TextOrTexts,
    /// Text by name.
    TextMap,
    TextMaps,
    /// Whatever the user likes.
    Free,
}

/// A map and its fields.
pub(crate) struct Shape {
    /// What it is called in the reference.
    pub(crate) title: &'static str,
    /// Where one finds it in a file.
    pub(crate) home: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Shape {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }
}

/// The keys of Lyft's format. Its service accepts each of them in every map and ignores those that
/// stand in the wrong one.
pub(crate) const LYFT: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "quota_mode",
    "metadata",
];

/// The units of time that Lyft's format knows.
pub(crate) const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

const ALGORITHMS: [&str; 8] = {
    let mut names = [""; 8];
    let mut at = 0;
    while at < names.len() {
        names[at] = AlgorithmName::ALL[at].as_str();
        at += 1;
    }
    names
};

macro_rules! fields {
    ($($name:literal: $kind:expr, $default:literal, $with:literal, $about:literal;)*) => {
        &[$(Field { name: $name, kind: $kind, default: $default, with: $with, about: $about }),*]
    };
}

/// The file.
pub(crate) static ROOT: Shape = Shape {
    title: "the file",
    home: "the file itself, at the top",
    fields: fields! {
        "domain": Kind::Text, "", "", "What the rules are for; requests name it.";
        "descriptors": Kind::List(&DESCRIPTOR), "[]", "", "The rules.";
        "http": Kind::List(&HTTP), "[]", "", "How an HTTP request becomes descriptors. All entries that match apply, in order.";
        "defaults": Kind::Map(&DEFAULTS), "", "", "What holds for every limit of the domain that does not say otherwise.";
    },
};

/// A descriptor: a step on the way to a limit.
pub(crate) static DESCRIPTOR: Shape = Shape {
    title: "a descriptor",
    home: "a descriptor, beside `key`",
    fields: fields! {
        "key": Kind::Text, "", "", "The key of the entry. `*` stands for anything.";
        "value": Kind::Text, "any", "", "The value of the entry. `*` stands for anything; without a value all others match.";
        "rate_limit": Kind::Map(&LIMIT), "", "not with `rate_limits`", "The limit of this descriptor. Without one it is not limited.";
        "rate_limits": Kind::List(&LIMIT), "", "not with `rate_limit`", "Several limits at once, all or nothing.";
        "descriptors": Kind::List(&DESCRIPTOR), "[]", "", "The rules for the next entry.";
        "shadow_mode": Kind::Flag, "false", "", "Watch: count and report, but refuse nobody.";
        "quota_mode": Kind::Flag, "false", "", "Refuse only when all descriptors in quota mode are over.";
        "share_threshold": Kind::Flag, "false", "`*` in key or value", "All that the pattern matches shares one counter.";
        "detailed_metric": Kind::Flag, "false", "", "Metrics name the values of the request instead of the rule's.";
        "value_to_metric": Kind::Flag, "false", "", "Metrics name this entry's value.";
        "metadata": Kind::Free, "", "", "Goes back to the proxy with the answer.";
        "exempt": Kind::Texts, "[]", "", "Values and address ranges (CIDR) of the last entry that meet no limit here.";
        "enabled": Kind::Flag, "true", "", "`false` turns the limits of this descriptor off.";
        "percent": Kind::Percent, "100%", "", "Limits only this stable share of keys.";
    },
};

/// A limit.
pub(crate) static LIMIT: Shape = Shape {
    title: "a limit",
    home: "`rate_limit`",
    fields: fields! {
        "requests_per_unit": Kind::Number(0), "0", "", "How many. 0 blocks.";
        "unit": Kind::OneOf(&UNITS), "", "not with `per`", "Per what.";
        "unit_multiplier": Kind::Number(1), "1", "`unit`", "Per how many of them.";
        "per": Kind::Duration, "", "not with `unit`", "Per how long: `500ms`, `10s`, `5m`, `3h`, `7d`.";
        "unlimited": Kind::Flag, "false", "no other number", "No limit at all.";
        "name": Kind::Text, "", "", "What headers, metrics and `replaces` call it.";
        "replaces": Kind::List(&REPLACES), "[]", "", "Limits of the same request, by name, that this one stands in for.";
        "algorithm": Kind::OneOf(&ALGORITHMS), "fixed_window", "", "How it is counted.";
        "burst": Kind::Number(1), "requests_per_unit", "`token_bucket` `leaky_bucket` `gcra`", "What the bucket holds.";
        "refill": Kind::OneOf(&["greedy", "interval", "interval_aligned"]), "greedy", "`token_bucket`", "Tokens come back one by one, or a period's at once, counted from first use or from the epoch.";
        "align": Kind::OneOf(&["epoch", "first_request"]), "epoch", "`fixed_window`", "Where windows begin.";
        "time_zone": Kind::Text, "", "`fixed_window` per day, week, month or year", "Windows follow the calendar of this IANA time zone.";
        "compare": Kind::OneOf(&["floor", "exact"]), "floor", "`sliding_window_counter`", "Whether the fraction of the previous window counts.";
        "initial": Kind::Number(0), "full", "`token_bucket` `leaky_bucket` `gcra`", "Units of a key that is seen for the first time.";
        "queue": Kind::Map(&QUEUE), "", "`leaky_bucket`", "Requests wait for their slot.";
        "lease": Kind::DurationOrNone, "60s", "`concurrency`", "How long a permit lasts that is not given back; `none` for ever.";
        "warm_up": Kind::Map(&WARM_UP), "", "`warm_up`", "The cold start.";
        "excess": Kind::OneOf(&["reject", "delay", "queue"]), "reject", "`delay` needs `queue`", "What becomes of a request that is over.";
        "soft": Kind::Map(&SOFT), "", "not with `queue`, `warm_up`, `concurrency`", "May be exceeded for a while.";
        "count_rejected": Kind::Flag, "false", "`fixed_window` `sliding_window_log`", "Refused requests count too.";
        "on_store_error": Kind::OneOf(&["allow", "deny", "local"]), "allow", "", "What to answer when the store cannot.";
        "consistency": Kind::OneOf(&["exact", "leased", "eventual"]), "exact", "", "How nodes of a fleet share the limit. Only `exact` is built.";
        "cost": Kind::Number(1), "1", "", "Units of this limit for each unit that a request costs.";
        "exempt": Kind::Texts, "[]", "", "Values and address ranges (CIDR) of the last entry that do not meet this limit.";
        "shadow_mode": Kind::Flag, "false", "`rate_limits`", "Watch only. In `rate_limit` it is ignored, as at Lyft; write it beside.";
        "enabled": Kind::Flag, "true", "", "`false` turns the limit off.";
        "percent": Kind::Percent, "100%", "", "Limits only this stable share of keys.";
    },
};

/// What may be set for a whole domain.
pub(crate) static DEFAULTS: Shape = Shape {
    title: "defaults",
    home: "`defaults`",
    fields: fields! {
        "algorithm": Kind::OneOf(&ALGORITHMS), "fixed_window", "", "How limits are counted.";
        "refill": Kind::OneOf(&["greedy", "interval", "interval_aligned"]), "greedy", "", "Of token buckets.";
        "align": Kind::OneOf(&["epoch", "first_request"]), "epoch", "", "Of fixed windows.";
        "time_zone": Kind::Text, "", "", "Of fixed windows per day, week, month or year.";
        "compare": Kind::OneOf(&["floor", "exact"]), "floor", "", "Of sliding window counters.";
        "lease": Kind::DurationOrNone, "60s", "", "Of concurrency limits.";
        "soft": Kind::Map(&SOFT), "", "", "Of limits that can be soft.";
        "count_rejected": Kind::Flag, "false", "", "Of fixed windows and logs.";
        "on_store_error": Kind::OneOf(&["allow", "deny", "local"]), "allow", "", "What to answer when the store cannot.";
        "consistency": Kind::OneOf(&["exact", "leased", "eventual"]), "exact", "", "How nodes of a fleet share limits. Only `exact` is built.";
        "exempt": Kind::Texts, "[]", "", "Exempt from every limit, in addition to those that a limit names.";
        "shadow_mode": Kind::Flag, "false", "", "Watch only.";
        "percent": Kind::Percent, "100%", "", "Limits only this stable share of keys.";
    },
};

/// A limit that is replaced.
pub(crate) static REPLACES: Shape = Shape {
    title: "an entry of replaces",
    home: "an entry of `replaces`",
    fields: fields! { "name": Kind::Text, "", "", "The name of the limit."; },
};

/// A waiting room.
pub(crate) static QUEUE: Shape = Shape {
    title: "queue",
    home: "`queue`",
    fields: fields! {
        "size": Kind::Number(0), "", "", "How many units may wait.";
        "max_delay": Kind::Duration, "as long as it takes", "", "How long a request may wait.";
    },
};

/// A cold start.
pub(crate) static WARM_UP: Shape = Shape {
    title: "warm_up",
    home: "`warm_up`",
    fields: fields! {
        "period": Kind::Duration, "", "", "How long it takes to reach the full rate.";
        "cold_factor": Kind::Number(2), "3", "", "How many times slower a cold key starts.";
        "max_delay": Kind::Duration, "as long as it takes", "", "How long a request may wait.";
    },
};

/// A soft limit.
pub(crate) static SOFT: Shape = Shape {
    title: "soft",
    home: "`soft`",
    fields: fields! {
        "over": Kind::Percent, "", "", "How much above the limit.";
        "for": Kind::Duration, "", "", "For how long from the first unit above it.";
    },
};

/// An entry of the `http` section.
pub(crate) static HTTP: Shape = Shape {
    title: "an entry of http",
    home: "an entry of `http`",
    fields: fields! {
        "match": Kind::Map(&MATCH), "everything", "", "Which requests.";
        "descriptors": Kind::TextMaps, "", "", "What they are counted by: maps of keys to values, with variables such as `${client_ip}`.";
        "cost": Kind::Number(0), "1", "", "What such a request costs.";
        "cost_header": Kind::Text, "", "", "The header of the answer that tells what the request has cost: `cost` is taken first and settled at that. Gateway and layer only.";
        "free_statuses": Kind::Texts, "[]", "", "Answers that give back what was counted: `404`, `500-599`, `5xx`. Gateway and layer only.";
        "counted_statuses": Kind::Texts, "any", "", "Only such answers count, and all others give back: `[401]` counts failed logins. Not with `free_statuses`.";
        "on_missing": Kind::OneOf(&["skip", "deny"]), "skip", "", "When a variable has no value: leave the descriptor out, or refuse the request.";
        "final": Kind::Flag, "false", "", "Entries further down do not apply.";
    },
};

/// Which requests an entry of the `http` section is for.
pub(crate) static MATCH: Shape = Shape {
    title: "match",
    home: "`match`",
    fields: fields! {
        "method": Kind::TextOrTexts, "any", "", "One method or a list of them.";
        "host": Kind::Text, "any", "", "The host without port. `*` stands for anything.";
        "path": Kind::Text, "any", "", "`*` stands for anything within a segment, `**` for any rest, `{name}` for a segment that `${path.name}` gives.";
        "headers": Kind::TextMap, "any", "", "Headers that have to be there, with what they have to match. `*` stands for anything.";
    },
};

/// All shapes, the likeliest home of a stray key first.
pub(crate) const SHAPES: [&Shape; 10] =
    [&LIMIT, &DESCRIPTOR, &ROOT, &HTTP, &MATCH, &QUEUE, &SOFT, &WARM_UP, &DEFAULTS, &REPLACES];

/// Whether a key has a meaning somewhere.
pub(crate) fn is_known(name: &str) -> bool {
    SHAPES.iter().any(|shape| shape.field(name).is_some())
}
