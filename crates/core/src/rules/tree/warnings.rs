//! Warnings about valid rules: names that no limit has, descriptors that never apply, nested networks, and overlapping hours of a schedule.

use super::{
    DomainRules,
    node::{Level, Node, SetNode, Siblings, ValueSets},
};
use crate::algorithm::Overlap;
use crate::rules::{
    Network, Rule, RuleError,
    grammar::DeclaredValue,
    regexes::{Regex, Regexes},
    yaml::nearest,
};
use std::collections::{BTreeMap, BTreeSet};

impl DomainRules {
    /// The warnings about its rules, in no particular order.
    pub(in crate::rules) fn warnings(&self) -> Vec<RuleError> {
        let mut warnings = Vec::new();
        self.root.warn(&mut warnings);
        let rules = self.rules_unsorted();
        warn_of_replaces(&rules, &mut warnings);
        for rule in rules {
            warn_of_hours(rule, &mut warnings);
        }
        warnings
    }
}

/// Warns of names that no limit has, and of limits that replace each other.
fn warn_of_replaces(rules: &[&Rule], warnings: &mut Vec<RuleError>) {
    let names = rules.iter().flat_map(|rule| &rule.limits).map(|limit| &*limit.name);
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let known: Vec<&str> = names.iter().copied().collect();
    let pairs: BTreeMap<(&str, &str), &Rule> =
        rules.iter().flat_map(|&rule| rule.replacements().map(move |pair| (pair, rule))).collect();
    for rule in rules {
        for (own, name) in rule.replacements() {
            if let Some(other) = pairs.get(&(name, own)) {
                let message = format!(
                    "{own:?} replaces {name:?}, and {name:?} at {} replaces {own:?}: neither limits a request that reaches both; remove \
                     one `replaces`",
                    other.origin
                );
                warnings.push(warning(rule, message));
            }
        }
        for name in rule.replaced_names().into_iter().filter(|name| !names.contains(name)) {
            let meant = match nearest(name, &known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "write the `name` of a limit of this domain, or remove it".to_owned(),
            };
            warnings.push(warning(
                rule,
                format!("replaces {name:?}, which no limit of the domain has as its name; {meant}"),
            ));
        }
    }
}

fn warn_of_hours(rule: &Rule, warnings: &mut Vec<RuleError>) {
    for schedule in rule.limits.iter().filter_map(|limit| limit.schedule.as_deref()) {
        let hours = schedule.timetable().hours();
        for Overlap { hours: index, first, is_whole } in schedule.timetable().overlaps() {
            let (later, earlier) = (hours[index], hours[first]);
            let message = match is_whole {
                true => format!(
                    "schedule[{index}] never applies: all of {later} is in hours above it; move it up"
                ),
                false => format!(
                    "schedule[{index}], {later}, overlaps schedule[{first}], {earlier}: the first of them applies"
                ),
            };
            warnings.push(warning(rule, message));
        }
    }
}

impl Level {
    fn warn(&self, warnings: &mut Vec<RuleError>) {
        if let Self::Joined(level) = self {
            level.sets().for_each(|sets| sets.warn_of_regexes(None, warnings));
            level.sets().for_each(|sets| sets.warn_of_networks(warnings));
        }
        for (key, siblings) in self.iter() {
            let alone = siblings.alone.as_deref();
            match self.matching_all(key, siblings) {
                Some(first) => {
                    let regexes = self.sets_of(key).into_iter().flat_map(ValueSets::regex_nodes);
                    for rule in regexes.map(|set| &set.node.rule).chain(alone.map(|node| &node.rule)) {
                        let message =
                            format!("never applies: the wildcard at {} matches every value", first.origin);
                        warnings.push(warning(rule, message));
                    }
                }
                None => self.sets_of(key).into_iter().for_each(|sets| sets.warn_of_regexes(alone, warnings)),
            }
        }
        self.sets().for_each(|(_, sets)| sets.warn_of_networks(warnings));
        self.nodes(&mut |node| node.below.warn(warnings));
    }

    /// A wildcard that matches every value of the key.
    fn matching_all<'r>(&'r self, key: &str, siblings: &'r Siblings) -> Option<&'r Rule> {
        let by_key = self.wildcards().iter().find(|wildcard| {
            let matches_all = match &wildcard.value {
                DeclaredValue::Any => true,
                DeclaredValue::Wildcard { pattern, .. } => pattern.matches_all(),
                DeclaredValue::Exact(_) | DeclaredValue::Set(_) => false,
            };
            matches_all && wildcard.key.matches(key)
        });
        let by_value = siblings.wildcard_list().find(|wildcard| wildcard.pattern.matches_all());
        by_value.map(|wildcard| &wildcard.node.rule).or(by_key.map(|wildcard| &wildcard.node.rule))
    }
}

impl ValueSets {
    fn regex_nodes(&self) -> impl Iterator<Item = &SetNode> {
        self.regexes.iter().map(|index| &self.nodes[*index as usize])
    }

    /// `alone` is tried after the regular expressions.
    fn warn_of_regexes(&self, alone: Option<&Node>, warnings: &mut Vec<RuleError>) {
        let any = Regex::new("", false).ok();
        let regexes: Vec<(&SetNode, &Regex)> =
            self.regex_nodes().filter_map(|node| Some((node, node.regex()?))).collect();
        let all: Vec<&Regex> = regexes.iter().map(|(_, regex)| *regex).chain(&any).collect();
        for index in Regexes::never_first(&all).unwrap_or_default() {
            let Some((set, regex)) = regexes.get(index) else {
                let message = "never applies: the regular expressions of its key match every value";
                warnings
                    .extend(alone.filter(|_| !regexes.is_empty()).map(|node| warning(&node.rule, message)));
                continue;
            };
            let is_empty = Regexes::never_first(&[*regex]).is_some_and(|never| !never.is_empty());
            let message = match is_empty {
                true => "never applies: no value matches its regular expression",
                false => {
                    "never applies: regular expressions above it match every value that it matches; move it up"
                }
            };
            warnings.push(warning(&set.node.rule, message));
        }
    }

    fn warn_of_networks(&self, warnings: &mut Vec<RuleError>) {
        let (all_v6, all_v4) = (self.node_of("::/0"), self.node_of("0.0.0.0/0"));
        if let (Some(node), None) = (all_v6, all_v4) {
            let message = "::/0 has no IPv4 addresses; add 0.0.0.0/0 if these are meant too";
            warnings.push(warning(self.rule(node), message));
        }
        // By the nodes of the inner and the outer network: the first pair, and their number.
        let mut nested: BTreeMap<(u32, u32), (Network, Network, usize)> = BTreeMap::new();
        let mut around: Vec<(Network, u32)> = Vec::new();
        for (network, node) in &self.networks {
            // IPv4 networks stand between those of IPv6, and are in none of these.
            while around.pop_if(|(outer, _)| !outer.spans(*network)).is_some() {}
            if let Some((outer, of_outer)) = around.iter().rev().find(|(outer, _)| outer.is_around(*network))
            {
                nested.entry((*node, *of_outer)).or_insert((*network, *outer, 0)).2 += 1;
            }
            around.push((*network, *node));
        }
        for ((inner_node, outer_node), (inner, outer, count)) in nested {
            let (rule, outer_rule) = (self.rule(inner_node), self.rule(outer_node));
            let more = match count {
                1 => String::new(),
                _ => format!(", as are {} more", count - 1),
            };
            let message = match inner_node == outer_node {
                true => format!("{inner} is inside {outer} of the same list{more}; remove it"),
                false => format!(
                    "{inner} is inside {outer}{more}: the limits at {} do not apply to it",
                    outer_rule.origin
                ),
            };
            warnings.push(warning(rule, message));
        }
    }

    /// The node of a network.
    fn node_of(&self, network: &str) -> Option<u32> {
        let network: Network = network.parse().ok()?;
        self.networks.iter().find(|(known, _)| *known == network).map(|(_, node)| *node)
    }

    fn rule(&self, node: u32) -> &Rule {
        &self.nodes[node as usize].node.rule
    }
}

fn warning(rule: &Rule, message: impl Into<String>) -> RuleError {
    RuleError { origin: rule.origin.clone(), path: rule.info.path.to_string(), message: message.into() }
}
