//! The report of a replay: the proposed decisions against the current decisions, by other rules or of the log.

use super::{
    Series,
    time_format::{exact_time, time},
    unlimited::Unlimited,
};
use serde::{Serialize, Serializer};
use smol_str::SmolStr;
use std::{collections::HashMap, time::Duration};
use tidegate_core::{limit::Timestamp, rules::RuleSet};

/// The most keys that are listed for each direction.
pub const KEYS_LISTED_MAX: usize = 20;

/// The result of a replay. Serialized, it is the JSON of `tidegate replay --json`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Decided requests.
    pub requests: u64,
    /// Time of the first one.
    #[serde(serialize_with = "time")]
    pub first: Option<Timestamp>,
    /// Time of the last one.
    #[serde(serialize_with = "time")]
    pub last: Option<Timestamp>,
    /// Whether the current decisions are those of the log.
    pub is_current_recorded: bool,
    /// Under the proposed rules.
    pub proposed: Side,
    /// Under the current rules, or in the log.
    pub current: Side,
    /// Requests that are denied only under the proposed rules.
    pub newly_denied: u64,
    /// Requests that are denied only under the current rules.
    pub newly_admitted: u64,
    /// Requests whose verdict, or the verdict, `remaining` or reset of a descriptor, differs.
    pub responses_changed: u64,
    /// By name.
    pub domains: Vec<DomainRow>,
    /// By domain and rule.
    pub rules: Vec<RuleRow>,
    /// Keys of the newly denied requests.
    pub keys_newly_denied: Keys,
    /// Keys of the newly admitted requests.
    pub keys_newly_admitted: Keys,
    /// Requests with hashes instead of values. They match no rule for a particular value.
    pub with_hashes: u64,
    /// Requests that come after a request that was sent later. They were decided too late and, if they have no numbers, at its time.
    pub out_of_order: u64,
    /// The shares of requests that are in the log.
    pub samples: Samples,
    /// Requests and denials by time.
    pub over_time: Series,
    /// Descriptors without a limit under the proposed rules.
    #[serde(skip)]
    pub(super) unlimited: Unlimited,
}

/// Requests under one set of rules.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Side {
    /// Admitted requests.
    pub admitted: u64,
    /// Denied requests.
    pub denied: u64,
    /// The minute with the most denials. The first if there are several; none without a denial.
    pub worst_minute: Option<DeniedMinute>,
    /// The longest time until a denied request would be admitted, in nanoseconds; none without such a denial.
    #[serde(rename = "longest_wait_ns", serialize_with = "nanos")]
    pub longest_wait: Option<Duration>,
    /// Denied requests that would never be admitted, however long they wait.
    pub never_admitted: u64,
}

/// A minute of the clock, in UTC.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DeniedMinute {
    /// Its start.
    #[serde(serialize_with = "exact_time")]
    pub start: Timestamp,
    /// Requests in it.
    pub requests: u64,
    /// Denied requests in it.
    pub denied: u64,
}

/// A number of requests or descriptors, and how many of them were denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Share {
    /// All.
    pub all: u64,
    /// Denied requests or descriptors.
    pub denied: u64,
}

impl Share {
    /// The denied share, from 0 to 1.
    pub fn of_denied(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.denied as f64 / self.all as f64 }
    }
}

/// Requests to a domain.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DomainRow {
    /// Its name.
    pub domain: SmolStr,
    /// Under the proposed rules.
    pub proposed: Share,
    /// Under the current rules, or in the log.
    pub current: Share,
}

/// Descriptors whose status is that of a rule.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RuleRow {
    /// The domain.
    pub domain: SmolStr,
    /// The path of the rule, or a text in parentheses.
    pub rule: SmolStr,
    /// Names of its limits that differ from the path, under the proposed rules. Under the current rules if the proposed rules lack it.
    pub limits: Vec<SmolStr>,
    /// Under the proposed rules.
    pub proposed: Share,
    /// Under the current rules, or in the log.
    pub current: Share,
}

impl RuleRow {
    /// The path of the rule, with the names of its limits: `user (per-user)`.
    pub fn named(&self) -> String {
        match &*self.limits {
            [] => self.rule.to_string(),
            limits => format!("{} ({})", self.rule, limits.join(", ")),
        }
    }
}

impl Report {
    /// Sets the names of limits.
    pub(super) fn name_limits(&mut self, rules: &RuleSet) {
        let mut names: HashMap<(&str, &str), Vec<SmolStr>> = HashMap::new();
        for domain in rules.domains() {
            for rule in domain.rules_unsorted() {
                let path = &*rule.info.path;
                let of_limits = rule.limits.iter().map(|limit| &*rules.limit_name(limit).limit);
                names
                    .entry((domain.name(), path))
                    .or_default()
                    .extend(of_limits.filter(|name| *name != path).map(SmolStr::from));
            }
        }
        for row in &mut self.rules {
            if let Some(names) = names.get(&(&*row.domain, &*row.rule)) {
                row.limits.clone_from(names);
            }
        }
    }
}

/// Keys of requests whose verdict differs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Keys {
    /// Number of keys.
    pub all: u64,
    /// The keys with the most requests, at most [`KEYS_LISTED_MAX`].
    pub top: Vec<KeyRow>,
}

/// The descriptor that was denied on one side.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Key {
    /// The domain.
    pub domain: SmolStr,
    /// Keys and values of the descriptor.
    pub entries: Vec<(SmolStr, SmolStr)>,
}

/// A key, and how often the verdict differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KeyRow {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// Requests whose verdict differs.
    pub requests: u64,
    /// Requests whose verdict differs, per minute of the log.
    pub per_minute: f64,
}

/// The least and the greatest share of requests that are in the log.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Samples {
    /// The least; 1 if every request is in the log.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Default for Samples {
    /// Every request is in the log.
    fn default() -> Self {
        Self { least: 1.0, greatest: 1.0 }
    }
}

fn nanos<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)).serialize(serializer)
}
