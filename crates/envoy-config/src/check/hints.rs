//! Why a descriptor has no rule, and the rule that may be meant.

use super::reach::{Shape, ShapeEntry};
use crate::actions::Sent;
use tidegate_core::rules::{DeclaredPath, DeclaredValues, DomainRules, RuleSet, nearest};

/// Names of keys that people give to the address of a client.
const ADDRESS_KEYS: [&str; 8] = [
    "remote_address",
    "masked_remote_address",
    "client_ip",
    "ip",
    "remote_ip",
    "source_ip",
    "client_address",
    "ip_address",
];

/// A domain that the rules do not have.
pub(super) fn unknown_domain(name: &str, rules: &RuleSet) -> String {
    let known: Vec<&str> = rules.domains().map(|domain| domain.name()).collect();
    let is_part = |other: &&&str| other.contains(name) || name.contains(**other);
    let meant = known.iter().find(is_part).copied().or_else(|| nearest(name, &known));
    let meant = meant.map_or_else(String::new, |meant| format!("; {meant:?} may be meant"));
    let known = known.join(", ");
    format!(
        "the rules have no domain {name:?}, so nothing limits its requests{meant}; domains with rules: {known}"
    )
}

/// The first difference between a descriptor without a rule and the nearest rule.
pub(super) fn of_descriptor(shape: &Shape, rules: &DomainRules) -> Option<String> {
    let paths = rules.declared_paths();
    let found = paths.iter().filter_map(|path| difference(shape, path)).min_by_key(|(distance, _)| *distance);
    found.map(|(_, hint)| hint)
}

/// The distance of a rule from a descriptor, and the difference.
fn difference(shape: &Shape, path: &DeclaredPath<'_>) -> Option<(usize, String)> {
    let own = shape.keys();
    let keys: Vec<&str> = path.entries.iter().map(|entry| entry.key.unwrap_or("*")).collect();
    let rule = format!("the rule {} ({})", path.rule.info.path, path.rule.origin);
    let (mut sorted, mut others) = (own.clone(), keys.clone());
    sorted.sort_unstable();
    others.sort_unstable();
    if own == keys {
        let mut both = shape.0.iter().zip(&path.entries);
        let differing = both.find_map(|(sent, declared)| other_value(sent, declared.values))?;
        return Some((1, format!("{rule} has {differing}")));
    }
    if sorted == others {
        let order =
            format!("the order counts: Envoy sends {}, and {rule} has {}", own.join(" → "), keys.join(" → "));
        return Some((1, order));
    }
    if own.len() == keys.len() {
        let mut differing = shape.0.iter().zip(&keys).filter(|(sent, key)| sent.key != **key);
        let (Some((sent, key)), None) = (differing.next(), differing.next()) else { return None };
        return Some((2, format!("{}; {rule} may be meant", other_key(sent, key)?)));
    }
    if let Some(more) = keys.strip_prefix(&*own) {
        let (count, more) = (more.len(), more.join(", "));
        return Some((3, format!("{rule} begins with these entries and needs {count} more: {more}")));
    }
    let more = own.strip_prefix(&*keys)?.join(", ");
    Some((3, format!("{rule} ends before {more}: a limit applies only to descriptors of as many entries")))
}

fn other_value(sent: &ShapeEntry, declared: DeclaredValues<'_>) -> Option<String> {
    match (&sent.value, declared) {
        (Sent::Exact(value), DeclaredValues::Exact(own)) if value != own => {
            Some(format!("{}={own}, not {value}", sent.key))
        }
        (Sent::Address, DeclaredValues::Exact(own)) => {
            Some(format!("{}={own}, which is no address", sent.key))
        }
        (Sent::Address, DeclaredValues::Set(_)) => Some(format!("other addresses for {}", sent.key)),
        _ => None,
    }
}

/// Explains a rule's key that differs from the sent key, if both may mean the same.
fn other_key(sent: &ShapeEntry, key: &str) -> Option<String> {
    let own = &*sent.key;
    if let (Sent::Exact(_), "generic_key") = (&sent.value, own) {
        return Some(format!(
            "generic_key without descriptor_key sends the key `generic_key`; write `descriptor_key: {key}`, or the key `generic_key` in the rule"
        ));
    }
    if let (Sent::Exact(_), "generic_key") = (&sent.value, key) {
        return Some(format!(
            "the action sends the key `{own}`; without descriptor_key it would send `generic_key`"
        ));
    }
    if own == "header_match" || key == "header_match" {
        return Some(format!(
            "the action sends the key `{own}`, and the rule has `{key}`; header_value_match sends `header_match` unless it has a descriptor_key"
        ));
    }
    if matches!(sent.value, Sent::Address | Sent::Network) && ADDRESS_KEYS.contains(&key) {
        return Some(format!(
            "Envoy sends the address as `{own}`, and the rule has `{key}`; rename the key of the rule"
        ));
    }
    let plain = |name: &str| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        name.strip_prefix("x_").map(str::to_owned).unwrap_or(name)
    };
    let header = match &sent.value {
        Sent::Text(what) => what.rsplit(' ').next().unwrap_or_default().trim_start_matches(':'),
        _ => "",
    };
    if plain(own) == plain(key)
        || !header.is_empty() && plain(header) == plain(key)
        || nearest(own, &[key]).is_some()
    {
        return Some(format!(
            "Envoy sends the key `{own}`, and the rule has `{key}`; write the same descriptor_key"
        ));
    }
    None
}
