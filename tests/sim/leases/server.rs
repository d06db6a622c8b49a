//! The server: a limiter, its granter, and the disk that outlives them.

use tidegate_core::{
    clock::ManualClock,
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Key, OnFull, Seed, StoreSettings},
};
use tidegate_shared::{
    granter::{CounterTerms, Granter},
    lease::{LeaseRequest, LeaseResponse},
};
use tidegate_snapshot::{SimulatedDisk, Writer, start_simulated};

pub(super) struct Server {
    rules: String,
    disk: SimulatedDisk,
    limiter: Limiter,
    writer: Writer,
    granter: Granter,
    starts: u64,
}

/// A decision, with the data that a holder needs.
#[derive(Clone, Copy)]
pub(super) struct Decided {
    pub(super) is_admitted: bool,
    pub(super) remaining: u64,
    pub(super) terms: CounterTerms,
    pub(super) epoch: u64,
}

fn request() -> Request<'static> {
    let mut request = Request::new("d");
    let entries = [Entry { key: "a", value: "" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    request
}

fn limiter(rules: &str, seed: Seed) -> Limiter {
    let rules = RuleSet::parse(&[Source::file("sim.yaml", rules)], &LoadOptions::default());
    let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
    Limiter::new(rules, StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny }, false)
}

fn start(rules: &str, disk: &SimulatedDisk, now: Timestamp) -> (Limiter, Writer) {
    let started = start_simulated(disk, Seed::from_bytes([3; 16]), |seed| limiter(rules, seed), now);
    let (limiter, writer, _) = started.expect("what was written can be restored");
    (limiter, writer)
}

impl Server {
    /// A server with one limit with these keys.
    pub(super) fn new(keys: &str, requests: u64, now: Timestamp) -> Self {
        let rules = format!(
            "{{ domain: d, descriptors: [{{ key: a, rate_limit: {{ {keys}, requests_per_unit: {requests} }} }}] }}"
        );
        let disk = SimulatedDisk::default();
        let (limiter, writer) = start(&rules, &disk, now);
        Self { rules, disk, limiter, writer, granter: Granter::new(1, now), starts: 1 }
    }

    pub(super) fn write_snapshot(&mut self, now: Timestamp) {
        let (limiter, clock) = (&self.limiter, ManualClock::new(now));
        self.writer.pass(limiter.store(), limiter.rules().limits(), &clock).expect("memory takes it");
    }

    /// Drops all leases, as if none of their credits were outstanding.
    pub(super) fn forget_credits(&self, now: Timestamp) {
        self.limiter.pin().with_leases(self.key(), now, |_, leased| leased.leases.clear());
    }

    /// Starts a new process from the last snapshot.
    pub(super) fn restart(&mut self, now: Timestamp) {
        (self.limiter, self.writer) = start(&self.rules, &self.disk, now);
        self.starts += 1;
        self.granter = Granter::new(self.starts, now);
    }

    pub(super) fn decide(&self, now: Timestamp) -> Decided {
        let (rules, request) = (self.limiter.pin(), request());
        let decision = rules.decide(&request, now);
        let terms = self.granter.terms(&rules, self.key(), 1, now).expect("it was decided");
        Decided {
            is_admitted: decision.code == Code::Ok,
            remaining: decision.statuses[0].remaining.into(),
            terms,
            epoch: self.epoch(),
        }
    }

    pub(super) fn lease(&self, claim: &LeaseRequest, epoch: u64, now: Timestamp) -> Option<LeaseResponse> {
        self.granter.lease(&self.limiter.pin(), self.key(), claim, epoch == self.epoch(), now)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.granter.epoch()
    }

    fn key(&self) -> Key {
        let (rules, request) = (self.limiter.pin(), request());
        let charges = rules.grantable(&request).expect("a limit that is leased");
        charges[0].as_ref().expect("the only limit").key()
    }
}
