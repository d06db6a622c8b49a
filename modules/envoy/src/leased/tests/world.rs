//! A server, and processes that hold its credits, in simulated time.

use super::super::{
    call::Call,
    exchanges::{Exchanges, Purpose, Question},
    known::KnownRequests,
    messages::rate_limit_request,
};
use crate::{
    protobuf::{Wire, Writer, bytes_of, fields, numbers},
    rng::Rng,
};
use std::{
    borrow::Cow,
    cell::RefCell,
    collections::VecDeque,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Reset, Timestamp, client_text},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Key, OnFull, Seed, StoreSettings},
};
use tidegate_envoy_abi::Waker;
use tidegate_shared::{
    granter::Granter,
    lease::{LeaseRequest, Monotonic, NodeId, Supply},
};

pub(super) const BEGAN: u64 = 1_700_000_000_000_000_000;
pub(super) const MILLI: u64 = 1_000_000;
/// The deadline of requests that wait.
const TIMEOUT: u64 = 20 * MILLI;

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(&[Source::file("r.yaml", text.to_owned())], &LoadOptions::default()).unwrap()
}

/// A server, at a time that the test sets.
pub(super) struct Server {
    limiter: Limiter,
    granter: Granter,
    generation: u64,
    /// Times and first values of requests that it has admitted itself.
    pub(super) admitted: RefCell<Vec<(u64, String)>>,
}

impl Server {
    pub(super) fn new(text: &str) -> Self {
        let store =
            StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 1_000, on_full: OnFull::Deny };
        let limiter = Limiter::new(rules(text), store, false);
        let granter = Granter::new(7, Timestamp::from_nanos(BEGAN));
        Self { limiter, granter, generation: 1, admitted: RefCell::default() }
    }

    /// Restarts with the counters that it had.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.granter = Granter::new(self.granter.epoch() + 1, now);
    }

    /// Puts rules in force.
    pub(super) fn load(&mut self, text: &str) {
        let sources = [Source::file("r.yaml", text.to_owned())];
        let next = self.limiter.update_rules().build(&sources, &LoadOptions::default()).unwrap();
        drop(next.put_in_force());
        self.generation += 1;
    }

    /// Responds to `Exchange`.
    fn exchange(&self, message: &[u8], now: Timestamp) -> Vec<u8> {
        let (mut node, mut epoch, mut generation) = (0, 0, 0);
        let (mut decisions, mut grants) = (Vec::new(), Vec::new());
        for field in fields(message) {
            match field.unwrap() {
                (1, Wire::Fixed64(number)) => node = number,
                (2, Wire::Fixed64(number)) => epoch = number,
                (3, Wire::Varint(number)) => generation = number,
                (4, Wire::Bytes(bytes)) => decisions.push(self.decision(bytes, now)),
                (5, Wire::Bytes(bytes)) => {
                    let is_current = (epoch, generation) == (self.granter.epoch(), self.generation);
                    grants.push(self.grant(bytes, NodeId(node), is_current, now));
                }
                _ => {}
            }
        }
        let mut response = Writer::default();
        response.fixed64(1, self.granter.epoch());
        response.number(2, self.generation);
        decisions.iter().for_each(|decision| response.bytes(3, decision));
        grants.iter().for_each(|grant| response.bytes(4, grant));
        if epoch != self.granter.epoch() {
            let settings = self.granter.settings();
            response.message(5, |writer| {
                writer.number(1, settings.length.as_micros() as u64);
                writer.number(2, settings.grant_min);
                writer.number(3, settings.limit_min);
                writer.number(4, settings.hold_min.as_micros() as u64);
            });
        }
        response.into_bytes()
    }

    fn decision(&self, message: &[u8], now: Timestamp) -> Vec<u8> {
        let pinned = self.limiter.pin();
        let mut sent: Vec<(Vec<[Cow<'_, str>; 2]>, u64)> = Vec::new();
        let text = |bytes| client_text(bytes, usize::MAX);
        let text = |entry, field| text(bytes_of(entry, field).unwrap().unwrap_or_default());
        for field in fields(message) {
            let (2, Wire::Bytes(descriptor)) = field.unwrap() else { continue };
            let (mut entries, mut own) = (Vec::new(), 1);
            for field in fields(descriptor) {
                match field.unwrap() {
                    (1, Wire::Bytes(entry)) => entries.push([text(entry, 1), text(entry, 2)]),
                    (3, Wire::Bytes(wrapper)) => [own] = numbers(wrapper).unwrap(),
                    _ => {}
                }
            }
            sent.push((entries, own));
        }
        let (mut request, mut hits) = (Request::new("d"), Vec::new());
        for (entries, own) in &sent {
            hits.push(*own);
            let entries = entries.iter().map(|[key, value]| Entry { key, value }).collect();
            request.push(Descriptor { entries, limit: None, hits: Hits::new(Some(*own), 0, false) });
        }
        let decision = pinned.decide(&request, now);
        if decision.code == Code::Ok {
            let first = request.descriptors()[0].entries[0].value.to_owned();
            let hits = request.descriptors()[0].hits;
            let hits = if let Hits::Take(hits) = hits { hits.get() } else { 0 };
            (0..hits.min(1_000_000))
                .for_each(|_| self.admitted.borrow_mut().push((now.as_nanos(), first.clone())));
        }
        let mut message = Writer::default();
        message.message(1, |response| {
            response.number(1, if decision.code == Code::Ok { 1 } else { 2 });
            for status in &decision.statuses {
                response.message(2, |writer| {
                    writer.number(1, if status.code == Code::Ok { 1 } else { 2 });
                    writer.number(3, status.remaining.into());
                    let reset = status.reset.and_then(Reset::seconds_rounded_up).unwrap_or(0);
                    writer.message(4, |duration| duration.number(1, reset));
                });
            }
            let Some(slot) = &decision.slot else { return };
            response.message(6, |metadata| {
                metadata.message(1, |entry| {
                    entry.text(1, "slot");
                    entry.message(2, |value| value.text(3, &slot.ticket));
                });
            });
        });
        if let Some(slot) = &decision.slot {
            message.number(4, slot.hold.as_micros() as u64);
        }
        let charges = pinned.grantable(&request).unwrap_or_default();
        let counters = charges.iter().zip(hits).map(|(charge, hits)| {
            let Some(charge) = charge else { return Some(None) };
            Some(Some((charge.key(), self.granter.terms(&pinned, charge.key(), hits, now)?)))
        });
        // Counters of all descriptors, or none.
        for counter in counters.collect::<Option<Vec<_>>>().unwrap_or_default() {
            message.message(3, |writer| {
                let Some((key, terms)) = counter else { return };
                let (high, low) = key.halves();
                writer.bytes(1, &(u128::from(high) << 64 | u128::from(low)).to_be_bytes());
                writer.number(2, terms.holder.limit);
                writer.number(3, terms.holder.span);
                writer.number(4, terms.denied_for.as_micros() as u64);
            });
        }
        message.into_bytes()
    }

    fn grant(&self, message: &[u8], node: NodeId, is_current: bool, now: Timestamp) -> Vec<u8> {
        let [_, holder, sequence, spent, acknowledged, spent_ago, kept, demand] = numbers(message).unwrap();
        let id = bytes_of(message, 1).unwrap().unwrap_or_default();
        let id = u128::from_be_bytes(id.try_into().unwrap());
        let key = Key::from_halves((id >> 64) as u64, id as u64);
        let spent_ago = spent_ago * 1_000;
        let claim = LeaseRequest { node, holder, sequence, spent, acknowledged, spent_ago, kept, demand };
        let mut message = Writer::default();
        let Some(grant) = self.granter.lease(&self.limiter.pin(), key, &claim, is_current, now) else {
            return message.into_bytes();
        };
        let supply = match grant.supply {
            Supply::Ample => 0,
            Supply::Scarce => 1,
            Supply::TooSmall => 2,
            Supply::Learning => 3,
        };
        let micros = |duration: Duration| duration.as_micros() as u64;
        let numbers = [
            grant.sequence,
            grant.spend_to,
            micros(grant.valid_for),
            supply,
            micros(grant.report_after),
            grant.free,
            micros(grant.empty_for),
            micros(grant.until_full),
        ];
        numbers.into_iter().zip(1..).for_each(|(number, field)| message.number(field, number));
        message.into_bytes()
    }
}

/// A process, with requests that wait and calls that are on their way.
pub(super) struct Node {
    pub(super) exchanges: Exchanges,
    known: KnownRequests,
    waiting: Vec<Arc<Call>>,
    network: Network,
    pub(super) wakes: Arc<AtomicUsize>,
    pub(super) by_credits: u64,
    /// The time until which the thread sleeps; none if it was woken.
    sleeps_until: Option<Monotonic>,
}

impl Node {
    pub(super) fn new(number: u64) -> Self {
        Self {
            exchanges: Exchanges::new(number),
            known: KnownRequests::new(Seed::from_bytes([9; 16])),
            waiting: Vec::new(),
            network: Network::default(),
            wakes: Arc::default(),
            by_credits: 0,
            sleeps_until: None,
        }
    }

    /// Decides a request; none if it waits.
    pub(super) fn decide(&mut self, request: &Request<'_>, now: Monotonic) -> Option<bool> {
        let key = self.known.key(request);
        let local = key.as_ref().and_then(|(key, hits)| self.known.find(*key)?.decide(hits, || now));
        if let Some(decision) = local {
            self.by_credits += 1;
            self.sleeps_until = self.sleeps_until.filter(|_| !decision.needs_claim);
            return Some(!decision.is_over());
        }
        let wakes = Arc::clone(&self.wakes);
        let wake = move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        };
        let call = Call::new(Waker::of_test(wake));
        self.waiting.push(Arc::clone(&call));
        self.sleeps_until = None;
        self.exchanges.push([Question {
            purpose: Purpose::Call(call),
            domain: request.domain().into(),
            body: rate_limit_request(request),
            key,
            deadline: now.plus_nanos(TIMEOUT),
        }]);
        None
    }

    /// Gives all credits back.
    pub(super) fn retire(&mut self, now: Monotonic) {
        self.exchanges.retire(now);
        self.sleeps_until = None;
    }

    /// The outcomes of requests that have waited: whether each was admitted; none if it was not decided.
    pub(super) fn outcomes(&mut self) -> Vec<Option<bool>> {
        let mut outcomes = Vec::new();
        self.waiting.retain(|call| {
            if call.is_waiting() {
                return true;
            }
            outcomes.push(call.take().expect("it does not wait").map(|response| !response.is_denied));
            false
        });
        outcomes
    }

    /// Receives responses at `now`, and sends calls unless the thread sleeps; `lost` of a thousand exchanges lose the connection.
    pub(super) fn exchange(
        &mut self,
        server: &Server,
        (now, at): (Monotonic, u64),
        rng: &mut Rng,
        lost: u64,
    ) {
        let faults = Faults { lost, damaged: 0 };
        let wakes = self.network.receive(&mut self.exchanges, &self.known, server, (now, at), rng, faults);
        if wakes || self.sleeps_until.is_none_or(|until| until <= now) {
            assert!(self.exchanges.expire(now) || lost > 0);
            self.network.send(&mut self.exchanges, &self.known, (now, at), rng);
            self.sleeps_until = Some(self.exchanges.next_step(now));
        }
    }
}

/// Faults of messages, of a thousand.
#[derive(Clone, Copy)]
pub(super) struct Faults {
    /// Lost, with all others in flight.
    pub(super) lost: u64,
    /// Responses with one byte changed.
    pub(super) damaged: u64,
}

/// Calls in flight, each with the time at which it reaches the server, or its response is back.
#[derive(Default)]
pub(super) struct Network(VecDeque<(u64, u64, Vec<u8>, bool)>);

impl Network {
    /// Sends the calls that are due at `now`. Messages take up to a millisecond.
    pub(super) fn send(
        &mut self,
        exchanges: &mut Exchanges,
        known: &KnownRequests,
        (now, at): (Monotonic, u64),
        rng: &mut Rng,
    ) {
        while let Some((token, message)) = exchanges.next(known, now) {
            self.0.push_back((at + rng.below(MILLI), token, message, false));
        }
    }

    /// Makes the server respond to calls that have arrived at `now`, and receives responses. Returns whether there were any.
    pub(super) fn receive(
        &mut self,
        exchanges: &mut Exchanges,
        known: &KnownRequests,
        server: &Server,
        (now, at): (Monotonic, u64),
        rng: &mut Rng,
        faults: Faults,
    ) -> bool {
        let mut has_received = false;
        for _ in 0..self.0.len() {
            let (due, token, mut message, is_response) = self.0.pop_front().unwrap();
            let mut is_lost = due <= at && rng.below(1_000) < faults.lost;
            if due > at {
                self.0.push_back((due, token, message, is_response));
            } else if is_response {
                if rng.below(1_000) < faults.damaged && !message.is_empty() {
                    let index = rng.below(message.len() as u64) as usize;
                    message[index] = rng.below(256) as u8;
                }
                has_received = true;
                is_lost |= exchanges.accept(token, &message, known, now).is_err();
            } else {
                let response = server.exchange(&message, Timestamp::from_nanos(at));
                self.0.push_back((at + rng.below(MILLI), token, response, true));
            }
            if is_lost {
                exchanges.fail_all(now);
                self.0.clear();
                return true;
            }
        }
        has_received
    }
}
