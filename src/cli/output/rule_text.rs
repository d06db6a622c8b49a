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

/// Such as `leaky_bucket`, with the bounds of its queue.
pub(in crate::cli) fn algorithm_text(limit: &RuleLimit) -> String {
    let name = limit.algorithm.name();
    match limit.algorithm.queue() {
        None => name.to_owned(),
        Some(Queue { wait_max, hits_max }) => {
            format!("{name}, queues up to {hits_max} hits for up to {}", humantime::format_duration(wait_max))
        }
    }
}

/// `ban: 10m after 5 denials within 1m`, with the limit that it belongs to if the rule has several.
pub(in crate::cli) fn ban_text(limit: &RuleLimit, is_only: bool) -> Option<String> {
    let of = if is_only { String::new() } else { format!(" of {}", limit_text(limit)) };
    limit.ban().map(|ban| format!("ban{of}: {ban}"))
}

/// `reserve: 2000 for up to 10m, then kept`, with the limit that it belongs to if the rule has several.
pub(in crate::cli) fn reserve_text(limit: &RuleLimit, is_only: bool) -> Option<String> {
    let of = if is_only { String::new() } else { format!(" of {}", limit_text(limit)) };
    limit.reserve.map(|reserve| format!("reserve{of}: {reserve}"))
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

/// `calendar: month from 17 06:00 in Europe/Berlin`, with the limit that it belongs to if the rule has several.
pub(in crate::cli) fn calendar_text(limit: &RuleLimit, is_only: bool) -> Option<String> {
    let of = if is_only { String::new() } else { format!(" of {}", limit_text(limit)) };
    limit.calendar().map(|calendar| format!("calendar{of}: {calendar}"))
}

/// `schedule: 50 mon-fri 08:00-18:00 UTC`, with the limit that it belongs to if the rule has several.
pub(in crate::cli) fn schedule_text(limit: &RuleLimit, is_only: bool) -> Option<String> {
    let schedule = limit.schedule.as_ref()?;
    let of = if is_only { String::new() } else { format!(" of {}", limit_text(limit)) };
    let entries: Vec<String> = schedule.entries().map(|entry| entry.to_string()).collect();
    Some(format!("schedule{of}: {}", entries.join("; ")))
}
