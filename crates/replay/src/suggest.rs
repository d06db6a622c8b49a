//! Suggested limits: for chosen rules, the least limit at which at most a given share of keys, or of hits, is denied.
//!
//! Each limit is considered by itself, with its own algorithm: hits that another limit of the same request would deny also count. All
//! logged requests are demand, including those that were denied.

use foldhash::fast::RandomState;
use serde::Serialize;
use smol_str::SmolStr;
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::{Descriptor, Hits, LimitId, Request, Timestamp},
    rules::{ChargePolicy, NamedRules, RuleLimit, RuleSet},
};

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// Number of limits on a curve, in addition to the present and the suggested one.
const CURVE_POINTS: u32 = 24;

/// The kind of items of which a share is denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareOf {
    /// Keys that are denied at least once.
    Keys,
    /// Hits that are denied.
    Hits,
}

/// A chosen name is neither the path of a rule with a limit nor the name of a limit.
#[derive(Debug, thiserror::Error)]
#[error("no rule with a limit has the path {name:?}, and no limit that name; {remedy}")]
pub struct UnknownRule {
    name: String,
    remedy: String,
}

/// The hits of chosen rules, by counter.
pub struct Demand {
    rules: RuleSet,
    share_max: f64,
    of: ShareOf,
    by_limit: HashMap<LimitId, usize>,
    limits: Vec<LimitDemand>,
}

struct LimitDemand {
    domain: SmolStr,
    rule: SmolStr,
    limit: RuleLimit,
    counters: HashMap<Vec<(SmolStr, SmolStr)>, Vec<TimedHits>>,
}

struct TimedHits {
    time: Timestamp,
    hits: Hits,
}

/// A limit with the demand for it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Suggestion {
    /// The domain.
    pub domain: SmolStr,
    /// The path of the rule.
    pub rule: SmolStr,
    /// The name of the limit; may be empty.
    pub limit: SmolStr,
    /// Nanoseconds of its window.
    pub window_ns: u64,
    /// Keys with hits.
    pub keys: u64,
    /// Hits.
    pub hits: u64,
    /// The greatest share that may be denied.
    pub share_max: f64,
    /// The kind of items of the share.
    pub of: ShareOf,
    /// The limit in the rules, and what it denies.
    pub present: DeniedAt,
    /// The least limit that denies no more than the share. None if every limit denies more.
    pub suggested: Option<DeniedAt>,
    /// Hits of one key in one window of the clock.
    pub per_key_and_window: Percentiles,
    /// By limit.
    pub curve: Vec<DeniedAt>,
}

/// Keys and hits that a limit denies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct DeniedAt {
    /// Requests per window.
    pub requests: u32,
    /// Keys that are denied at least once.
    pub keys: u64,
    /// Hits that are denied.
    pub hits: u64,
}

/// Percentiles, by nearest rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Percentiles {
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
}

impl Demand {
    /// Demand for limits of the rules with these paths, and for limits with these names, in any domain.
    pub fn new(rules: &RuleSet, chosen: &[String], share_max: f64, of: ShareOf) -> Result<Self, UnknownRule> {
        let mut demand =
            Self { rules: rules.clone(), share_max, of, by_limit: HashMap::default(), limits: Vec::new() };
        let (mut known, mut found) = (Vec::new(), vec![false; chosen.len()]);
        for domain in rules.domains() {
            for rule in domain.rules().into_iter().filter(|rule| !rule.limits.is_empty()) {
                known.push(&*rule.info.path);
                for limit in &rule.limits {
                    let names = [&*rule.info.path, &*limit.name, &*rules.limit_name(limit).limit];
                    let mut is_chosen = false;
                    for (name, found) in chosen.iter().zip(&mut found) {
                        let is_named = names.contains(&name.as_str());
                        (is_chosen, *found) = (is_chosen || is_named, *found || is_named);
                    }
                    if !is_chosen {
                        continue;
                    }
                    demand.by_limit.insert(limit.id, demand.limits.len());
                    demand.limits.push(LimitDemand {
                        domain: domain.name().into(),
                        rule: (&*rule.info.path).into(),
                        limit: limit.clone(),
                        counters: HashMap::default(),
                    });
                }
            }
        }
        let Some((name, _)) = chosen.iter().zip(found).find(|(_, found)| !found) else { return Ok(demand) };
        let remedy = match rules.named(None, name) {
            NamedRules::Unknown(Some(meant)) => format!("did you mean {meant:?}?"),
            // The rule has no limit.
            NamedRules::Paths(_) | NamedRules::Unknown(None) => format!("there are {}", known.join(", ")),
        };
        Err(UnknownRule { name: name.clone(), remedy })
    }

    /// Adds the hits of a request; time never runs backwards.
    pub(super) fn add(&mut self, request: &Request<'_>, now: Timestamp) {
        let Some(domain) = self.rules.domain(request.domain()) else { return };
        if let Some(limits) = domain.conditional() {
            // The hits are those of the first descriptor without an override or a block.
            let mut descriptors = request.descriptors().iter();
            let first = descriptors.find(|descriptor| domain.overlaid(&descriptor.entries).is_none());
            let Some(&Descriptor { hits, .. }) = first else { return };
            let Self { by_limit, limits: demand, .. } = self;
            limits.for_request(request.descriptors(), |conditional, values| {
                let Some(&at) = by_limit.get(&conditional.limit().id) else { return };
                let key = values.iter().map(|value| (SmolStr::default(), SmolStr::from(&**value))).collect();
                demand[at].counters.entry(key).or_default().push(TimedHits { time: now, hits });
            });
            return;
        }
        for descriptor in request.descriptors().iter().filter(|descriptor| descriptor.limit.is_none()) {
            let Some(found) = domain.find(&descriptor.entries) else { continue };
            for limit in found.rule.limits.iter().filter(|limit| limit.applies(request.descriptors())) {
                let Some(&at) = self.by_limit.get(&limit.id) else { continue };
                let text = |(index, value): (usize, &str)| {
                    let shared = found.shared.iter().find(|shared| shared.entry as usize == index);
                    shared.map_or_else(|| value.into(), |shared| SmolStr::from(shared.of(value)))
                };
                let entries = descriptor.entries.iter().enumerate();
                let key =
                    entries.map(|(index, entry)| (entry.key.into(), text((index, entry.value)))).collect();
                let hits = TimedHits { time: now, hits: descriptor.hits };
                self.limits[at].counters.entry(key).or_default().push(hits);
            }
        }
    }

    /// A suggestion for each limit of the chosen rules, in the order of domains and files.
    pub fn suggestions(&self) -> Vec<Suggestion> {
        self.limits.iter().map(|limit| limit.suggestion(self.share_max, self.of)).collect()
    }
}

impl LimitDemand {
    fn suggestion(&self, share_max: f64, of: ShareOf) -> Suggestion {
        let (keys, hits) = (self.counters.len() as u64, self.counters.values().map(|of| taken(of)).sum());
        let share = |denied: DeniedAt| match of {
            ShareOf::Keys => denied.keys as f64 / keys.max(1) as f64,
            ShareOf::Hits => denied.hits as f64 / u64::max(hits, 1) as f64,
        };
        // A limit as high as all hits of a key denies none of them, unless a bucket has another size.
        let greatest = self.counters.values().map(|of| taken(of)).max().unwrap_or(0);
        let greatest = u32::try_from(greatest).unwrap_or(u32::MAX);
        let least = |admissible: &dyn Fn(DeniedAt) -> bool| {
            let (mut low, mut high) = (0, greatest);
            if !admissible(self.denied_at(high)) {
                return None;
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if admissible(self.denied_at(middle)) { high = middle } else { low = middle + 1 }
            }
            Some(self.denied_at(high))
        };
        let suggested = least(&|denied| share(denied) <= share_max);
        let present = self.denied_at(self.limit.requests);
        let without_denial = least(&|denied| denied.hits == 0).map_or(greatest, |denied| denied.requests);
        let step = |step| (f64::from(without_denial).powf(f64::from(step) / f64::from(CURVE_POINTS))) as u32;
        let mut limits: Vec<u32> = (0..=CURVE_POINTS).map(step).collect();
        limits.sort_unstable();
        limits.dedup();
        let mut curve: Vec<DeniedAt> = limits.into_iter().map(|limit| self.denied_at(limit)).collect();
        curve.extend(suggested.into_iter().chain([present]));
        curve.sort_unstable();
        curve.dedup();
        Suggestion {
            domain: self.domain.clone(),
            rule: self.rule.clone(),
            limit: (&*self.limit.name).into(),
            window_ns: self.limit.window.nanos().get(),
            keys,
            hits,
            share_max,
            of,
            present,
            suggested,
            per_key_and_window: self.per_key_and_window(),
            curve,
        }
    }

    fn denied_at(&self, requests: u32) -> DeniedAt {
        let limit = &self.limit;
        let algorithm = limit.algorithm.with_requests(requests, limit.requests, limit.window);
        let mut denied = DeniedAt { requests, keys: 0, hits: 0 };
        for counter in self.counters.values() {
            let hits = denied_hits(&algorithm, limit.charge, counter);
            denied.keys += u64::from(hits > 0);
            denied.hits += hits;
        }
        denied
    }

    fn per_key_and_window(&self) -> Percentiles {
        let window = self.limit.window.nanos().get();
        let mut counts = Vec::new();
        for counter in self.counters.values() {
            for of_window in
                counter.chunk_by(|one, next| one.time.as_nanos() / window == next.time.as_nanos() / window)
            {
                counts.push(taken(of_window));
            }
        }
        counts.retain(|&hits| hits > 0);
        counts.sort_unstable();
        let rank = |percent: usize| {
            let rank = (counts.len() * percent).div_ceil(100);
            counts.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Percentiles { p50: rank(50), p95: rank(95), p99: rank(99), max: rank(100) }
    }
}

fn taken(hits: &[TimedHits]) -> u64 {
    let taken = hits.iter().map(|of| if let Hits::Take(hits) = of.hits { hits.get() } else { 0 });
    taken.fold(0, u64::saturating_add)
}

/// Hits of one counter that its limit denies.
fn denied_hits(algorithm: &Algorithm, charge: ChargePolicy, hits: &[TimedHits]) -> u64 {
    let (mut state, mut denied) = (State::EMPTY, 0_u64);
    for TimedHits { time, hits } in hits {
        state = match hits {
            Hits::Peek => state,
            Hits::GiveBack(hits) => algorithm.give_back(state, hits.get(), *time),
            Hits::Take(hits) => {
                let fits = hits.get() <= algorithm.remaining(&state, *time);
                denied = denied.saturating_add(if fits { 0 } else { hits.get() });
                if fits || charge == ChargePolicy::Always {
                    algorithm.add(state, hits.get(), *time)
                } else {
                    state
                }
            }
        };
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Replay, tests::event};
    use tidegate_core::rules::{LoadOptions, Source};

    const SECOND: u64 = 1_000_000_000;

    fn rules(limit: u32, algorithm: &str) -> RuleSet {
        let text = format!(
            "{{domain: d, descriptors: [{{key: user, rate_limit: {{unit: minute, requests_per_unit: {limit}, {algorithm}}}}}]}}"
        );
        RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default())
            .unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// User n has n hits in each of three minutes, one each millisecond.
    fn replay_all(replay: &mut Replay, users: u64) {
        for minute in 0..3 {
            for hit in 0..users {
                for user in hit + 1..=users {
                    replay.replay(&event(minute * 60 * SECOND + hit * 1_000_000, "user", &user.to_string()));
                }
            }
        }
    }

    fn suggestion(users: u64, algorithm: &str, share_max: f64, of: ShareOf) -> Suggestion {
        let rules = rules(7, algorithm);
        let demand = Demand::new(&rules, &["user".into()], share_max, of).expect("a rule");
        let mut replay = Replay::new(rules, None, 1_000);
        replay.collect_demand(demand);
        replay_all(&mut replay, users);
        let (_, mut suggestions) = replay.into_report();
        assert_eq!(suggestions.len(), 1);
        suggestions.remove(0)
    }

    /// Number of keys that a replay under this limit denies.
    fn keys_denied(users: u64, limit: u32, algorithm: &str) -> u64 {
        let mut replay = Replay::new(rules(limit, algorithm), None, 1_000);
        replay_all(&mut replay, users);
        replay.into_report().0.keys_newly_denied.all
    }

    #[test]
    fn a_limit_for_a_share_of_keys_is_exceeded_by_no_more_keys() {
        let suggestion = suggestion(100, "algorithm: fixed_window", 0.05, ShareOf::Keys);
        let suggested = suggestion.suggested.expect("a limit");
        assert_eq!((suggested.requests, suggested.keys), (95, 5), "users 96 to 100 exceed it");
        assert_eq!(suggested.hits, 3 * (1 + 2 + 3 + 4 + 5));
        assert_eq!((suggestion.keys, suggestion.hits), (100, 3 * 5_050));
        assert_eq!(suggestion.present, DeniedAt { requests: 7, keys: 93, hits: 3 * (93 * 94 / 2) });
        let Percentiles { p50, p95, p99, max } = suggestion.per_key_and_window;
        assert_eq!((p50, p95, p99, max), (50, 95, 99, 100));
        assert!(suggestion.curve.is_sorted_by(|a, b| a.requests < b.requests && a.hits >= b.hits));
        assert_eq!(suggestion.curve.last().map(|last| (last.requests, last.hits)), Some((100, 0)));
    }

    #[test]
    fn a_limit_for_a_share_of_hits_denies_no_more_hits() {
        let suggestion = suggestion(100, "algorithm: fixed_window", 0.1, ShareOf::Hits);
        let suggested = suggestion.suggested.expect("a limit");
        // Denied per minute: the sum of 1 to 100 - limit. A tenth of the 5,050 hits is 505.
        assert_eq!((suggested.requests, suggested.hits), (69, 3 * (31 * 32 / 2)));
    }

    #[test]
    fn no_limit_is_suggested_where_the_size_of_a_bucket_denies_more() {
        let with_size = suggestion(100, "algorithm: token_bucket, size: 2", 0.0, ShareOf::Keys);
        assert_eq!(with_size.suggested, None);
        let without = suggestion(100, "algorithm: token_bucket", 0.0, ShareOf::Keys);
        assert_eq!(without.suggested.map(|at| at.requests), Some(100));
    }

    #[test]
    fn a_suggested_limit_is_the_least_one_for_every_algorithm() {
        for algorithm in [
            "algorithm: sliding_window",
            "algorithm: sliding_window, precision: 6",
            "algorithm: sliding_log",
            "algorithm: fixed_window, aligned: first_hit",
            "algorithm: token_bucket, refill: intervals",
            "algorithm: leaky_bucket",
        ] {
            let suggestion = suggestion(20, algorithm, 0.1, ShareOf::Keys);
            let suggested = suggestion.suggested.expect("a limit");
            assert_eq!(keys_denied(20, suggested.requests, algorithm), suggested.keys, "{algorithm}");
            assert!(suggested.keys <= 2, "{algorithm}: {suggested:?}");
            assert!(keys_denied(20, suggested.requests - 1, algorithm) > 2, "{algorithm}: {suggested:?}");
        }
    }

    /// Only paths were accepted, although metrics and alerts have names.
    #[test]
    fn limits_are_chosen_by_the_path_of_their_rule_or_by_their_name() {
        let text = "{domain: d, descriptors: [{key: user, rate_limits: [\
            {name: hourly, unit: hour, requests_per_unit: 9}, {unit: day, requests_per_unit: 99}]}]}";
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default());
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let demand =
                Demand::new(&rules, &names, 0.0, ShareOf::Keys).unwrap_or_else(|error| panic!("{error}"));
            demand.suggestions().into_iter().map(|of| of.present.requests).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&["hourly"]), [9]);
        assert_eq!(chosen(&["user"]), [9, 99]);
        assert_eq!(chosen(&["hourly", "user"]), [9, 99]);
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_nearest_one() {
        let error = Demand::new(&rules(1, ""), &["usr".into()], 0.0, ShareOf::Keys).err().expect("an error");
        assert_eq!(
            error.to_string(),
            r#"no rule with a limit has the path "usr", and no limit that name; did you mean "user"?"#
        );
        let error = Demand::new(&rules(1, ""), &["none".into()], 0.0, ShareOf::Keys).err().expect("an error");
        assert!(error.to_string().ends_with("; there are user"), "{error}");
    }
}
