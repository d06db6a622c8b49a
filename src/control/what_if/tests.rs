//! The record of decisions of a service, and the reading of what callers send.

use super::{LOG_BYTES_MAX, Recorder, WhatIfError, decompressed, documents, log_events};
use crate::{
    clock::ManualClock,
    control::Live,
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
    replay::{Event, LineCounts, Replay},
    rules::{LoadOptions, RuleSet, Source},
    service::{CallOrigin, DecisionReader, RateLimitService},
    store::{OnFull, Seed, StoreSettings},
};
use flate2::{Compression, write::GzEncoder};
use std::{collections::BTreeMap, io::Write as _, sync::Arc, time::Duration};

const RULES: &str =
    "{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 3 } }] }";

/// A service whose decisions are observed, and its clock.
struct Shop {
    service: RateLimitService,
    clock: Arc<ManualClock>,
    live: Arc<Live>,
}

impl Shop {
    fn new() -> Self {
        let settings =
            StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 1_000, on_full: OnFull::Deny };
        let limiter = Arc::new(Limiter::new(rules(), settings, false));
        let (clock, live) =
            (Arc::new(ManualClock::new(Timestamp::from_millis(1_000))), Arc::<Live>::default());
        let service =
            RateLimitService::new(limiter, Arc::<ManualClock>::clone(&clock), RequestLimits::default());
        let service = service.with_observer(Arc::clone(&live) as Arc<dyn DecisionReader>);
        Self { service, clock, live }
    }

    /// Sends hits of a user, one after another.
    fn send(&self, user: &str, hits: usize) {
        let mut request = Request::new("shop");
        let entries = [Entry { key: "user", value: user }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        for _ in 0..hits {
            self.clock.advance_to(self.now().saturating_add(Duration::from_millis(1)));
            self.service.decide_batch(&[()], |()| &request, |()| CallOrigin::default(), |(), _| {});
        }
    }

    fn now(&self) -> Timestamp {
        crate::clock::Clock::now(&*self.clock)
    }

    fn recorder(&self) -> &Recorder {
        &self.live.recorder
    }

    fn events(&self) -> Vec<Event> {
        self.recorder().collect(&mut Vec::new(), self.now());
        self.recorder().recorded().0.events(Timestamp::EPOCH).collect()
    }
}

fn rules() -> RuleSet {
    RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default()).expect("valid")
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
    shop.recorder().keep_on(shop.now());
    shop.send("ada", 5);
    let events = shop.events();
    let codes: Vec<Code> = events.iter().map(|event| event.code).collect();
    use Code::{Ok, OverLimit};
    assert_eq!(codes, [Ok, Ok, Ok, OverLimit, OverLimit]);
    let mut replay = Replay::new(rules(), None, 10);
    events.iter().for_each(|event| replay.decide(event));
    let report = replay.into_report().0;
    assert_eq!((report.requests, report.responses_changed, &*report.rules[0].rule), (5, 0, "user"));
}

#[test]
fn decisions_are_recorded_from_the_first_request_for_them_until_some_time_after_the_last() {
    let shop = Shop::new();
    shop.send("before", 2);
    shop.recorder().keep_on(shop.now());
    shop.send("during", 2);
    assert_eq!(hits_by_user(&shop.events()), BTreeMap::from([("during".to_owned(), 2)]));
    let status = shop.recorder().keep_on(shop.now());
    assert_eq!((status.decisions, status.dropped, status.share), (2, 0, 1.0), "the record is kept");
    assert!(status.bytes > 0 && status.first.is_some());
    shop.clock.advance_to(shop.now().saturating_add(Duration::from_secs(601)));
    shop.recorder().collect(&mut Vec::new(), shop.now());
    assert!(!shop.recorder().is_on());
    shop.send("after", 2);
    assert_eq!(shop.recorder().keep_on(shop.now()).decisions, 0);
    assert!(shop.events().is_empty(), "what was queued before is dropped");
}

#[test]
fn where_the_memory_does_not_suffice_a_share_of_keys_keeps_all_its_decisions() {
    let shop = Shop::new();
    shop.recorder().keep_on(shop.now());
    let users: Vec<String> = (0..200).map(|user| format!("user-{user}")).collect();
    users.iter().for_each(|user| shop.send(user, 4));
    assert_eq!(shop.events().len(), 800);
    let bytes = shop.recorder().keep_on(shop.now()).bytes;
    shop.recorder().fit_to(shop.now(), bytes / 3);
    let status = shop.recorder().keep_on(shop.now());
    assert!(status.share < 0.5 && status.bytes <= bytes / 3, "{status:?}");
    users.iter().for_each(|user| shop.send(user, 1));
    let hits = hits_by_user(&shop.events());
    assert!((10..67).contains(&hits.len()), "{} of 200 users at a share of {}", hits.len(), status.share);
    assert!(hits.values().all(|hits| *hits == 5), "{hits:?}");
}

#[test]
fn decisions_older_than_the_span_are_dropped() {
    let shop = Shop::new();
    shop.recorder().keep_on(shop.now());
    shop.send("old", 3);
    assert_eq!(shop.events().len(), 3);
    shop.clock.advance_to(shop.now().saturating_add(Duration::from_secs(301)));
    shop.recorder().keep_on(shop.now());
    assert!(shop.events().is_empty());
}

#[test]
fn documents_keep_their_lines_and_comments_alone_are_none() {
    let texts: Vec<String> = documents("# rules.yaml\n---\ndomain: a\n---\n\n# nothing\n---\ndomain: b\n")
        .into_iter()
        .map(|source| source.text)
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
    assert_eq!(log_events(log, &mut counts).count(), 0);
    assert_eq!((counts.bad, counts.dropped, counts.first_bad.len()), (1, 4, 1));
    assert!(counts.first_bad[0].starts_with("log:1: "), "{:?}", counts.first_bad);
}
