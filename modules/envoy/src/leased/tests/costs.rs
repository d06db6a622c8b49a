//! Costs known at the end, where a server decides: requests that end too early, and a lost connection.

use super::{
    super::{Leased, exchanges::Exchanges},
    SECOND, TIME,
    hooks::{HEADERS, filter},
    world::{BEGAN, Faults, MILLI, Network, Server},
};
use crate::{
    fake::Fake,
    filter::{Config, RateLimit, Stream},
    rng::Rng,
};
use std::sync::{Arc, atomic::Ordering};
use tidegate_envoy_abi::{Flow, Module as _};
use tidegate_shared::lease::Monotonic;

/// A filter whose server charges an estimate to a limit of 1,000 for each value of `x-first`, and the calls to it.
struct Reserving {
    config: Config,
    leased: Arc<Leased>,
    server: Server,
    exchanges: Exchanges,
    network: Network,
    rng: Rng,
    time: u64,
}

impl Reserving {
    fn new(estimate: u64) -> Self {
        let (config, leased) = filter(HEADERS[0], 1);
        let limit =
            format!("unit: hour, requests_per_unit: 1000, reserve: {estimate}, algorithm: fixed_window");
        let rule = format!("{{ key: x-first, rate_limit: {{ {limit} }} }}");
        let server = Server::new(&format!("{{ domain: d, descriptors: [{rule}] }}"));
        let (exchanges, network) = (Exchanges::new(1), Network::default());
        Self { config, leased, server, exchanges, network, rng: Rng::of_seed(1), time: SECOND }
    }

    /// A request whose end states a cost of 3.
    fn begin(&self) -> (Stream, Fake) {
        TIME.set(Some(self.time));
        let (mut stream, mut host) = (Stream::default(), Fake::new("/").with("x-first", "a"));
        let flow = RateLimit::request_headers(&self.config, None, &mut stream, &mut host);
        assert_eq!(flow, Flow::Wait);
        host.response.push(("x-cost".to_owned(), b"3".to_vec()));
        (stream, host)
    }

    /// Sends and receives all messages for a while.
    fn exchange(&mut self) {
        for _ in 0..10 {
            self.time += MILLI;
            TIME.set(Some(self.time));
            let (now, at) = (Monotonic::from_nanos(self.time), BEGAN + self.time);
            let known = &self.leased.shared.known;
            self.exchanges.push(std::mem::take(&mut *self.leased.shared.questions.lock()));
            self.network.send(&mut self.exchanges, known, (now, at), &mut self.rng);
            let faults = Faults { lost: 0, damaged: 0 };
            self.network.receive(&mut self.exchanges, known, &self.server, (now, at), &mut self.rng, faults);
        }
    }

    /// Loses the connection, with all unsent messages.
    fn lose(&mut self) {
        self.exchanges.push(std::mem::take(&mut *self.leased.shared.questions.lock()));
        self.exchanges.fail_all(Monotonic::from_nanos(self.time));
    }

    /// Whether another request is admitted.
    fn admits_another(&mut self) -> bool {
        let (mut stream, mut host) = self.begin();
        self.exchange();
        RateLimit::resumed(&self.config, &mut stream, &mut host) == Flow::Continue
    }
}

#[test]
fn an_estimate_is_returned_if_its_stream_ends_before_the_decision_is_there() {
    let mut reserving = Reserving::new(1_000);
    drop(reserving.begin());
    reserving.exchange();
    let (stream, host) = reserving.begin();
    reserving.exchange();
    assert_eq!(host.wakes.load(Ordering::Relaxed), 1, "the decision is there");
    drop(stream);
    reserving.exchange();
    assert!(reserving.admits_another());
    assert!(!reserving.admits_another(), "the last one is in progress");
}

#[test]
fn entries_at_the_end_are_not_charged_for_a_stream_that_ends_before_its_decision() {
    let mut reserving = Reserving::new(1_000);
    for is_there in [false, true] {
        let (mut stream, mut host) = reserving.begin();
        host.numbers.insert("Dynamic/ns/n".to_owned(), 1.0);
        if is_there {
            reserving.exchange();
            assert_eq!(host.wakes.load(Ordering::Relaxed), 1, "the decision is there");
        }
        RateLimit::complete(&reserving.config, &mut stream, &mut host);
        let asked = reserving.leased.shared.questions.lock();
        let bodies = asked.iter().map(|question| String::from_utf8_lossy(&question.body).into_owned());
        let bodies: Vec<_> = bodies.collect();
        // The cancel of a decision that is there, and the question of a request that no longer waits for it.
        assert!(bodies.len() == 1 && !bodies[0].contains("\u{3}end"), "{bodies:?}");
        drop(asked);
        reserving.exchange();
    }
    assert!(reserving.admits_another(), "the estimates are returned");
}

#[test]
fn the_cost_of_a_request_is_stated_again_after_a_lost_connection() {
    let mut reserving = Reserving::new(600);
    let (mut stream, mut host) = reserving.begin();
    reserving.exchange();
    assert_eq!(RateLimit::resumed(&reserving.config, &mut stream, &mut host), Flow::Continue);
    RateLimit::complete(&reserving.config, &mut stream, &mut host);
    reserving.lose();
    reserving.exchange();
    assert!(reserving.admits_another());
}
