//! Counts of decisions and of the hits of domains over the last minutes, for charts that show the time before they were opened, and the
//! durations of these minutes. Pure: the time is an argument.

use super::HitCounts;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};
use tidegate_core::{
    limit::{SeriesId, Timestamp},
    rules::RuleSet,
};
use tidegate_counts::HistogramSums;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(2);
/// The most readings that are kept: five minutes.
const READINGS_MAX: usize = 150;
/// The most domains whose hits are kept, in the order of their names.
const DOMAINS_MAX: usize = 64;

/// The hits of a domain, and the number of its rules.
pub struct DomainHits {
    /// Sum over its rules.
    pub hits: HitCounts,
    /// Number of rules.
    pub rules: u32,
}

/// The hits of each domain. A hit counts in all limits of its rule: for each outcome, a rule has the hits of its limit with the most.
pub fn domain_hits<'r>(
    rules: &'r RuleSet,
    hits: &HashMap<SeriesId, HitCounts>,
) -> BTreeMap<&'r str, DomainHits> {
    let domains = rules.domains().map(|domain| {
        // Limits beyond the bound share a series with other domains, and rules with the same name share one.
        let mut seen = HashSet::from([SeriesId::OTHER]);
        let (of_domain, mut sum) = (domain.rules(), HitCounts::default());
        for rule in &of_domain {
            let series = rule.limits.iter().map(|limit| limit.series).filter(|series| seen.insert(*series));
            let hits = series.filter_map(|series| hits.get(&series));
            sum = sum.plus(hits.fold(HitCounts::default(), |most, hits| most.or_more(*hits)));
        }
        (domain.name(), DomainHits { hits: sum, rules: of_domain.len() as u32 })
    });
    domains.collect()
}

/// Durations by bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct Durations {
    /// From the receipt of requests to their responses.
    pub responses: HistogramSums,
    /// From calls of the store of shared counters to its responses. None without a store.
    pub round_trips: Option<HistogramSums>,
}

impl Durations {
    /// The durations since an earlier reading.
    fn since(self, earlier: &Self) -> Self {
        let round_trips = self.round_trips.map(|now| match &earlier.round_trips {
            Some(earlier) => now.since(earlier),
            None => now,
        });
        Self { responses: self.responses.since(&earlier.responses), round_trips }
    }
}

/// Readings of the last minutes, the oldest first.
#[derive(Default)]
pub struct History(VecDeque<Reading>);

struct Reading {
    at: Timestamp,
    decisions: HitCounts,
    durations: Durations,
    domains: BTreeMap<Box<str>, HitCounts>,
}

impl History {
    /// Whether another reading is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.0.back().is_none_or(|last| now.since(last.at) >= INTERVAL)
    }

    /// Adds a reading of the counts and the durations since the start.
    pub fn add(
        &mut self,
        at: Timestamp,
        decisions: HitCounts,
        durations: Durations,
        domains: &BTreeMap<&str, DomainHits>,
    ) {
        if self.0.len() == READINGS_MAX {
            self.0.pop_front();
        }
        let domains = domains.iter().take(DOMAINS_MAX).map(|(name, of)| ((*name).into(), of.hits)).collect();
        self.0.push_back(Reading { at, decisions, durations, domains });
    }

    /// The durations of the last five minutes, of those from the start until now.
    pub fn last_durations(&self, now: Durations) -> Durations {
        // A shorter history began with the server.
        let first = self.0.front().filter(|_| self.0.len() == READINGS_MAX);
        match first {
            Some(first) => now.since(&first.durations),
            None => now,
        }
    }

    /// The counts since the start at each reading that is kept: of all decisions, or the hits of a domain.
    pub fn points(&self, domain: Option<&str>) -> Vec<(Timestamp, HitCounts)> {
        let point = |reading: &Reading| {
            let counts = match domain {
                None => Some(reading.decisions),
                Some(domain) => reading.domains.get(domain).copied(),
            };
            Some((reading.at, counts?))
        };
        self.0.iter().filter_map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rules::{LoadOptions, Source};

    fn hits(admitted: u64, denied: u64) -> HitCounts {
        HitCounts { admitted, denied, shadow_denied: 0 }
    }

    #[test]
    fn a_hit_on_a_rule_with_two_limits_counts_once_in_its_domain() {
        let yaml = "{ domain: shop, descriptors: [
            { key: user, rate_limits: [{ unit: minute, requests_per_unit: 5 }, { unit: hour, requests_per_unit: 9 }] },
            { key: plan, rate_limit: { unit: day, requests_per_unit: 1 } }] }";
        let rules = RuleSet::parse(&[Source::file("rules.yaml", yaml)], &LoadOptions::default()).unwrap();
        let series: Vec<SeriesId> = rules.rule_limits().map(|(_, limit)| limit.series).collect();
        assert_eq!(series.len(), 3);
        let counts =
            HashMap::from([(series[0], hits(7, 2)), (series[1], hits(7, 0)), (series[2], hits(1, 3))]);
        let of = domain_hits(&rules, &counts);
        assert_eq!((of["shop"].hits, of["shop"].rules), (hits(8, 5), 2));
    }

    /// One response of each second since the start.
    fn durations(seconds: u64) -> Durations {
        let responses = HistogramSums { bounds: vec![1.0], buckets: vec![seconds, 0], sum: seconds as f64 };
        Durations { round_trips: Some(responses.clone()), responses }
    }

    /// After a month without a fault, the percentiles since the start do not change in a slow hour.
    #[test]
    fn the_last_durations_are_those_of_five_minutes_or_since_the_start() {
        let mut history = History::default();
        assert_eq!(history.last_durations(durations(7)), durations(7));
        for reading in 0..400 {
            let second = 2 * reading;
            let now = history.last_durations(durations(second));
            assert_eq!(now, durations(second.min(300)), "{second} s");
            history.add(
                Timestamp::from_millis(1_000 * second),
                hits(0, 0),
                durations(second),
                &BTreeMap::new(),
            );
        }
    }

    #[test]
    fn the_history_is_of_five_minutes_and_of_a_bounded_number_of_domains() {
        let mut history = History::default();
        let names: Vec<String> = (0..100).map(|number| format!("domain-{number:02}")).collect();
        for second in 0..1_000 {
            let at = Timestamp::from_millis(1_000 * second);
            if history.is_due(at) {
                let of = |_| DomainHits { hits: hits(second, 0), rules: 1 };
                let domains = names.iter().map(|name| (name.as_str(), of(name))).collect();
                history.add(at, hits(second, 1), durations(second), &domains);
            }
        }
        let all = history.points(None);
        assert_eq!(all.len(), READINGS_MAX);
        assert_eq!(all.last(), Some(&(Timestamp::from_millis(998_000), hits(998, 1))));
        assert_eq!(all[0], (Timestamp::from_millis(700_000), hits(700, 1)));
        assert_eq!(history.points(Some("domain-63")).len(), READINGS_MAX);
        assert_eq!(history.points(Some("domain-64")), [], "beyond the bound");
    }
}
