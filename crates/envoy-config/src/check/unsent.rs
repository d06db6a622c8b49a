//! Rules that nothing sends, and the actions that would.

use super::{collected::Collected, finding::Kind, reach::Shape};
use crate::key_source::KeySource;
use serde_json::{Value, json};
use tidegate_core::rules::{DeclaredEntry, DeclaredPath, DeclaredValues, DomainRules, SetValues};

pub(super) fn check(collected: &mut Collected<'_>) {
    let rules = collected.rules;
    for domain in rules.domains() {
        let Some(shapes) = collected.shapes.get(domain.name()) else {
            let rule = domain.rules().first().copied().filter(|_| !collected.has_unread);
            let Some(rule) = rule else { continue };
            let message = format!("no filter here has the domain {:?}", domain.name());
            collected.findings.add_at(Kind::DomainNotSent, rule.origin.clone(), "", message, None);
            continue;
        };
        // An unknown descriptor may reach it.
        if collected.incomplete.contains(domain.name()) {
            continue;
        }
        for path in unsent(domain, shapes) {
            let sent: Vec<String> =
                shapes.iter().filter(|shape| !shape.is_ticket()).map(Shape::to_string).collect();
            let sent = if sent.is_empty() { "nothing".to_owned() } else { sent.join("; ") };
            let message =
                format!("no descriptor of the domain reaches {}; it is sent: {sent}", path.rule.info.path);
            let at = path.rule.origin.clone();
            collected.findings.add_at(Kind::RuleNotSent, at, domain.name(), message, actions(&path));
        }
    }
}

/// The rules with limits that none of these descriptors can reach.
fn unsent<'r>(domain: &'r DomainRules, shapes: &[Shape]) -> Vec<DeclaredPath<'r>> {
    let paths = domain.declared_paths().into_iter();
    let limits = paths.filter(|path| !path.rule.unlimited);
    limits.filter(|path| !shapes.iter().any(|shape| shape.may_reach(path))).collect()
}

/// The entry of `rate_limits` that sends such a descriptor; none if a key is a wildcard.
fn actions(path: &DeclaredPath<'_>) -> Option<Value> {
    let actions: Option<Vec<Value>> = path.entries.iter().map(action).collect();
    Some(json!([{ "actions": actions? }]))
}

fn action(entry: &DeclaredEntry<'_>) -> Option<Value> {
    let key = entry.key?;
    let exact = match entry.values {
        DeclaredValues::Exact(value) => Some(value.to_owned()),
        DeclaredValues::Set(set) => match set.values() {
            SetValues::Texts(texts) => texts.first().map(ToString::to_string),
            _ => None,
        },
        _ => None,
    };
    Some(match (key, KeySource::of_key(key), exact) {
        ("remote_address" | "masked_remote_address" | "destination_cluster" | "source_cluster", ..) => {
            json!({ key: {} })
        }
        ("generic_key", _, Some(value)) => json!({"generic_key": {"descriptor_value": value}}),
        (_, KeySource::Header(name), None) => {
            json!({"request_headers": {"header_name": name, "descriptor_key": key}})
        }
        (_, KeySource::Header(name), Some(_)) if name.starts_with(':') => {
            json!({"request_headers": {"header_name": name, "descriptor_key": key}})
        }
        (_, _, Some(value)) => json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}}),
        (_, _, None) => json!({"generic_key": {"descriptor_key": key, "descriptor_value": "VALUE"}}),
    })
}
