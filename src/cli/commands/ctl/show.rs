//! Responses of the control API as tables.

use super::shown::Shown;
use crate::{
    api::{pb::control as pb, time},
    cli::output::{counted, plain, table},
};
use tidegate_core::limit::DescriptorText;

pub(super) fn status(status: &pb::StatusResponse) -> Shown {
    let mut rows = table::table(["", ""]);
    let counts = |counts: &Option<pb::Counts>| {
        counts.as_ref().map_or_else(String::new, |counts| {
            let pb::Counts { admitted, denied, shadow_denied } = counts;
            format!("{admitted} admitted, {denied} denied, {shadow_denied} denied in shadow")
        })
    };
    rows.add_row(["version", &status.version]);
    rows.add_row(["caller", &format!("{} ({})", status.actor, status.role().as_str_name())]);
    if let Some(decisions) = &status.decisions {
        let text = format!("{} admitted, {} denied", decisions.admitted, decisions.denied);
        rows.add_row(["decisions", &text]);
    }
    for domain in &status.domains {
        let name = format!("hits of {}", domain.domain);
        rows.add_row([name, format!("{}; {}", counts(&domain.hits), counted(domain.rules.into(), "rule"))]);
    }
    if let Some(counters) = &status.counters {
        let text = format!("{} of at most {}", counters.count, counters.count_max);
        rows.add_row(["counters", &text]);
        let mib = |bytes: u64| bytes >> 20;
        let text = format!("{} MiB of {} MiB", mib(counters.memory_bytes), mib(counters.memory_bytes_max));
        rows.add_row(["memory", &text]);
    }
    if let Some(rules) = &status.rules {
        let text =
            format!("{} in generation {}, from {}", rules.rules, rules.generation, rules.sources.join(", "));
        rows.add_row(["rules", &text]);
        if rules.is_kept {
            let loaded = time_text(rules.loaded.as_ref());
            rows.add_row(["kept rules", &format!("in force: those of a former process, of {loaded}")]);
        }
        rules.errors.iter().for_each(|error| rows.add_row(["last reload failed", error]));
    }
    if let Some(latency) = &status.latency {
        let micros = |seconds: f64| (seconds * 1e6).round();
        let pb::Latency { p50_seconds, p95_seconds, p99_seconds } = latency;
        let [p50, p95, p99] = [p50_seconds, p95_seconds, p99_seconds].map(|seconds| micros(*seconds));
        rows.add_row(["latency", &format!("p50 ≤ {p50} µs, p95 ≤ {p95} µs, p99 ≤ {p99} µs in 5 minutes")]);
    }
    if let Some(snapshots) = &status.snapshots {
        let text = format!("{} written, {} failed", snapshots.written, snapshots.failed);
        rows.add_row(["snapshots", &text]);
    }
    if let Some(store) = &status.store {
        rows.add_row(["shared store", if store.is_reachable { "reachable" } else { "not reachable" }]);
    }
    if status.quotas_are_learning {
        rows.add_row([
            "quotas",
            "learning: what a former process may have assigned counts for 16 s after the start",
        ]);
    }
    Shown::new(status, rows)
}

pub(super) fn rules(rules: &pb::ListRulesResponse) -> Shown {
    let mut rows =
        table::table(["domain", "rule", "limit", "admitted/s", "denied/s", "shadow/s", "declared at"]);
    for rule in &rules.rules {
        let limits = rule.limits.iter().map(Some).chain(rule.limits.is_empty().then_some(None));
        for limit in limits {
            let rate = |rate: fn(&pb::Rates) -> f64| {
                let rates = limit.and_then(|limit| limit.rates.as_ref());
                rates.map_or_else(String::new, |rates| format!("{:.1}", rate(rates)))
            };
            let mode = match (rule.unlimited, rule.shadow_mode, rule.quota_mode) {
                (true, ..) => "unlimited",
                (_, true, _) => " (shadow)",
                (_, _, true) => " (quota)",
                _ => "",
            };
            rows.add_row([
                rule.domain.clone(),
                rule.rule.clone(),
                format!("{}{mode}", limit.map_or_else(String::new, limit_text)),
                rate(|rates| rates.admitted),
                rate(|rates| rates.denied),
                rate(|rates| rates.shadow_denied),
                rule.declared_at.clone(),
            ]);
        }
    }
    Shown::new(rules, rows)
}

fn limit_text(limit: &pb::Limit) -> String {
    let ban = if limit.ban.is_empty() { String::new() } else { format!("; ban: {}", limit.ban) };
    let calendar =
        if limit.calendar.is_empty() { String::new() } else { format!("; calendar: {}", limit.calendar) };
    let schedule: String = limit.schedule.iter().map(|entry| format!("; {entry}")).collect();
    let when = if limit.when.is_empty() { String::new() } else { format!(", when {}", limit.when) };
    let window = window(limit.window.as_ref());
    if !is_in_flight(&limit.algorithm) {
        return format!(
            "{} per {window}, {}{when}{calendar}{schedule}{ban}",
            limit.requests, limit.algorithm
        );
    }
    let oldest = limit.oldest_slot.as_ref();
    let oldest = oldest.map_or_else(String::new, |age| format!(", the oldest for {}", seconds(age)));
    let now =
        limit.in_flight.map_or_else(|| "in the shared store".to_owned(), |now| format!("now {now}{oldest}"));
    format!("{} in flight, held for at most {window}{when}{schedule}{ban}; {now}", limit.requests)
}

pub(super) fn explained(descriptors: &[DescriptorText], response: &pb::ExplainResponse) -> Shown {
    let mut lines = vec![format!("now: {}", response.code().as_str_name())];
    for (text, descriptor) in descriptors.iter().zip(&response.descriptors) {
        lines.push(format!(
            "{text}: {}{}",
            descriptor.code().as_str_name(),
            cause_text(descriptor.code(), &descriptor.cause)
        ));
        for (number, step) in (1..).zip(&descriptor.steps) {
            let pb::Entry { key, value } = step.entry.clone().unwrap_or_default();
            lines.push(format!("  {number}. {key}={value} matches {}  ({})", step.matched, step.declared_at));
        }
        let is_blocked = descriptor.block.is_some();
        lines.push(format!("  → {}", if is_blocked { "blocked" } else { &descriptor.outcome }));
        lines.extend(overlay_text(descriptor).map(|text| format!("    {text}")));
        lines.extend(descriptor.counters.iter().map(|counter| format!("    {}", counter_text(counter))));
    }
    if !response.counters_unknown.is_empty() {
        lines.push(format!("the counters are not known: {}", response.counters_unknown));
    }
    Shown::new(response, lines.join("\n"))
}

/// ` because …`, if it is not its limit that denies or admits.
fn cause_text(code: pb::Code, cause: &str) -> &str {
    match cause {
        "" => "",
        "store_away" if code == pb::Code::Ok => ", because the shared store does not decide: not counted",
        "counters_full" => ", because the counters are full: no limit is exceeded; raise --max-counters",
        "store_away" => ", because the shared store does not decide: no limit is known to be exceeded",
        other => other,
    }
}

/// The override or the block that applies: its id, who set it and why, and until when.
fn overlay_text(descriptor: &pb::ExplainedDescriptor) -> Option<String> {
    let (kind, id, reason, actor, expires) = match (&descriptor.block, &descriptor.r#override) {
        (Some(block), _) => ("block", &block.id, &block.reason, &block.actor, &block.expires),
        (None, Some(of)) => ("override", &of.id, &of.reason, &of.actor, &of.expires),
        (None, None) => return None,
    };
    let actor = if actor.is_empty() { String::new() } else { format!(", set by {actor}") };
    let expires = match expires.as_ref() {
        None => "until it is deleted".to_owned(),
        time => format!("until {}", time_text(time)),
    };
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    Some(format!("{kind} {id}{actor}, {expires}{reason}"))
}

fn override_limit(limit: &pb::OverrideLimit) -> String {
    let burst = if limit.burst == 0 { String::new() } else { format!(", burst {}", limit.burst) };
    let algorithm = if limit.algorithm.is_empty() { String::new() } else { format!(", {}", limit.algorithm) };
    format!("{} per {}{algorithm}{burst}", limit.requests, limit.unit)
}

fn counter_text(counter: &pb::Counter) -> String {
    let pb::Counter { limit, requests, algorithm, used, remaining, replaced_by, .. } = counter;
    let window = window(counter.window.as_ref());
    let replaced = match &**replaced_by {
        "" => String::new(),
        rule => format!(": does not apply, replaced by {rule}"),
    };
    let reset = counter.reset_after.as_ref();
    let is_in_flight = is_in_flight(algorithm);
    if counter.is_unknown {
        let kind =
            if is_in_flight { format!("{requests} in flight") } else { format!("{requests} per {window}") };
        return format!("{limit}: {kind} ({algorithm}), used and remaining not known{replaced}");
    }
    let about = if is_in_flight { "about " } else { "" };
    let reset = reset.map_or_else(String::new, |reset| format!(", one more in {about}{}", seconds(reset)));
    let ban = ban_text(counter);
    if is_in_flight {
        let slots = slots_text(&counter.slots, counter.slot_count);
        return format!(
            "{limit}: {used} in flight, {remaining} remaining of {requests}, held for at most {window}{slots}{ban}{reset}{replaced}"
        );
    }
    let reserved = reserved_text(counter.reserved, counter.reservation_count);
    format!(
        "{limit}: {used} used, {remaining} remaining of {requests} per {window} ({algorithm}){reserved}{ban}{reset}{replaced}"
    )
}

/// Whether a counter is of requests in flight, whose resets are estimates.
fn is_in_flight(algorithm: &str) -> bool {
    algorithm == "concurrency"
}

/// `, slots for 12 s, 3 s × 2 hits`, if slots are held.
fn slots_text(slots: &[pb::Slot], count: u32) -> String {
    const SHOWN_MAX: usize = 10;
    if slots.is_empty() {
        return String::new();
    }
    let text = |slot: &pb::Slot| {
        let age = slot.age.as_ref().map_or_else(String::new, seconds);
        if slot.hits == 1 { age } else { format!("{age} × {} hits", slot.hits) }
    };
    let shown: Vec<_> = slots.iter().take(SHOWN_MAX).map(text).collect();
    let more = (count as usize).saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(", slots for {}{more}", shown.join(", "))
}

/// `, 4000 reserved by 2 requests`, if hits are reserved.
fn reserved_text(hits: u64, requests: u32) -> String {
    match requests {
        0 => String::new(),
        1 => format!(", {hits} reserved by 1 request"),
        _ => format!(", {hits} reserved by {requests} requests"),
    }
}

/// `, banned for 10 s`, if it is.
fn ban_text(counter: &pb::Counter) -> String {
    counter.banned_for.as_ref().map_or_else(String::new, |left| format!(", banned for {}", seconds(left)))
}

pub(super) fn counters(response: &pb::ListCountersResponse) -> Shown {
    let mut rows = table::table(["descriptor", "limit", "used", "remaining", "one more in"]);
    for of in &response.descriptors {
        for counter in &of.counters {
            rows.add_row([
                entries(of.descriptor.as_ref().map_or(&[], |descriptor| &descriptor.entries)),
                counter.limit.clone(),
                counter.used.to_string(),
                counter.remaining.to_string(),
                counter.reset_after.as_ref().map_or_else(|| "–".to_owned(), seconds)
                    + &ban_text(counter)
                    + &slots_text(&counter.slots, counter.slot_count)
                    + &reserved_text(counter.reserved, counter.reservation_count),
            ]);
        }
    }
    Shown::new(response, rows)
}

/// A row for each status.
pub(super) fn statuses(descriptors: &[DescriptorText], statuses: &[pb::DescriptorStatus]) -> table::Table {
    let mut rows = table::table(["descriptor", "status", "rule", "limit", "remaining", "reset"]);
    for (descriptor, status) in descriptors.iter().zip(statuses) {
        let limit = match &status.window {
            None => "none".to_owned(),
            given if status.is_in_flight => {
                format!("{} in flight, held for at most {}", status.requests, window(given.as_ref()))
            }
            given => format!("{} per {}", status.requests, window(given.as_ref())),
        };
        let reset = match (&status.reset_after, status.never) {
            _ if !status.cause.is_empty() => {
                cause_text(status.code(), &status.cause).trim_start_matches(", ").to_owned()
            }
            (Some(reset), _) => seconds(reset),
            (None, true) => "never".to_owned(),
            (None, false) => "–".to_owned(),
        };
        rows.add_row([
            descriptor.to_string(),
            match &*status.ban {
                "" => status.code().as_str_name().to_owned(),
                _ => format!("{} (banned)", status.code().as_str_name()),
            },
            status.rule.clone(),
            limit,
            if status.cause.is_empty() { status.remaining.to_string() } else { "–".to_owned() },
            reset
                + &slots_text(&status.slots, status.slot_count)
                + &reserved_text(status.reserved, status.reservation_count),
        ]);
    }
    rows
}

pub(super) fn top_keys(response: &pb::TopKeysResponse) -> Shown {
    let mut rows = table::table(["domain", "rule", "key", "hits", "error at most", "hits/s"]);
    for key in &response.keys {
        rows.add_row([
            key.domain.clone(),
            named(&key.rule, &key.limits),
            entries(key.descriptor.as_ref().map_or(&[], |descriptor| &descriptor.entries)),
            key.hits.to_string(),
            key.error.to_string(),
            format!("{:.1}", key.hits_per_second),
        ]);
    }
    Shown::new(response, rows)
}

/// The path of a rule, with the names of its limits where they are others.
fn named(rule: &str, limits: &[String]) -> String {
    let names: Vec<&str> =
        limits.iter().map(String::as_str).filter(|name| *name != rule && !name.is_empty()).collect();
    if names.is_empty() { rule.to_owned() } else { format!("{rule} ({})", names.join(", ")) }
}

pub(super) fn decision(decision: &pb::TailDecision) -> String {
    let time = decision.time.map_or_else(String::new, |time| time::time_text(time, 6));
    let descriptors = decision.descriptors.iter().map(|descriptor| {
        let rule = if descriptor.rule.is_empty() { "" } else { " by " };
        let (code, shown) = (descriptor.code().as_str_name(), entries(&descriptor.entries));
        if !descriptor.cause.is_empty() {
            return format!("{shown} {code}{}", cause_text(descriptor.code(), &descriptor.cause));
        }
        let named = named(&descriptor.rule, std::slice::from_ref(&descriptor.name));
        format!("{shown} {code}{rule}{named}, {} remaining", descriptor.remaining)
    });
    let descriptors = descriptors.collect::<Vec<_>>().join("; ");
    format!("{time} {} {}: {descriptors}", decision.code().as_str_name(), decision.domain)
}

pub(super) fn time_text(time: Option<&prost_types::Timestamp>) -> String {
    time.map_or_else(String::new, |time| time::time_text(*time, 0))
}

pub(super) fn overrides(response: &pb::ListOverridesResponse) -> Shown {
    let mut rows = table::table(["id", "domain", "descriptor", "applies", "expires", "actor", "reason"]);
    for of in &response.overrides {
        let action = match (&of.limit, of.unlimited) {
            (Some(limit), _) => {
                let limits = [limit].into_iter().chain(&of.further_limits);
                limits.map(override_limit).collect::<Vec<_>>().join("; ")
            }
            (None, true) => "unlimited".to_owned(),
            (None, false) => "denied".to_owned(),
        };
        rows.add_row([
            of.id.clone(),
            of.domain.clone(),
            entries(&of.entries),
            action,
            time_text(of.expires.as_ref()),
            of.actor.clone(),
            of.reason.clone(),
        ]);
    }
    Shown::new(response, rows)
}

pub(super) fn blocks(response: &pb::ListBlocksResponse) -> Shown {
    let mut rows = table::table(["id", "domain", "entry", "expires", "actor", "reason"]);
    for of in &response.blocks {
        rows.add_row([
            of.id.clone(),
            of.domain.clone(),
            match (&*of.value, &*of.cidr) {
                (_, cidr) if cidr.contains('/') => format!("{} in network {cidr}", of.key),
                (value, cidr) => format!("{}={value}{cidr}", of.key),
            },
            time_text(of.expires.as_ref()),
            of.actor.clone(),
            of.reason.clone(),
        ]);
    }
    Shown::new(response, rows)
}

pub(super) fn leases(response: &pb::ListLeasesResponse) -> Shown {
    let mut rows = table::table(["caller", "peer", "node", "leases", "credits", "demand/s", "last claim"]);
    for node in &response.nodes {
        rows.add_row([
            node.actor.clone(),
            node.peer.clone(),
            format!("{:016x}", node.number),
            node.leases.to_string(),
            node.credits.to_string(),
            // Demand is that of one lease, of 200 ms.
            node.demand.saturating_mul(5).to_string(),
            time_text(node.last_claim.as_ref()),
        ]);
    }
    let pb::ListLeasesResponse { total, leases, credits, .. } = response;
    let nodes = counted(u64::from(*total), "node");
    let (leases, credits) = (counted(*leases, "lease"), counted(*credits, "credit"));
    let text = format!("{rows}\n{nodes}, {leases}, {credits} outstanding");
    Shown::new(response, text)
}

pub(super) fn audit(response: &pb::ListAuditResponse) -> Shown {
    let mut rows =
        table::table(["number", "time", "actor", "peer", "action", "outcome", "reason", "details"]);
    for entry in &response.entries {
        rows.add_row([
            entry.number.to_string(),
            time_text(entry.time.as_ref()),
            entry.actor.clone(),
            entry.peer.clone(),
            entry.action.clone(),
            entry.outcome.clone(),
            entry.reason.clone(),
            entry.details.clone(),
        ]);
    }
    Shown::new(response, rows)
}

pub(super) fn entries(entries: &[pb::Entry]) -> String {
    // Clients choose values: a line feed would forge a line.
    let text = |entry: &pb::Entry| plain(&format!("{}={}", entry.key, entry.value));
    entries.iter().map(text).collect::<Vec<_>>().join(",")
}

fn seconds(duration: &prost_types::Duration) -> String {
    format!("{:.3} s", time::from_duration(*duration).unwrap_or_default().as_secs_f64())
}

pub(super) fn window(window: Option<&prost_types::Duration>) -> String {
    humantime::format_duration(window.and_then(|window| time::from_duration(*window)).unwrap_or_default())
        .to_string()
}
