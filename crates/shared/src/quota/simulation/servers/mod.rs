//! Several servers with one store: random worlds of servers that start, join and are killed, a store that is away or loses everything, and
//! clients that report to any of the servers. A naive limit counts everything that is admitted, at its true time.
//!
//! `TIDEGATE_QUOTA_WORLDS` and `TIDEGATE_QUOTA_FIRST` apply as in worlds of one server.

mod conditions;
mod keeping;
mod usefulness;

use super::{
    super::{
        Assignment, Part, PartCall, PartGrant, PartRequest, Quota, Reporter, RuleId, Settings, StreamId,
        Usage, settings::PART_LIFE,
    },
    client::{Client, INTERVAL, MILLIS, SECOND},
    divided_counter::DividedCounter,
    limit::{Limit, Tally},
    world::{START, request},
};
use crate::{
    PeerId,
    lease::{NodeId, simulation::rng::Rng},
};
use conditions::{StoreConditions, StoreFault};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};
use tidegate_core::{
    algorithm::Algorithm,
    limit::Timestamp,
    limiter::{Limiter, Pinned},
    rules::{LoadOptions, Percent, RuleSet, Source},
    store::{Key, OnFull, Seed, StoreSettings},
};

const STEP: u64 = 20 * MILLIS;

#[derive(Clone, Debug)]
enum Message {
    Report {
        stream: StreamId,
        usage: Usage,
    },
    Push {
        stream: StreamId,
        assignment: Assignment,
    },
    Acknowledgement {
        stream: StreamId,
        sent: u64,
    },
    /// A server notices that a stream has ended.
    Closed {
        server: u64,
        stream: StreamId,
    },
    Request {
        server: u64,
        bucket: Key,
        request: PartRequest,
    },
    Response {
        server: u64,
        bucket: Key,
        sequence: u64,
        grant: PartGrant,
    },
}

struct Server {
    id: u64,
    quota: Quota,
}

/// A stream that carries messages.
struct Link {
    client: usize,
    server: u64,
    /// Times at which the last message each way is received.
    up: u64,
    down: u64,
}

struct Store {
    counter: DividedCounter,
    began: u64,
    /// Time from which the store is up.
    up_at: u64,
}

struct World {
    conditions: StoreConditions,
    now: u64,
    limiter: Limiter,
    algorithm: Algorithm,
    store: Store,
    servers: Vec<Server>,
    /// Numbers of servers that start again, each with its time.
    restarting: Vec<(u64, u64)>,
    clients: Vec<Client>,
    links: HashMap<StreamId, Link>,
    messages: BTreeMap<(u64, Reverse<u64>), Message>,
    numbers: u64,
    tally: Tally,
    rng: Rng,
    direct_owed: f64,
    direct_admitted: u64,
    excess: (u64, u64),
}

fn shared_options() -> LoadOptions {
    LoadOptions { shared_counters: true, ..LoadOptions::default() }
}

fn limiter(limit: &Limit) -> Limiter {
    let rules = RuleSet::parse(&[Source::file("r.yaml", limit.rules())], &shared_options()).expect("a rule");
    let seed = Seed::from_bytes([5; 16]);
    Limiter::new(rules, StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny }, false)
}

fn algorithm(rules: &Pinned<'_>) -> Algorithm {
    rules.leasable(&request()).expect("a shared rule")[0].as_ref().expect("a limit").algorithm().clone()
}

impl World {
    fn new(conditions: StoreConditions, rng: Rng) -> Self {
        let limiter = limiter(&conditions.limit);
        let algorithm = algorithm(&limiter.pin());
        let store = Store { counter: DividedCounter::default(), began: 0, up_at: 0 };
        let mut world = Self {
            now: START,
            limiter,
            algorithm,
            store,
            servers: Vec::new(),
            restarting: Vec::new(),
            clients: Vec::new(),
            links: HashMap::new(),
            messages: BTreeMap::new(),
            numbers: 0,
            tally: conditions.limit.tally(),
            rng,
            direct_owed: 0.0,
            direct_admitted: 0,
            excess: (0, 0),
            conditions,
        };
        (0..world.conditions.servers).for_each(|_| world.join());
        for _ in 0..world.conditions.clients {
            let mut client = Client::new(0.0, 1, world.now);
            client.reports_at = world.now + world.rng.below(INTERVAL);
            world.clients.push(client);
        }
        world.move_demand();
        world
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn post(&mut self, at: u64, message: Message) {
        let number = self.number();
        self.messages.insert((at, Reverse(u64::MAX - number)), message);
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn join(&mut self) {
        let id = self.number();
        let quota = Quota::new(Settings::default(), self.time()).with_store(NodeId(id));
        self.servers.push(Server { id, quota });
    }

    /// A server that was killed starts again with its number.
    fn start_again(&mut self, id: u64) {
        let quota = Quota::new(Settings::default(), self.time()).with_store(NodeId(id)).resuming(true);
        self.servers.push(Server { id, quota });
    }

    /// A server stops: it sends its last requests.
    fn stop(&mut self, index: usize) {
        let now = self.time();
        let server = &mut self.servers[index];
        let requests = server.quota.release(now);
        let id = server.id;
        for PartCall { bucket, mut request, .. } in requests {
            if self.conditions.fault == Some(StoreFault::FreesAll) {
                (request.kept, request.wanted) = Default::default();
            }
            if !self.is_lost() {
                let at = self.now + self.rng.below(self.conditions.delay_max);
                self.post(at, Message::Request { server: id, bucket, request });
            }
        }
        self.kill(index);
    }

    /// A server is killed: its streams end.
    fn kill(&mut self, index: usize) {
        let id = self.servers.remove(index).id;
        if self.conditions.fault == Some(StoreFault::ForgetsVanished) {
            self.store.counter.forget(NodeId(id));
        }
        for (_, link) in self.links.extract_if(|_, link| link.server == id) {
            let client = &mut self.clients[link.client];
            client.stream = None;
            if self.conditions.takes_clients {
                *client = Client::new(client.demand, 1, self.now);
            }
        }
    }

    fn move_demand(&mut self) {
        let (clients, hot) = (self.clients.len(), self.conditions.hot.min(self.clients.len()));
        let total = self.conditions.load * self.conditions.limit.rate;
        self.clients.iter_mut().for_each(|client| client.demand = 0.1 * total / clients as f64);
        for _ in 0..hot {
            let chosen = self.rng.below(clients as u64) as usize;
            self.clients[chosen].demand += 0.9 * total / hot as f64;
        }
    }

    fn happens(&mut self, gap: u64) -> bool {
        gap > 0 && self.rng.below(gap / STEP) == 0
    }

    fn events(&mut self) {
        let any = self.rng.below(self.clients.len() as u64) as usize;
        if self.happens(self.conditions.move_gap) {
            self.move_demand();
        }
        if self.happens(self.conditions.client_gap) {
            self.hang_up(any, 10 * SECOND);
            self.clients[any] = Client::new(self.clients[any].demand, 1, self.now);
        }
        if self.happens(self.conditions.hop_gap) {
            self.hang_up(any, SECOND);
        }
        if self.happens(self.conditions.kill_gap) && !self.servers.is_empty() {
            let server = self.rng.below(self.servers.len() as u64) as usize;
            if self.conditions.restarts {
                let at = self.now + self.rng.below(25 * SECOND);
                self.restarting.push((at, self.servers[server].id));
            }
            if self.conditions.stops {
                self.stop(server);
            } else {
                self.kill(server);
            }
        }
        let now = self.now;
        let due: Vec<(u64, u64)> = self.restarting.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, id)| self.start_again(id));
        if self.happens(self.conditions.join_gap) && self.servers.len() < 6 {
            self.join();
        }
        if self.happens(self.conditions.away_gap) {
            self.store.up_at = self.now + self.rng.below(30 * SECOND);
        }
        if self.happens(self.conditions.empty_gap) {
            self.empty_store();
        }
    }

    fn empty_store(&mut self) {
        let began = match self.conditions.fault {
            Some(StoreFault::NoLearning) => 0,
            _ => self.now,
        };
        self.store = Store { counter: DividedCounter::default(), began, ..self.store };
    }

    /// The stream of a client ends; its server notices after a time.
    fn hang_up(&mut self, client: usize, notices_in: u64) {
        let Some(stream) = self.clients[client].stream.take() else { return };
        let Some(link) = self.links.remove(&stream) else { return };
        let at = self.now + self.rng.below(notices_in);
        self.post(at, Message::Closed { server: link.server, stream });
    }

    fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            self.now += STEP;
            self.events();
            while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let message = entry.remove();
                self.receive(message);
            }
            self.requests();
            self.reports();
            if self.now.is_multiple_of(100 * MILLIS) {
                (0..self.servers.len()).for_each(|server| self.poll(server));
            }
        }
    }

    fn server(&mut self, id: u64) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.id == id)
    }

    fn receive(&mut self, message: Message) {
        let now = self.time();
        match message {
            Message::Report { stream, usage } => {
                let Some(link) = self.links.get(&stream) else { return };
                let Some(server) = self.servers.iter_mut().find(|server| server.id == link.server) else {
                    return;
                };
                let rules = self.limiter.pin();
                let request = request();
                let charges = rules.leasable(&request).expect("a shared rule");
                let charge = charges[0].as_ref().expect("a limit");
                let reporter = Reporter {
                    stream,
                    place: 0,
                    peer: PeerId(link.client as u64 + 1),
                    share_max: Percent::ALL,
                    rule: RuleId(1),
                    unrecorded: Percent::ALL,
                };
                server.quota.report(&rules, reporter, charge, usage, now).expect("a limit that is divided");
            }
            Message::Push { stream, assignment } => {
                let Some(link) = self.links.get(&stream) else { return };
                self.clients[link.client].act(assignment, self.now);
            }
            Message::Acknowledgement { stream, sent } => {
                let Some(link) = self.links.get(&stream) else { return };
                let Some(server) = self.servers.iter_mut().find(|server| server.id == link.server) else {
                    return;
                };
                server.quota.acknowledge(stream, Timestamp::from_nanos(sent), now);
            }
            Message::Closed { server, stream } => {
                let forgets = self.conditions.fault == Some(StoreFault::ForgetsClosed);
                let Some(server) = self.server(server) else { return };
                server.quota.close(stream);
                if forgets {
                    server.quota.forget_remnants();
                }
            }
            Message::Request { server, bucket, request } => self.call(server, bucket, request),
            Message::Response { server, bucket, sequence, grant } => {
                let server = self.server(server);
                server.into_iter().for_each(|server| server.quota.accept(bucket, sequence, &grant, now));
            }
        }
    }

    /// The store receives a request.
    fn call(&mut self, server: u64, bucket: Key, mut request: PartRequest) {
        if self.now < self.store.up_at {
            return;
        }
        if self.conditions.fault == Some(StoreFault::ShrinksAtOnce) {
            request.kept = Part {
                rate: request.kept.rate.min(request.wanted.rate),
                burst: request.kept.burst.min(request.wanted.burst),
            };
        }
        if self.conditions.fault == Some(StoreFault::CountsNothing) {
            request.spent = 0;
        }
        let is_learning = self.now <= self.store.began + PART_LIFE.as_nanos() as u64;
        let now = self.time();
        let grant = self.store.counter.report(&self.algorithm, &request, is_learning, now);
        if self.conditions.fault == Some(StoreFault::ForgetsRates) {
            self.store.counter.forget_rates();
        }
        let (Some(grant), false) = (grant, self.is_lost()) else { return };
        let at = self.now + self.rng.below(self.conditions.delay_max);
        self.post(at, Message::Response { server, bucket, sequence: request.sequence, grant });
    }

    fn is_lost(&mut self) -> bool {
        self.conditions.lost_calls > 0 && self.rng.once_in(self.conditions.lost_calls)
    }

    fn requests(&mut self) {
        for index in 0..self.clients.len() {
            let arrivals = self.clients[index].arrivals(STEP, &mut self.rng);
            let (admitted, is_first) = self.clients[index].decide(arrivals, self.now);
            self.admit(admitted);
            if is_first {
                self.report_now(index);
            }
        }
        if self.now < self.store.up_at {
            return;
        }
        self.direct_owed += self.conditions.direct * self.conditions.limit.rate * STEP as f64 / SECOND as f64;
        while self.direct_owed >= 1.0 {
            self.direct_owed -= 1.0;
            if self.conditions.fault == Some(StoreFault::HoldsNothing) {
                self.store.counter.hold_nothing();
            }
            let now = self.time();
            if self.store.counter.decide(&self.algorithm, now) {
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
            self.clients[index].reports_at += INTERVAL;
            if self.clients[index].stream.is_none() && !self.servers.is_empty() {
                let server = self.servers[self.rng.below(self.servers.len() as u64) as usize].id;
                let stream = StreamId(self.number());
                self.clients[index].stream = Some(stream);
                self.links.insert(stream, Link { client: index, server, up: 0, down: 0 });
            }
            self.report_now(index);
        }
    }

    fn report_now(&mut self, index: usize) {
        let Some(usage) = self.clients[index].report() else { return };
        let Some(stream) = self.clients[index].stream else { return };
        let delay = self.rng.below(self.conditions.delay_max);
        let Some(link) = self.links.get_mut(&stream) else { return };
        link.up = link.up.max(self.now + delay);
        let at = link.up;
        self.post(at, Message::Report { stream, usage });
    }

    fn poll(&mut self, index: usize) {
        let now = self.time();
        let rules = self.limiter.pin();
        let server = &mut self.servers[index];
        let (id, pushes) = (server.id, server.quota.poll(&rules, now));
        let requests = server.quota.requests(now);
        drop(rules);
        for push in pushes {
            let (down, up) =
                (self.rng.below(self.conditions.delay_max), self.rng.below(self.conditions.delay_max));
            let Some(link) = self.links.get_mut(&push.stream) else { continue };
            link.down = link.down.max(self.now + down);
            let (stream, at, sent) = (push.stream, link.down, self.now);
            self.post(at, Message::Push { stream, assignment: push.assignment });
            self.post(at + up, Message::Acknowledgement { stream, sent });
        }
        for PartCall { bucket, request, .. } in requests {
            if !self.is_lost() {
                let at = self.now + self.rng.below(self.conditions.delay_max);
                self.post(at, Message::Request { server: id, bucket, request });
            }
            let takes_late = self.conditions.fault == Some(StoreFault::TakesLateRequests);
            if takes_late || self.is_lost() {
                let at = self.now + self.rng.below(4 * SECOND);
                let sequence = if takes_late { at / 1_000 } else { request.sequence };
                let request = PartRequest { sequence, ..request };
                self.post(at, Message::Request { server: id, bucket, request });
            }
        }
    }

    fn admitted(&self) -> u64 {
        self.clients.iter().map(|client| client.admitted).sum()
    }
}
