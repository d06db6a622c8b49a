//! Fields of a mapping that lines do not have, and the names of the fields that they do have.

use super::mapping::{Mapping, Texts};
use serde_json::Value;
use std::collections::BTreeSet;
use tidegate_core::rules::nearest_name;

/// Number of JSON lines whose field names are noted. A message can then suggest the nearest name for a field that no line has.
const NAMED_LINES: u64 = 64;
/// After this many names, no more lines are looked at.
const NAMES_KEPT: usize = 1_000;
/// Names that a message lists.
const NAMES_LISTED: usize = 16;

/// A log does not have a field of the mapping.
#[derive(Debug, thiserror::Error)]
#[error("there is no {kind} `{name}`, for {used}; {known}")]
pub struct UnknownField {
    kind: &'static str,
    name: String,
    used: String,
    known: String,
}

/// The fields of the mapping that lines had.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldsSeen {
    lines: u64,
    /// Lines with a time, and with a number of hits if that is a field.
    requests: u64,
    /// By field of the mapping: number of lines with the field.
    found: Vec<u64>,
    /// Names in the first lines, if these are JSON.
    names: BTreeSet<String>,
    no_address: u64,
    first_no_address: Option<String>,
}

impl UnknownField {
    pub(super) fn new<'n>(
        mapping: &Mapping,
        field: usize,
        kind: &'static str,
        known: impl Iterator<Item = &'n str>,
    ) -> Self {
        let name = mapping.fields[field].to_string();
        let known = known_text(&name, &known.collect::<Vec<_>>());
        Self { kind, used: mapping.use_of(field), known, name }
    }
}

/// The nearest of the names, or all of them.
fn known_text(name: &str, known: &[&str]) -> String {
    match nearest_name(name, known) {
        Some(nearest) => format!("the nearest is `{nearest}`"),
        None if known.is_empty() => "there are none".to_owned(),
        None => {
            let more = if known.len() > NAMES_LISTED { ", and more" } else { "" };
            format!("there are {}{more}", known[..known.len().min(NAMES_LISTED)].join(", "))
        }
    }
}

impl FieldsSeen {
    pub(super) fn note_line(&mut self, texts: &Texts<'_>) {
        self.lines += 1;
        self.found.resize(texts.len(), 0);
        self.found.iter_mut().zip(texts).for_each(|(found, text)| *found += u64::from(text.is_some()));
    }

    pub(super) fn note_request(&mut self) {
        self.requests += 1;
    }

    pub(super) fn note_no_address(&mut self, text: &str) {
        self.no_address += 1;
        self.first_no_address.get_or_insert_with(|| text.chars().take(100).collect());
    }

    /// Notes the names of the fields in one of the first lines.
    pub(super) fn note_names(&mut self, object: &Value) {
        if self.lines < NAMED_LINES && self.names.len() < NAMES_KEPT {
            add_names(object, "", &mut self.names);
        }
    }

    /// Warnings about fields of the mapping that no line has, and about values that are not addresses.
    pub fn warnings(&self, mapping: &Mapping) -> Vec<String> {
        let is_missing = |field: &usize| {
            let is_required = *field == mapping.time || mapping.hits == Some(*field);
            self.found.get(*field) == Some(&0) && (is_required || self.requests > 0)
        };
        let known: Vec<&str> = self.names.iter().map(|name| &**name).collect();
        let missing = (0..mapping.fields.len()).filter(is_missing).map(|field| {
            let (name, used) = (&mapping.fields[field], mapping.use_of(field));
            // CSV and text have fixed fields: the field is there, without a value.
            let known =
                if known.is_empty() { "each has none, or -".to_owned() } else { known_text(name, &known) };
            format!("no line has a value for the field `{name}`, for {used}; {known}")
        });
        let no_address = self.first_no_address.iter().map(|first| {
            format!(
                "{} values of addresses are no IP addresses, such as {first:?}; they are kept as they are",
                self.no_address
            )
        });
        missing.chain(no_address).collect()
    }
}

/// Adds the names by which [`super::json::JsonPath`] finds texts.
fn add_names(value: &Value, name: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                let name = if name.is_empty() { member.clone() } else { format!("{name}.{member}") };
                add_names(value, &name, names);
            }
        }
        Value::Array(elements) => {
            if let Some(first) = elements.first() {
                add_names(first, &format!("{name}[0]"), names);
            }
        }
        _ if !name.is_empty() => {
            names.insert(name.to_owned());
        }
        _ => {}
    }
}
