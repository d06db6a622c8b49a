//! Plays the scenarios of `tests/vectors/` to the limiter. Clients in other languages play the same files.

use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path, time::Duration};
use tidegate::{
    limit::{
        Code, CurrentLimit, Decision, Denial, Descriptor, Entry, Header, Hits, Override, Request,
        RequestLimits, Reset, Status, Timestamp, Unit,
    },
    limiter::{Due, Limiter, Ticket, Verdict},
    rules::{LoadOptions, RuleSet, Semantics, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Wednesday, 15 November 2023, 00:00 UTC.
const START_UNIX_MS: u64 = 1_700_006_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[expect(dead_code, reason = "free text")]
    about: String,
    start_unix_ms: Option<u64>,
    compat: Option<Compat>,
    rules: String,
    steps: Vec<Step>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Compat {
    Reference,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at_ms: u64,
    #[serde(default)]
    at_ns: u64,
    times: Option<u64>,
    #[serde(default)]
    every_ms: u64,
    rules: Option<String>,
    request: Option<VectorRequest>,
    #[serde(default)]
    wait_max_ms: u64,
    queued_ms: Option<u64>,
    #[serde(default)]
    queued_ns: u64,
    queued_as: Option<String>,
    release: Option<String>,
    cancel: Option<String>,
    response: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorRequest {
    #[serde(default)]
    hits_addend: u32,
    descriptors: Vec<VectorDescriptor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorDescriptor {
    entries: Vec<VectorEntry>,
    hits_addend: Option<u64>,
    #[serde(default)]
    is_negative_hits: bool,
    limit: Option<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorEntry {
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    requests_per_unit: u32,
    unit: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    overall_code: String,
    statuses: Vec<ExpectedStatus>,
    #[serde(default)]
    request_headers_to_add: Vec<AddedHeader>,
    #[serde(default)]
    response_headers_to_add: Vec<AddedHeader>,
    #[serde(default)]
    raw_body: String,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct AddedHeader {
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedStatus {
    code: String,
    limit_remaining: Option<u32>,
    reset_ms: Option<u64>,
    #[serde(default)]
    reset_ns: u64,
    reset: Option<Never>,
    /// None if it is not compared; `Some(None)` if there must be none.
    #[serde(default, deserialize_with = "present")]
    current_limit: Option<Option<Limit>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Never {
    Never,
}

/// Distinguishes null from an absent key.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<Limit>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl Scenario {
    fn rule_sources(&self, text: &str) -> ([Source; 1], LoadOptions) {
        let semantics = match self.compat {
            Some(Compat::Reference) => Semantics::Reference,
            None => Semantics::Exact,
        };
        ([Source::file(self.name.clone(), text)], LoadOptions { semantics, ..LoadOptions::default() })
    }

    fn play(&self) {
        let store =
            StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 1_000, on_full: OnFull::Deny };
        let (sources, options) = self.rule_sources(&self.rules);
        let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
        let limiter = Limiter::new(rules, store, false);
        let start = Timestamp::from_millis(self.start_unix_ms.unwrap_or(START_UNIX_MS));
        let mut player = Player { limiter, queued: BTreeMap::new(), before: start };
        for (number, step) in self.steps.iter().enumerate() {
            if let Some(rules) = &step.rules {
                let (sources, options) = self.rule_sources(rules);
                let next = player.limiter.update_rules().build(&sources, &options);
                drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
            }
            for time in 0..step.times.unwrap_or(1) {
                let millis = step.at_ms + time * step.every_ms;
                let now = start.saturating_add_nanos(millis * 1_000_000 + step.at_ns);
                if let Err(difference) = player.play(step, now) {
                    panic!("{}, step {number} at {millis} ms + {} ns: {difference}", self.name, step.at_ns);
                }
                player.before = now;
            }
        }
    }
}

/// The limiter that a scenario is played to.
struct Player<'s> {
    limiter: Limiter,
    /// Queued requests by the names that the scenario gives them.
    queued: BTreeMap<&'s str, (&'s VectorRequest, Ticket)>,
    /// Time of the step before.
    before: Timestamp,
}

impl<'s> Player<'s> {
    fn play(&mut self, step: &'s Step, now: Timestamp) -> Result<(), String> {
        if let Some(name) = &step.cancel {
            let (_, ticket) = self.take(name)?;
            self.limiter.cancel(ticket, now);
        }
        match (&step.request, &step.release, &step.response) {
            (Some(request), None, _) => self.send(step, request, now),
            (None, Some(name), Some(response)) => self.release(name, response, now),
            (None, None, None) => Ok(()),
            _ => Err("a response belongs to a request or to a release".to_owned()),
        }
    }

    fn send(&mut self, step: &'s Step, request: &'s VectorRequest, now: Timestamp) -> Result<(), String> {
        let (sent, wait_max) = (request.as_request(), Duration::from_millis(step.wait_max_ms));
        match (self.limiter.pin().decide_or_queue(&sent, wait_max, now), step.queued_ms, &step.response) {
            (Verdict::Decided(decision), None, Some(response)) => response.is(&decision),
            (Verdict::Queued(ticket), Some(millis), None) => {
                let expected = now.saturating_add_nanos(millis * 1_000_000 + step.queued_ns);
                let due = self.limiter.due(&ticket);
                let name = step.queued_as.as_deref().ok_or("a queued request needs a name")?;
                let former = self.queued.insert(name, (request, ticket));
                match former {
                    Some(_) => Err(format!("two requests are queued as {name}")),
                    None if due == Due::At(expected) => Ok(()),
                    None => Err(format!("queued: {due:?} is not {:?}", Due::At(expected))),
                }
            }
            (verdict, _, _) => Err(format!("{verdict:?} was not expected")),
        }
    }

    /// Releases a queued request, which is due now and was not before.
    fn release(&mut self, name: &str, response: &Expected, now: Timestamp) -> Result<(), String> {
        let (request, ticket) = self.take(name)?;
        // A release time that was moved to the past is that of the step.
        let is_now = |release: Timestamp| release.max(self.before) == now;
        let due = self.limiter.due(&ticket);
        if !matches!(due, Due::At(release) if is_now(release)) {
            return Err(format!("{due:?} is another release time"));
        }
        let compared = response.is(&self.limiter.pin().queued_decision(&request.as_request(), &ticket, now));
        self.limiter.release(ticket);
        compared
    }

    fn take(&mut self, name: &str) -> Result<(&'s VectorRequest, Ticket), String> {
        self.queued.remove(name).ok_or_else(|| format!("no request is queued as {name}"))
    }
}

impl VectorRequest {
    fn as_request(&self) -> Request<'_> {
        let mut request = Request::new("d");
        for VectorDescriptor { entries, hits_addend, is_negative_hits, limit } in &self.descriptors {
            request.push(Descriptor {
                entries: entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect(),
                limit: limit.as_ref().map(|limit| Override {
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
    fn is(&self, decision: &Decision<'_>) -> Result<(), String> {
        let (code, marks, reply) = match decision.denial() {
            Some(Denial::Marked(marks)) => (Code::Ok, marks.into_vec(), None),
            Some(Denial::Told(reply)) => (Code::OverLimit, Vec::new(), reply),
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
    fn is(&self, status: &Status<'_>) -> Result<(), String> {
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
        let expected = limit
            .as_ref()
            .map(|limit| (limit.name.as_str(), limit.requests_per_unit, Unit::from_name(&limit.unit)));
        let actual = status.limit.map(|CurrentLimit { name, requests, unit, .. }| (name, requests, unit));
        if expected == actual { Ok(()) } else { Err(format!("limit: {actual:?} is not {expected:?}")) }
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

fn scenarios() -> Vec<Scenario> {
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

#[test]
fn every_scenario_has_the_expected_responses() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 60, "{} scenarios", scenarios.len());
    let failed = scenarios.iter().filter(|scenario| {
        // All failures are reported, not only the first.
        std::panic::catch_unwind(|| scenario.play()).is_err()
    });
    assert_eq!(failed.count(), 0, "scenarios failed");
}

#[test]
fn no_two_scenarios_have_one_name() {
    let mut names: Vec<_> = scenarios().into_iter().map(|scenario| scenario.name).collect();
    names.sort();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}
