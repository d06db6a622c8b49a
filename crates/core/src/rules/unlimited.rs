//! Descriptors without a limit, unless a rule exempts them, and rules that would limit them.

use super::{
    DomainRules, Rule, RuleLimit, RuleSet,
    tree::{Level, listed},
    yaml::{self, nearest, yaml_text},
};
use crate::limit::Entry;
use std::{fmt::Write as _, sync::Arc};

/// Rules that are compared with the keys of a descriptor: a domain may have ten thousand.
const COMPARED_MAX: usize = 1_000;

/// A rule for descriptors that nothing limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The reason why no limit applies.
    pub reason: String,
    /// The rule or the domain that is most like it; empty if none is.
    pub nearest: String,
    /// Where that is declared; empty if there is none.
    pub declared_at: String,
    /// Where the YAML belongs.
    pub place: String,
    /// A rule with a limit, whose number is an example.
    pub yaml: String,
}

impl DomainRules {
    /// Whether no rule decides on a descriptor with these entries: none matches, or only a rule that leads to descriptors below it. A rule
    /// with `unlimited`, or without a limit and with nothing below it, is an allow-list entry: it decides.
    pub fn leaves_undecided(&self, entries: &[Entry<'_>]) -> bool {
        if self.overlaid(entries).is_some() {
            return false;
        }
        let (mut level, mut last) = (self.root(), None);
        for entry in entries {
            let Some((_, node)) = level.step(entry) else { return true };
            (level, last) = (&node.below, Some(&node.rule));
        }
        last.is_none_or(|rule| rule.limits.is_empty() && !rule.unlimited && !level.is_empty())
    }
}

impl RuleSet {
    /// Advice on descriptors of a domain that have these keys and no limit.
    pub fn advise(&self, domain: &str, keys: &[&str]) -> Advice {
        match self.domain(domain) {
            None => self.advise_domain(domain, keys),
            Some(rules) if rules.conditional().is_some() => advise_conditions(rules, keys),
            Some(rules) => advise_rule(rules, keys),
        }
    }

    fn advise_domain(&self, domain: &str, keys: &[&str]) -> Advice {
        let known: Vec<&str> = self.domains().map(DomainRules::name).collect();
        let nearest = nearest_name(domain, &known);
        let reason = match nearest {
            None => format!("no rules have the domain {domain}"),
            Some(nearest) => format!("no rules have the domain {domain}; did you mean {nearest}?"),
        };
        let rules = nearest.and_then(|nearest| self.domain(nearest));
        Advice {
            reason,
            nearest: nearest.unwrap_or_default().to_owned(),
            declared_at: rules.map_or_else(String::new, declared_in),
            place: "a rule file of its own".to_owned(),
            yaml: format!("domain: {}\ndescriptors:\n{}", yaml_text(domain), items(keys)),
        }
    }
}

/// The rules that a name or a path stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NamedRules {
    /// The paths of these rules; at least one.
    Paths(Vec<String>),
    /// No rule; the name or path that it most likely stands for, if any is close enough.
    Unknown(Option<String>),
}

impl RuleSet {
    /// The rules of a domain, or of all, that have this path, or a limit of this name: as declared by a rule, or as in metrics.
    pub fn named(&self, domain: Option<&str>, name: &str) -> NamedRules {
        let domains = self.domains().filter(|of| domain.is_none_or(|domain| domain == of.name()));
        let rules: Vec<&Rule> = domains.flat_map(DomainRules::rules_unsorted).collect();
        let names = |rule: &Rule| {
            let of_limit =
                |limit: &RuleLimit| [Arc::from(&*limit.name), Arc::clone(&self.limit_name(limit).limit)];
            rule.limits.iter().flat_map(of_limit).collect::<Vec<Arc<str>>>()
        };
        let by_path = rules.iter().filter(|rule| *rule.info.path == *name);
        let mut paths: Vec<String> = by_path.map(|rule| rule.info.path.to_string()).collect();
        if paths.is_empty() {
            let by_name = rules.iter().filter(|rule| names(rule).iter().any(|of_limit| **of_limit == *name));
            paths = by_name.map(|rule| rule.info.path.to_string()).collect();
        }
        if !paths.is_empty() {
            return NamedRules::Paths(paths);
        }
        let all: Vec<Arc<str>> = rules
            .iter()
            .take(COMPARED_MAX)
            .flat_map(|rule| names(rule).into_iter().chain([Arc::clone(&rule.info.path)]))
            .filter(|name| !name.is_empty())
            .collect();
        let known: Vec<&str> = all.iter().map(|name| &**name).collect();
        NamedRules::Unknown(nearest_name(name, &known).map(str::to_owned))
    }
}

/// The known name that `name` most likely stands for: spelt alike, or one a part of the other.
pub fn nearest_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    const PART_MIN: usize = 3;
    nearest(name, known).or_else(|| {
        let is_part = |one: &str, other: &str| one.len() >= PART_MIN && other.contains(one);
        known.iter().copied().find(|known| is_part(known, name) || is_part(name, known))
    })
}

/// The document of the first rule of a domain.
fn declared_in(rules: &DomainRules) -> String {
    let first = rules.rules_unsorted().into_iter().map(|rule| &rule.origin).min();
    first.map_or_else(String::new, |origin| origin.source.to_string())
}

fn advise_conditions(rules: &DomainRules, keys: &[&str]) -> Advice {
    let variables: Vec<String> =
        keys.iter().map(|key| yaml_text(&format!("descriptors[0][{}]", yaml::quoted(key)))).collect();
    Advice {
        reason: "the conditions of no limit hold, or a variable has no value".to_owned(),
        nearest: String::new(),
        declared_at: declared_in(rules),
        place: format!("the limits of {}", declared_in(rules)),
        yaml: format!(
            "- namespace: {}\n  max_value: 100\n  seconds: 60\n  variables: [{}]\n",
            yaml_text(rules.name()),
            variables.join(", ")
        ),
    }
}

fn advise_rule(rules: &DomainRules, keys: &[&str]) -> Advice {
    let (mut level, mut last): (&Level, Option<&Rule>) = (rules.root(), None);
    let mut reason = None;
    let mut depth = 0;
    for key in keys {
        let Some(node) = level.alone(key) else {
            reason = Some(unmatched(level, key, last));
            break;
        };
        (level, last, depth) = (&node.below, Some(&node.rule), depth + 1);
    }
    let reason = reason.unwrap_or_else(|| match last {
        Some(rule) if rule.limits.is_empty() && !rule.unlimited => {
            format!("{} has no limit: it leads to descriptors below it", rule.info.path)
        }
        _ => "the rules have changed since, or a descriptor with a value has none of its own".to_owned(),
    });
    let at = |rule: &Rule| format!("{} ({})", rule.origin, rule.info.path);
    let rest = &keys[depth..];
    let (place, yaml) = match last {
        None => {
            (format!("`descriptors` of the domain {} ({})", rules.name(), declared_in(rules)), items(rest))
        }
        Some(rule) if rest.is_empty() => (format!("the descriptor at {}", at(rule)), limit("")),
        Some(rule) if level.is_empty() => {
            (format!("the descriptor at {}", at(rule)), format!("descriptors:\n{}", items(rest)))
        }
        Some(rule) => (format!("`descriptors` of the descriptor at {}", at(rule)), items(rest)),
    };
    let nearest = nearest_rule(rules, keys);
    Advice {
        reason,
        nearest: nearest.map_or_else(String::new, |rule| rule.info.path.to_string()),
        declared_at: nearest.map_or_else(String::new, Rule::declared_at),
        place,
        yaml,
    }
}

/// The reason why no node of a level has this key and no value.
fn unmatched(level: &Level, key: &str, above: Option<&Rule>) -> String {
    let known = level.keys();
    let below = above.map_or_else(String::new, |rule| format!(" below {}", rule.info.path));
    if known.is_empty() {
        return format!("the rules end{below}: none has the key {key} there");
    }
    if let Some(values) = level.known_values(key) {
        let values = listed(&values);
        return format!("descriptors{below} have the key {key} with these values only: {values}");
    }
    let begin = format!("no descriptor{below} has the key {key}");
    match nearest(key, &known) {
        Some(meant) => format!("{begin}; did you mean {meant}? Known keys: {}", listed(&known)),
        None => format!("{begin}; known keys: {}", listed(&known)),
    }
}

/// The rule with a limit whose keys are most like these; none if not even one key is.
fn nearest_rule<'r>(rules: &'r DomainRules, keys: &[&str]) -> Option<&'r Rule> {
    let of_rules = rules.rules();
    let limited = of_rules.into_iter().filter(|rule| !rule.limits.is_empty());
    let ranked = limited.take(COMPARED_MAX).filter_map(|rule| {
        let of_rule: Vec<&str> = rule.info.path.split(" → ").map(key_of).collect();
        let alike = keys.iter().zip(&of_rule).take_while(|(key, of_rule)| is_alike(key, of_rule)).count();
        let missing = keys.len().abs_diff(of_rule.len());
        (alike > 0).then_some((rule, (std::cmp::Reverse(alike), missing)))
    });
    ranked.min_by_key(|(_, rank)| *rank).map(|(rule, _)| rule)
}

/// The key of one step of a rule's path.
pub(super) fn key_of(step: &str) -> &str {
    step.split_once('=').map_or(step, |(key, _)| key)
}

fn is_alike(key: &str, of_rule: &str) -> bool {
    nearest(key, &[of_rule]).is_some()
}

/// Nested descriptors with these keys, the last of which has a limit: items of a list.
fn items(keys: &[&str]) -> String {
    let mut out = String::new();
    for (depth, key) in keys.iter().enumerate() {
        let indent = "  ".repeat(2 * depth);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{indent}- key: {}", yaml_text(key));
        match depth + 1 == keys.len() {
            true => out += &limit(&format!("{indent}  ")),
            false => _ = writeln!(out, "{indent}  descriptors:"),
        }
    }
    out
}

fn limit(indent: &str) -> String {
    format!(
        "{indent}rate_limit:\n{indent}  unit: minute\n{indent}  requests_per_unit: 100  # choose the number\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, Semantics, Source};

    const RULES: &str = "domain: shop\n\
        descriptors:\n\
        - key: user\n  descriptors:\n  - key: path\n    value: /login\n    rate_limit: {unit: minute, requests_per_unit: 5}\n\
        - key: plan\n  value: free\n  rate_limit: {unit: minute, requests_per_unit: 5}\n\
        - key: plan\n  value: staff\n\
        - key: api_key\n  rate_limit: {unit: minute, requests_per_unit: 5}\n\
        - key: partner\n  rate_limit: {unlimited: true}\n";

    fn parse(text: &str, semantics: Semantics) -> RuleSet {
        let options = LoadOptions { semantics, ..LoadOptions::default() };
        RuleSet::parse(&[Source::file("r.yaml", text)], &options).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn entries<'t>(pairs: &[(&'t str, &'t str)]) -> Vec<Entry<'t>> {
        pairs.iter().map(|&(key, value)| Entry { key, value }).collect()
    }

    #[test]
    fn allow_list_entries_decide_and_what_leads_to_other_descriptors_does_not() {
        for semantics in [Semantics::Exact, Semantics::Reference] {
            let rules = parse(RULES, semantics);
            let shop = rules.domain("shop").expect("it is declared");
            let decided: [&[(&str, &str)]; 4] = [
                &[("user", "ann"), ("path", "/login")],
                &[("plan", "free")],
                &[("plan", "staff")],
                &[("partner", "x")],
            ];
            let undecided: [&[(&str, &str)]; 4] = [
                &[("user", "ann")],
                &[("user", "ann"), ("path", "/")],
                &[("plan", "gold")],
                &[("ip", "::1")],
            ];
            for of in decided {
                assert!(!shop.leaves_undecided(&entries(of)), "{semantics:?} {of:?}");
            }
            for of in undecided {
                assert!(shop.leaves_undecided(&entries(of)), "{semantics:?} {of:?}");
            }
        }
    }

    #[test]
    fn the_advice_limits_what_it_is_about() {
        let rules = parse(RULES, Semantics::Exact);
        let domain = rules.advise("shop-api", &["user", "path"]);
        assert_eq!((&*domain.nearest, &*domain.declared_at), ("shop", "r.yaml"));
        let with = parse(&domain.yaml, Semantics::Exact);
        let entry = [("user", "ann"), ("path", "/")];
        assert!(!with.domain("shop-api").is_none_or(|rules| rules.leaves_undecided(&entries(&entry))));

        // In the descriptors of the domain: after the others.
        let key = rules.advise("shop", &["apikey"]);
        assert_eq!((&*key.nearest, &*key.declared_at), ("api_key", "r.yaml:13:3"));
        assert_eq!(key.place, "`descriptors` of the domain shop (r.yaml)");
        assert_eq!(
            key.reason,
            "no descriptor has the key apikey; did you mean api_key? Known keys: api_key, partner, plan, user"
        );
        let with = parse(&format!("{RULES}{}", key.yaml), Semantics::Exact);
        let of = entries(&[("apikey", "k")]);
        assert!(!with.domain("shop").is_none_or(|rules| rules.leaves_undecided(&of)));

        // In the descriptor that leads there.
        let limit = rules.advise("shop", &["user"]);
        assert_eq!(limit.place, "the descriptor at r.yaml:3:3 (user)");
        let indented: String = limit.yaml.lines().map(|line| format!("  {line}\n")).collect();
        let text = RULES.replacen("- key: user\n", &format!("- key: user\n{indented}"), 1);
        let with = parse(&text, Semantics::Exact);
        assert!(!with.domain("shop").is_none_or(|rules| rules.leaves_undecided(&entries(&entry[..1]))));

        // Below a descriptor that already has descriptors, and below a descriptor that has none.
        let value = rules.advise("shop", &["user", "path"]);
        assert_eq!(value.place, "`descriptors` of the descriptor at r.yaml:3:3 (user)");
        assert_eq!(value.reason, "descriptors below user have the key path with these values only: /login");
        assert_eq!(value.yaml.lines().next(), Some("- key: path"));
        let end = rules.advise("shop", &["api_key", "path"]);
        assert_eq!(end.reason, "the rules end below api_key: none has the key path there");
        assert_eq!(end.yaml.lines().next(), Some("descriptors:"));
    }

    #[test]
    fn rules_are_found_by_their_paths_and_the_names_of_their_limits() {
        let text = "domain: d\ndescriptors:\n\
            - {key: user, rate_limit: {name: per-user, unit: minute, requests_per_unit: 5}}\n\
            - {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}\n";
        let rules = parse(text, Semantics::Exact);
        for (name, path) in [("user", "user"), ("per-user", "user"), ("ip", "ip")] {
            assert_eq!(rules.named(None, name), NamedRules::Paths(vec![path.to_owned()]), "{name}");
        }
        assert_eq!(rules.named(Some("d"), "per-usr"), NamedRules::Unknown(Some("per-user".to_owned())));
        assert_eq!(rules.named(None, "nothing-like-it"), NamedRules::Unknown(None));
        assert_eq!(rules.named(Some("other"), "user"), NamedRules::Unknown(None));
    }

    #[test]
    fn texts_that_yaml_reads_otherwise_are_in_quotes() {
        let yaml = RuleSet::default().advise("yes", &["a: b", "true"]).yaml;
        let rules = parse(&yaml, Semantics::Exact);
        let of = entries(&[("a: b", "1"), ("true", "2")]);
        assert!(!rules.domain("yes").is_none_or(|rules| rules.leaves_undecided(&of)));
    }
}
