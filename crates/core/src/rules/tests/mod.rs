//! Rules: which match, by single properties and against an oracle that reads the declared rules from top to bottom; and their warnings and
//! errors.

mod limits;
mod matching;
mod oracle;
mod overrides_over_rlqs;
mod selection;
mod shared_store;
mod warnings;

use super::{DomainRules, LoadOptions, RuleSet, Semantics, Source};
use crate::limit::Entry;

fn rules(yaml: &str) -> RuleSet {
    let source = Source::file("rules.yaml", yaml);
    RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

/// `a=1,b=2` as entries; a value may be left out.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let entry = |pair| str::split_once(pair, '=').unwrap_or((pair, ""));
    text.split(',').map(entry).map(|(key, value)| Entry { key, value }).collect()
}

/// The path of the rule that the entries match, with the patterns that replace values in the counter's key.
fn reached(domain: &DomainRules, text: &str) -> Option<String> {
    let found = domain.find(&entries(text))?;
    let shared = found.shared.iter().map(|shared| format!(" {}:{}", shared.entry, shared.text));
    Some(found.rule.info.path.to_string() + &shared.collect::<String>())
}

fn check(yaml: &str, cases: &[(&str, Option<&str>)]) {
    let rules = rules(yaml);
    let domain = rules.domain("d").unwrap();
    for (text, expected) in cases {
        assert_eq!(reached(domain, text).as_deref(), *expected, "{text}");
    }
}
