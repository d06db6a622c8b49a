//! Converts `tests/vectors/*.yaml` to `clients/conformance/cases/vectors.json`: the same scenarios in the vocabulary of the
//! clients.
//!
//! The conversion fills in defaults, so that a runner needs no YAML parser and need not know them. Integers beyond 2^53
//! become strings, since JSON parsers of some languages round them.

use super::Failure;
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

/// Time of the first step where a scenario gives none: 2023-11-15T00:00:00Z.
const START_UNIX_MS: u64 = 1_700_006_400_000;
/// Largest integer that every JSON parser keeps exactly.
const EXACT_MAX: u64 = 1 << 53;

/// Path of the converted scenarios, relative to the repository.
pub(super) const CONVERTED: &str = "clients/conformance/cases/vectors.json";

/// The text of the converted file.
pub(super) fn convert(repository: &Path) -> Result<String, Failure> {
    let folder = repository.join("tests/vectors");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths {
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| in_file(&error))?;
        let file: Value = serde_saphyr::from_str(&text).map_err(|error| in_file(&error))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        scenarios
            .extend(file["scenarios"].as_array().into_iter().flatten().map(|found| scenario(&name, found)));
    }
    // One scenario a line: a change of one scenario shows as one changed line.
    let lines: Vec<_> = scenarios.iter().map(Value::to_string).collect();
    Ok(format!("{{\"scenarios\": [\n{}\n]}}\n", lines.join(",\n")))
}

fn scenario(file: &str, scenario: &Value) -> Value {
    let steps: Vec<_> = scenario["steps"].as_array().into_iter().flatten().collect();
    let any_has = |keys: &[&str]| steps.iter().any(|step| keys.iter().any(|key| step.get(key).is_some()));
    let mut needs = Vec::new();
    needs.extend(any_has(&["rules"]).then_some("reload"));
    needs.extend(any_has(&["wait_max_ms", "queued_ms", "release", "cancel"]).then_some("queue"));
    let at = |step: &&Value| (step["at_ms"].as_u64(), step["at_ns"].as_u64().unwrap_or(0));
    needs.extend((!steps.iter().is_sorted_by_key(at)).then_some("clock_backwards"));
    json!({
        "name": format!("{file}/{}", scenario["name"].as_str().unwrap_or_default()),
        "needs": needs,
        "start_unix_ms": scenario["start_unix_ms"].as_u64().unwrap_or(START_UNIX_MS),
        "compat": scenario["compat"],
        "rules": scenario["rules"],
        "steps": if needs.is_empty() { steps.into_iter().map(step).collect() } else { Vec::new() },
    })
}

fn step(step: &Value) -> Value {
    let request = &step["request"];
    let descriptors = request["descriptors"].as_array().into_iter().flatten();
    let hits_addend = request["hits_addend"].as_u64().unwrap_or(0);
    json!({
        "at": [step["at_ms"], step["at_ns"].as_u64().unwrap_or(0)],
        "times": step["times"].as_u64().unwrap_or(1),
        "every_ms": step["every_ms"].as_u64().unwrap_or(0),
        "descriptors": descriptors.map(|hits| descriptor(hits, hits_addend)).collect::<Vec<_>>(),
        "decision": decision(&step["response"]),
    })
}

fn descriptor(descriptor: &Value, hits_addend: u64) -> Value {
    let entry = |entry: &Value| json!([entry["key"], entry["value"]]);
    let entries = descriptor["entries"].as_array().into_iter().flatten().map(entry);
    let mut converted = json!({ "entries": entries.collect::<Vec<_>>() });
    let cost = descriptor["hits_addend"].as_u64().unwrap_or_else(|| hits_addend.max(1));
    converted["cost"] = if cost > EXACT_MAX { cost.to_string().into() } else { cost.into() };
    if descriptor["is_negative_hits"] == true {
        converted["give_back"] = true.into();
    }
    if let Some(limit) = descriptor.get("limit") {
        converted["limit"] = limit_of(limit);
    }
    converted
}

fn decision(response: &Value) -> Value {
    let pairs = |key: &str| -> Value {
        let headers = response[key].as_array().into_iter().flatten();
        headers.map(|header| json!([header["key"], header["value"]])).collect()
    };
    json!({
        "allowed": response["overall_code"] == "OK",
        "statuses": response["statuses"].as_array().into_iter().flatten().map(status).collect::<Value>(),
        "request_headers": pairs("request_headers_to_add"),
        "response_headers": pairs("response_headers_to_add"),
        "body": response["raw_body"].as_str().unwrap_or_default(),
    })
}

fn status(status: &Value) -> Value {
    let mut converted = Map::new();
    converted.insert("over_limit".into(), (status["code"] == "OVER_LIMIT").into());
    if let Some(remaining) = status.get("limit_remaining") {
        converted.insert("remaining".into(), remaining.clone());
    }
    if status.get("reset").is_some() {
        converted.insert("reset_after".into(), Value::Null);
    } else if let Some(millis) = status.get("reset_ms") {
        let nanos = status["reset_ns"].as_u64().unwrap_or(0);
        converted.insert("reset_after".into(), json!([millis, nanos]));
    }
    if let Some(limit) = status.get("current_limit") {
        let limit = if limit.is_null() { Value::Null } else { limit_of(limit) };
        converted.insert("limit".into(), limit);
    }
    converted.into()
}

fn limit_of(limit: &Value) -> Value {
    let unit = limit["unit"].as_str().filter(|unit| *unit != "UNKNOWN").unwrap_or_default().to_lowercase();
    let mut converted = json!({ "requests": limit["requests_per_unit"], "unit": unit });
    if let Some(millis) = limit.get("window_ms") {
        converted["window"] = json!([millis, 0]);
    }
    if let Some(name) = limit["name"].as_str().filter(|name| !name.is_empty()) {
        converted["name"] = name.into();
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_converted_vectors_are_those_of_the_repository() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let committed = fs::read_to_string(repository.join(CONVERTED)).unwrap_or_default();
        let is_current = committed == convert(&repository).expect("the vectors are valid");
        assert!(is_current, "{CONVERTED} is stale; run `cargo xtask clients --write-vectors`");
    }
}
