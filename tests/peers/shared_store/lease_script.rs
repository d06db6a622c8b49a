//! The script's leases in a real store, called as a server calls them, with a limiter of one rule.

use super::{RedisServer, arithmetic::with_argument_clock};
use tidegate_core::{
    algorithm::Algorithm,
    limit::{Code, Descriptor, Entry, Hits, Request, Reset, Timestamp},
    limiter::{Limiter, ListedLimits, OwnedPinned},
    rules::{LoadOptions, RuleSet, Source},
    store::{Key, OnFull, Seed, StoreSettings},
};
use tidegate_shared::{
    lease::{LeaseRequest, LeaseResponse, Terms},
    script::{Batch, EncodedRequest, Reply, Script, Verdict, counter_name, mark},
};

pub(super) const LAYOUT: &str = "layout of a test";

/// Length of leases, in microseconds.
pub(super) const LENGTH: u64 = 200_000;

/// The script in a store, at times that the test chooses.
pub(super) struct Store {
    connection: redis::Connection,
    sha: String,
    reset_sha: String,
    prefix: String,
    /// The `run_id` that the store claims to have.
    pub(super) run: String,
}

impl Store {
    pub(super) fn new(server: &RedisServer, prefix: String) -> Self {
        let mut connection = server.connection();
        let mut load = |script: Script| -> String {
            let load =
                redis::cmd("SCRIPT").arg("LOAD").arg(with_argument_clock(script)).query(&mut connection);
            load.expect("the script compiles")
        };
        let (sha, reset_sha) = (load(Script::Decide), load(Script::Reset));
        Self { connection, sha, reset_sha, prefix, run: "run 1".into() }
    }

    /// Resets the counter; returns the number of counters that were reset.
    pub(super) fn reset(&mut self, key: Key, now: u64) -> u64 {
        let name = counter_name(&self.prefix, key);
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.reset_sha).arg(2).arg(&name).arg(mark(&name)).arg(now);
        call.query(&mut self.connection).expect("the script runs")
    }

    pub(super) fn call(&mut self, batch: &Batch, now: u64) -> Reply {
        let mut call = redis::cmd("EVALSHA");
        let keys = 1 + batch.keys.len() + batch.given.len();
        call.arg(&self.sha).arg(keys).arg(format!("{}layout", self.prefix));
        let name = |key: &Key| counter_name(&self.prefix, *key);
        batch.keys.iter().for_each(|key| _ = call.arg(name(key)));
        batch.given.iter().for_each(|key| _ = call.arg(mark(&name(key))));
        let run = [&(LENGTH as f64).to_le_bytes()[..], self.run.as_bytes()].concat();
        call.arg(LAYOUT).arg(&batch.requests).arg(run).arg(&batch.lease_requests);
        batch.limits.iter().for_each(|limit| _ = call.arg(&limit[..]));
        let items: Vec<Vec<u8>> = call.arg(now).query(&mut self.connection).expect("the script runs");
        let reply = Reply::new(items, batch).expect("a reply of the script");
        assert_eq!(reply.now, at(now));
        reply
    }

    pub(super) fn lease(
        &mut self,
        key: Key,
        terms: Terms<'_>,
        request: &LeaseRequest,
        now: u64,
    ) -> Option<LeaseResponse> {
        let mut batch = Batch::default();
        batch.push_lease(key, terms, request, at(now));
        let reply = self.call(&batch, now);
        let grant = reply.grants[0].as_ref()?.decode(terms.algorithm).expect("a grant");
        Some(grant.response(terms, request, reply.epoch, reply.now))
    }

    pub(super) fn decide(
        &mut self,
        owned: &OwnedPinned<'_>,
        request: &Request<'_>,
        now: u64,
    ) -> Option<Outcome> {
        let mut remote = owned.remote(request, at(now)).expect("the domain is shared");
        let mut batch = Batch::default();
        batch.push(&EncodedRequest::new(&remote, at(now)).expect("a small request"));
        let verdict: Verdict = self.call(&batch, now).verdicts.remove(0).ok()?;
        let has_credits = verdict.has_credits;
        let decision = verdict.decide(&mut remote, ListedLimits::None, Timestamp::EPOCH).expect("a verdict");
        let status = &decision.statuses[decision.statuses.len() - 1];
        Some(Outcome { code: decision.code, remaining: status.remaining, reset: status.reset, has_credits })
    }
}

/// A decision, with the status of the last descriptor.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) code: Code,
    pub(super) remaining: u32,
    pub(super) reset: Option<Reset>,
    pub(super) has_credits: bool,
}

pub(super) fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros * 1_000)
}

pub(super) fn request(hits: &[Hits]) -> Request<'static> {
    let mut request = Request::new("d");
    for &hits in hits {
        let entries = [Entry { key: "k", value: "v" }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits });
    }
    request
}

pub(super) fn take(hits: u64) -> Hits {
    Hits::new(Some(hits), 0, false)
}

pub(super) fn give(hits: u64) -> Hits {
    Hits::new(Some(hits), 0, true)
}

/// A rule file with one limit.
pub(super) fn rules(limit: &str) -> Vec<Source> {
    vec![Source::file("r.yaml", format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]"))]
}

pub(super) fn limiter(limit: &str) -> Limiter {
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let rules = RuleSet::parse(&rules(limit), &options).expect("good rules");
    let store = StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 10, on_full: OnFull::Deny };
    Limiter::new(rules, store, false)
}

/// The key and the algorithm of the only counter.
pub(super) fn counter(owned: &OwnedPinned<'_>) -> (Key, Algorithm) {
    let request = request(&[take(1)]);
    let remote = owned.remote(&request, Timestamp::EPOCH).expect("the domain is shared");
    let (counter, _) = remote.counters().next().expect("a counter");
    (counter.key, counter.limit.algorithm.clone())
}
