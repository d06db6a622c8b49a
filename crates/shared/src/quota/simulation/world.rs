//! A world: a server with a limiter and quota, clients, the network between them, and the events of all of these.

use super::{
    super::{Quota, StreamId},
    client::{Client, INTERVAL, MILLIS, SECOND},
    conditions::Conditions,
    holders::Holders,
    hostile::{HOSTILE_INTERVAL, Hostility},
    limit::{Limit, Tally},
    network::{Link, Message},
    process::Recorder,
};
use crate::lease::simulation::rng::Rng;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Time between two steps of the world.
const STEP: u64 = 20 * MILLIS;

pub(super) const START: u64 = 1_700_000_000 * SECOND;

pub(super) struct World {
    pub(super) conditions: Conditions,
    pub(super) now: u64,
    pub(super) limiter: Limiter,
    pub(super) quota: Quota,
    pub(super) recorder: Recorder,
    pub(super) clients: Vec<Client>,
    pub(super) links: HashMap<StreamId, Link>,
    streams: u64,
    pub(super) messages: BTreeMap<(u64, Reverse<u64>), Message>,
    pub(super) sent: u64,
    /// Time from which the server is up.
    pub(super) up_at: u64,
    tally: Tally,
    pub(super) rng: Rng,
    pub(super) holders: Holders,
    direct_owed: f64,
    pub(super) direct_admitted: u64,
    /// The most hits beyond the limit, and when.
    pub(super) excess: (u64, u64),
    pub(super) pushes: u64,
}

pub(super) fn limiter(limit: &Limit) -> Limiter {
    let rules = Source::file("r.yaml", limit.rules());
    let rules = RuleSet::parse(&[rules], &LoadOptions::default()).expect("a rule");
    let seed = Seed::from_bytes([5; 16]);
    Limiter::new(rules, StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny }, false)
}

pub(super) fn request() -> Request<'static> {
    let mut request = Request::new("d");
    let entries = [Entry { key: "a", value: "" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    request
}

impl World {
    pub(super) fn new(conditions: Conditions, rng: Rng) -> Self {
        // The first process has no former one.
        let began = Timestamp::from_nanos(START - 60 * SECOND);
        let (recorder, quota) = Recorder::first(conditions.memory, began);
        let mut world = Self {
            now: START,
            limiter: limiter(&conditions.limit),
            quota,
            recorder,
            clients: Vec::new(),
            links: HashMap::new(),
            streams: 0,
            messages: BTreeMap::new(),
            sent: 0,
            up_at: 0,
            tally: conditions.limit.tally(),
            rng,
            holders: Holders::new(conditions.holders, 0.4 * conditions.limit.rate),
            direct_owed: 0.0,
            direct_admitted: 0,
            excess: (0, 0),
            pushes: 0,
            conditions,
        };
        for _ in 0..world.conditions.clients {
            let phase = world.rng.below(INTERVAL);
            let mut client = Client::new(0.0, world.conditions.clump, world.now);
            client.reports_at = world.now + phase;
            world.clients.push(client);
        }
        world.move_demand();
        world
    }

    pub(super) fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            self.now += STEP;
            self.events();
            self.deliver();
            self.requests();
            self.reports();
            if self.now.is_multiple_of(100 * MILLIS) && self.now >= self.up_at {
                self.poll();
            }
        }
    }

    /// Gives nine tenths of the demand to clients that are chosen at random.
    pub(super) fn move_demand(&mut self) {
        let (clients, hot) = (self.clients.len(), self.conditions.hot.min(self.clients.len()));
        let total = self.conditions.load * self.conditions.limit.rate;
        for client in &mut self.clients {
            client.demand = 0.1 * total / clients as f64;
        }
        for _ in 0..hot {
            let chosen = self.rng.below(clients as u64) as usize;
            self.clients[chosen].demand += 0.9 * total / hot as f64;
        }
    }

    fn happens(&mut self, gap: u64) -> bool {
        gap > 0 && self.rng.below(gap / STEP) == 0
    }

    fn events(&mut self) {
        if self.happens(self.conditions.move_gap) {
            self.move_demand();
        }
        if self.happens(self.conditions.join_gap) && self.clients.len() < 60 {
            let demand = self.conditions.load * self.conditions.limit.rate / self.clients.len() as f64;
            self.clients.push(Client::new(demand, self.conditions.clump, self.now));
        }
        let any = self.rng.below(self.clients.len() as u64) as usize;
        if self.happens(self.conditions.kill_gap) {
            self.kill(any);
        }
        if self.happens(self.conditions.close_gap) {
            self.cut(any, 0, 0);
        }
        if self.happens(self.conditions.stall_gap) {
            let (client_notices, server_notices) = (self.rng.below(10 * SECOND), self.rng.below(25 * SECOND));
            self.cut(any, client_notices, server_notices);
        }
        if self.happens(self.conditions.restart_gap) && self.now >= self.up_at {
            let down = self.rng.below(self.conditions.down_max);
            self.restart(down);
        }
    }

    /// Replaces a client by another. The server notices after a random time.
    pub(super) fn kill(&mut self, client: usize) {
        let notices = self.rng.below(20 * SECOND);
        self.replace(client, notices);
    }

    /// Replaces a client by another. The server notices after `notices` nanoseconds.
    pub(super) fn replace(&mut self, client: usize, notices: u64) {
        self.cut(client, 0, notices);
        let demand = self.clients[client].demand;
        self.clients[client] = Client::new(demand, self.conditions.clump, self.now);
    }

    fn requests(&mut self) {
        for index in 0..self.clients.len() {
            let arrivals = self.clients[index].arrivals(STEP, &mut self.rng);
            let (admitted, is_first) = self.clients[index].decide(arrivals, self.now);
            // The slices of a hostile client are spent as it reports.
            if self.hostility(index).is_none() || !self.conditions.limit.counts_reports() {
                self.admit(admitted);
            }
            if is_first {
                self.report_now(index);
            }
        }
        let rules = (self.now >= self.up_at).then(|| self.limiter.pin());
        let by_holders = self.holders.step(rules.as_ref(), STEP, self.now, &mut self.rng);
        drop(rules);
        self.admit(by_holders);
        if self.now < self.up_at {
            return;
        }
        self.direct_owed += self.conditions.direct * self.conditions.limit.rate * STEP as f64 / SECOND as f64;
        while self.direct_owed >= 1.0 {
            self.direct_owed -= 1.0;
            if self.limiter.pin().decide(&request(), Timestamp::from_nanos(self.now)).code == Code::Ok {
                self.direct_admitted += 1;
                self.admit(1);
            }
        }
    }

    fn admit(&mut self, hits: u64) {
        if hits > 0 {
            let excess = self.tally.admit(hits, self.now);
            if excess > self.excess.0 {
                self.excess = (excess, self.now);
            }
        }
    }

    fn reports(&mut self) {
        for index in 0..self.clients.len() {
            if self.clients[index].reports_at > self.now {
                continue;
            }
            let hostility = self.hostility(index);
            self.clients[index].reports_at += if hostility.is_some() { HOSTILE_INTERVAL } else { INTERVAL };
            if hostility == Some(Hostility::Reconnects)
                && let Some(stream) = self.clients[index].stream.take()
            {
                self.links.remove(&stream);
                self.post(self.now, Message::Closed { stream });
            }
            if self.clients[index].stream.is_none() && self.now >= self.up_at {
                self.streams += 1;
                let stream = StreamId(self.streams);
                self.clients[index].stream = Some(stream);
                let peer = if hostility.is_some() { 1 } else { index as u64 + 1 };
                self.links.insert(stream, Link { client: index, peer, up: 0, down: 0 });
            }
            self.report_now(index);
        }
    }

    pub(super) fn hostility(&self, client: usize) -> Option<Hostility> {
        self.conditions.hostile.0.filter(|_| client < self.conditions.hostile.1)
    }

    /// Hits that clients admitted.
    pub(super) fn admitted(&self) -> u64 {
        self.clients.iter().map(|client| client.admitted).sum()
    }
}
