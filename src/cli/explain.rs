//! `tidegate explain`: which rule a descriptor reaches, and how.

use super::{
    Failure,
    descriptor::DescriptorText,
    rule_files::ReadAs,
    rule_text::{algorithm_text, limit_text, on_deny_text},
    table,
};
use crate::{
    limit::Entry,
    rules::{DomainRules, Explanation, Outcome, Rule, RuleSet},
};
use clap::Args;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode};

/// Shows the way of descriptors through the rules: what each entry matched, and where the way ends.
///
/// Exit code 0: every descriptor reaches a rule. 1: one does not, so nothing would limit it.
#[derive(Args)]
pub(super) struct Explain {
    /// A rule file, or a directory of them; give it again for more.
    #[arg(long, env = "TIDEGATE_RULES", value_name = "PATH", value_delimiter = ':', required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// The domain.
    domain: String,
    /// Descriptors, as a request would send them.
    #[arg(required = true, value_name = "KEY=VALUE,…")]
    descriptors: Vec<DescriptorText>,
    /// Print one JSON object for each descriptor.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let rules = self.read_as.load(&self.rules)?;
        let domain = self.domain(&rules)?;
        let mut all_reached = true;
        for descriptor in &self.descriptors {
            let entries: Vec<Entry<'_>> =
                descriptor.0.iter().map(|(key, value)| Entry { key, value }).collect();
            let explanation = domain.explain(&entries);
            all_reached &= matches!(explanation.outcome, Outcome::Reached(_));
            if self.json {
                table::print_line(to_json(descriptor, &explanation));
            } else {
                show(descriptor, &explanation);
            }
        }
        Ok(if all_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn domain<'r>(&self, rules: &'r RuleSet) -> Result<&'r DomainRules, Failure> {
        rules.domain(&self.domain).ok_or_else(|| {
            let known: Vec<&str> = rules.domains().map(DomainRules::name).collect();
            Failure(format!(
                "no rules for the domain `{}`, so nothing would limit it; there are rules for {}",
                self.domain,
                known.join(", ")
            ))
        })
    }
}

fn show(descriptor: &DescriptorText, explanation: &Explanation<'_>) {
    table::print_line(descriptor);
    for (number, step) in explanation.steps.iter().enumerate() {
        let (number, origin) = (number + 1, &step.rule.origin);
        table::print_line(format!(
            "  {number}. {}={} matches {}  ({origin})",
            step.key, step.value, step.matched
        ));
    }
    table::print_line(format!("  → {}", explanation.outcome));
    if let Outcome::Reached(rule) = explanation.outcome {
        for limit in &rule.limits {
            table::print_line(format!("    {}, {}", limit_text(limit), algorithm_text(limit)));
        }
        if let Some(on_deny) = on_deny_text(rule) {
            table::print_line(format!("    on_deny: {on_deny}"));
        }
    }
}

fn to_json(descriptor: &DescriptorText, explanation: &Explanation<'_>) -> Value {
    let steps = explanation.steps.iter().map(|step| {
        json!({
            "entry": format!("{}={}", step.key, step.value),
            "matched": step.matched.to_string(),
            "declared_at": step.rule.origin.to_string(),
        })
    });
    let reached = |rule: &Rule| {
        json!({
            "rule": &*rule.info.path,
            "limits": rule.limits.iter().map(limit_text).collect::<Vec<_>>(),
            "on_deny": on_deny_text(rule),
        })
    };
    json!({
        "descriptor": descriptor.to_string(),
        "steps": steps.collect::<Vec<_>>(),
        "outcome": explanation.outcome.to_string(),
        "reached": match explanation.outcome {
            Outcome::Reached(rule) => Some(reached(rule)),
            _ => None,
        },
    })
}
