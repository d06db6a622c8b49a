//! A resource as a document of the rules' grammar.
//!
//! The message has no fields for what the reference server lacks (algorithms, several limits, queues, `on_deny`). Those
//! keys are read from `metadata.tidegate` of a descriptor: keys of a descriptor apply to it, all others to its
//! `rate_limit`.

use crate::api::{
    pb::rules::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit},
    protobuf_struct::to_object,
};
use prost::Message as _;
use prost_types::Any;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use tidegate_core::rules::{Source, SourceId};

/// Type of the resources.
pub(super) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The key of `metadata` with keys of rule files.
const EXTENSIONS: &str = "tidegate";

/// Keys of `metadata.tidegate` that belong to the descriptor.
const DESCRIPTOR_KEYS: [&str; 13] = [
    "counters",
    "lease",
    "log",
    "on_deny",
    "rate_limits",
    "request_limits",
    "shard_by",
    "share_threshold",
    "value_ignore_case",
    "value_network",
    "value_regex",
    "value_to_metric",
    "values",
];

/// The keys among them that replace `value`.
const VALUE_KEYS: [&str; 3] = ["value_network", "value_regex", "values"];

/// Bytes of a descriptor up to which its document is indented.
const INDENTED_MAX: usize = 4_096;

/// The document of a resource, or why it is none.
pub(super) fn source(resource: &Any) -> Result<Source, String> {
    if resource.type_url != TYPE_URL {
        return Err(format!("a resource of type {:?}; send {TYPE_URL}", resource.type_url));
    }
    let config = RateLimitConfig::decode(&*resource.value)
        .map_err(|error| format!("a resource of type {TYPE_URL} cannot be decoded: {error}"))?;
    let RateLimitConfig { name, domain, descriptors } = config;
    let mut text = format!("{{\n  \"domain\": {},\n  \"descriptors\": [", Value::from(&*domain));
    // Converted one by one: a tree of all would take many times the memory of the resource.
    for (number, declared) in descriptors.into_iter().enumerate() {
        let before = if number == 0 { "\n" } else { ",\n" };
        text.push_str(before);
        push(&descriptor(&declared), &mut text);
    }
    text.push_str("\n  ]\n}\n");
    if text.contains(is_escaped) {
        text = escaped(&text);
    }
    text.shrink_to_fit();
    // The name is optional; the domain identifies a resource too.
    let name = if name.is_empty() { domain } else { name };
    Ok(Source::new(SourceId::Xds(name.into()), text))
}

/// Whether a character stands unescaped in JSON, but may not in YAML, as which the text is read.
fn is_escaped(one: char) -> bool {
    matches!(one, '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

/// A text in JSON with these characters escaped. They occur in its strings alone.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match is_escaped(one) {
            true => _ = write!(escaped, "\\u{:04x}", u32::from(one)),
            false => escaped.push(one),
        }
    }
    escaped
}

/// Appends a descriptor, on lines of its own if it is short: a deep descriptor would consist mostly of indentation.
fn push(descriptor: &Value, text: &mut String) {
    let compact = descriptor.to_string();
    if compact.len() > INDENTED_MAX {
        return text.push_str(&compact);
    }
    let indented = format!("{descriptor:#}");
    text.push_str("    ");
    text.push_str(&indented.replace('\n', "\n    "));
}

fn descriptors(declared: &[RateLimitDescriptor]) -> Vec<Value> {
    declared.iter().map(descriptor).collect()
}

fn descriptor(declared: &RateLimitDescriptor) -> Value {
    let mut keys = Map::new();
    keys.insert("key".into(), declared.key.as_str().into());
    if !declared.value.is_empty() {
        keys.insert("value".into(), declared.value.as_str().into());
    }
    for (key, is_set) in [
        ("shadow_mode", declared.shadow_mode),
        ("detailed_metric", declared.detailed_metric),
        ("quota_mode", declared.quota_mode),
    ] {
        if is_set {
            keys.insert(key.into(), true.into());
        }
    }
    let mut limit = declared.rate_limit.as_ref().map(rate_limit);
    let mut metadata = declared.metadata.as_ref().map(to_object).unwrap_or_default();
    match metadata.remove(EXTENSIONS) {
        None => {}
        Some(Value::Object(extensions)) => extend(extensions, &mut keys, &mut limit),
        // Reported as an unknown key, with its value.
        Some(other) => _ = keys.insert(EXTENSIONS.into(), other),
    }
    if !metadata.is_empty() {
        keys.insert("metadata".into(), metadata.into());
    }
    keys.extend(limit.map(|limit| ("rate_limit".to_owned(), Value::Object(limit))));
    if !declared.descriptors.is_empty() {
        keys.insert("descriptors".into(), descriptors(&declared.descriptors).into());
    }
    Value::Object(keys)
}

/// Adds the keys of `metadata.tidegate`.
fn extend(
    extensions: Map<String, Value>,
    keys: &mut Map<String, Value>,
    limit: &mut Option<Map<String, Value>>,
) {
    for (key, value) in extensions {
        if key == "rate_limits" {
            // Replaces the only limit that the message can have.
            *limit = None;
        }
        if VALUE_KEYS.contains(&&*key) {
            keys.remove("value");
        }
        if DESCRIPTOR_KEYS.contains(&&*key) {
            keys.insert(key, value);
            continue;
        }
        let limit = limit.get_or_insert_default();
        if key == "per" {
            limit.remove("unit");
        }
        limit.insert(key, value);
    }
}

fn rate_limit(declared: &RateLimitPolicy) -> Map<String, Value> {
    let mut limit = Map::new();
    if !declared.name.is_empty() {
        limit.insert("name".into(), declared.name.as_str().into());
    }
    if !declared.replaces.is_empty() {
        let names = declared.replaces.iter().map(|replaced| json!({ "name": replaced.name }));
        limit.insert("replaces".into(), names.collect());
    }
    let unit = match RateLimitUnit::try_from(declared.unit) {
        Ok(unit) => unit.as_str_name().to_ascii_lowercase(),
        Err(_) => declared.unit.to_string(),
    };
    if declared.unlimited {
        limit.insert("unlimited".into(), true.into());
        if declared.unit != RateLimitUnit::Unknown as i32 {
            limit.insert("unit".into(), unit.into());
        }
    } else {
        limit.insert("unit".into(), unit.into());
        limit.insert("requests_per_unit".into(), declared.requests_per_unit.into());
    }
    limit
}
