//! A world: a server with a limiter and quota, clients, the network between them, and what happens to all of these.

use super::{
    super::{Former, Push, Quota, Reporter, RuleId, Settings, StreamId, Usage},
    client::{Client, INTERVAL, MILLIS, SECOND},
    fault::Fault,
    holders::Holders,
    hostile::{self, HOSTILE_INTERVAL, Hostility},
    limit::{Limit, Tally},
};
use crate::{PeerId, lease::simulation::rng::Rng};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, Percent, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Time between two looks at everything.
const STEP: u64 = 20 * MILLIS;

const RULE: RuleId = RuleId(1);

/// The most that clients have where nothing is recorded.
const UNRECORDED: Percent = Percent::new(50).expect("a percentage");

pub(super) const START: u64 = 1_700_000_000 * SECOND;

/// Random parameters of a world. Times are in nanoseconds; gaps are mean times between two events, zero means never.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) limit: Limit,
    pub(super) clients: usize,
    /// The most that a client may have of the limit.
    pub(super) share_max: Percent,
    /// So many of the first clients are of one peer, and report what is not true.
    pub(super) hostile: (Option<Hostility>, usize),
    /// Demand of all clients, in parts of the limit.
    pub(super) load: f64,
    /// Demand of requests to the server itself.
    pub(super) direct: f64,
    /// Holders of leases, each of which demands a part of the limit.
    pub(super) holders: usize,
    /// Share of the clients that has nine tenths of the demand.
    pub(super) hot: usize,
    pub(super) clump: u64,
    pub(super) length: u64,
    /// The longest time on the way, either way.
    pub(super) delay_max: u64,
    /// Whether the connection acknowledges what is received.
    pub(super) acknowledges: bool,
    /// Demand moves to other clients.
    pub(super) move_gap: u64,
    pub(super) join_gap: u64,
    pub(super) kill_gap: u64,
    /// Streams that end, and are noticed at once.
    pub(super) close_gap: u64,
    /// Streams on which nothing is received any more; both sides notice later.
    pub(super) stall_gap: u64,
    pub(super) lost_report_gap: u64,
    pub(super) restart_gap: u64,
    /// Whether a restart keeps the counters.
    pub(super) keeps_counters: bool,
    /// What a process knows of the one before it.
    pub(super) memory: Memory,
    pub(super) fault: Option<Fault>,
}

impl Conditions {
    pub(super) fn random(rng: &mut Rng, kinds: &[u64]) -> Self {
        let gap = |rng: &mut Rng, secs: u64| if rng.once_in(2) { 0 } else { secs * SECOND };
        let keeps_counters = rng.once_in(2);
        let restart_gap = if rng.once_in(3) { 40 * SECOND } else { 0 };
        let direct = rng.pick(&[0.0, 0.0, 0.3, 2.0]);
        let clients = rng.pick(&[2, 2, 3, 3, 5, 10, 20, 50]);
        let limit = Limit::random(rng, kinds);
        let counts_reports = limit.counts_reports();
        let mut conditions = Self {
            limit,
            clients,
            share_max: Percent::new(rng.pick(&[100, 100, 60, 25])).expect("a percentage"),
            hostile: if rng.once_in(4) {
                (Some(rng.pick(&hostile::ALL)), rng.between(1, 3) as usize)
            } else {
                (None, 0)
            },
            load: rng.pick(&[0.3, 0.8, 1.2, 3.0, 20.0]),
            // A limiter that is started empty has forgotten these requests, whatever quota does.
            direct: if restart_gap > 0 && !keeps_counters { 0.0 } else { direct },
            // Likewise: a server that forgets its counters forgets what was spent of credits.
            holders: if restart_gap > 0 && !keeps_counters { 0 } else { rng.pick(&[0, 0, 2, 3]) },
            hot: rng.between(1, clients as u64) as usize,
            clump: rng.pick(&[1, 1, 5, 50]),
            length: rng.pick(&[40, 60, 80]) * SECOND,
            delay_max: rng.pick(&[5, 50, 480]) * MILLIS,
            acknowledges: rng.once_in(2),
            move_gap: gap(rng, 20),
            join_gap: gap(rng, 10),
            kill_gap: gap(rng, 15),
            close_gap: gap(rng, 15),
            stall_gap: gap(rng, 20),
            // A stream loses no report before it ends. What is assigned of a rate does not depend on that.
            lost_report_gap: gap(rng, 3) * u64::from(!counts_reports),
            restart_gap,
            keeps_counters,
            memory: if keeps_counters { rng.pick(&Memory::ALL) } else { Memory::None },
            fault: None,
        };
        // Of a window that was divided by slices, an empty server has forgotten all that clients spent.
        conditions.keeps_counters |= counts_reports;
        if counts_reports && conditions.memory == Memory::Counters && conditions.lost_report_gap > 0 {
            conditions.memory = Memory::None;
        }
        if conditions.hostile.0 == Some(Hostility::Totals) {
            // A server that does not know what a former one assigned takes its clients at their word.
            conditions.restart_gap = 0;
        }
        conditions
    }
}

/// What a process knows of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Nothing.
    None,
    /// That it assigned a stated part at most.
    Stated,
    /// What it recorded.
    Record,
    /// What counters have: each process stops in order.
    Counters,
}

impl Memory {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Stated, Self::Record, Self::Counters];
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Report {
        stream: StreamId,
        usage: Usage,
    },
    Push {
        client: usize,
        push: Push,
    },
    Acknowledgement {
        stream: StreamId,
        sent: u64,
    },
    /// The server notices that a stream has ended.
    Closed {
        stream: StreamId,
    },
    /// A client notices it.
    Broken {
        client: usize,
        stream: StreamId,
    },
}

/// A stream, as long as it carries messages.
#[derive(Clone, Copy, Debug)]
struct Link {
    client: usize,
    peer: u64,
    /// Times at which the last message each way is received.
    up: u64,
    down: u64,
}

pub(super) struct World {
    pub(super) conditions: Conditions,
    pub(super) now: u64,
    limiter: Limiter,
    pub(super) quota: Quota,
    /// What is recorded, and what is being recorded until a time.
    record: Vec<(RuleId, Percent)>,
    recording: Option<(u64, Vec<(RuleId, Percent)>)>,
    pub(super) clients: Vec<Client>,
    links: HashMap<StreamId, Link>,
    streams: u64,
    messages: BTreeMap<(u64, Reverse<u64>), Message>,
    sent: u64,
    /// Time from which on the server is up.
    pub(super) up_at: u64,
    tally: Tally,
    rng: Rng,
    pub(super) holders: Holders,
    direct_owed: f64,
    pub(super) direct_admitted: u64,
    /// The most hits beyond the limit, and the time.
    pub(super) excess: (u64, u64),
    pub(super) pushes: u64,
}

fn limiter(limit: &Limit) -> Limiter {
    let rules = Source::file("r.yaml", limit.rules());
    let rules = RuleSet::parse(&[rules], &LoadOptions::default()).expect("a rule");
    let seed = Seed::from_bytes([5; 16]);
    Limiter::new(rules, StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny }, false)
}

/// That of a process, after another one if it has a record.
fn quota(memory: Memory, began: Timestamp, record: Option<&[(RuleId, Percent)]>) -> Quota {
    let quota = Quota::new(Settings::default(), began);
    match (memory, record) {
        (Memory::None, _) => quota,
        (Memory::Stated, _) => quota.after(Former::Unrecorded, None),
        (Memory::Record, None) => quota.after(Former::Unrecorded, Some(Vec::new())),
        (Memory::Record, Some(record)) => {
            quota.after(Former::Recorded(record.iter().copied().collect()), Some(record.to_vec()))
        }
        (Memory::Counters, record) => {
            quota.after(Former::InCounters, Some(record.unwrap_or_default().to_vec()))
        }
    }
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
        let mut world = Self {
            now: START,
            limiter: limiter(&conditions.limit),
            quota: quota(conditions.memory, began, None),
            record: Vec::new(),
            recording: None,
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
        if self.happens(self.conditions.restart_gap) {
            self.restart();
        }
    }

    /// A client ends, and another one takes its place. The server notices after a time.
    pub(super) fn kill(&mut self, client: usize) {
        let notices = self.rng.below(20 * SECOND);
        self.replace(client, notices);
    }

    /// A client ends, and another one takes its place. The server notices after so much time.
    pub(super) fn replace(&mut self, client: usize, notices: u64) {
        self.cut(client, 0, notices);
        let demand = self.clients[client].demand;
        self.clients[client] = Client::new(demand, self.conditions.clump, self.now);
    }

    /// Nothing is received on the stream of a client any more. Each side notices after a time.
    fn cut(&mut self, client: usize, client_notices: u64, server_notices: u64) {
        let Some(stream) = self.clients[client].stream else { return };
        self.links.remove(&stream);
        self.post(self.now + client_notices, Message::Broken { client, stream });
        self.post(self.now + server_notices, Message::Closed { stream });
    }

    pub(super) fn restart(&mut self) {
        let down = self.rng.below(12 * SECOND);
        self.up_at = self.now + down;
        self.links.clear();
        for client in &mut self.clients {
            client.stream = None;
        }
        if !self.conditions.keeps_counters {
            self.limiter = limiter(&self.conditions.limit);
        }
        self.holders.restart(self.up_at);
        let began = match self.conditions.fault {
            Some(Fault::NoLearning) => 0,
            _ => self.up_at,
        };
        self.recording = None;
        self.quota = quota(self.conditions.memory, Timestamp::from_nanos(began), Some(&self.record));
    }

    fn post(&mut self, at: u64, message: Message) {
        self.sent += 1;
        self.messages.insert((at, Reverse(u64::MAX - self.sent)), message);
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let message = entry.remove();
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        let now = Timestamp::from_nanos(self.now);
        match message {
            Message::Report { stream, usage } if self.links.contains_key(&stream) => {
                if self.happens_once_in_reports() {
                    return;
                }
                let rules = self.limiter.pin();
                let request = request();
                let charges = rules.grantable(&request).expect("a rule that is divided");
                let charge = charges[0].as_ref().expect("a limit");
                let (peer, share_max) = (PeerId(self.links[&stream].peer), self.conditions.share_max);
                let reporter =
                    Reporter { stream, place: 0, peer, share_max, rule: RULE, unrecorded: UNRECORDED };
                self.quota.report(&rules, reporter, charge, usage, now).expect("a limit that is divided");
            }
            Message::Push { client, push } if self.links.contains_key(&push.stream) => {
                self.clients[client].act(push.action, self.now);
            }
            Message::Acknowledgement { stream, sent } if self.links.contains_key(&stream) => {
                self.quota.acknowledge(stream, Timestamp::from_nanos(sent), now);
            }
            Message::Closed { stream } => {
                self.quota.close(stream);
                if self.conditions.fault == Some(Fault::ForgetsClosed) {
                    self.quota.forget_remnants();
                }
            }
            Message::Broken { client, stream } if self.clients[client].stream == Some(stream) => {
                self.clients[client].stream = None;
            }
            _ => {}
        }
    }

    fn happens_once_in_reports(&mut self) -> bool {
        let gap = self.conditions.lost_report_gap;
        gap > 0 && self.rng.once_in(gap / SECOND * 2)
    }

    fn requests(&mut self) {
        for index in 0..self.clients.len() {
            let arrivals = self.clients[index].arrivals(STEP, &mut self.rng);
            let (admitted, is_first) = self.clients[index].decide(arrivals, self.now);
            // What such a client spends of slices is what it reports.
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

    fn hostility(&self, client: usize) -> Option<Hostility> {
        self.conditions.hostile.0.filter(|_| client < self.conditions.hostile.1)
    }

    pub(super) fn report_now(&mut self, index: usize) {
        let Some(usage) = self.clients[index].report() else { return };
        let usage = self.hostility(index).map_or(usage, |hostility| hostility.report(usage, self.now));
        let Some(stream) = self.clients[index].stream else { return };
        let delay = self.rng.below(self.conditions.delay_max);
        let Some(link) = self.links.get_mut(&stream) else { return };
        link.up = link.up.max(self.now + delay);
        let at = link.up;
        self.post(at, Message::Report { stream, usage });
    }

    fn poll(&mut self) {
        let now = Timestamp::from_nanos(self.now);
        if let Some((_, recorded)) = self.recording.take_if(|(at, _)| *at <= self.now) {
            self.quota.note_recorded(&recorded);
            self.record = recorded;
        }
        if let Some(parts) = self.quota.take_record(now) {
            self.recording = Some((self.now + self.rng.below(self.conditions.delay_max), parts));
        }
        let rules = self.limiter.pin();
        let pushes = self.quota.poll(&rules, now);
        drop(rules);
        self.pushes += pushes.len() as u64;
        for push in pushes {
            let (down, up) =
                (self.rng.below(self.conditions.delay_max), self.rng.below(self.conditions.delay_max));
            let Some(link) = self.links.get_mut(&push.stream) else { continue };
            link.down = link.down.max(self.now + down);
            let (client, at) = (link.client, link.down);
            self.post(at, Message::Push { client, push });
            if self.conditions.acknowledges {
                let stream = push.stream;
                self.post(at + up, Message::Acknowledgement { stream, sent: self.now });
            }
        }
        if self.conditions.fault == Some(Fault::ForgetsDebt) {
            self.quota.forget_debts();
        }
        if self.conditions.fault == Some(Fault::GrowsAtOnce) {
            self.quota.forget_former_shares();
        }
        if self.conditions.fault == Some(Fault::HoldsNothing) {
            let rules = self.limiter.pin();
            let request = request();
            let charges = rules.grantable(&request).expect("a rule that is divided");
            let key = charges[0].as_ref().expect("a limit").key();
            rules.with_leases(key, Timestamp::from_nanos(self.now), |_, leased| leased.assigned = None);
        }
    }

    /// Hits that clients admitted.
    pub(super) fn admitted(&self) -> u64 {
        self.clients.iter().map(|client| client.admitted).sum()
    }
}
