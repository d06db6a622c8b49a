//! Domains that are served over RLQS: which of their rules a client can enforce by the assignments that it is sent.
//!
//! Invariant: in a domain with quotas each rule has at most one limit, which counts admitted hits of one bucket only, at all times.

use super::{
    Rule, RuleLimit, Semantics,
    error::Problems,
    grammar::{Declared, DeclaredQuotas},
    percent::Percent,
    semantics::ChargePolicy,
};
use std::time::Duration;

/// Interval between two reports of Envoy, which it does not read from its configuration.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Nanoseconds of a window, or until a bucket is filled, from which on a limit is divided by slices of the hits that are left: spent hits of
/// others are known too late. Others are divided by rates.
pub const SLICED_FROM: u128 = Duration::from_secs(600).as_nanos();

/// The same of windows of fewer hits than this. Divided by rates, each client has a few tokens of them, and loses much by chance: in simulation
/// ten clients admit half as much of 100 requests in 30 s as by slices, and as much of 1,000 requests in 60 s.
const FEW_HITS: u64 = 1_000;
const FEW_HITS_SLICED_FROM: u128 = Duration::from_secs(30).as_nanos();

/// The fewest hits that are divided by slices.
pub const SLICED_MIN: u32 = 10;

/// Time of demand for which a client has a slice.
const SLICE: Duration = Duration::from_secs(15);

/// The part of a limit that is worth its division, in hundredths.
const WORTHWHILE: u64 = 80;

/// Whether a window is divided by slices of the hits that are left, and not by rates.
pub fn is_window_sliced(hits: u64, nanos: u128) -> bool {
    nanos >= SLICED_FROM || hits < FEW_HITS && nanos >= FEW_HITS_SLICED_FROM
}

/// Hits that clients of a window may spend at once, all together. They are missing from its rate; but with half as many tokens a client loses
/// twice as many requests by chance. Both together are least where the burst grows with the square root of the hits.
pub fn burst_of_window(hits: u64) -> u64 {
    (hits / 4).min(3 * hits.isqrt()).max(hits / 32)
}

/// How a domain is served over RLQS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaSettings {
    /// Number of clients that share each limit, as the rule file states it. There may be more.
    pub clients: u32,
    /// The most that the clients of one peer may have of a limit together.
    pub max_share: Percent,
    /// The most that all clients have of a limit together where nothing records what is assigned: a server that starts counts so much as assigned.
    pub unrecorded: Percent,
}

impl DeclaredQuotas {
    /// How the domain is served.
    pub(super) fn quotas(&self) -> QuotaSettings {
        QuotaSettings { clients: self.clients, max_share: self.max_share, unrecorded: self.unrecorded }
    }

    /// Reports the rules that clients cannot enforce.
    pub(super) fn check(&self, descriptors: &[Declared], problems: &mut Problems) {
        if self.semantics == Semantics::Reference {
            let message = "needs the semantics of Tidegate; remove it, or start without `--compat reference`";
            problems.at(&self.origin, "rlqs", message);
            return;
        }
        if self.is_shared && !self.is_leased {
            let message = "divides counters in a shared store by leases, which are off; start with `--lease auto`, write `counters: local` \
                           beside it, or remove it";
            problems.at(&self.origin, "rlqs", message);
            return;
        }
        descriptors.iter().for_each(|declared| self.check_below(declared, problems));
    }

    fn check_below(&self, declared: &Declared, problems: &mut Problems) {
        if let Some(refusal) = self.refusal(&declared.rule) {
            let message = format!("{refusal}, or put the descriptor into a domain without `rlqs`");
            problems.at(&declared.rule.origin, declared.path_in_file.as_str(), message);
        }
        declared.below.iter().for_each(|below| self.check_below(below, problems));
    }

    /// The reason why clients cannot enforce a rule, and the remedy.
    fn refusal(&self, rule: &Rule) -> Option<String> {
        if !rule.replaces.is_empty() {
            return Some(
                "replaces limits of other descriptors, but a bucket is one descriptor; remove `replaces`"
                    .into(),
            );
        }
        if rule.info.quota {
            return Some(
                "has `quota_mode`, but a bucket has no other descriptors that could admit; remove it".into(),
            );
        }
        if rule.is_never_leased && !rule.limits.is_empty() {
            return Some("has `lease: off`, but quotas are leases; remove it".into());
        }
        if rule.is_local() {
            return Some("has `counters: local`; write it beside `domain`".into());
        }
        let limit = match &*rule.limits {
            [] => return None,
            [limit] => limit,
            _ => return Some("has several limits, but clients enforce one for each bucket; keep one".into()),
        };
        if let Some(key) = unenforced_key(limit) {
            return Some(format!("has `{key}`, which clients of RLQS do not enforce; remove it"));
        }
        if self.is_shared && !is_divided_in_store(limit) {
            return Some(
                "is counted in a shared store, where buckets with `refill: intervals` cannot be divided; remove `refill`, make it a \
                 `fixed_window`, write `counters: local` beside `domain`"
                    .into(),
            );
        }
        let clients = self.clients;
        match self.division(limit) {
            Division::Fits => None,
            Division::LowRate => Some(format!(
                "has less than one request for each client (`rlqs.clients`: {clients}) in 5 s, the time between two reports of Envoy; \
                 raise its requests, lower `rlqs.clients`"
            )),
            Division::FewHits => Some(format!(
                "has too few requests to be divided, {} or more are needed (`rlqs.clients`: {clients}); raise them",
                clients.max(SLICED_MIN)
            )),
        }
    }

    /// Whether each client can have a part of the limit.
    fn division(&self, limit: &RuleLimit) -> Division {
        let (window, clients) = (limit.window.duration().as_nanos(), u128::from(self.clients));
        let (requests, capacity) = (u128::from(limit.requests), u128::from(limit.capacity));
        let interval = REPORT_INTERVAL.as_nanos();
        let is_bucket = limit.algorithm.drains_evenly();
        if requests == 0 {
            return Division::Fits;
        }
        if is_sliced(limit) {
            return if capacity >= clients.max(SLICED_MIN.into()) {
                Division::Fits
            } else {
                Division::FewHits
            };
        }
        let burst = if is_bucket { 0 } else { burst_of_window(limit.requests.into()).max(1) };
        let steady = requests.saturating_sub(burst.into());
        if steady * interval >= clients * window { Division::Fits } else { Division::LowRate }
    }
}

impl QuotaSettings {
    /// What so many clients as the file states get of a limit together, at worst: in hundredths. They demand all of it, independently of each
    /// other, and one demands about its share.
    pub(super) fn part_at_worst(self, limit: &RuleLimit) -> u64 {
        let (requests, clients) = (u64::from(limit.requests).max(1), u64::from(self.clients));
        if is_sliced(limit) {
            // What is in slices, for 15 s of demand, and what is left in them by chance.
            let nanos = fills_in(limit).max(2 * SLICE.as_nanos());
            let thousandths = 1_000 - (SLICE.as_nanos() * 1_000 / nanos) as u64;
            let deviations = (u64::from(limit.capacity) * 10_000 / clients).isqrt().max(200);
            return thousandths * (deviations - 100) / deviations / 10;
        }
        let (burst, steady) = match limit.algorithm.drains_evenly() {
            true => (u64::from(limit.capacity), requests),
            false => (burst_of_window(requests).max(1), requests),
        };
        let burst = (burst - burst / 8).max(1);
        // What clients may spend at once is missing from the rate of a window.
        let in_burst = if limit.algorithm.drains_evenly() { 0 } else { burst + requests / 128 };
        let steady = steady.saturating_sub(in_burst) * 1_000 / requests;
        // Of requests by chance, one in twice as many as it has tokens.
        let tokens = ((burst - burst / 4) / (clients + clients / 16 + 1)).max(1);
        steady * (2 * tokens - 1) / (2 * tokens) / 10
    }

    /// The warning about a limit of which clients would leave much.
    pub(super) fn warning(self, limit: &RuleLimit) -> Option<String> {
        let (part, clients) = (self.part_at_worst(limit), self.clients);
        (limit.requests > 0 && part < WORTHWHILE).then(|| {
            format!(
                "is divided by `rlqs`, and clients (`rlqs.clients`: {clients}) together get {part} % of it at worst; make it a `token_bucket` with a \
                 larger `size`, put it into a domain without `rlqs` for the filter `ratelimit`, or decide in Envoy by the module \
                 (docs/envoy-module.md)"
            )
        })
    }
}

/// Nanoseconds in which a bucket fills, and those of a window.
fn fills_in(limit: &RuleLimit) -> u128 {
    let window = limit.window.duration().as_nanos();
    match limit.algorithm.drains_evenly() {
        true => window * u128::from(limit.capacity) / u128::from(limit.requests).max(1),
        false => window,
    }
}

/// Whether a limit is divided by slices of the hits that are left.
fn is_sliced(limit: &RuleLimit) -> bool {
    let is_slow =
        u128::from(limit.requests) * REPORT_INTERVAL.as_nanos() < limit.window.duration().as_nanos();
    let is_window = !limit.algorithm.drains_evenly();
    let is_sliced_window = is_window && is_window_sliced(limit.capacity.into(), fills_in(limit));
    is_sliced_window || fills_in(limit) >= SLICED_FROM || is_slow
}

/// Whether servers that share a store can have parts of a limit.
fn is_divided_in_store(limit: &RuleLimit) -> bool {
    let is_refilled_at_once = limit.algorithm.is_bucket() && !limit.algorithm.drains_evenly();
    limit.requests == 0 || !is_refilled_at_once || is_sliced(limit)
}

/// Whether each client can have a part of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Division {
    Fits,
    /// It is divided by rates, and less than one request would be for each client between two reports.
    LowRate,
    /// It is divided by slices of the hits that are left, and has too few.
    FewHits,
}

/// A key of the limit that clients do not enforce.
fn unenforced_key(limit: &RuleLimit) -> Option<&'static str> {
    let keys = [
        (limit.algorithm.holds_slots(), "requests_in_flight"),
        (limit.algorithm.queueing().is_some(), "max_wait"),
        (limit.charge == ChargePolicy::Always, "charge: always"),
        (limit.anchor_entry().is_some(), "entry"),
        (limit.schedule.is_some(), "schedule"),
        (limit.when.is_some(), "when"),
        (limit.ban.is_some(), "ban"),
        (limit.reserve.is_some(), "reserve"),
    ];
    keys.into_iter().find(|(has_key, _)| *has_key).map(|(_, key)| key)
}
