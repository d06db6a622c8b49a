//! Bounds on the buckets that clients report.

use super::{
    BucketName, BucketReport, Event, Outbox, QuotaPeer, QuotaStart,
    client::BYTES_OF_STREAM_MAX,
    divider::{Divider, Moment},
};
use std::{num::NonZeroU64, sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Reset, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_shared::{
    PeerId,
    quota::{Settings, Usage},
};
use tokio::sync::oneshot;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A server whose buckets have a limit if they have the key `limited`, and else none.
struct Server {
    limiter: Limiter,
    divider: Divider,
    now: Timestamp,
}

impl Server {
    fn new() -> Self {
        Self::with_memory(usize::MAX)
    }

    fn with_memory(bytes: usize) -> Self {
        Self::with_limit("requests_per_unit: 1000, algorithm: token_bucket", bytes)
    }

    fn with_limit(keys: &str, bytes: usize) -> Self {
        Self::started(keys, QuotaStart::unrecorded(bytes))
    }

    fn started(keys: &str, start: QuotaStart) -> Self {
        let limit = format!("rate_limit: {{ unit: second, {keys} }}");
        let rules =
            format!("{{ domain: d, rlqs: {{ min_use: 1% }}, descriptors: [{{ key: limited, {limit} }}] }}");
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", rules)], &LoadOptions::default()).expect("valid rules");
        let store =
            StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 500_000, on_full: OnFull::Deny };
        let (limiter, divider) =
            (Limiter::new(rules, store, false), Divider::new(NOW, None, Arc::default(), start));
        Self { limiter, divider, now: NOW }
    }

    fn take_in(&mut self, event: Event) {
        self.divider.take_in(event, self.now);
    }

    /// One round of the thread.
    fn round(&mut self) {
        let rules = self.limiter.pin();
        self.divider.take_turns(Moment { rules: &rules, is_shadow: false, now: self.now });
        self.divider.divide(&rules, self.now);
    }

    fn open(&mut self, stream: u64, peer: u64) {
        let (domain, outbox) = ("d".into(), Arc::<Outbox>::default());
        let (peer, peer_id) = (QuotaPeer::default(), PeerId(peer));
        self.take_in(Event::Open { stream, domain, peer, peer_id, outbox });
    }

    /// Reports buckets without a request. Returns how many of these reports were refused.
    fn report(&mut self, stream: u64, buckets: impl IntoIterator<Item = BucketName>) -> u64 {
        let refused = |server: &Self| {
            let figures = server.divider.figures();
            figures.refused + figures.refused_memory
        };
        let before = refused(self);
        let report = |bucket| BucketReport { bucket, usage: Usage::default() };
        let reports = buckets.into_iter().map(report).collect();
        let (taken, _) = oneshot::channel();
        self.take_in(Event::Report { stream, reports, beyond: 0, taken });
        while self.divider.has_waiting() {
            self.round();
        }
        refused(self) - before
    }

    fn buckets(&self) -> u64 {
        self.divider.figures().buckets
    }

    /// Sends a request with `hits` for the first of the limited buckets. Returns the stated wait if it is denied.
    fn denied_for(&self, hits: u64) -> Option<Duration> {
        let (mut request, pinned) = (Request::new("d"), self.limiter.pin());
        let entries = [Entry { key: "limited", value: "0" }].into_iter().collect();
        let hits = Hits::Take(NonZeroU64::new(hits).expect("at least one"));
        request.push(Descriptor { entries, limit: None, hits });
        let decision = pinned.decide(&request, self.now);
        match (decision.code, decision.statuses[0].reset) {
            (Code::OverLimit, Some(Reset::After(wait))) => Some(wait),
            (Code::OverLimit, other) => panic!("{other:?}"),
            (Code::Ok, _) => None,
        }
    }

    /// Lets time pass, with rounds of the thread.
    fn wait(&mut self, wait: Duration) {
        let end = self.now.saturating_add(wait);
        while self.now < end {
            self.now = self.now.saturating_add(Duration::from_millis(100)).min(end);
            self.round();
        }
    }
}

/// Buckets with different values of a key.
fn buckets(key: &str, values: std::ops::Range<usize>) -> Vec<BucketName> {
    values.map(|value| BucketName::new([(key, &*value.to_string())])).collect()
}

#[test]
fn a_stream_has_no_more_buckets_than_its_bound_and_room_for_others_when_some_are_abandoned() {
    let max = Settings::default().buckets_of_stream_max;
    for key in ["limited", "unlimited"] {
        let mut server = Server::new();
        server.open(1, 1);
        assert_eq!(server.report(1, buckets(key, 0..max + 5)), 5, "{key}");
        assert_eq!(server.buckets(), max as u64);
        // Known buckets are not refused.
        assert_eq!(server.report(1, buckets(key, 0..max)), 0);
        let mut reports = 0;
        while server.buckets() == max as u64 {
            assert_eq!(server.report(1, buckets(key, 0..3)), 0);
            reports += 1;
            assert!(reports <= Settings::default().idle_reports, "idle buckets are abandoned");
        }
        assert_eq!(server.buckets(), max as u64 - 3, "{key}");
        assert_eq!(server.report(1, buckets(key, max..max + 5)), 2, "{key}");
    }
}

#[test]
fn the_names_of_a_streams_buckets_take_no_more_than_their_bound() {
    let mut server = Server::new();
    (1..=2).for_each(|stream| server.open(stream, 1));
    let long = |value: usize| BucketName::new([("key", &*format!("{value:0>10000}"))]);
    let fit = BYTES_OF_STREAM_MAX / long(0).bytes();
    assert!(fit > 100 && fit < Settings::default().buckets_of_stream_max);
    assert_eq!(server.report(1, (0..fit + 7).map(long)), 7);
    // A short name still fits, and other streams have room.
    assert_eq!(server.report(1, buckets("key", 0..1)), 0);
    assert_eq!(server.report(2, (0..fit).map(long)), 0);
    assert_eq!(server.buckets(), 2 * fit as u64 + 1);
}

#[test]
fn a_peer_has_half_of_the_memory_and_others_the_rest() {
    const MEMORY: usize = 4 << 20;
    let mut server = Server::with_memory(MEMORY);
    let of_stream = Settings::default().buckets_of_stream_max;
    let streams = (1..).find(|stream| {
        server.open(*stream, 1);
        server.report(*stream, buckets("key", 0..of_stream)) > 0
    });
    let streams = streams.expect("a bound");
    assert!(server.divider.figures().memory <= MEMORY as u64 / 2);
    server.open(streams + 1, 1);
    assert_eq!(server.report(streams + 1, buckets("key", 0..2)), 2);
    server.open(streams + 2, 2);
    assert_eq!(server.report(streams + 2, buckets("key", 0..of_stream)), 0, "another peer has room");
    server.take_in(Event::Close { stream: 1 });
    assert_eq!(
        server.report(streams + 1, buckets("key", 0..of_stream)),
        0,
        "that of a closed stream is free"
    );
    for stream in 2..=streams + 2 {
        server.take_in(Event::Close { stream });
    }
    assert_eq!(server.divider.figures().memory, 0);
}

/// 100 streams a second for 10 s, each with a thousand new buckets, and then closed. A server without a bound on what outlives its stream
/// took 60 MiB in each second.
#[test]
fn buckets_of_streams_that_have_ended_count_to_their_peer_until_they_are_freed() {
    const MEMORY: u64 = 32 << 20;
    let mut server = Server::with_memory(MEMORY as usize);
    // Assignments of a former process have ended.
    server.now = NOW.saturating_add(Duration::from_secs(60));
    let (mut refused, of_stream) = (0, 1_000);
    for stream in 0..1_000 {
        server.now = server.now.saturating_add(Duration::from_millis(10));
        server.open(stream as u64, 1);
        let first = stream * of_stream;
        refused += server.report(stream as u64, buckets("limited", first..first + of_stream));
        server.take_in(Event::Close { stream: stream as u64 });
        let memory = server.divider.figures().memory;
        assert!(memory <= MEMORY / 4 * 3, "{memory} bytes, half of {MEMORY} and what shares leave");
    }
    assert!(refused > 900_000, "{refused}");
    server.open(5_000, 2);
    assert_eq!(server.report(5_000, buckets("limited", 0..of_stream)), 0, "another peer has room");
    // The shares of the former streams have ended.
    server.take_in(Event::Close { stream: 5_000 });
    for _ in 0..20 {
        server.now = server.now.saturating_add(Duration::from_secs(2));
        server.round();
    }
    assert_eq!(server.divider.figures().memory, 0);
    server.open(6_000, 1);
    assert_eq!(server.report(6_000, buckets("limited", 0..of_stream)), 0, "the peer has room again");
}

/// Messages of a peer that always reports are handled in pieces, with those of other peers in between.
#[test]
fn reports_of_a_peer_do_not_wait_for_all_of_another() {
    let mut server = Server::new();
    let message = |values: std::ops::Range<usize>| {
        let report = |bucket| BucketReport { bucket, usage: Usage::default() };
        buckets("key", values).into_iter().map(report).collect()
    };
    for stream in 0..20 {
        server.open(stream, 1);
        let (taken, _) = oneshot::channel();
        server.take_in(Event::Report { stream, reports: message(0..1_000), beyond: 0, taken });
    }
    server.open(20, 2);
    let (taken, mut is_taken) = oneshot::channel();
    server.take_in(Event::Report { stream: 20, reports: message(0..10), beyond: 0, taken });
    server.round();
    assert_eq!(is_taken.try_recv(), Ok(10), "all ten are new");
    assert!(server.divider.has_waiting() && server.buckets() < 1_000);
}

/// A server without a record. In its first 16 s, half of the limit counts as assigned by a former process.
#[test]
fn a_denied_caller_that_is_alone_is_admitted_after_the_stated_wait_while_shares_learn() {
    for keys in [
        "requests_per_unit: 100, algorithm: token_bucket, size: 40",
        "requests_per_unit: 100, algorithm: leaky_bucket, burst: 40",
        "requests_per_unit: 100, algorithm: token_bucket, refill: intervals, size: 100",
        "requests_per_unit: 100, algorithm: sliding_log",
        "requests_per_unit: 100, precision: 8",
        "requests_per_unit: 100",
        "requests_per_unit: 100, algorithm: fixed_window",
    ] {
        let mut server = Server::with_limit(keys, usize::MAX);
        server.open(1, 1);
        server.report(1, buckets("limited", 0..1));
        server.take_in(Event::Close { stream: 1 });
        let mut denials = 0;
        for hits in [1, 7, 2, 19, 3, 1, 1, 35, 4].into_iter().cycle() {
            while server.denied_for(hits).is_none() {}
            let wait = server.denied_for(hits).expect("it was denied");
            server.wait(wait);
            assert_eq!(
                server.denied_for(hits),
                None,
                "{keys}, {hits} hits after {wait:?}, {:?}",
                server.now.since(NOW)
            );
            denials += 1;
            if server.now > NOW.saturating_add(Duration::from_secs(20)) {
                break;
            }
        }
        assert!(denials > 3, "{keys}: {denials} denials");
    }
}

/// The client had no share for another second, and Envoy denied all of its requests.
#[test]
fn the_first_client_of_a_new_data_directory_has_a_share_as_soon_as_that_is_recorded() {
    let start = QuotaStart { ceilings: Some(Vec::new()), ..QuotaStart::unrecorded(usize::MAX) };
    let mut server = Server::started("requests_per_unit: 200, algorithm: token_bucket, size: 100", start);
    server.open(1, 1);
    server.report(1, buckets("limited", 0..1));
    server.round();
    let record = server.divider.take_record(server.now).expect("it needs more than half of the limit");
    assert_eq!(server.divider.figures().counts.assigned, 0, "before the record is written");
    server.take_in(Event::Recorded(record));
    server.wait(Duration::from_millis(100));
    assert_eq!(server.divider.figures().counts.assigned, 1);
}
