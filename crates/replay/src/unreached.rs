//! What a replay did not limit: rules that limited no request, and domains without rules. This reveals a mistyped name, which otherwise is
//! only a limit that never denies.

use super::report::{Report, RuleRow};
use tidegate_core::rules::{RuleSet, nearest_name};

/// The most rules with a warning each.
const RULES_LISTED: usize = 5;

/// What the proposed rules did not limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unreached {
    /// Warnings for people, domains first.
    pub warnings: Vec<String>,
    /// Whether the rules have limits, and no limit applied to a request.
    pub is_all: bool,
}

impl Report {
    /// What these rules, the proposed ones, did not limit.
    pub fn unreached(&self, rules: &RuleSet) -> Unreached {
        let mut warnings = Vec::new();
        let names: Vec<&str> = rules.domains().map(|domain| domain.name()).collect();
        for row in self.domains.iter().filter(|row| rules.domain(&row.domain).is_none()) {
            let near = nearest_name(&row.domain, &names).map(|near| format!("; the nearest is {near:?}"));
            warnings.push(format!(
                "the rules have no domain {:?}, to which {} requests were sent: nothing limits them{}",
                row.domain,
                row.proposed.all,
                near.unwrap_or_default()
            ));
        }
        let (mut limited, mut unreached) = (0_usize, Vec::new());
        for domain in rules.domains() {
            let is_reached = |path: &str| {
                let is_rule = |row: &&RuleRow| row.domain == domain.name() && *row.rule == *path;
                self.rules.iter().find(is_rule).is_some_and(|row| row.proposed.all > 0)
            };
            let with_limits = domain.rules().into_iter().filter(|rule| !rule.limits.is_empty());
            let paths: Vec<&str> = with_limits.map(|rule| &*rule.info.path).collect();
            let reached = paths.iter().filter(|path| is_reached(path)).count();
            limited += reached;
            // Several limits by conditions apply to a request, but its status names only one.
            if domain.conditional().is_none() || reached == 0 {
                unreached.extend(
                    paths.into_iter().filter(|path| !is_reached(path)).map(|path| (domain.name(), path)),
                );
            }
        }
        for (domain, path) in unreached.iter().take(RULES_LISTED) {
            let keys: Vec<&str> =
                path.split(" → ").map(|part| part.split('=').next().unwrap_or(part)).collect();
            let sent = self.unlimited.of_domain(domain);
            let sent: Vec<&str> = sent.iter().map(|path| &**path).collect();
            let near = nearest_name(&keys.join(" → "), &sent);
            let near = near.map(|near| format!("; the nearest descriptor without a limit is `{near}`"));
            warnings.push(format!(
                "the rule `{path}` of {domain:?} limits no request of the log{}",
                near.unwrap_or_default()
            ));
        }
        if unreached.len() > RULES_LISTED {
            warnings
                .push(format!("{} more rules limit no request of the log", unreached.len() - RULES_LISTED));
        }
        Unreached { warnings, is_all: limited == 0 && !unreached.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Replay, tests::event};
    use tidegate_core::rules::{LoadOptions, Source};

    #[test]
    fn rules_that_limit_no_request_and_domains_without_rules_are_named_with_the_nearest() {
        let limit = "rate_limit: { unit: minute, requests_per_unit: 1 }";
        let text = format!(
            "domain: shop\ndescriptors:\n  - {{ key: user, {limit} }}\n  - {{ key: usr, {limit} }}\n  - {{ key: open, rate_limit: {{ unlimited: true }} }}\n  \
             - {{ key: plan, value: free, descriptors: [{{ key: address, {limit} }}] }}\n"
        );
        let rules =
            RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).expect("good rules");
        let of = |events: &[Event]| {
            let mut replay = Replay::new(rules.clone(), None, 1_000);
            for event in events {
                replay.replay(&Event { domain: event.domain.replace('d', "shop").into(), ..event.clone() });
            }
            replay.into_report().0.unreached(&rules)
        };
        let mut plan = event(3, "plan", "free");
        plan.descriptors[0].entries.push(("adress".into(), "a".into()));
        let other = Event { domain: "shpo".into(), ..event(4, "user", "a") };
        let unreached = of(&[event(1, "user", "a"), plan, other]);
        assert_eq!(
            unreached.warnings,
            [
                "the rules have no domain \"shpo\", to which 1 requests were sent: nothing limits them; the nearest is \"shop\"",
                "the rule `usr` of \"shop\" limits no request of the log",
                "the rule `plan=free → address` of \"shop\" limits no request of the log; the nearest descriptor without a limit is `plan → adress`",
            ]
        );
        assert!(!unreached.is_all);
        assert!(of(&[event(1, "open", "a")]).is_all);
    }
}
