//! The service limits of a request, in the sense of the IETF RateLimit draft: for every limit that applies, the quota of
//! its policy, the part of it that is available, and the effective window.

use super::{
    counters::{Counters, LockedShards},
    hit_sum::HitSum,
    in_force::{InForce, Limiter, OwnedPinned, Pinned},
    plan::{Charge, Plan, PlannedCounter, counters},
};
use crate::{
    algorithm::{Slot, State},
    limit::{HeldSlot, HeldSlots, Hits, Request, ReservedHits, Reset, ServiceLimit, Timestamp},
    rules::RuleLimit,
};
use std::time::Duration;

/// Limits to list beside a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedLimits {
    /// None.
    None,
    /// Limits that can deny.
    Enforced,
    /// Limits of shadow rules too, for operators.
    All,
}

impl Pinned<'_> {
    /// The limits that apply to a request, in the order of its descriptors and of each rule, without shadow rules. Charges nothing. Reads
    /// the counters once more than a decision does, and allocates.
    pub fn service_limits(&self, request: &Request<'_>, now: Timestamp) -> Vec<ServiceLimit<'_>> {
        of_request(&self.in_force, self.limiter, request, ListedLimits::Enforced, now)
    }
}

impl OwnedPinned<'_> {
    /// The limits of a request for operators, those of shadow rules too, by the counters of this process. Limits that a rule replaces are
    /// absent.
    pub fn counters(&self, request: &Request<'_>, now: Timestamp) -> Vec<ServiceLimit<'_>> {
        of_request(&self.in_force, self.limiter, request, ListedLimits::All, now)
    }
}

fn of_request<'r>(
    in_force: &'r InForce,
    limiter: &Limiter,
    request: &Request<'_>,
    listed: ListedLimits,
    now: Timestamp,
) -> Vec<ServiceLimit<'r>> {
    let Some(domain) = in_force.rules.domain(request.domain()) else { return Vec::new() };
    let plan = Plan::new(domain, &in_force.keys, request, now);
    let mut counters = counters(&plan);
    let shards = LockedShards::lock(&limiter.store, &mut counters, &plan, &in_force.rules, now);
    limits(listed, &plan, &counters, &shards, now)
}

/// The limits of a plan with these counters, in the order of the request: all with their slots and reservations, or those that can deny.
pub(super) fn limits<'r>(
    listed: ListedLimits,
    plan: &Plan<'r>,
    counters: &[PlannedCounter],
    states: &impl Counters,
    now: Timestamp,
) -> Vec<ServiceLimit<'r>> {
    let are_all = listed == ListedLimits::All;
    let can_deny = |charge: &Charge<'r>| !plan.descriptors[charge.descriptor as usize].reached.is_shadow();
    let mut limits: Vec<(u32, ServiceLimit<'r>)> = Vec::with_capacity(plan.charges.len());
    for counter in counters {
        let now = states.time(counter, now);
        for &index in &plan.by_key[counter.charges()] {
            let charge = &plan.charges[index as usize];
            if (are_all || can_deny(charge)) && !charge.is_ban {
                let ban = if plan.has_bans { banned_for(plan, counters, states, index, now) } else { None };
                let state = states.state(counter);
                let mut limit = service_limit(charge, counter.hits, &state, ban, now);
                if are_all {
                    let has_slots = charge.limit.algorithm.holds_slots();
                    limit.slots = has_slots.then(|| held_slots(&state, now));
                    limit.reserved = reserved_hits(&state, now);
                }
                limits.push((index, limit));
            }
        }
    }
    limits.sort_unstable_by_key(|(index, _)| *index);
    limits.into_iter().map(|(_, limit)| limit).collect()
}

/// Time until the ban of this charge's limit ends, if one is in force.
#[cold]
fn banned_for(
    plan: &Plan<'_>,
    counters: &[PlannedCounter],
    states: &impl Counters,
    charge: u32,
    now: Timestamp,
) -> Option<Duration> {
    let (index, ban) = (charge + 1, plan.charges.get(charge as usize + 1).filter(|next| next.is_ban)?);
    let counter = counters.iter().find(|counter| plan.by_key[counter.charges()].contains(&index))?;
    match ban.limit.algorithm.until_admits(&states.state(counter), 1, now) {
        Reset::After(wait) if !wait.is_zero() => Some(wait),
        _ => None,
    }
}

fn service_limit<'r>(
    charge: &Charge<'r>,
    hits: HitSum,
    state: &State,
    banned_for: Option<Duration>,
    now: Timestamp,
) -> ServiceLimit<'r> {
    let algorithm = &charge.limit.algorithm;
    let (quota, window) = policy(&charge.limit);
    let free = algorithm.remaining(state, now).min(u64::from(quota));
    let available = if banned_for.is_some() { 0 } else { free };
    let effective_window = if let Some(wait) = banned_for {
        match charge.limit.until_admits(state, (HitSum::of(1), false), now.saturating_add(wait)) {
            Reset::After(more) => Reset::After(wait.saturating_add(more)),
            Reset::Never => Reset::Never,
        }
    } else if available < u64::from(quota) {
        charge.limit.until_admits(state, (HitSum::of(available + 1), false), now)
    } else if quota > 0 {
        Reset::After(window)
    } else {
        Reset::Never
    };
    let gives_back = matches!(charge.hits, Hits::GiveBack(_));
    let wait = banned_for.unwrap_or_default();
    let denied_for = match charge.until_admits(state, hits, now.saturating_add(wait)) {
        _ if gives_back => None,
        Reset::After(more) => {
            Some(Reset::After(wait.saturating_add(more))).filter(|&wait| wait != Reset::NOW)
        }
        Reset::Never => Some(Reset::Never),
    };
    ServiceLimit {
        descriptor: charge.descriptor as usize,
        limit: charge.current(),
        quota,
        window,
        in_flight: algorithm.holds_slots(),
        available: available as u32,
        effective_window,
        denied_for,
        banned_for,
        slots: None,
        reserved: None,
    }
}

fn reserved_hits(state: &State, now: Timestamp) -> Option<ReservedHits> {
    let reserved = state.reserved()?;
    let requests = reserved.open().filter(|reservation| reservation.deadline > now).count();
    (requests > 0).then(|| ReservedHits { requests, hits: reserved.hits(now) })
}

fn held_slots(state: &State, now: Timestamp) -> HeldSlots {
    let Some(slots) = state.slots() else { return HeldSlots::default() };
    let held = slots.held(now);
    let of = |slot: Slot| HeldSlot {
        hits: slot.hits,
        age: now.since(slot.taken()),
        left: slot.deadline().since(now),
    };
    HeldSlots { count: held.len(), first: held.take(HeldSlots::SHOWN_MAX).map(of).collect() }
}

/// The quota of a limit, and the time in which it becomes available.
fn policy(limit: &RuleLimit) -> (u32, Duration) {
    let window = limit.window.duration();
    if !limit.algorithm.is_bucket() {
        return (limit.requests, window);
    }
    let quota = limit.capacity;
    // `requests` hits are refilled in a window.
    let nanos = window.as_nanos() * u128::from(quota) / u128::from(limit.requests.max(1));
    (quota, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Code, Descriptor, Entry};
    use crate::{
        limiter::Limiter,
        rules::{LoadOptions, RuleSet, Source},
        store::{OnFull, Seed, StoreSettings},
    };
    use proptest::{collection::vec, prelude::*};

    const RULES: &str = "
domain: d
descriptors:
  - { key: sliding, rate_limit: { per: 10s, requests_per_unit: 8 } }
  - { key: precise, rate_limit: { per: 10s, requests_per_unit: 8, precision: 5 } }
  - { key: log, rate_limit: { per: 10s, requests_per_unit: 8, algorithm: sliding_log } }
  - { key: fixed, rate_limit: { per: 10s, requests_per_unit: 8, algorithm: fixed_window } }
  - { key: token, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: token_bucket, size: 20 } }
  - { key: leaky, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: leaky_bucket, burst: 3 } }
  - { key: flight, rate_limit: { algorithm: concurrency, requests_in_flight: 20, max_hold: 60s } }
";

    const KEYS: [&str; 6] = ["sliding", "precise", "log", "fixed", "token", "leaky"];

    fn limiter(rules: &str) -> Limiter {
        let rules = RuleSet::parse(&[Source::file("test.yaml", rules)], &LoadOptions::default());
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        let seed = Seed::from_bytes([4; 16]);
        Limiter::new(rules, StoreSettings { seed, counters_max: 1_000, on_full: OnFull::Deny }, false)
    }

    fn request(key: &'static str, hits: Hits) -> Request<'static> {
        let mut request = Request::new("d");
        let entries = [Entry { key, value: "" }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits });
        request
    }

    proptest! {
        #[test]
        fn no_more_than_the_available_quota_is_admitted_within_the_effective_window(
            key in 0..KEYS.len(),
            steps in vec((0..6_000u64, 1..4u64), 1..12),
        ) {
            let (limiter, key) = (limiter(RULES), KEYS[key]);
            let rules = limiter.pin();
            let mut now = Timestamp::from_millis(1_700_000_000_000);
            let peek = request(key, Hits::Peek);
            for (wait, hits) in steps {
                now = now.saturating_add_nanos(wait * 1_000_000 + 1);
                rules.decide(&request(key, Hits::new(Some(hits), 1, false)), now);
                let limits = rules.service_limits(&peek, now);
                prop_assert_eq!(limits.len(), 1);
                let ServiceLimit { quota, available, effective_window, window, .. } = limits[0];
                let remaining = |now| rules.decide(&peek, now).statuses[0].remaining;
                prop_assert_eq!(available, remaining(now));
                prop_assert!(available <= quota);
                let Reset::After(effective) = effective_window else { panic!("a limit of {quota}") };
                if available == quota {
                    prop_assert_eq!(effective, window);
                } else {
                    let nanos = u64::try_from(effective.as_nanos()).expect("at most two windows");
                    prop_assert!(remaining(now.saturating_add_nanos(nanos - 1)) <= available);
                    prop_assert!(remaining(now.saturating_add_nanos(nanos)) > available);
                }
            }
        }
    }

    #[test]
    fn all_limits_of_a_rule_are_listed_and_those_of_shadow_rules_are_not() {
        let limiter = limiter(
            "
domain: d
descriptors:
  - key: two
    rate_limits:
      - { name: burst, per: 10s, requests_per_unit: 3 }
      - { name: daily, unit: day, requests_per_unit: 5, algorithm: fixed_window }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
",
        );
        let (rules, now) = (limiter.pin(), Timestamp::from_millis(1_700_000_000_000));
        let mut both = request("two", Hits::ONE);
        both.push(request("shadow", Hits::ONE).descriptors()[0].clone());
        for expected in [("burst", 3, 2), ("burst", 3, 1), ("burst", 3, 0), ("burst", 3, 0)] {
            rules.decide(&both, now);
            let limits = rules.service_limits(&both, now);
            let names: Vec<_> = limits.iter().map(|limit| limit.limit.name).collect();
            assert_eq!(names, ["burst", "daily"]);
            assert_eq!((limits[0].limit.name, limits[0].quota, limits[0].available), expected);
        }
        assert_eq!(rules.decide(&both, now).code, Code::OverLimit);
    }

    #[test]
    fn a_bucket_is_described_by_its_burst_and_its_rate() {
        let limiter = limiter(RULES);
        let (rules, now) = (limiter.pin(), Timestamp::from_millis(1_700_000_000_000));
        let limits = rules.service_limits(&request("token", Hits::ONE), now);
        // 4 in 10 s are 20 in 50 s.
        assert_eq!(
            (limits[0].quota, limits[0].window, limits[0].available),
            (20, Duration::from_secs(50), 20)
        );
    }

    #[test]
    fn a_limit_of_requests_in_flight_is_marked() {
        let limiter = limiter(RULES);
        let (rules, now) = (limiter.pin(), Timestamp::from_millis(1_700_000_000_000));
        for (key, in_flight) in [("flight", true), ("fixed", false)] {
            let limits = rules.service_limits(&request(key, Hits::ONE), now);
            assert_eq!(limits[0].in_flight, in_flight, "{key}");
        }
    }

    #[test]
    fn a_limit_of_zero_has_no_effective_window() {
        let limiter = limiter(
            "domain: d\ndescriptors: [{ key: none, rate_limit: { unit: minute, requests_per_unit: 0 } }]\n",
        );
        let rules = limiter.pin();
        let limits = rules.service_limits(&request("none", Hits::ONE), Timestamp::from_millis(1));
        let limits: Vec<_> = limits.iter().map(|limit| (limit.quota, limit.effective_window)).collect();
        assert_eq!(limits, [(0, Reset::Never)]);
    }
}
