//! `tidegate check`: validates rule files and lists their rules.

use crate::cli::{
    Failure,
    arguments::rule_files::{self, ReadAs},
    output::{
        rule_text::{
            algorithm_text, condition_text, debt_text, limit_text, memory_text, on_deny_text, terms,
        },
        table,
    },
};
use clap::Args;
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};
use tidegate_core::rules::{ChargePolicy, Rule, RuleError, RuleErrors, RuleFilePaths, RuleLimit, RuleSet};
use tidegate_operations::config::describe;

/// Reads rule files as the server would, and shows the rules, or every error with its place and remedy.
///
/// Exit code 0: all files are good. 1: at least one is not, and the server would load none.
#[derive(Args)]
pub(in crate::cli) struct Check {
    /// Rule files, or directories of them; - is standard input.
    #[arg(required_unless_present = "rules", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The same as PATH.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let paths = RuleFilePaths::from([&*self.paths, &self.rules].concat());
        let loaded =
            rule_files::read(&paths).and_then(|sources| RuleSet::parse(&sources, &self.read_as.options()));
        match loaded {
            Ok(rules) => {
                let warnings = [rules.warnings(), paths.unread()].concat();
                self.show(&rules, &warnings);
                Ok(ExitCode::SUCCESS)
            }
            Err(errors) => {
                self.show_errors(&errors);
                Ok(ExitCode::FAILURE)
            }
        }
    }

    fn show(&self, rules: &RuleSet, warnings: &[RuleError]) {
        let without_effect = rules.extensions_without_effect();
        if self.json {
            table::print_line(json!({
                "ok": true,
                "domains": describe::rules_to_json(rules),
                "extensions_without_effect": without_effect.iter().map(describe::error_to_json).collect::<Vec<_>>(),
                "warnings": warnings.iter().map(describe::error_to_json).collect::<Vec<_>>(),
            }));
            return;
        }
        let mut shown = table::table(["domain", "rule", "limit", "algorithm", "notes", "declared at"]);
        for domain in rules.domains() {
            if let Some(settings) = domain.request_limits() {
                let rule = "(limits that requests bring along)";
                shown.add_row([domain.name(), rule, "", "", &settings.to_string(), ""]);
            }
            for rule in domain.rules() {
                shown.add_row([
                    domain.name(),
                    &rule.info.path,
                    &lines(rule, limit_text),
                    &lines(rule, algorithm_text),
                    &notes(rule),
                    &rule.declared_at(),
                ]);
            }
        }
        table::print_line(shown);
        for extension in without_effect {
            eprintln!("{extension}");
        }
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
    }

    fn show_errors(&self, errors: &RuleErrors) {
        if self.json {
            table::print_line(json!({ "ok": false, "errors": describe::errors_to_json(errors) }));
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
    let replaces = format!("replaces {}", rule.replaced_names().join(", "));
    let own = rule.own_limits().map_or_else(String::new, |own| format!("request_limits: {own}"));
    let on_deny = format!("on_deny: {}", on_deny_text(rule).unwrap_or_default());
    let always = rule.limits.iter().any(|limit| limit.charge == ChargePolicy::Always);
    let all = [
        (rule.unlimited, "unlimited"),
        (!rule.unlimited && rule.limits.is_empty(), "no limit"),
        (rule.shadow, "shadow"),
        (rule.info.quota, "quota"),
        (always, "charge: always"),
        (rule.is_local(), "counters: local"),
        (rule.is_never_leased, "lease: off"),
        (rule.own_limits().is_some(), &own),
        (rule.holds_slots(), "Envoy must return `slot` at the end: docs/concurrency.md"),
        (rule.reserves(), "Envoy must return `slot` with the cost at the end: docs/reserve.md"),
        (!rule.replaces.is_empty(), &replaces),
        (rule.info.on_deny.is_some(), &on_deny),
    ];
    let applying = all.iter().filter(|(applies, _)| *applies).map(|(_, note)| (*note).to_owned());
    let is_only = rule.limits.len() == 1;
    let debts = rule.limits.iter().filter_map(debt_text);
    let memory = rule.limits.iter().filter_map(memory_text);
    let conditions = rule.limits.iter().filter_map(|limit| condition_text(limit, is_only));
    applying
        .chain(terms(rule.limits.iter()))
        .chain(debts)
        .chain(conditions)
        .chain(memory)
        .collect::<Vec<_>>()
        .join(", ")
}
