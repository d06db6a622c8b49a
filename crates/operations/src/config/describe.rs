//! Rules and their status as JSON and YAML, for people and tools.

use super::{LoadResult, RulesStatus};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidegate_core::{
    algorithm::Queue,
    limit::Timestamp,
    rules::{ChargePolicy, LimitSchedule, Rule, RuleError, RuleErrors, RuleLimit, RuleSet, Source},
    store::COUNTER_BYTES,
};

/// Every domain with its rules, and the place where each is declared.
pub fn rules_to_json(rules: &RuleSet) -> Value {
    let domains = rules.domains().map(|domain| {
        let all: Vec<Value> = domain.rules().into_iter().map(|rule| rule_to_json(rules, rule)).collect();
        json!({ "domain": domain.name(), "request_limits": domain.request_limits().map(ToString::to_string), "rules": all })
    });
    domains.collect()
}

fn rule_to_json(rules: &RuleSet, rule: &Rule) -> Value {
    json!({
        "rule": &*rule.info.path,
        "limits": rule.limits.iter().map(|limit| limit_to_json(rules, limit)).collect::<Vec<_>>(),
        "unlimited": rule.unlimited,
        "shadow_mode": rule.shadow,
        "quota_mode": rule.info.quota,
        "request_limits": rule.own_limits().map(ToString::to_string),
        "counters": rule.counters_text(),
        "lease": rule.lease_text(),
        "replaces": rule.replaced_names(),
        "on_deny": rule.info.on_deny.as_ref().map(|on_deny| on_deny.to_string()),
        "declared_at": rule.declared_at(),
    })
}

fn limit_to_json(rules: &RuleSet, limit: &RuleLimit) -> Value {
    let queue = |Queue { wait_max, hits_max }| {
        let max_wait = humantime::format_duration(wait_max).to_string();
        json!({ "max_wait": max_wait, "max_queue": hits_max })
    };
    json!({
        "limit": &*rules.limit_name(limit).limit,
        "name": limit.name,
        "requests": limit.requests,
        "window": limit.window.to_string(),
        "algorithm": limit.algorithm.name(),
        "queue": limit.algorithm.queue().map(queue),
        "charge": if limit.charge == ChargePolicy::Always { "always" } else { "admitted" },
        "calendar": limit.calendar(),
        "schedule": schedule_to_json(limit),
        "when": limit.when.as_ref().map(|when| when.source()),
        "debt_max": limit.debt_max,
        "counter_bytes": COUNTER_BYTES + limit.heap_bytes().most,
        "reserve": limit.reserve.map(|reserve| reserve.to_string()),
        "ban": limit.ban().map(|ban| ban.to_string()),
    })
}

/// The limits of a schedule. If their hours overlap, the first applies. `requests` is null if they are unlimited.
pub fn schedule_to_json(limit: &RuleLimit) -> Value {
    let entries = limit.schedule.iter().flat_map(|schedule| schedule.entries()).map(|entry| {
        let requests = (entry.requests != LimitSchedule::UNLIMITED).then_some(entry.requests);
        json!({ "requests": requests, "hours": entry.hours.to_string(), "time_zone": entry.zone })
    });
    entries.collect()
}

/// The errors, each with its place.
pub fn errors_to_json(errors: &RuleErrors) -> Value {
    errors.iter().map(error_to_json).collect()
}

/// An error with its place.
pub fn error_to_json(error: &RuleError) -> Value {
    json!({
        "source": error.origin.source.to_string(),
        "line": error.origin.position.map(|position| position.line),
        "column": error.origin.position.map(|position| position.column),
        "path": error.path,
        "message": error.message,
    })
}

/// The rules in force, and the results of attempts to change them.
pub fn status_to_json(status: &RulesStatus) -> Value {
    let last = status.last.as_ref().map(|attempt| {
        let (result, errors) = match &attempt.result {
            LoadResult::Loaded => ("loaded", json!([])),
            LoadResult::Unchanged => ("unchanged", json!([])),
            LoadResult::Failed(errors) => ("failed", errors_to_json(errors)),
        };
        json!({
            "feed": attempt.feed.name(),
            "at_unix_seconds": unix_seconds(attempt.at),
            "result": result,
            "errors": errors,
        })
    });
    json!({
        "generation": status.generation,
        "loaded_at_unix_seconds": unix_seconds(status.loaded_at),
        "sources": status.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "domains": status.domains,
        "rules": status.rules,
        "limits": status.limits,
        "reloads": {
            "succeeded": status.succeeded,
            "unchanged": status.unchanged,
            "failed": status.failed,
        },
        "last_attempt": last,
        "last_load_successful": status.is_last_load_successful(),
        "failing": status.failing.iter().map(|(feed, errors)| (feed.name(), errors_to_json(errors))).collect::<BTreeMap<_, _>>(),
        "kept_from_unix_seconds": status.kept.iter().map(|(feed, at)| (feed.name(), unix_seconds(*at))).collect::<BTreeMap<_, _>>(),
    })
}

/// The declarations as one YAML stream: a document for each source, after a comment with its name.
pub fn sources_to_yaml(sources: &[Source]) -> String {
    let mut yaml = String::new();
    for source in sources {
        let text = source.text();
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        // A name may contain anything, but a comment ends with its line.
        let name = source.id.to_string().replace(char::is_control, "?");
        let begins = if text.trim_start().starts_with("---") { "" } else { "---\n" };
        let ends = if text.ends_with('\n') { "" } else { "\n" };
        yaml += &format!("# {name}\n{begins}{text}{ends}");
    }
    yaml
}

fn unix_seconds(time: Timestamp) -> f64 {
    time.as_nanos() as f64 / 1e9
}
