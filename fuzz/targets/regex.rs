//! Regular expressions of rules: the last line is a value, the lines before it are expressions, which may begin with `(?i)`. The rule of
//! the value is the rule of the first expression that matches by itself, and never an expression that `check` calls unreachable.

#![no_main]

use libfuzzer_sys::fuzz_target;
use regex_automata::{meta::Regex, util::syntax};
use serde_json::json;
use tidegate_core::{
    limit::Entry,
    rules::{LoadOptions, RuleSet, Source},
};

/// The most expressions that a level of a file may have here.
const EXPRESSIONS_MAX: usize = 8;

/// Bytes of the state machine of one expression here: expressions with larger machines take longer to build and are left out.
const SIZE_MAX: usize = 64 * 1024;

fuzz_target!(|text: &str| {
    let Some((expressions, value)) = text.rsplit_once('\n') else { return };
    let expressions: Vec<(&str, bool)> = expressions.split('\n').take(EXPRESSIONS_MAX).map(of_line).collect();
    let descriptors = expressions.iter().enumerate().map(|(at, (text, ignores_case))| {
        let mut descriptor = json!({ "key": "k", "value_regex": text, "metadata": { "at": at }, "rate_limit": { "unit": "day", "requests_per_unit": 1 } });
        if *ignores_case {
            descriptor["value_ignore_case"] = json!(true);
        }
        descriptor
    });
    let file = json!({ "domain": "d", "descriptors": descriptors.collect::<Vec<_>>() }).to_string();
    let rules = match RuleSet::parse(&[Source::file("fuzz.yaml", file)], &LoadOptions::default()) {
        Ok(rules) => rules,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let each: Option<Vec<Regex>> = expressions.into_iter().map(alone).collect();
    let Some(each) = each else { return };
    let expected = each.iter().position(|regex| regex.is_match(value));
    let found = rules.domain("d").expect("it is declared").find(&[Entry { key: "k", value }]);
    let at = found.as_ref().and_then(|found| found.rule.info.metadata.as_ref()?["at"].as_u64());
    assert_eq!(at, expected.map(|index| index as u64));
    if let Some(found) = found {
        let path = &*found.rule.info.path;
        assert!(rules.warnings().iter().all(|warning| warning.path != path), "{path} applies");
    }
});

fn of_line(line: &str) -> (&str, bool) {
    line.strip_prefix("(?i)").map_or((line, false), |text| (text, true))
}

/// The expression by itself, unless it is too large to be built for each input.
fn alone((text, ignores_case): (&str, bool)) -> Option<Regex> {
    let limits = Regex::config().nfa_size_limit(Some(SIZE_MAX)).onepass(false).dfa(false);
    let syntax = syntax::Config::new().case_insensitive(ignores_case);
    Regex::builder().configure(limits).syntax(syntax).build(text).ok()
}
