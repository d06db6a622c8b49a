//! The record of decisions of a service, and the reading of logs from callers.

use super::{
    LOG_BYTES_MAX, Recorder, RecorderStatus, Requests, WhatIfError, decompressed, documents, log_steps,
};
use crate::control::Live;
use flate2::{Compression, write::GzEncoder};
use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_replay::{Event, LineCounts, Replay, Report, Step, Steps, apply_in_order};
use tidegate_service::{CallOrigin, DecisionReader, RateLimitService};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
  - key: job
    rate_limit: { algorithm: concurrency, requests_in_flight: 1, max_hold: 1h, max_wait: 0s }
";

/// A clock that can be set back: a thread may decide after another thread that read a later time.
struct SetClock(AtomicU64);

impl SetClock {
    fn set(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A service with observed decisions, and its clock.
struct Shop {
    service: RateLimitService,
    limiter: Arc<Limiter>,
    clock: Arc<SetClock>,
    live: Arc<Live>,
}

impl Shop {
    fn new() -> Self {
        let settings =
            StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 1_000, on_full: OnFull::Deny };
        let limiter = Arc::new(Limiter::new(rules(), settings, false));
        let (clock, live) = (Arc::new(SetClock(AtomicU64::new(1_000_000_000))), Arc::<Live>::default());
        let service = RateLimitService::new(
            Arc::clone(&limiter),
            Arc::<SetClock>::clone(&clock),
            RequestLimits::default(),
        );
        let service = service.with_observer(Arc::clone(&live) as Arc<dyn DecisionReader>);
        Self { service, limiter, clock, live }
    }

    /// Sends hits of a user, one after another.
    fn send(&self, user: &str, hits: usize) {
        let mut request = Request::new("shop");
        let entries = [Entry { key: "user", value: user }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        for _ in 0..hits {
            self.clock.set(self.now().saturating_add(Duration::from_millis(1)));
            self.service.decide_batch(&[()], |()| &request, |()| CallOrigin::default(), |(), _| {});
        }
    }

    /// Sends a request in flight of a job. If it is admitted, its client resets the call. Returns whether it was admitted.
    fn send_and_reset(&self, job: &str) -> bool {
        let mut request = Request::new("shop");
        let entries = [Entry { key: "job", value: job }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        let mut was_admitted = false;
        self.service.decide_batch(
            &[()],
            |()| &request,
            |()| CallOrigin::default(),
            |(), decision| {
                was_admitted = decision.code == Code::Ok;
                self.service.release_of(&request, decision, "").into_iter().for_each(|release| release());
            },
        );
        was_admitted
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn recorder(&self) -> &Recorder {
        &self.live.recorder
    }

    fn keep_on(&self) -> RecorderStatus {
        self.recorder().keep_on(self.now(), || self.limiter.store().number_decisions(true))
    }

    fn collect(&self) {
        let cease = || self.limiter.store().number_decisions(false);
        self.recorder().collect(&mut Vec::new(), self.now(), cease);
    }

    fn events(&self) -> Vec<Event> {
        self.collect();
        let event = |step| if let Step::Decision(event) = step { Some(event) } else { None };
        self.steps().into_iter().filter_map(event).collect()
    }

    fn steps(&self) -> Vec<Step> {
        self.recorder().recorded().0.steps(Timestamp::EPOCH).collect()
    }
}

fn rules() -> RuleSet {
    RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default()).expect("valid")
}

/// The report of a replay under the rules of the service.
fn replayed(events: Vec<Event>) -> Report {
    replayed_steps(events.into_iter().map(Step::Decision))
}

fn replayed_steps(steps: impl Iterator<Item = Step>) -> Report {
    let mut replay = Replay::new(rules(), None, 10);
    let applied = apply_in_order(vec![Steps(steps)], |step| replay.apply(step));
    applied.expect("rules that are in force");
    replay.into_report().0
}

fn hits_by_user(events: &[Event]) -> BTreeMap<String, usize> {
    let mut hits = BTreeMap::new();
    for event in events {
        *hits.entry(event.descriptors[0].entries[0].1.to_string()).or_default() += 1;
    }
    hits
}

#[test]
fn recorded_decisions_are_those_of_the_service_and_a_replay_reproduces_them() {
    let shop = Shop::new();
    shop.keep_on();
    shop.send("ada", 5);
    let events = shop.events();
    let codes: Vec<Code> = events.iter().map(|event| event.code).collect();
    use Code::{Ok, OverLimit};
    assert_eq!(codes, [Ok, Ok, Ok, OverLimit, OverLimit]);
    let report = replayed(events);
    assert_eq!((report.requests, report.responses_changed, &*report.rules[0].rule), (5, 0, "user"));
}

#[test]
fn calls_that_clients_reset_are_recorded_and_end_in_a_replay() {
    let shop = Shop::new();
    shop.keep_on();
    assert!((0..4).all(|_| shop.send_and_reset("backup")));
    shop.collect();
    let steps = shop.steps();
    let is_cancelled = |step: &Step| matches!(step, Step::Cancelled(_));
    assert_eq!(steps.iter().map(is_cancelled).collect::<Vec<_>>(), [false, true].repeat(4));
    let report = replayed_steps(steps.into_iter());
    assert_eq!((report.requests, report.proposed.admitted, report.responses_changed), (4, 4, 0));
}

/// Two threads read the time in one order and decide in the other. In the order of their times, another request would be denied.
#[test]
fn recorded_decisions_are_replayed_in_the_order_of_their_numbers() {
    let shop = Shop::new();
    shop.keep_on();
    for second in [50, 40, 30, 20, 60] {
        shop.clock.set(Timestamp::from_millis(second * 1_000));
        shop.send("ada", 1);
    }
    let events = shop.events();
    assert_eq!(events.iter().map(|event| event.place.expect("a number").number).max(), Some(5));
    let without_numbers = events.iter().map(|event| Event { place: None, ..event.clone() }).collect();
    assert_eq!((replayed(events).responses_changed, replayed(without_numbers).newly_denied), (0, 1));
}

/// Numbers cost an atomic addition on a cache line that all threads share.
#[test]
fn decisions_are_numbered_only_while_they_are_recorded() {
    let shop = Shop::new();
    assert_eq!(shop.limiter.store().next_number(), 0);
    shop.keep_on();
    assert_eq!(shop.limiter.store().next_number(), 1);
    shop.clock.set(shop.now().saturating_add(Duration::from_secs(601)));
    shop.collect();
    assert_eq!(shop.limiter.store().next_number(), 0);
}

#[test]
fn decisions_are_recorded_from_the_first_request_for_them_until_some_time_after_the_last() {
    let shop = Shop::new();
    shop.send("before", 2);
    shop.keep_on();
    shop.send("during", 2);
    assert_eq!(hits_by_user(&shop.events()), BTreeMap::from([("during".to_owned(), 2)]));
    let status = shop.keep_on();
    assert_eq!((status.decisions, status.dropped, status.share), (2, 0, 1.0), "the record is kept");
    assert!(status.bytes > 0 && status.first.is_some());
    shop.clock.set(shop.now().saturating_add(Duration::from_secs(601)));
    shop.collect();
    assert!(!shop.recorder().is_on());
    shop.send("after", 2);
    assert_eq!(shop.keep_on().decisions, 0);
    assert!(shop.events().is_empty(), "what was queued before is dropped");
}

#[test]
fn where_the_memory_does_not_suffice_a_share_of_keys_keeps_all_its_decisions() {
    let shop = Shop::new();
    shop.keep_on();
    let users: Vec<String> = (0..200).map(|user| format!("user-{user}")).collect();
    users.iter().for_each(|user| shop.send(user, 4));
    assert_eq!(shop.events().len(), 800);
    let bytes = shop.keep_on().bytes;
    shop.recorder().fit_to(shop.now(), bytes / 3);
    let status = shop.keep_on();
    assert!(status.share < 0.5 && status.bytes <= bytes / 3, "{status:?}");
    users.iter().for_each(|user| shop.send(user, 1));
    let hits = hits_by_user(&shop.events());
    assert!((10..67).contains(&hits.len()), "{} of 200 users at a share of {}", hits.len(), status.share);
    assert!(hits.values().all(|hits| *hits == 5), "{hits:?}");
}

#[test]
fn decisions_older_than_the_span_are_dropped() {
    let shop = Shop::new();
    shop.keep_on();
    shop.send("old", 3);
    assert_eq!(shop.events().len(), 3);
    shop.clock.set(shop.now().saturating_add(Duration::from_secs(301)));
    shop.keep_on();
    assert!(shop.events().is_empty());
}

#[test]
fn documents_keep_their_lines_and_comments_alone_are_none() {
    let texts: Vec<String> = documents("# rules.yaml\n---\ndomain: a\n---\n\n# nothing\n---\ndomain: b\n")
        .into_iter()
        .map(|source| source.text().into_owned())
        .collect();
    assert_eq!(texts, ["\n\ndomain: a\n", "\n\n\n\n\n\n\ndomain: b\n"]);
    assert!(documents("\n# none\n---\n").is_empty());
}

#[test]
fn a_compressed_log_is_read_and_one_that_is_too_long_is_refused() {
    let compress = |text: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).expect("memory");
        gzip.finish().expect("memory")
    };
    assert_eq!(decompressed(b"plain").unwrap(), b"plain");
    assert_eq!(decompressed(&compress(b"text")).unwrap(), b"text");
    let long = compress(&vec![b'a'; LOG_BYTES_MAX + 1]);
    assert!(long.len() < 1 << 20);
    assert!(matches!(decompressed(&long), Err(WhatIfError::LogBytes)));
    assert!(matches!(decompressed(b"\x1f\x8bno"), Err(WhatIfError::Compression(_))));
}

#[test]
fn lines_that_cannot_be_read_are_counted_except_a_part_at_the_end() {
    let mut counts = LineCounts::default();
    let log = b"{}\n\n{\"v\":1,\"time\":\"2026-03-01T12:00:00Z\",\"dropped\":4}\n{\"v\":1,";
    assert_eq!(log_steps(log, &mut counts, || false).count(), 0);
    assert_eq!((counts.bad, counts.dropped, counts.first_bad.len()), (1, 4, 1));
    assert!(counts.first_bad[0].starts_with("log:1: "), "{:?}", counts.first_bad);
}

#[test]
fn resets_of_a_log_are_steps_and_its_rules_are_not() {
    let line = |content: &str| {
        let place = r#""run":"00ff00000000000a","seq":2,"generation":1"#;
        format!(r#"{{"v":2,"time":"2026-03-01T12:00:00Z",{place},{content}}}"#) + "\n"
    };
    let rules = r#""rules":{"semantics":"exact","merge_domains":false,"global_shadow":false,"quota_mode":false,"stop_counting":false,"sources":[]}"#;
    let log = line(rules) + &line(r#""reset":{"domain":"shop"}"#);
    let mut counts = LineCounts::default();
    let steps: Vec<Step> = log_steps(log.as_bytes(), &mut counts, || false).collect();
    assert!(matches!(&*steps, [Step::Reset(reset)] if reset.domain == "shop"), "{steps:?}");
    assert_eq!(counts.bad, 0);
}

#[test]
fn a_log_whose_oldest_line_is_behind_more_lines_than_are_sorted_is_refused() {
    let line = |second: u32| {
        let time = format!("2026-03-01T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60);
        let entries = r#"[{"key":"user","value":"eve"}]"#;
        let descriptor = format!(
            r#"{{"entries":{entries},"hits":1,"code":"OK","limit":null,"remaining":0,"reset_ns":null}}"#
        );
        format!(r#"{{"v":1,"time":"{time}","domain":"shop","code":"OK","descriptors":[{descriptor}]}}"#)
            + "\n"
    };
    let late = |seconds: &mut dyn Iterator<Item = u32>| {
        let (log, mut counts) = (seconds.map(line).collect::<String>(), LineCounts::default());
        let mut replay = Replay::new(rules(), None, 10);
        let steps = Steps(log_steps(log.as_bytes(), &mut counts, || false));
        apply_in_order(vec![steps], |step| replay.apply(step)).expect("rules that are in force");
        replay.out_of_order()
    };
    let requests = Requests::Log(Vec::new());
    let (sorted, unsorted) = (late(&mut (1..300).chain(0..1)), late(&mut (100..8_400).chain(0..100)));
    assert!(requests.check_order(sorted).is_ok(), "{sorted}");
    assert!(matches!(requests.check_order(unsorted), Err(WhatIfError::OutOfOrder(100))), "{unsorted}");
}

/// Ten million lines without decisions were read for 40 seconds.
#[test]
fn reading_a_log_ends_with_the_time() {
    let log = b"{}\n".repeat(100_000);
    let mut counts = LineCounts::default();
    assert_eq!(log_steps(&log, &mut counts, || true).count(), 0);
    assert!((1..10_000).contains(&counts.bad), "{}", counts.bad);
}
