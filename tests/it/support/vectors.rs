//! The scenarios of `tests/vectors/`, for every test that plays them.

use serde::Deserialize;
use std::{fs, path::Path};
use tidegate_core::{
    limit::{
        Code, CurrentLimit, Decision, Denial, Descriptor, Entry, Header, Hits, Request, RequestLimit,
        RequestLimits, Reset, Status, Timestamp, Unit,
    },
    rules::{LoadOptions, Semantics, Source},
};

/// Wednesday, 15 November 2023, 00:00 UTC.
pub const START_UNIX_MS: u64 = 1_700_006_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    #[expect(dead_code, reason = "free text")]
    pub about: String,
    pub start_unix_ms: Option<u64>,
    pub compat: Option<Compat>,
    pub rules: String,
    pub steps: Vec<Step>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Compat {
    Reference,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub at_ms: u64,
    #[serde(default)]
    pub at_ns: u64,
    pub times: Option<u64>,
    #[serde(default)]
    pub every_ms: u64,
    pub rules: Option<String>,
    pub request: Option<VectorRequest>,
    #[serde(default)]
    pub wait_max_ms: u64,
    pub queued_ms: Option<u64>,
    #[serde(default)]
    pub queued_ns: u64,
    pub queued_as: Option<String>,
    pub release: Option<String>,
    pub cancel: Option<String>,
    pub response: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorRequest {
    #[serde(default)]
    pub hits_addend: u32,
    pub descriptors: Vec<VectorDescriptor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorDescriptor {
    pub entries: Vec<VectorEntry>,
    pub hits_addend: Option<u64>,
    #[serde(default)]
    pub is_negative_hits: bool,
    pub limit: Option<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorEntry {
    pub key: String,
    pub value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub requests_per_unit: u32,
    pub unit: String,
    /// The window, if it is not one unit.
    pub window_ms: Option<u64>,
    #[serde(default)]
    pub name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub overall_code: String,
    pub statuses: Vec<ExpectedStatus>,
    #[serde(default)]
    pub request_headers_to_add: Vec<AddedHeader>,
    #[serde(default)]
    pub response_headers_to_add: Vec<AddedHeader>,
    #[serde(default)]
    pub raw_body: String,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct AddedHeader {
    pub key: String,
    pub value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedStatus {
    pub code: String,
    pub limit_remaining: Option<u32>,
    pub reset_ms: Option<u64>,
    #[serde(default)]
    pub reset_ns: u64,
    pub reset: Option<Never>,
    /// None if the limit is not compared; `Some(None)` if there must be no limit.
    #[serde(default, deserialize_with = "present")]
    pub current_limit: Option<Option<Limit>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Never {
    Never,
}

/// Distinguishes null from an absent key.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<Limit>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl Scenario {
    pub fn rule_sources(&self, text: &str) -> ([Source; 1], LoadOptions) {
        let semantics = match self.compat {
            Some(Compat::Reference) => Semantics::Reference,
            None => Semantics::Exact,
        };
        ([Source::file(self.name.clone(), text)], LoadOptions { semantics, ..LoadOptions::default() })
    }
}

impl VectorRequest {
    pub fn as_request(&self) -> Request<'_> {
        let mut request = Request::new("d");
        for VectorDescriptor { entries, hits_addend, is_negative_hits, limit } in &self.descriptors {
            request.push(Descriptor {
                entries: entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect(),
                limit: limit.as_ref().map(|limit| RequestLimit {
                    requests: limit.requests_per_unit,
                    unit: Unit::from_name(&limit.unit).expect("a unit"),
                }),
                hits: Hits::new(*hits_addend, self.hits_addend, *is_negative_hits),
            });
        }
        request.checked(&RequestLimits::default()).expect("a good request")
    }
}

impl Expected {
    pub fn is(&self, decision: &Decision<'_>) -> Result<(), String> {
        let (code, marks, reply) = match decision.denial() {
            Some(Denial::Mark(marks)) => (Code::Ok, marks.into_vec(), None),
            Some(Denial::Reply(reply)) => (Code::OverLimit, Vec::new(), reply),
            None => (Code::Ok, Vec::new(), None),
        };
        if self.overall_code != name(code) {
            return Err(format!("overall_code: {} is not {}", name(code), self.overall_code));
        }
        let marks: Vec<_> = marks.into_iter().map(AddedHeader::from).collect();
        if marks != self.request_headers_to_add {
            return Err(format!(
                "request_headers_to_add: {marks:?} is not {:?}",
                self.request_headers_to_add
            ));
        }
        let headers: Vec<_> = reply.iter().flat_map(|reply| &reply.headers).map(AddedHeader::from).collect();
        if headers != self.response_headers_to_add {
            return Err(format!(
                "response_headers_to_add: {headers:?} is not {:?}",
                self.response_headers_to_add
            ));
        }
        let body = reply.map_or("", |reply| &reply.body);
        if body != self.raw_body {
            return Err(format!("raw_body: {body:?} is not {:?}", self.raw_body));
        }
        if self.statuses.len() != decision.statuses.len() {
            return Err(format!("{} statuses are not {}", decision.statuses.len(), self.statuses.len()));
        }
        let mut statuses = self.statuses.iter().zip(&decision.statuses).enumerate();
        statuses.try_for_each(|(index, (expected, status))| {
            expected.is(status).map_err(|difference| format!("statuses[{index}].{difference}"))
        })
    }
}

impl From<&Header> for AddedHeader {
    fn from(header: &Header) -> Self {
        let value = header.value.to_str().expect("rules have ASCII headers").to_owned();
        Self { key: header.name.to_string(), value }
    }
}

impl ExpectedStatus {
    pub fn is(&self, status: &Status<'_>) -> Result<(), String> {
        if self.code != name(status.code) {
            return Err(format!("code: {} is not {}", name(status.code), self.code));
        }
        if self.limit_remaining.is_some_and(|remaining| remaining != status.remaining) {
            return Err(format!("limit_remaining: {} is not {:?}", status.remaining, self.limit_remaining));
        }
        let reset = match (&self.reset, self.reset_ms) {
            (Some(Never::Never), _) => Some(Reset::Never),
            (None, Some(ms)) => {
                let end = Timestamp::from_millis(ms).saturating_add_nanos(self.reset_ns);
                Some(Reset::After(end.since(Timestamp::EPOCH)))
            }
            (None, None) => None,
        };
        if reset.is_some() && reset != status.reset {
            return Err(format!("reset: {:?} is not {reset:?}", status.reset));
        }
        let Some(limit) = &self.current_limit else { return Ok(()) };
        let expected = limit.as_ref().map(|limit| {
            let unit = Unit::from_name(&limit.unit);
            let of_case = limit.window_ms.map(|ms| ms * 1_000_000);
            let window = of_case.or(unit.map(|unit| unit.window().into()));
            (limit.name.as_str(), limit.requests_per_unit, unit, window)
        });
        let actual = status.limit.map(|CurrentLimit { name, requests, unit, window, .. }| {
            (name, requests, unit, Some(window.into()))
        });
        if expected == actual { Ok(()) } else { Err(format!("limit: {actual:?} is not {expected:?}")) }
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

pub fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(folder).expect("the vectors are part of the repository") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).expect("a file of scenarios");
            let file: File =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            scenarios.extend(file.scenarios);
        }
    }
    scenarios
}
