//! Rules as text, for all commands.

use tidegate_core::{
    algorithm::Queue,
    rules::{ChargePolicy, Rule, RuleLimit},
    store::COUNTER_BYTES,
};

/// `100 per minute`, `5 per 10s`, `3 in flight for up to 60s`, with the name before it.
pub(in crate::cli) fn limit_text(limit: &RuleLimit) -> String {
    let name = if limit.name.is_empty() { String::new() } else { format!("{}: ", limit.name) };
    match limit.unit {
        _ if limit.algorithm.holds_slots() => {
            format!("{name}{} in flight for up to {}", limit.requests, limit.window)
        }
        Some(unit) => format!("{name}{} per {unit}", limit.requests),
        None => format!("{name}{} per {}", limit.requests, limit.window),
    }
}

/// Treatment of the rule's denials, if they are not plain.
pub(in crate::cli) fn on_deny_text(rule: &Rule) -> Option<String> {
    rule.info.on_deny.as_ref().map(|on_deny| on_deny.to_string())
}

/// The algorithm, such as `leaky_bucket`, with the bounds of its queue.
pub(in crate::cli) fn algorithm_text(limit: &RuleLimit) -> String {
    let name = limit.algorithm.name();
    match limit.algorithm.queue() {
        None => name.to_owned(),
        Some(Queue { wait_max, hits_max }) => {
            format!("{name}, queues up to {hits_max} hits for up to {}", humantime::format_duration(wait_max))
        }
    }
}

/// `debt_max: 2`, of a limit that counts beyond itself.
pub(in crate::cli) fn debt_text(limit: &RuleLimit) -> Option<String> {
    let counts_beyond = limit.charge == ChargePolicy::Always || limit.reserve.is_some();
    limit.debt_max.filter(|_| counts_beyond).map(|windows| format!("debt_max: {windows}"))
}

/// The bytes of a counter at its limit, if they are more than those of most algorithms.
pub(in crate::cli) fn memory_text(limit: &RuleLimit) -> Option<String> {
    let heap = limit.heap_bytes().most;
    (heap > 0).then(|| format!("up to {} bytes a counter", COUNTER_BYTES + heap))
}

/// `when EXPRESSION`, with the limit that it belongs to if the rule has several.
pub(in crate::cli) fn condition_text(limit: &RuleLimit, is_only: bool) -> Option<String> {
    let condition = limit.when.as_ref()?.source();
    Some(if is_only {
        format!("when {condition}")
    } else {
        format!("{} when {condition}", limit_text(limit))
    })
}

/// A term of a limit, if it has one of this kind.
type Term = fn(&RuleLimit) -> Option<String>;

/// Further terms of limits, kind by kind, such as `ban: 10m after 5 denials within 1m`; with the limit that a term belongs to if there are several.
pub(in crate::cli) fn terms<'l>(limits: impl Iterator<Item = &'l RuleLimit> + Clone) -> Vec<String> {
    let kinds: [(&str, Term); 4] = [
        ("calendar", |limit| limit.calendar()),
        ("schedule", |limit| {
            let entries = limit.schedule.as_ref()?.entries().map(|entry| entry.to_string());
            Some(entries.collect::<Vec<_>>().join("; "))
        }),
        ("ban", |limit| limit.ban().map(|ban| ban.to_string())),
        ("reserve", |limit| limit.reserve.map(|reserve| reserve.to_string())),
    ];
    let is_only = limits.clone().count() == 1;
    let of = |limit| if is_only { String::new() } else { format!(" of {}", limit_text(limit)) };
    let terms = kinds.iter().flat_map(|(kind, term)| {
        limits.clone().filter_map(move |limit| Some(format!("{kind}{}: {}", of(limit), term(limit)?)))
    });
    terms.collect()
}
