//! Comparison of two answers to one call.

use crate::limitador::process::{Answer, Call, Way};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// Seconds by which times may differ: both servers report whole seconds, of two moments, and round them in opposite directions.
const SECONDS: u64 = 2;

/// The compared answers, and their numbers.
#[derive(Default)]
pub struct Tally {
    /// By way of calling: answers admitted and denied by both.
    equal: BTreeMap<Way, [u32; 2]>,
    headers: u32,
    counters: u32,
}

impl Tally {
    /// The difference, unless it is documented.
    pub fn compare(&mut self, call: &Call, there: &Answer, here: &Answer) -> Result<(), String> {
        let (is_denied, theirs, ours) = match (there, here) {
            (Answer::Admitted(theirs), Answer::Admitted(ours)) => (false, theirs, ours),
            (Answer::Denied(theirs), Answer::Denied(ours)) => (true, theirs, ours),
            _ => return Err("the verdicts differ, or a call failed".to_owned()),
        };
        self.equal.entry(call.way).or_default()[usize::from(is_denied)] += 1;
        if theirs.keys().ne(ours.keys()) {
            return Err("other headers".to_owned());
        }
        let is_first_equal = first_limit(theirs) == first_limit(ours);
        for (name, theirs) in theirs {
            let ours = &ours[name];
            let is_equal = match name.as_str() {
                // Documented: limits with equally few hits left have no order there, so any of them may come first.
                "x-ratelimit-limit" => sorted_limits(theirs) == sorted_limits(ours),
                "x-ratelimit-reset" if !is_first_equal => true,
                // Documented: rounded down there, and 0 for a new counter without variables.
                "x-ratelimit-reset" => theirs == "0" || is_near(theirs, ours),
                // Documented: 0 there; here the hits that would be admitted.
                "x-ratelimit-remaining" if is_denied => true,
                _ => theirs == ours,
            };
            if !is_equal {
                return Err(format!("{name}: {theirs:?} there, {ours:?} here"));
            }
            self.headers += 1;
        }
        Ok(())
    }

    /// Compares the limits of a namespace and its counters.
    pub fn compare_pages(&mut self, there: &[Vec<Value>; 2], here: &[Vec<Value>; 2]) -> Result<(), String> {
        let sorted = |limits: &[Value]| {
            let mut texts: Vec<String> = limits.iter().map(|limit| of_limit(limit).to_string()).collect();
            texts.sort();
            texts
        };
        if sorted(&there[0]) != sorted(&here[0]) {
            return Err("the limits differ".to_owned());
        }
        // Documented: for counters with variables, only fingerprints are kept here.
        let theirs =
            there[1].iter().filter(|counter| counter["limit"]["variables"] == Value::Array(Vec::new()));
        let theirs: BTreeMap<String, u64> = theirs.map(counter).collect();
        let ours: BTreeMap<String, u64> = here[1].iter().map(counter).collect();
        if theirs != ours {
            return Err(format!("the counters differ: {theirs:?} there, {ours:?} here"));
        }
        self.counters += theirs.len() as u32;
        Ok(())
    }

    /// Asserts that every way has answers of each kind that it can have, and that headers and counters were compared.
    pub fn assert_that_calls_differ_in_kind(&self) {
        for way in [Way::ShouldRateLimit, Way::CheckRateLimit, Way::HttpCheck, Way::HttpCheckAndReport] {
            let [admitted, denied] = self.equal.get(&way).copied().unwrap_or_default();
            assert!(admitted > 100 && denied > 100, "{way:?}: {self}");
        }
        assert!(self.counters > 100 && self.headers > 1_000, "{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (way, [admitted, denied]) in &self.equal {
            write!(f, "{way:?}: {admitted} admitted and {denied} denied by both; ")?;
        }
        write!(f, "{} headers and {} counters equal", self.headers, self.counters)
    }
}

/// The limit that the other headers describe, with its window.
fn first_limit(headers: &BTreeMap<String, String>) -> Option<&str> {
    let limits = headers.get("x-ratelimit-limit")?;
    limits.split(", ").nth(1)
}

/// The limits after the number of the first limit.
fn sorted_limits(header: &str) -> Vec<&str> {
    let mut limits: Vec<&str> = header.split(", ").skip(1).collect();
    limits.sort_unstable();
    limits
}

/// The fields that both servers have; lists are sets there.
fn of_limit(limit: &Value) -> Value {
    let mut limit = limit.clone();
    for list in ["conditions", "variables"] {
        if let Some(texts) = limit[list].as_array_mut() {
            texts.sort_by_key(Value::to_string);
            texts.dedup();
        }
    }
    limit
}

/// The limit of a counter, and the remaining hits; counters beyond their limit are near 2^64 there.
fn counter(counter: &Value) -> (String, u64) {
    let remaining = counter["remaining"].as_u64().unwrap_or(0);
    (of_limit(&counter["limit"]).to_string(), if remaining > u64::MAX / 2 { 0 } else { remaining })
}

fn is_near(there: &str, here: &str) -> bool {
    match (there.parse::<u64>(), here.parse::<u64>()) {
        (Ok(there), Ok(here)) => there.abs_diff(here) <= SECONDS,
        _ => false,
    }
}
