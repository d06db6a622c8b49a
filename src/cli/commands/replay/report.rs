//! The report of a replay, as tables or as one JSON object.

use crate::{
    api::time::{time_text, timestamp},
    cli::output::{
        plain,
        table::{self, Table},
    },
};
use serde_json::{Value, json};
use std::time::Duration;
use tidegate_core::limit::Timestamp;
use tidegate_replay::{DeniedAt, Key, Keys, LineCounts, Report, RuleRow, Share, ShareOf, Side, Suggestion};

/// The facts that a report is printed with.
pub(super) struct Facts {
    pub(super) suggestions: Vec<Suggestion>,
    pub(super) counts: LineCounts,
    pub(super) no_room: usize,
    /// Reasons why the report may not be what it looks like; these are first.
    pub(super) warnings: Vec<String>,
    /// Whether the logs were sorted.
    pub(super) is_sorted: bool,
}

impl Facts {
    /// The notes on the report.
    pub(super) fn notes(&self, report: &Report) -> Vec<String> {
        let mut notes = report.notes(&self.counts, self.no_room);
        if self.is_sorted {
            notes.push("the logs were not in the order of time, and were sorted".into());
        }
        notes
    }
}

/// Prints the report.
pub(super) fn print(report: &Report, facts: &Facts, as_json: bool) {
    if as_json {
        table::print_line(to_json(report, facts));
        return;
    }
    for warning in &facts.warnings {
        table::print_line(format_args!("warning: {}", plain(warning)));
    }
    let current = current_name(report);
    let span = report.first.zip(report.last).map_or(Duration::ZERO, |(first, last)| last.since(first));
    table::print_line(format_args!(
        "{} requests from {} to {} ({})\n",
        report.requests,
        report.first.map(time).unwrap_or_default(),
        report.last.map(time).unwrap_or_default(),
        humantime::format_duration(whole_millis(span)),
    ));
    print_sides(report, current);
    shares(report, current).iter().for_each(|shown| table::print_line(format_args!("{shown}\n")));
    print_keys("Newly denied", report.newly_denied, &report.keys_newly_denied);
    print_keys("Newly admitted", report.newly_admitted, &report.keys_newly_admitted);
    print_suggestions(&facts.suggestions);
    for note in facts.notes(report) {
        table::print_line(format_args!("note: {note}"));
    }
}

/// The name of the side that the proposed rules are compared with.
pub(super) fn current_name(report: &Report) -> &'static str {
    if report.is_current_recorded { "recorded" } else { "current" }
}

fn to_json(report: &Report, facts: &Facts) -> Value {
    let Facts { suggestions, counts, no_room, warnings, is_sorted } = facts;
    json!({
        "warnings": warnings,
        "report": report,
        "suggestions": suggestions,
        "lines": { "bad": counts.bad, "first_bad": counts.first_bad, "omitted": counts.omitted, "dropped": counts.dropped,
            "assignments": counts.assignments,
            "without_descriptors": counts.without_descriptors, "sorted": is_sorted },
        "no_room": no_room,
    })
}

fn print_sides(report: &Report, current: &str) {
    let header = ["decisions", "admitted", "denied", "worst minute", "longest wait", "never admitted"];
    let mut shown = table::table(header);
    for (name, side) in [("proposed", &report.proposed), (current, &report.current)] {
        let Side { admitted, denied, worst_minute, longest_wait, never_admitted } = side;
        let worst = worst_minute
            .map(|minute| format!("{}: {} of {} denied", time(minute.start), minute.denied, minute.requests));
        let share = Share { all: admitted + denied, denied: *denied };
        shown.add_row([
            name,
            &admitted.to_string(),
            &share_text(share),
            worst.as_deref().unwrap_or("none"),
            &longest_wait
                .map_or("none".into(), |wait| humantime::format_duration(whole_millis(wait)).to_string()),
            &never_admitted.to_string(),
        ]);
    }
    table::print_line(format_args!("{shown}\n"));
}

/// Tables by domain and by rule.
pub(super) fn shares(report: &Report, current: &str) -> [Table; 2] {
    let denied = [format!("denied, {current}"), "denied, proposed".to_owned()];
    let mut domains = table::table(["domain", "requests", &denied[0], &denied[1]]);
    for row in &report.domains {
        let requests = row.proposed.all.to_string();
        domains.add_row([plain(&row.domain), requests, share_text(row.current), share_text(row.proposed)]);
    }
    let mut rules = table::table(["domain", "rule", "descriptors", &denied[0], &denied[1]]);
    for row in &report.rules {
        let RuleRow { domain, proposed, current, .. } = row;
        let descriptors = proposed.all.max(current.all).to_string();
        let rule = plain(&row.named());
        rules.add_row([plain(domain), rule, descriptors, share_text(*current), share_text(*proposed)]);
    }
    [domains, rules]
}

fn print_keys(title: &str, requests: u64, keys: &Keys) {
    let Keys { all, top } = keys;
    table::print_line(format_args!("{title} requests: {requests}, keys: {all}"));
    if !top.is_empty() {
        let mut shown = table::table(["domain", "key", "requests", "per minute"]);
        for row in top {
            let Key { domain, entries } = &row.key;
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let per_minute = format!("{:.1}", row.per_minute);
            shown.add_row([plain(domain), plain(&entries.join(",")), row.requests.to_string(), per_minute]);
        }
        table::print_line(shown);
    }
    table::print_line("");
}

fn print_suggestions(suggestions: &[Suggestion]) {
    if suggestions.is_empty() {
        return;
    }
    let mut shown = table::table([
        "rule",
        "limit now",
        "denied now",
        "suggested",
        "denied then",
        "hits per key and window: p50",
        "p95",
        "p99",
        "max",
    ]);
    for suggestion in suggestions {
        let percentiles = suggestion.per_key_and_window;
        let window = humantime::format_duration(Duration::from_nanos(suggestion.window_ns));
        shown.add_row([
            plain(&limit_name(suggestion)),
            format!("{} per {window}", suggestion.present.requests),
            denied_text(suggestion, suggestion.present),
            suggestion.suggested.map_or("none".into(), |at| at.requests.to_string()),
            suggestion.suggested.map_or(String::new(), |at| denied_text(suggestion, at)),
            percentiles.p50.to_string(),
            percentiles.p95.to_string(),
            percentiles.p99.to_string(),
            percentiles.max.to_string(),
        ]);
    }
    table::print_line(format_args!("{shown}\n"));
}

/// The domain and the rule, with the name of the limit if it has one.
pub(super) fn limit_name(suggestion: &Suggestion) -> String {
    let Suggestion { domain, rule, limit, .. } = suggestion;
    if limit.is_empty() { format!("{domain}: {rule}") } else { format!("{domain}: {rule} ({limit})") }
}

/// `3 of 100 keys`, or of hits.
pub(super) fn denied_text(suggestion: &Suggestion, at: DeniedAt) -> String {
    match suggestion.of {
        ShareOf::Keys => format!("{} of {} keys", at.keys, suggestion.keys),
        ShareOf::Hits => format!("{} of {} hits", at.hits, suggestion.hits),
    }
}

/// `12 (3.4%)`.
pub(super) fn share_text(share: Share) -> String {
    format!("{} ({:.1}%)", share.denied, 100.0 * share.of_denied())
}

/// RFC 3339, to the second.
pub(super) fn time(time: Timestamp) -> String {
    time_text(timestamp(time), 0)
}

pub(super) fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
