//! `tidegate check`: validates rule files and lists their rules.

use super::{
    Failure,
    rule_files::ReadAs,
    rule_text::{algorithm_text, limit_text, on_deny_text},
    table,
};
use crate::{
    algorithm::Queue,
    rules::{self, Charge, Rule, RuleError, RuleErrors, RuleLimit, RuleSet},
};
use clap::Args;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode};

/// Reads rule files as the server would, and shows the rules, or every error with its place and remedy.
///
/// Exit code 0: all files are good. 1: at least one is not, and the server would load none.
#[derive(Args)]
pub(super) struct Check {
    /// Rule files, or directories of them; - is standard input.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let loaded =
            rules::read(&self.paths).and_then(|sources| RuleSet::parse(&sources, &self.read_as.options()));
        match loaded {
            Ok(rules) => {
                self.show(&rules);
                Ok(ExitCode::SUCCESS)
            }
            Err(errors) => {
                self.show_errors(&errors);
                Ok(ExitCode::FAILURE)
            }
        }
    }

    fn show(&self, rules: &RuleSet) {
        if self.json {
            table::print_line(json!({ "ok": true, "domains": to_json(rules) }));
            return;
        }
        let mut shown = table::table(["domain", "rule", "limit", "algorithm", "notes", "declared at"]);
        for domain in rules.domains() {
            for rule in domain.rules() {
                shown.add_row([
                    domain.name(),
                    &rule.info.path,
                    &lines(rule, limit_text),
                    &lines(rule, algorithm_text),
                    &notes(rule),
                    &rule.origin.to_string(),
                ]);
            }
        }
        table::print_line(shown);
    }

    fn show_errors(&self, errors: &RuleErrors) {
        if self.json {
            let errors: Vec<Value> = errors.iter().map(error_to_json).collect();
            table::print_line(json!({ "ok": false, "errors": errors }));
        } else {
            for error in errors.iter() {
                eprintln!("{error}");
            }
        }
    }
}

/// One line for each limit of the rule.
fn lines(rule: &Rule, of_limit: impl Fn(&RuleLimit) -> String) -> String {
    rule.limits.iter().map(of_limit).collect::<Vec<_>>().join("\n")
}

fn notes(rule: &Rule) -> String {
    let replaces = format!("replaces {}", rule.replaces.join(", "));
    let on_deny = format!("on_deny: {}", on_deny_text(rule).unwrap_or_default());
    let always = rule.limits.iter().any(|limit| limit.charge == Charge::Always);
    let all = [
        (rule.unlimited, "unlimited"),
        (!rule.unlimited && rule.limits.is_empty(), "no limit"),
        (rule.shadow, "shadow"),
        (rule.info.quota, "quota"),
        (always, "charge: always"),
        (!rule.replaces.is_empty(), &replaces),
        (rule.info.on_deny.is_some(), &on_deny),
    ];
    all.iter().filter(|(applies, _)| *applies).map(|(_, note)| *note).collect::<Vec<_>>().join(", ")
}

fn to_json(rules: &RuleSet) -> Value {
    let queue = |Queue { wait_max, hits_max }| {
        let max_wait = humantime::format_duration(wait_max).to_string();
        json!({ "max_wait": max_wait, "max_queue": hits_max })
    };
    let limit = |limit: &RuleLimit| {
        json!({
            "name": limit.name,
            "requests": limit.requests,
            "window": limit.window.to_string(),
            "algorithm": limit.algorithm.name(),
            "queue": limit.algorithm.queueing().and_then(|bucket| bucket.queue).map(queue),
            "charge": if limit.charge == Charge::Always { "always" } else { "admitted" },
        })
    };
    let rule = |rule: &Rule| {
        json!({
            "rule": &*rule.info.path,
            "limits": rule.limits.iter().map(limit).collect::<Vec<_>>(),
            "unlimited": rule.unlimited,
            "shadow_mode": rule.shadow,
            "quota_mode": rule.info.quota,
            "replaces": rule.replaces,
            "on_deny": on_deny_text(rule),
            "declared_at": rule.origin.to_string(),
        })
    };
    let domains = rules.domains().map(|domain| {
        let rules: Vec<Value> = domain.rules().into_iter().map(rule).collect();
        json!({ "domain": domain.name(), "rules": rules })
    });
    domains.collect()
}

fn error_to_json(error: &RuleError) -> Value {
    json!({
        "source": error.origin.source.to_string(),
        "line": error.origin.position.map(|position| position.line),
        "column": error.origin.position.map(|position| position.column),
        "path": error.path,
        "message": error.message,
    })
}
