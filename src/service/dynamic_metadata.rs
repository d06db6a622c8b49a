//! `dynamic_metadata`: what was asked and what is over, for the proxy's logs and filters.
//!
//! `domain`, `descriptors` and `metadata` are as the reference server has them; what only Tidegate tells is below `tidegate`.

use crate::limit::{Code, Decision, Denial, Descriptor, Entry, Hits, Override, Request, Reset, Status};
use serde_json::{Map, Value, json};

/// The metadata of an answer.
pub(super) fn of(
    request: &Request<'_>,
    decision: &Decision<'_>,
    denial: Option<&Denial<'_>>,
) -> Map<String, Value> {
    let mut told = Map::new();
    told.insert("domain".into(), request.domain().into());
    told.insert("descriptors".into(), request.descriptors().iter().map(asked).collect());
    let metadata = metadata_of_rules(decision);
    if !metadata.is_empty() {
        told.insert("metadata".into(), metadata.into());
    }
    let is_over = |(_, status): &(usize, &Status<'_>)| status.code == Code::OverLimit;
    let over = decision.statuses.iter().enumerate().filter(is_over);
    let own = json!({
        "marked": matches!(denial, Some(Denial::Marked(_))),
        "over_limit": over.map(|(descriptor, status)| over_limit(descriptor, status)).collect::<Value>(),
    });
    told.insert("tidegate".into(), own);
    told
}

/// What one descriptor asked.
fn asked(descriptor: &Descriptor<'_>) -> Value {
    let entry = |Entry { key, value }: &Entry<'_>| format!("{key}={value}");
    let mut told = json!({ "entries": descriptor.entries.iter().map(entry).collect::<Value>() });
    if let Some(Override { requests, unit }) = descriptor.limit {
        let unit = unit.name().to_uppercase();
        told["limit"] = format!("requests_per_unit:{requests} unit:{unit}").into();
    }
    told["hitsAddend"] = match descriptor.hits {
        Hits::Peek => 0.into(),
        Hits::Take(hits) | Hits::GiveBack(hits) => hits.get().into(),
    };
    if let Hits::GiveBack(_) = descriptor.hits {
        told["isNegativeHits"] = true.into();
    }
    told
}

/// Which limit of which rule a descriptor is over, and when it will pass.
fn over_limit(descriptor: usize, status: &Status<'_>) -> Value {
    let mut told = json!({ "descriptor": descriptor, "remaining": status.remaining });
    if let Some(rule) = status.rule {
        told["rule"] = rule.path.as_ref().into();
        told["declared_at"] = rule.declared_at.as_ref().into();
    }
    if let Some(limit) = status.limit {
        told["limit"] = json!({
            "name": limit.name,
            "requests_per_unit": limit.requests,
            "window": limit.window.to_string(),
        });
    }
    match status.reset {
        Some(Reset::After(wait)) => told["reset_seconds"] = wait.as_secs_f64().into(),
        Some(Reset::Never) => told["never"] = true.into(),
        // There is no room for its counter; nobody knows when there will be.
        None => {}
    }
    told
}

/// What the rules of descriptors that are not over have as their `metadata`, in one; the first that has a key has it.
fn metadata_of_rules(decision: &Decision<'_>) -> Map<String, Value> {
    let mut merged = Map::new();
    for status in decision.statuses.iter().filter(|status| status.code == Code::Ok) {
        if let Some(Value::Object(metadata)) = status.rule.and_then(|rule| rule.metadata.as_ref()) {
            merge(&mut merged, metadata);
        }
    }
    merged
}

fn merge(merged: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (key, value) in other {
        match (merged.get_mut(key), value) {
            (None, _) => _ = merged.insert(key.clone(), value.clone()),
            (Some(Value::Object(merged)), Value::Object(other)) => merge(merged, other),
            (Some(_), _) => {}
        }
    }
}
