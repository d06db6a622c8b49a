//! Bounds on the buckets that clients report.

use super::{
    Bucket, BucketReport, Event, Outbox, QuotaPeer,
    divider::{BUCKETS_OF_PEER_MAX, BYTES_OF_STREAM_MAX, Divider},
};
use std::sync::Arc;
use tidegate_core::{
    limit::Timestamp,
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_shared::quota::{PeerId, Settings, Usage};
use tokio::sync::oneshot;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A server whose buckets have no limit, or one if they have the key `limited`.
struct Server {
    limiter: Limiter,
    divider: Divider,
}

impl Server {
    fn new() -> Self {
        let limit = "rate_limit: { unit: second, requests_per_unit: 1000, algorithm: token_bucket }";
        let rules = format!("{{ domain: d, rlqs: {{}}, descriptors: [{{ key: limited, {limit} }}] }}");
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", rules)], &LoadOptions::default()).expect("valid rules");
        let store =
            StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 10_000, on_full: OnFull::Deny };
        Self { limiter: Limiter::new(rules, store, false), divider: Divider::new(NOW, None) }
    }

    fn take_in(&mut self, event: Event) {
        self.divider.take_in(event, &self.limiter.pin(), false, NOW);
    }

    fn open(&mut self, stream: u64, peer: u64) {
        let (domain, outbox) = ("d".into(), Arc::<Outbox>::default());
        let (peer, peer_id) = (QuotaPeer::default(), PeerId(peer));
        self.take_in(Event::Open { stream, domain, peer, peer_id, outbox });
    }

    /// Reports buckets without a request; returns how many of these reports were refused.
    fn report(&mut self, stream: u64, buckets: impl IntoIterator<Item = Bucket>) -> u64 {
        let before = self.divider.figures().refused;
        let report = |bucket| BucketReport { bucket, usage: Usage::default() };
        let reports = buckets.into_iter().map(report).collect();
        let (taken, _) = oneshot::channel();
        self.take_in(Event::Report { stream, reports, beyond: 0, taken });
        self.divider.divide(&self.limiter.pin(), NOW);
        self.divider.figures().refused - before
    }

    fn buckets(&self) -> u64 {
        self.divider.figures().buckets
    }
}

/// Buckets with different values of a key.
fn buckets(key: &str, values: std::ops::Range<usize>) -> Vec<Bucket> {
    values.map(|value| Bucket::new([(key, &*value.to_string())])).collect()
}

#[test]
fn a_stream_has_no_more_buckets_than_its_bound_and_room_for_others_when_some_are_abandoned() {
    let max = Settings::default().buckets_of_stream_max;
    for key in ["limited", "unlimited"] {
        let mut server = Server::new();
        server.open(1, 1);
        assert_eq!(server.report(1, buckets(key, 0..max + 5)), 5, "{key}");
        assert_eq!(server.buckets(), max as u64);
        // Those that it has are not refused.
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
    let long = |value: usize| Bucket::new([("key", &*format!("{value:0>10000}"))]);
    let fit = BYTES_OF_STREAM_MAX / long(0).bytes();
    assert!(fit > 100 && fit < Settings::default().buckets_of_stream_max);
    assert_eq!(server.report(1, (0..fit + 7).map(long)), 7);
    // A short one still fits, and other streams have room.
    assert_eq!(server.report(1, buckets("key", 0..1)), 0);
    assert_eq!(server.report(2, (0..fit).map(long)), 0);
    assert_eq!(server.buckets(), 2 * fit as u64 + 1);
}

#[test]
fn the_streams_of_a_peer_have_no_more_buckets_than_its_bound_together() {
    let mut server = Server::new();
    let of_stream = Settings::default().buckets_of_stream_max;
    let (all, streams) = (buckets("key", 0..of_stream), (BUCKETS_OF_PEER_MAX / of_stream) as u64);
    for stream in 0..streams {
        server.open(stream, 1);
        assert_eq!(server.report(stream, all.clone()), 0);
    }
    assert_eq!(server.buckets(), BUCKETS_OF_PEER_MAX as u64);
    (streams..streams + 2).for_each(|stream| server.open(stream, 1));
    assert_eq!(server.report(streams, buckets("key", 0..2)), 2);
    server.open(streams + 2, 2);
    assert_eq!(server.report(streams + 2, buckets("key", 0..2)), 0, "another peer has room");
    server.take_in(Event::Close { stream: 0 });
    assert_eq!(server.report(streams + 1, all), 0, "those of a closed stream are free");
    assert_eq!(server.report(streams, buckets("key", 0..1)), 1);
}
