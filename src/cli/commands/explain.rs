//! `tidegate explain`: the limits that apply to a request, and why.

use crate::cli::{
    Failure,
    arguments::rule_files::ReadAs,
    output::{
        rule_text::{algorithm_text, debt_text, limit_text, on_deny_text, terms},
        table,
    },
};
use clap::Args;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode};
use tidegate_core::{
    limit::{Descriptor, DescriptorText, Entry, Hits, RequestLimit, Unit},
    rules::{Applied, AppliedLimit, ChargePolicy, DomainRules, RuleSet, Step},
};
use tidegate_operations::config::describe;

/// Shows the limits that apply to a request: how each descriptor is matched, and what replaces or softens its limits.
///
/// The descriptors are those of one request. Exit code 0: a limit applies to every descriptor. 1: none applies to at
/// least one of them.
#[derive(Args)]
pub(in crate::cli) struct Explain {
    /// A rule file, or a directory of them; repeat for more.
    #[arg(long, env = "TIDEGATE_RULES", value_name = "PATH", value_delimiter = ':', required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// A limit that the request sends with every descriptor, such as 5/minute; it applies instead of the rules.
    #[arg(long, value_name = "N/UNIT", value_parser = request_limit)]
    own_limit: Option<RequestLimit>,
    /// Explain a server with --global-shadow, which denies nothing.
    #[arg(long, env = "TIDEGATE_GLOBAL_SHADOW")]
    global_shadow: bool,
    /// Domain of the request.
    domain: String,
    /// Descriptors of the request.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    descriptors: Vec<DescriptorText>,
    /// The descriptors are buckets of RLQS: their entries are in no order.
    #[arg(long)]
    bucket: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses `5/minute`.
fn request_limit(text: &str) -> Result<RequestLimit, &'static str> {
    let parsed = text.split_once('/').and_then(|(requests, unit)| {
        Some(RequestLimit { requests: requests.parse().ok()?, unit: Unit::from_name(unit)? })
    });
    parsed.ok_or("write a number and a unit, such as 5/minute")
}

impl Explain {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let rules = self.read_as.load(&self.rules)?;
        let domain = self.domain(&rules)?;
        let in_order =
            |entries: Vec<_>| if self.bucket { domain.in_order_of_rules(&entries) } else { entries };
        let limit = self.own_limit;
        let entries = self.descriptors.iter().map(entries).map(in_order);
        let descriptors: Vec<_> = entries
            .map(|entries| Descriptor { entries: entries.into_iter().collect(), limit, hits: Hits::ONE })
            .collect();
        let applied = domain.explain_request(&descriptors);
        if self.json {
            table::print_line(self.to_json(&applied));
        } else {
            for (descriptor, applied) in self.descriptors.iter().zip(&applied) {
                show(descriptor, applied);
            }
            if self.global_shadow {
                table::print_line("Under --global-shadow none of these limits denies a request.");
            }
        }
        let all_limited = applied.iter().all(Applied::is_limited);
        Ok(if all_limited { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn domain<'r>(&self, rules: &'r RuleSet) -> Result<&'r DomainRules, Failure> {
        rules.domain(&self.domain).ok_or_else(|| {
            let known: Vec<&str> = rules.domains().map(DomainRules::name).collect();
            Failure(format!(
                "no rules for the domain `{}`, so nothing would limit it; domains with rules: {}",
                self.domain,
                known.join(", ")
            ))
        })
    }

    fn to_json(&self, applied: &[Applied<'_>]) -> Value {
        let both = self.descriptors.iter().zip(applied);
        let descriptors: Vec<Value> =
            both.map(|(descriptor, applied)| descriptor_to_json(descriptor, applied)).collect();
        json!({
            "domain": self.domain,
            "global_shadow": self.global_shadow,
            "limited": applied.iter().all(Applied::is_limited),
            "descriptors": descriptors,
        })
    }
}

/// The entries of a descriptor.
pub(super) fn entries(descriptor: &DescriptorText) -> Vec<Entry<'_>> {
    descriptor.0.iter().map(|(key, value)| Entry { key, value }).collect()
}

pub(super) fn show(descriptor: &DescriptorText, applied: &Applied<'_>) {
    table::print_line(descriptor);
    match &applied.matching {
        None => table::print_line("  → the request's own limit, instead of the rules"),
        Some(matching) => {
            for (number, Step { key, value, matched, rule }) in (1..).zip(&matching.steps) {
                let origin = rule.declared_at();
                table::print_line(format!("  {number}. {key}={value} matches {matched}  ({origin})"));
            }
            table::print_line(format!("  → {}", matching.outcome));
        }
    }
    for limit in &applied.limits {
        table::print_line(format!("    {}", limit_line(limit)));
    }
    for note in notes(applied) {
        table::print_line(format!("    {note}"));
    }
}

fn limit_line(applied: &AppliedLimit<'_>) -> String {
    let limit = &applied.limit;
    let always = if limit.charge == ChargePolicy::Always { ", charge: always" } else { "" };
    let debt = debt_text(limit).map_or_else(String::new, |debt| format!(", {debt}"));
    let when = limit.when.as_ref().map_or_else(String::new, |when| format!(", when {}", when.source()));
    let replaced = match applied.replaced_by {
        _ if applied.is_unmet => ": does not apply".to_owned(),
        Some(rule) => format!(": does not apply, replaced by {}", rule.info.path),
        None => String::new(),
    };
    format!("{}, {}{always}{debt}{when}{replaced}", limit_text(limit), algorithm_text(limit))
}

/// Further effects of an exceeded limit.
fn notes(applied: &Applied<'_>) -> Vec<String> {
    let Some(rule) = applied.rule() else { return Vec::new() };
    let mut notes = terms(applied.limits.iter().map(|applied| &*applied.limit));
    let quota = "quota_mode: denies only if every quota descriptor of the request is over its limit";
    let of_rule = [
        (applied.is_shadow(), "shadow_mode: denies nothing"),
        (applied.is_quota(), quota),
        (rule.is_local(), "counters: local: each server counts for itself"),
        (rule.is_never_leased, "lease: off: the shared store makes every decision"),
    ];
    notes.extend(of_rule.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note.to_owned()));
    let replaced = rule.replaced_names().join(", ");
    notes.extend((!rule.replaces.is_empty()).then(|| format!("replaces: {replaced}")));
    notes.extend(on_deny_text(rule).map(|on_deny| format!("on_deny: {on_deny}")));
    notes
}

pub(super) fn descriptor_to_json(descriptor: &DescriptorText, applied: &Applied<'_>) -> Value {
    let steps = applied.matching.iter().flat_map(|matching| &matching.steps).map(|step| {
        json!({
            "entry": format!("{}={}", step.key, step.value),
            "matched": step.matched.to_string(),
            "declared_at": step.rule.declared_at(),
        })
    });
    let limits = applied.limits.iter().map(|applied| {
        let AppliedLimit { limit, replaced_by, is_unmet } = applied;
        json!({
            "limit": limit_text(limit),
            "name": limit.name,
            "algorithm": limit.algorithm.name(),
            "charge": if limit.charge == ChargePolicy::Always { "always" } else { "admitted" },
            "debt_max": limit.debt_max,
            "calendar": limit.calendar(),
            "schedule": describe::schedule_to_json(limit),
            "reserve": limit.reserve.map(|reserve| reserve.to_string()),
            "ban": limit.ban().map(|ban| ban.to_string()),
            "applies": replaced_by.is_none() && !is_unmet,
            "when": limit.when.as_ref().map(|when| when.source()),
            "replaced_by": replaced_by.map(|rule| &*rule.info.path),
        })
    });
    let rule = applied.rule();
    json!({
        "descriptor": descriptor.to_string(),
        "steps": steps.collect::<Vec<_>>(),
        "outcome": applied.matching.as_ref().map_or_else(
            || "the request's own limit".to_owned(),
            |matching| matching.outcome.to_string(),
        ),
        "rule": rule.map(|rule| &*rule.info.path),
        "declared_at": rule.map(|rule| rule.declared_at()),
        "limited": applied.is_limited(),
        "limits": limits.collect::<Vec<_>>(),
        "unlimited": rule.is_some_and(|rule| rule.unlimited),
        "shadow_mode": applied.is_shadow(),
        "quota_mode": applied.is_quota(),
        "counters": rule.map(|rule| rule.counters_text()),
        "lease": rule.map(|rule| rule.lease_text()),
        "replaces": rule.map(|rule| rule.replaced_names()).unwrap_or_default(),
        "on_deny": rule.and_then(on_deny_text),
    })
}
