//! Dynamic metadata: the request, and the limits that are over, for the proxy's logs and filters.
//!
//! It always contains the slots of a request in flight, without a setting: the proxy returns them when the request ends.
//!
//! `domain`, `descriptors` and `metadata` are as the reference server has them; additions of Tidegate are under `tidegate`.

use serde_json::{Map, Value, json};
use tidegate_core::limit::{
    Code, Decision, Denial, DenialCause, Descriptor, Entry, GrantedSlot, Hits, Request, RequestLimit, Reset,
    Status, Unit,
};

/// The ticket of a request in flight, and the hits that it holds.
pub(super) fn of_slot(slot: &GrantedSlot) -> Map<String, Value> {
    let GrantedSlot { ticket, cost, .. } = slot;
    [("slot".into(), ticket.as_ref().into()), ("cost".into(), (*cost).into())].into_iter().collect()
}

/// The metadata of a response.
pub(super) fn of(
    request: &Request<'_>,
    decision: &Decision<'_>,
    denial: Option<&Denial<'_>>,
) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("domain".into(), request.domain().into());
    let descriptors = request.descriptors().iter();
    let descriptors = match request.sent_hits() {
        None => descriptors.map(descriptor_of).collect(),
        Some(sent) => {
            if sent.of_request > 0 {
                object.insert("hitsAddend".into(), sent.of_request.into());
            }
            descriptors.zip(&sent.of_descriptors).map(|(of, hits)| descriptor_as_sent(of, *hits)).collect()
        }
    };
    object.insert("descriptors".into(), descriptors);
    let metadata = metadata_of_rules(decision);
    if !metadata.is_empty() {
        object.insert("metadata".into(), metadata.into());
    }
    let is_over = |(_, status): &(usize, &Status<'_>)| status.code == Code::OverLimit;
    let over = decision.statuses.iter().enumerate().filter(is_over);
    let own = json!({
        "marked": matches!(denial, Some(Denial::Mark(_))),
        "over_limit": over.map(|(descriptor, status)| over_limit(descriptor, status, decision.cause(status))).collect::<Value>(),
    });
    object.insert("tidegate".into(), own);
    object
}

fn entries_of(descriptor: &Descriptor<'_>) -> Value {
    let entry = |Entry { key, value }: &Entry<'_>| format!("{key}={value}");
    json!({ "entries": descriptor.entries.iter().map(entry).collect::<Value>() })
}

/// A descriptor in the form of the reference server: with the hits that were sent, and a limit in protobuf's text format.
fn descriptor_as_sent(descriptor: &Descriptor<'_>, hits: Option<u64>) -> Value {
    let mut object = entries_of(descriptor);
    if let Some(RequestLimit { requests, unit }) = descriptor.limit {
        let requests = (requests > 0).then(|| format!("requests_per_unit:{requests}"));
        let unit = match unit {
            // The enumeration of requests has no week.
            Unit::Week => "unit:7".to_owned(),
            other => format!("unit:{}", other.name().to_uppercase()),
        };
        object["limit"] = requests.into_iter().chain([unit]).collect::<Vec<_>>().join(" ").into();
    }
    if let Some(hits) = hits {
        object["hitsAddend"] = hits.into();
    }
    object
}

/// A descriptor of the request.
fn descriptor_of(descriptor: &Descriptor<'_>) -> Value {
    let mut object = entries_of(descriptor);
    if let Some(RequestLimit { requests, unit }) = descriptor.limit {
        let unit = unit.name().to_uppercase();
        object["limit"] = format!("requests_per_unit:{requests} unit:{unit}").into();
    }
    object["hitsAddend"] = match descriptor.hits {
        Hits::Peek => 0.into(),
        Hits::Take(hits) | Hits::GiveBack(hits) => hits.get().into(),
    };
    if let Hits::GiveBack(_) = descriptor.hits {
        object["isNegativeHits"] = true.into();
    }
    object
}

/// The limit that a descriptor exceeds, its rule, and the time until the request would be admitted.
fn over_limit(descriptor: usize, status: &Status<'_>, cause: Option<DenialCause>) -> Value {
    let mut object = json!({ "descriptor": descriptor, "remaining": status.remaining });
    if let Some(rule) = status.rule {
        object["rule"] = rule.path.as_ref().into();
        object["declared_at"] = rule.declared_at.as_ref().into();
    }
    if let Some(limit) = status.limit {
        object["limit"] = json!({
            "name": limit.name,
            "requests_per_unit": limit.requests,
            "window": limit.window.to_string(),
        });
    }
    if let Some(ban) = status.ban.name() {
        object["ban"] = ban.into();
    }
    match status.reset {
        Some(Reset::After(wait)) => object["reset_seconds"] = wait.as_secs_f64().into(),
        Some(Reset::Never) => object["never"] = true.into(),
        // Unknown, as the limit did not deny.
        None => {}
    }
    if let Some(cause) = cause {
        object["cause"] = cause.name().into();
    }
    object
}

/// The `metadata` of the rules of descriptors that are not over, merged. If a key is in several, the first applies.
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
