//! Random requests, most of which reach a rule of a given file.

use crate::rng::Rng;
use serde_json::Value;
use tidegate::api::pb::{
    common::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::RateLimitRequest,
};

const KEYS: [&str; 6] = ["a", "b", "a_b", "k", "wa", "w"];
const VALUES: [&str; 8] = ["", "b", "x", "x_y", "xy", "xaby", "10.0.0.1", "c"];

/// A request to the domain of a rule file, or rarely a malformed request.
pub fn request(rng: &mut Rng, rules: &Value, units: &[i32]) -> RateLimitRequest {
    let mut domain = rules["domain"].as_str().expect("a domain").to_owned();
    if rng.once_in(40) {
        domain = rng.pick(&["", "unknown"]).to_owned();
    }
    let mut descriptors: Vec<RateLimitDescriptor> = Vec::new();
    let count = if rng.once_in(50) { rng.pick(&[0, 101]) } else { rng.between(1, 4) };
    for _ in 0..count {
        // If a counter occurs twice, decisions one after another differ from decisions by the sum.
        let again = (!descriptors.is_empty() && rng.once_in(3)).then(|| rng.pick(&descriptors).entries);
        descriptors.push(descriptor(rng, rules, units, again));
    }
    let hits_addend = if rng.once_in(3) { rng.between(0, 4) as u32 } else { 0 };
    RateLimitRequest { domain, descriptors, hits_addend }
}

fn descriptor(rng: &mut Rng, rules: &Value, units: &[i32], again: Option<Vec<Entry>>) -> RateLimitDescriptor {
    let entries = again.unwrap_or_else(|| entries(rng, rules));
    let limit = rng
        .once_in(8)
        .then(|| RateLimitOverride { requests_per_unit: rng.between(0, 6) as u32, unit: rng.pick(units) });
    let hits_addend = rng.once_in(3).then(|| rng.pick(&[0, 0, 1, 2, 3, 1 << 33]));
    RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits: rng.once_in(20) }
}

/// The entries on a path through the rules, or other entries.
fn entries(rng: &mut Rng, rules: &Value) -> Vec<Entry> {
    let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
    if rng.once_in(60) {
        // Entries beyond Tidegate's own bounds, or malformed by them.
        return match rng.below(4) {
            0 => Vec::new(),
            1 => vec![entry("", "x")],
            2 => vec![entry("a", &"v".repeat(8193))],
            _ => (0..33).map(|_| entry("a", "x")).collect(),
        };
    }
    let (mut entries, mut level) = (Vec::new(), &rules["descriptors"]);
    while let Some(descriptors) = level.as_array().filter(|descriptors| !descriptors.is_empty()) {
        let chosen = rng.pick(&descriptors.iter().collect::<Vec<_>>());
        let (key, value) = (chosen["key"].as_str().unwrap_or_default(), chosen["value"].as_str());
        let key = if rng.once_in(12) { rng.pick(&KEYS).to_owned() } else { filled(rng, key) };
        let value = match value {
            Some(value) if !rng.once_in(6) => filled(rng, value),
            _ => rng.pick(&VALUES).to_owned(),
        };
        entries.push(match key.split_once('_') {
            // The same joined text, cut at another place.
            Some((key, rest)) if rng.once_in(3) => entry(key, &format!("{rest}_{value}")),
            _ => entry(&key, &value),
        });
        level = &chosen["descriptors"];
        if rng.once_in(4) {
            break;
        }
    }
    entries
}

/// A text that a pattern matches.
fn filled(rng: &mut Rng, pattern: &str) -> String {
    let parts: Vec<&str> = pattern.split('*').collect();
    let mut text = parts[0].to_owned();
    for part in &parts[1..] {
        text += rng.pick(&["", "x", "b", "y_b", "*"]);
        text += part;
    }
    text
}
