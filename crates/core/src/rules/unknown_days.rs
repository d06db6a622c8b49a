//! Advice on descriptors whose entry for the day of their windows is no day: the limits of those windows, and the remedy.

use super::{Rule, RuleSet, rule_limit::EntryAnchors, unlimited::key_of};
use crate::algorithm::Period;

/// The remedy for descriptors that state no day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayAdvice {
    /// The entry that is no day, and the day with which the windows begin instead.
    pub reason: String,
    /// Path of the rule with the limit; empty if the rules no longer have one.
    pub rule: String,
    /// Where that rule is declared; empty if there is none.
    pub declared_at: String,
    /// The values to send, or the place to change.
    pub remedy: String,
}

impl RuleSet {
    /// Advice on descriptors of a domain that have these keys and state no day.
    pub fn advise_day(&self, domain: &str, keys: &[&str]) -> DayAdvice {
        let rules = self.domain(domain).map_or_else(Vec::new, super::DomainRules::rules);
        let rule = rules.into_iter().find(|rule| rule.anchors().next().is_some() && has_keys(rule, keys));
        let Some(rule) = rule else {
            return DayAdvice {
                reason: "the rules have changed since: no limit has windows whose day these keys state"
                    .to_owned(),
                rule: String::new(),
                declared_at: String::new(),
                remedy: "none is needed if the number stays the same".to_owned(),
            };
        };
        let joined = |text: fn(&EntryAnchors) -> String| {
            let mut texts: Vec<String> = rule.anchors().map(text).collect();
            texts.dedup();
            texts.join("; ")
        };
        let declared_at = rule.declared_at();
        DayAdvice {
            reason: joined(reason),
            remedy: format!("{}; or correct `entry` of the limit at {declared_at}", joined(remedy)),
            rule: rule.info.path.to_string(),
            declared_at,
        }
    }
}

impl Rule {
    /// The days of its limits that entries state.
    fn anchors(&self) -> impl Iterator<Item = &EntryAnchors> {
        self.limits.iter().filter_map(|limit| limit.anchors())
    }
}

/// Whether descriptors with these keys can reach a rule. A key with a wildcard may stand for any.
fn has_keys(rule: &Rule, keys: &[&str]) -> bool {
    let mut of_rule = rule.info.path.split(" → ").map(key_of);
    let are_alike = keys.iter().all(|key| of_rule.next().is_some_and(|of| of == *key || of.contains('*')));
    are_alike && of_rule.next().is_none()
}

fn reason(anchors: &EntryAnchors) -> String {
    let key = &anchors.entry().key;
    let (period, first) = match anchors.period() {
        Period::Day => ("day", "at midnight"),
        Period::Week => ("week", "on Mondays"),
        Period::Month => ("month", "on the 1st"),
        Period::Year => ("year", "on 1 January"),
    };
    format!("the value of {key} is no day of the {period}, so the windows begin {first}")
}

fn remedy(anchors: &EntryAnchors) -> String {
    let key = &anchors.entry().key;
    let (days, example) = match anchors.period() {
        Period::Day => ("a day", "monday"),
        Period::Week => ("a day of the week", "thursday"),
        Period::Month => ("a day from 1 to 31", "17"),
        Period::Year => ("a month and a day", "04-06"),
    };
    format!("send {days} as {key}, such as {example}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, Source};

    const RULES: &str = "domain: shop\n\
        descriptors:\n\
        - key: customer\n  descriptors:\n\
        \x20 - key: billing_day\n    rate_limit: {requests_per_unit: 5, algorithm: fixed_window, calendar: {month: {entry: billing_day}}}\n\
        - key: team\n  descriptors:\n\
        \x20 - key: renewal\n    rate_limits:\n\
        \x20   - {requests_per_unit: 5, algorithm: fixed_window, calendar: {year: {entry: renewal}}}\n\
        \x20   - {requests_per_unit: 3, unit: minute}\n\
        - key: user_*\n  descriptors:\n\
        \x20 - key: start\n    rate_limit: {requests_per_unit: 5, algorithm: fixed_window, calendar: {week: {entry: start}}}\n";

    #[test]
    fn the_rule_and_the_days_that_it_knows_are_named() {
        let source = Source::file("r.yaml", RULES);
        let rules =
            RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let month = rules.advise_day("shop", &["customer", "billing_day"]);
        assert_eq!((&*month.rule, &*month.declared_at), ("customer → billing_day", "r.yaml:5:5"));
        assert_eq!(
            month.reason,
            "the value of billing_day is no day of the month, so the windows begin on the 1st"
        );
        assert_eq!(
            month.remedy,
            "send a day from 1 to 31 as billing_day, such as 17; or correct `entry` of the limit at r.yaml:5:5"
        );
        let year = rules.advise_day("shop", &["team", "renewal"]);
        assert_eq!(
            year.remedy,
            "send a month and a day as renewal, such as 04-06; or correct `entry` of the limit at r.yaml:9:5"
        );
        let week = rules.advise_day("shop", &["user_1", "start"]);
        assert_eq!(
            (&*week.rule, &*week.reason),
            ("user_* → start", "the value of start is no day of the week, so the windows begin on Mondays")
        );
        for (domain, keys) in
            [("shop", &["customer"][..]), ("shop", &["team", "billing_day"]), ("other", &[])]
        {
            let none = rules.advise_day(domain, keys);
            assert_eq!((&*none.rule, &*none.declared_at), ("", ""), "{domain} {keys:?}");
            assert!(none.reason.contains("have changed"), "{}", none.reason);
        }
    }
}
