//! The rules that a descriptor reaches, whatever the values of its entries.

use crate::actions::Sent;
use std::{fmt, net::IpAddr};
use tidegate_core::{
    limit::{Entry, RequestLimit},
    rules::{
        DeclaredEntry, DeclaredPath, DeclaredValues, DomainRules, Explanation, Outcome, Rule, SetValues,
    },
};

/// A descriptor as an entry of `rate_limits` can send it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape(pub Vec<ShapeEntry>);

/// An entry of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeEntry {
    /// Its key.
    pub key: String,
    /// Its values.
    pub value: Sent,
}

/// `api_key=<header x-api-key>, route=search`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ShapeEntry { key, value }) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match value {
                Sent::Exact(value) => write!(f, "{key}={value}")?,
                Sent::Text(what) => write!(f, "{key}=<{what}>")?,
                Sent::Address => write!(f, "{key}=<address>")?,
                Sent::Network => write!(f, "{key}=<network>")?,
                Sent::Cluster => write!(f, "{key}=<cluster>")?,
                Sent::Ticket => write!(f, "{key}=<ticket>")?,
            }
        }
        Ok(())
    }
}

/// The limits of a descriptor.
#[derive(Clone, Debug)]
pub enum Reach<'r> {
    /// Every value has a rule; these are the rules.
    Limited(Vec<&'r Rule>),
    /// Every value has a rule; the limits of some rules all have a condition, which depends on the request.
    Conditional(Vec<&'r Rule>, String),
    /// Some values have one of these rules, the others have none, for this reason.
    Partly(Vec<&'r Rule>, String),
    /// A rule without a limit, or an unlimited one: as the rules have it.
    Unlimited(&'r Rule),
    /// The descriptor ends at a rule without a limit, above rules that have one.
    EndsEarly(&'r Rule),
    /// No rule, for this reason.
    Nothing(String),
    /// The limit that comes with the request, whatever the rules have.
    OfRequest(RequestLimit),
    /// The ticket of another descriptor.
    Ticket,
    /// Unknown, for this reason.
    Unknown(String),
}

/// A value that hardly any rule names: it shows what happens to values without a rule of their own.
const OTHER_TEXT: &str = "~any other value~";
const OTHER_ADDRESSES: [&str; 4] = ["198.51.100.77", "10.77.66.55", "2001:db8::77", "fd00:77::1"];
const OTHER_NETWORKS: [&str; 3] = ["198.51.100.0/24", "10.77.66.0/24", "2001:db8:77::/64"];

impl Shape {
    /// Whether it is a ticket by itself.
    pub(crate) fn is_ticket(&self) -> bool {
        matches!(&*self.0, [ShapeEntry { value: Sent::Ticket, .. }])
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|entry| &*entry.key).collect()
    }

    /// Whether a descriptor can have both shapes.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let may_be = |(own, other): (&ShapeEntry, &ShapeEntry)| {
            own.key == other.key
                && match (&own.value, &other.value) {
                    (Sent::Exact(own), Sent::Exact(other)) => own == other,
                    _ => true,
                }
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(may_be)
    }

    fn is_constant(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.value, Sent::Exact(_)))
    }

    /// Descriptors with values that no rule is likely to name.
    fn examples(&self) -> Vec<Vec<Entry<'_>>> {
        let rounds = if self.is_constant() { 1 } else { OTHER_ADDRESSES.len() };
        let descriptor = |round| {
            let entries = self.0.iter();
            entries.map(|ShapeEntry { key, value }| Entry { key, value: example(value, round) }).collect()
        };
        (0..rounds).map(descriptor).collect()
    }

    /// The limits that it reaches.
    pub fn reach<'r>(&self, rules: &'r DomainRules) -> Reach<'r> {
        if self.is_ticket() {
            return Reach::Ticket;
        }
        if rules.conditional().is_some() {
            return Reach::Unknown("the limits of the domain apply by conditions".to_owned());
        }
        let paths = rules.declared_paths();
        let examples = self.examples();
        let explained: Vec<Explanation<'r>> = examples.iter().map(|entries| rules.explain(entries)).collect();
        let missed = explained.iter().find(|explained| limit_of(explained).is_none());
        let mut reached: Vec<&'r Rule> = match self.is_constant() {
            true => Vec::new(),
            false => paths.iter().filter(|path| self.may_reach(path)).map(|path| path.rule).collect(),
        };
        for rule in explained.iter().filter_map(limit_of) {
            if !reached.iter().any(|other| other.info.path == rule.info.path) {
                reached.push(rule);
            }
        }
        match missed {
            None => match conditions(&reached) {
                Some(conditions) => Reach::Conditional(reached, conditions),
                None => Reach::Limited(reached),
            },
            Some(Explanation { outcome: Outcome::Reached(rule), .. }) if reached.is_empty() => {
                let is_above =
                    |path: &DeclaredPath<'_>| path.entries.len() > self.0.len() && self.may_begin(path);
                match paths.iter().any(is_above) && !rule.unlimited {
                    true => Reach::EndsEarly(rule),
                    false => Reach::Unlimited(rule),
                }
            }
            Some(explained) if reached.is_empty() => Reach::Nothing(explained.outcome.to_string()),
            Some(explained) => Reach::Partly(reached, explained.outcome.to_string()),
        }
    }

    /// Whether some of its values may have the rule of this path.
    pub(crate) fn may_reach(&self, path: &DeclaredPath<'_>) -> bool {
        path.entries.len() == self.0.len() && self.may_begin(path)
    }

    /// Whether the path may begin with some of its values.
    fn may_begin(&self, path: &DeclaredPath<'_>) -> bool {
        self.0.iter().zip(&path.entries).all(|(own, declared)| own.may_match(declared))
    }
}

/// A value of an entry.
fn example(value: &Sent, round: usize) -> &str {
    match value {
        Sent::Exact(value) => value,
        Sent::Address => OTHER_ADDRESSES[round % OTHER_ADDRESSES.len()],
        Sent::Network => OTHER_NETWORKS[round % OTHER_NETWORKS.len()],
        Sent::Text(_) | Sent::Cluster | Sent::Ticket => OTHER_TEXT,
    }
}

/// The rule with a limit that a descriptor has.
fn limit_of<'r>(explained: &Explanation<'r>) -> Option<&'r Rule> {
    match explained.outcome {
        Outcome::Reached(rule) if !rule.limits.is_empty() && !rule.unlimited => Some(rule),
        _ => None,
    }
}

/// The conditions of the rules without a limit that applies to every request; none if there is no such rule.
fn conditions(rules: &[&Rule]) -> Option<String> {
    let of_limits = |rule: &&Rule| {
        let all: Option<Vec<&str>> =
            rule.limits.iter().map(|limit| Some(limit.when.as_ref()?.source())).collect();
        Some(format!("the limits of {} apply only when {}", rule.info.path, all?.join(" or ")))
    };
    let all: Vec<String> = rules.iter().filter_map(of_limits).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

impl ShapeEntry {
    /// Whether some of its values may match. A key with wildcards may match any key.
    fn may_match(&self, declared: &DeclaredEntry<'_>) -> bool {
        if declared.key.is_some_and(|key| key != self.key) {
            return false;
        }
        match &self.value {
            Sent::Exact(value) => is_value(value, declared.values),
            Sent::Address => may_be(declared.values, |text| text.parse::<IpAddr>().is_ok()),
            Sent::Network => may_be(declared.values, |text| text.contains('/')),
            Sent::Text(_) | Sent::Cluster | Sent::Ticket => true,
        }
    }
}

fn is_value(value: &str, declared: DeclaredValues<'_>) -> bool {
    match declared {
        DeclaredValues::Any => true,
        DeclaredValues::Exact(own) => own == value,
        DeclaredValues::Wildcard { pattern, .. } => pattern.matches(value),
        DeclaredValues::Set(set) => match set.values() {
            SetValues::Texts(texts) => texts
                .iter()
                .any(|text| set.ignores_case() && text.eq_ignore_ascii_case(value) || **text == *value),
            SetValues::Wildcard(pattern) => pattern.matches(value),
            SetValues::Networks(networks) => value
                .parse()
                .is_ok_and(|address: IpAddr| networks.iter().any(|network| network.contains(address))),
            SetValues::Regex(_) => true,
        },
    }
}

fn may_be(declared: DeclaredValues<'_>, is_one: impl Fn(&str) -> bool) -> bool {
    match declared {
        DeclaredValues::Exact(own) => is_one(own),
        DeclaredValues::Set(set) => match set.values() {
            SetValues::Texts(texts) => texts.iter().any(|text| is_one(text)),
            _ => true,
        },
        DeclaredValues::Any | DeclaredValues::Wildcard { .. } => true,
    }
}
