//! The cases of `clients/conformance`, one test each.
//!
//! The runner is libtest-mimic, since the built-in one knows tests at compile time only.

#![expect(clippy::disallowed_methods, reason = "tests measure real time")]

mod ends;
mod headers;
mod middleware;
#[path = "../support/servers.rs"]
mod servers;

use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use servers::{TestClock, misbehaving, serve};
use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tidegate_client::{
    Builder, Decision, Descriptor, OnFailure, Request, Slot, Tidegate, Unit, client_address,
    forwarded_address,
};

macro_rules! cases {
    ($file:literal) => {
        include_str!(concat!("../../../conformance/cases/", $file, ".json"))
    };
}

fn main() -> ExitCode {
    let trials = [
        trials("vectors", cases!("vectors"), |case| block_on(vector(case))),
        trials("headers", cases!("headers"), headers::check),
        trials("quota_headers", cases!("quota"), headers::check),
        trials("local_denials", cases!("local_denials"), |case| block_on(local_denials(case))),
        trials("local_denials_retention", cases!("retention"), |case| block_on(local_denials(case))),
        trials("slots", cases!("slots"), |case| block_on(slots(case))),
        trials("middleware", cases!("middleware"), |case| block_on(middleware::check(case))),
        trials("middleware_ends", cases!("ends"), |case| block_on(ends::check(case))),
        trials("failures", cases!("failures"), |case| block_on(failures(case))),
        trials("client_addresses", cases!("client_addresses"), client_addresses),
        trials("client_addresses_forwarded", cases!("forwarded"), forwarded_addresses),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}

/// Returns a test for each case of a file, except cases that need features of no client.
fn trials(group: &str, text: &str, check: fn(&Value)) -> Vec<Trial> {
    let file: Value = serde_json::from_str(text).expect("JSON");
    let cases = file.get("cases").or_else(|| file.get("scenarios")).expect("cases");
    let is_for_clients = |case: &&Value| case.get("needs").is_none_or(|needs| list(needs).is_empty());
    let trial = |case: Value| {
        let name = format!("conformance::{group}::{}", self::text(&case["name"]));
        Trial::test(name, move || {
            check(&case);
            Ok(())
        })
    };
    list(cases).iter().filter(is_for_clients).cloned().map(trial).collect()
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).expect("a number")
}

fn time(time: &Value) -> Option<Duration> {
    time.as_array()
        .map(|time| Duration::from_millis(number(&time[0])) + Duration::from_nanos(number(&time[1])))
}

fn descriptor(case: &Value) -> Descriptor {
    let entries = list(&case["entries"]).iter().map(|entry| (text(&entry[0]), text(&entry[1])));
    let mut descriptor = Descriptor::new(entries);
    if !case["cost"].is_null() {
        descriptor = descriptor.cost(number(&case["cost"]));
    }
    if case["give_back"] == true {
        descriptor = descriptor.giving_back();
    }
    if let Some(limit) = case.get("limit") {
        let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year];
        let unit = units.into_iter().find(|unit| limit["unit"] == unit.name()).expect("a unit");
        descriptor = descriptor.limit(u32::try_from(number(&limit["requests"])).expect("32 bits"), unit);
    }
    descriptor
}

fn request(case: &Value) -> Request {
    Request::new(list(&case["descriptors"]).iter().map(descriptor))
}

fn client(address: &str) -> Builder {
    Tidegate::builder(address).domain("d").timeout(Duration::from_secs(5))
}

async fn vector(scenario: &Value) {
    let compat = scenario["compat"].as_str().map_or(vec![], |compat| vec!["--compat", compat]);
    let server = serve(text(&scenario["rules"]), &[&["--test-clock"], compat.as_slice()].concat());
    let mut clock = TestClock::new(&server.address);
    let client = client(&server.address).local_denials(0).build().expect("a client");
    for (index, step) in list(&scenario["steps"]).iter().enumerate() {
        for repetition in 0..number(&step["times"]) {
            let millis = number(&scenario["start_unix_ms"]) + number(&step["at"][0]);
            clock.set(millis + repetition * number(&step["every_ms"]), number(&step["at"][1])).await;
            let decision = client.limit(request(step)).await.expect("a decision");
            check(&decision, &step["decision"], &format!("{} step {index}: {decision:?}", scenario["name"]));
        }
    }
}

fn check(decision: &Decision, expected: &Value, context: &str) {
    assert_eq!(decision.reason.as_str(), "decided", "{context}");
    assert_eq!(decision.allowed, expected["allowed"], "{context}");
    assert_eq!(serde_json::json!(decision.request_headers), expected["request_headers"], "{context}");
    assert_eq!(serde_json::json!(decision.response_headers), expected["response_headers"], "{context}");
    assert_eq!(decision.body, text(&expected["body"]), "{context}");
    assert_eq!(decision.statuses.len(), list(&expected["statuses"]).len(), "{context}");
    for (status, expected) in decision.statuses.iter().zip(list(&expected["statuses"])) {
        assert_eq!(status.over_limit, expected["over_limit"], "{context}");
        if let Some(remaining) = expected.get("remaining") {
            assert_eq!(status.remaining, *remaining, "{context}");
        }
        if let Some(reset) = expected.get("reset_after") {
            assert_eq!(status.reset_after, time(reset), "{context}");
        }
        if let Some(limit) = expected.get("limit") {
            assert_eq!(status.limit, headers::limit(limit), "{context}");
        }
    }
}

/// A clock of the client that stands still until it is moved.
fn manual_clock() -> (Arc<AtomicU64>, impl Fn() -> Duration + Send + Sync + 'static) {
    let nanos = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&nanos);
    (nanos, move || Duration::from_nanos(read.load(Ordering::Relaxed)))
}

async fn local_denials(case: &Value) {
    const START_MS: u64 = 1_700_006_400_000;
    let server = serve(text(&case["rules"]), &["--test-clock"]);
    let mut clock = TestClock::new(&server.address);
    let (own, read) = manual_clock();
    let kept = case["client"].get("local_denials_max").map_or(10_000, number);
    let kept = usize::try_from(kept).expect("a size");
    let mut client = client(&server.address).local_denials(kept).clock(read);
    if let Some(millis) = case["client"].get("local_denials_for_ms") {
        client = client.local_denials_for(Duration::from_millis(number(millis)));
    }
    let client = client.build().expect("a client");
    for (index, step) in list(&case["steps"]).iter().enumerate() {
        let at = time(&step["at"]).expect("a time");
        own.store(u64::try_from(at.as_nanos()).expect("64 bits"), Ordering::Relaxed);
        clock.set(START_MS + number(&step["at"][0]), number(&step["at"][1])).await;
        let mut request = request(step).cost(number(&step["cost"]));
        if let Some(millis) = step.get("timeout_ms") {
            request = request.timeout(Duration::from_millis(number(millis)));
        }
        if step["local_denials"] == false {
            request = request.without_local_denials();
        }
        let decision = match text(&step["op"]) {
            "limit" => client.limit(request).await,
            "peek" => client.peek(request).await,
            _ => client.give_back(request).await,
        };
        let (decision, expected) = (decision.expect("a decision"), &step["expect"]);
        let context = format!("{} step {index}: {decision:?}", case["name"]);
        assert_eq!(decision.allowed, expected["allowed"], "{context}");
        assert_eq!(decision.reason.as_str(), expected["reason"], "{context}");
        if let Some(wait) = expected.get("retry_after") {
            assert_eq!(decision.retry_after, time(wait), "{context}");
        }
    }
}

async fn slots(case: &Value) {
    let server = serve(text(&case["rules"]), &["--test-clock"]);
    let mut clock = TestClock::new(&server.address);
    let client = client(&server.address).build().expect("a client");
    let mut slots: HashMap<&str, Slot> = HashMap::new();
    for (number, step) in list(&case["steps"]).iter().enumerate() {
        let at = time(&step["at"]).expect("a time");
        let (millis, nanos) = (at.as_millis() as u64, u64::from(at.subsec_nanos() % 1_000_000));
        clock.set(1_700_006_400_000 + millis, nanos).await;
        let (expected, name) = (&step["expect"], step["slot"].as_str().unwrap_or_default());
        match (text(&step["op"]), slots.get_mut(name)) {
            ("acquire", _) => {
                let wanted = request(step).cost(self::number(&step["cost"]));
                let slot = client.acquire(wanted).await.expect("a decision");
                assert_eq!(slot.allowed, expected["allowed"] == true, "step {number}");
                assert_eq!(slot.ticket.is_some(), expected["ticket"] == true, "step {number}");
                slots.insert(name, slot);
            }
            ("release", Some(slot)) if !step["cost"].is_null() => {
                slot.release_part(self::number(&step["cost"])).await;
            }
            ("renew", Some(slot)) => {
                let is_held = slot.renew().await.expect("an answer");
                assert_eq!(is_held, expected["held"] == true, "step {number}");
            }
            ("commit", Some(_)) => {
                let slot = slots.remove(name).expect("it was found");
                slot.commit(self::number(&step["cost"])).await;
            }
            ("cancel", Some(_)) => slots.remove(name).expect("it was found").cancel().await,
            ("release", Some(_)) => slots.remove(name).expect("it was found").release().await,
            ("end", Some(_)) => drop(slots.remove(name)),
            // A release consumes the slot: nothing is left to release or renew.
            ("release" | "commit" | "cancel" | "end", None) => {}
            ("renew", None) => assert!(expected["held"] == false, "step {number}"),
            ("peek", _) => {
                // The release of a dropped slot is sent by a task.
                let began = Instant::now();
                loop {
                    let decision = client.peek(request(step)).await.expect("a decision");
                    let found = (decision.allowed, decision.remaining.map(u64::from));
                    let wanted = (expected["allowed"] == true, Some(self::number(&expected["remaining"])));
                    if found == wanted {
                        break;
                    }
                    assert!(began.elapsed() < Duration::from_secs(5), "step {number}: {decision:?}");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            (op, _) => panic!("step {number}: {op}"),
        }
    }
}

async fn failures(case: &Value) {
    let (_server, address) = misbehaving(text(&case["fault"]));
    let options = &case["client"];
    let millis = |key: &str| Duration::from_millis(number(&options[key]));
    let (own, read) = manual_clock();
    let policy = if options["on_failure"] == "open" { OnFailure::Open } else { OnFailure::Closed };
    let failures = u32::try_from(number(&options["breaker_failures"])).expect("32 bits");
    let client = client(&address)
        .timeout(millis("deadline_ms"))
        .connect_timeout(Duration::ZERO)
        .on_failure(policy)
        .breaker(failures, millis("breaker_open_ms"))
        .clock(read)
        .build()
        .expect("a client");
    let started = Instant::now();
    for expected in list(&case["expect"]) {
        if let Some(advance) = expected.get("advance_ms") {
            own.fetch_add(number(advance) * 1_000_000, Ordering::Relaxed);
            continue;
        }
        for call in 0..number(&expected["calls"]) {
            let decision = client.limit([("user", "a")]).await.expect("a decision");
            let context = format!("{} call {call}: {decision:?}", case["name"]);
            assert_eq!(decision.allowed, expected["allowed"], "{context}");
            assert_eq!(decision.reason.as_str(), expected["reason"], "{context}");
            let errors = list(&expected["errors"]);
            let is_expected = match decision.error {
                None => errors.is_empty(),
                Some(error) => errors.iter().any(|expected| expected == error),
            };
            assert!(is_expected, "{context}");
            if let Some(remaining) = expected.get("remaining") {
                assert_eq!(decision.remaining.map(u64::from), remaining.as_u64(), "{context}");
            }
            if let Some(message) = expected.get("message") {
                let named = decision.error_message.unwrap_or_default();
                assert!(named.to_lowercase().contains(text(message)), "{context}");
            }
        }
    }
    let elapsed = u64::try_from(started.elapsed().as_millis()).expect("64 bits");
    assert!(case["elapsed_ms_max"].as_u64().is_none_or(|max| elapsed <= max), "{}: {elapsed}", case["name"]);
}

fn client_addresses(case: &Value) {
    let lines: Vec<&str> = list(&case["x_forwarded_for"]).iter().map(text).collect();
    let proxies = usize::try_from(number(&case["trusted_proxies"])).expect("a size");
    let found = client_address(case["peer"].as_str(), &lines, proxies);
    assert_eq!(found.as_deref(), case["expect"].as_str(), "{}", case["name"]);
}

fn forwarded_addresses(case: &Value) {
    let lines: Vec<&str> = list(&case["forwarded"]).iter().map(text).collect();
    let proxies = usize::try_from(number(&case["trusted_proxies"])).expect("few proxies");
    assert_eq!(forwarded_address(&lines, proxies).as_deref(), case["expect"].as_str());
}
