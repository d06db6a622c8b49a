//! `tidegate envoy check`: what a configuration of Envoy leaves unlimited.

use super::inputs::Inputs;
use crate::cli::{
    Failure,
    output::{
        counted,
        rule_text::{condition_text, limit_text},
        table,
        yaml::Yaml,
    },
};
use clap::Args;
use serde_json::{Value, json};
use std::{collections::HashMap, process::ExitCode};
use tidegate_core::{limit::RequestLimit, rules::Rule};
use tidegate_envoy_config::{
    check::{Checked, Finding, Reach, SentDescriptor, Severity, check},
    configuration::Configuration,
};

/// Routes of a descriptor that a table names.
const PLACES_SHOWN: usize = 3;

/// Shows which limit each descriptor of an Envoy configuration reaches, and what leaves requests unlimited.
///
/// Reads what people have: a bootstrap or route configuration, a config dump of Envoy's admin port, files of xDS, EnvoyFilters of Istio,
/// and ConfigMaps that hold any of these. Documents of other kinds are skipped. What only Envoy can evaluate is listed as "unknown".
///
/// Exit code 0: nothing is unlimited that these files show. 1: at least one finding is "unlimited".
#[derive(Args)]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    inputs: Inputs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let rules = self.inputs.rules()?;
        let files = self.inputs.files()?;
        let configuration = Configuration::of(&files);
        if configuration.is_empty() {
            let message = "no listener, route or ratelimit filter of Envoy is in these files; give its bootstrap, its routes, an \
                           EnvoyFilter, or a dump: curl http://127.0.0.1:9901/config_dump";
            return Err(Failure(message.to_owned()));
        }
        let checked = check(&configuration, &rules);
        if self.json {
            table::print_line(to_json(&checked));
        } else {
            show(&checked);
        }
        Ok(if is_limited(&checked) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn is_limited(checked: &Checked<'_>) -> bool {
    !checked.findings.iter().any(|finding| finding.kind.severity() == Severity::Unlimited)
}

/// The places that send one descriptor.
struct Row<'c, 'r> {
    first: &'c SentDescriptor<'r>,
    places: Vec<&'c str>,
    /// Number of entries of `rate_limits` that send it.
    entries: usize,
}

/// Makes one row for each descriptor and its limit, however many entries send it.
fn rows<'c, 'r>(sent: &'c [SentDescriptor<'r>]) -> Vec<Row<'c, 'r>> {
    let mut rows: Vec<Row<'c, 'r>> = Vec::new();
    let mut known: HashMap<(&str, &str, bool, Option<RequestLimit>), usize> = HashMap::new();
    for one in sent {
        let places = one.places.iter().map(String::as_str);
        let key = (&*one.domain, &*one.descriptor, one.is_at_end, own_limit(&one.reach));
        let index = *known.entry(key).or_insert(rows.len());
        match rows.get_mut(index) {
            Some(row) => {
                row.places.extend(places);
                row.entries += 1;
            }
            None => rows.push(Row { first: one, places: places.collect(), entries: 1 }),
        }
    }
    rows
}

fn show(checked: &Checked<'_>) {
    let mut sent = table::table(["domain", "descriptor", "limit", "routes", "sent at"]);
    let rows = rows(&checked.sent);
    for Row { first: one, places, entries } in &rows {
        let at_end = if one.is_at_end { " (at the end)" } else { "" };
        let descriptor = format!("{}{at_end}", one.descriptor);
        let more = if *entries > 1 { format!("\nand {} more", entries - 1) } else { String::new() };
        let at = format!("{}{more}", one.at);
        sent.add_row([&one.domain, &descriptor, &reach_text(&one.reach), &some_of(places), &at]);
    }
    table::print_line(sent);
    for finding in &checked.findings {
        table::print_line(format!("\n{}", finding_text(finding)));
        if let Some(actions) = &finding.actions {
            table::print_line("  to send it:");
            let yaml = Yaml::map([("rate_limits", Yaml::from(actions))]).to_block();
            yaml.lines().for_each(|line| table::print_line(format!("    {line}")));
        }
    }
    let number =
        |severity| checked.findings.iter().filter(|finding| finding.kind.severity() == severity).count();
    let [unlimited, unknown, notes] = [Severity::Unlimited, Severity::Unknown, Severity::Note].map(number);
    table::print_line(format!(
        "\n{}; findings: {unlimited} unlimited, {unknown} unknown, {notes} notes",
        counted(rows.len() as u64, "descriptor")
    ));
}

/// `envoy.yaml:14:9: unlimited (timeout-default): … [edge]`
fn finding_text(finding: &Finding) -> String {
    let place = if finding.place.is_empty() { String::new() } else { format!(" [{}]", finding.place) };
    let Finding { kind, at, message, .. } = finding;
    format!("{at}: {} ({}): {message}{place}", kind.severity().name(), kind.name())
}

/// The first few.
fn some_of(places: &[&str]) -> String {
    let mut shown = places[..places.len().min(PLACES_SHOWN)].join("\n");
    if let Some(more) = places.len().checked_sub(PLACES_SHOWN).filter(|more| *more > 0) {
        shown += &format!("\nand {more} more");
    }
    shown
}

/// Each limit with its condition.
fn limit_texts(rule: &Rule) -> Vec<String> {
    let text = |limit| condition_text(limit, false).unwrap_or_else(|| limit_text(limit));
    rule.limits.iter().map(text).collect()
}

fn rule_text(rule: &Rule) -> String {
    format!("{} ({})", limit_texts(rule).join(", "), rule.info.path)
}

/// The limit that comes with the request, if it applies.
fn own_limit(reach: &Reach<'_>) -> Option<RequestLimit> {
    match reach {
        Reach::OfRequest(limit) => Some(*limit),
        _ => None,
    }
}

/// `5 per minute`.
fn own_limit_text(RequestLimit { requests, unit }: RequestLimit) -> String {
    format!("{requests} per {unit}")
}

fn reach_text(reach: &Reach<'_>) -> String {
    let rules = |rules: &[&Rule]| rules.iter().map(|rule| rule_text(rule)).collect::<Vec<_>>().join("\n");
    match reach {
        Reach::Limited(reached) => rules(reached),
        Reach::Conditional(reached, _) => format!("unknown: {}", rules(reached)),
        Reach::Partly(reached, _) => format!("{}\nother values: none", rules(reached)),
        Reach::Unlimited(rule) if rule.unlimited => format!("unlimited ({})", rule.info.path),
        Reach::Unlimited(rule) => format!("a rule without a limit ({})", rule.info.path),
        Reach::EndsEarly(_) | Reach::Nothing(_) => "NONE".to_owned(),
        Reach::OfRequest(limit) => format!("{} (of the request)", own_limit_text(*limit)),
        Reach::Ticket => "the end of a request".to_owned(),
        Reach::Unknown(_) => "unknown".to_owned(),
    }
}

fn to_json(checked: &Checked<'_>) -> Value {
    json!({
        "ok": is_limited(checked),
        "descriptors": checked.sent.iter().map(sent_to_json).collect::<Vec<_>>(),
        "findings": checked.findings.iter().map(finding_to_json).collect::<Vec<_>>(),
    })
}

fn sent_to_json(sent: &SentDescriptor<'_>) -> Value {
    let (state, rules, reason) = match &sent.reach {
        Reach::Limited(rules) => ("limited", &rules[..], None),
        Reach::Conditional(rules, conditions) => ("unknown", &rules[..], Some(conditions)),
        Reach::Partly(rules, others) => ("partly", &rules[..], Some(others)),
        Reach::Unlimited(rule) => ("unlimited by rule", std::slice::from_ref(rule), None),
        Reach::EndsEarly(rule) => ("none", std::slice::from_ref(rule), None),
        Reach::Nothing(reason) => ("none", &[][..], Some(reason)),
        Reach::OfRequest(_) => ("limited", &[][..], None),
        Reach::Ticket => ("end of a request", &[][..], None),
        Reach::Unknown(reason) => ("unknown", &[][..], Some(reason)),
    };
    let rule = |rule: &&Rule| {
        json!({
            "rule": &*rule.info.path,
            "declared_at": rule.declared_at(),
            "limits": limit_texts(rule),
        })
    };
    json!({
        "domain": sent.domain,
        "descriptor": sent.descriptor,
        "at_end": sent.is_at_end,
        "sent_at": sent.at.to_string(),
        "routes": sent.places,
        "state": state,
        "reason": reason,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        "limit_of_request": own_limit(&sent.reach).map(own_limit_text),
    })
}

fn finding_to_json(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind.name(),
        "severity": finding.kind.severity().name(),
        "at": finding.at.to_string(),
        "place": finding.place,
        "message": finding.message,
        "rate_limits": finding.actions,
    })
}
