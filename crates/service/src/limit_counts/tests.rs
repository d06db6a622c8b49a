use super::*;
use tidegate_core::{
    limit::{Entry, RareNumbers, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

const RULES: &str = "
domain: d
descriptors:
  - { key: ten, rate_limit: { per: 1h, requests_per_unit: 10 } }
  - { key: one, rate_limit: { name: single, per: 1h, requests_per_unit: 1 } }
  - { key: shadow, shadow_mode: true, rate_limit: { per: 1h, requests_per_unit: 1 } }
  - { key: two, rate_limits: [{ name: hourly, per: 1h, requests_per_unit: 20 }, { name: daily, per: 1d, requests_per_unit: 21 }] }
  - { key: quota_a, quota_mode: true, rate_limit: { per: 1h, requests_per_unit: 1 } }
  - { key: quota_b, quota_mode: true, rate_limit: { per: 1h, requests_per_unit: 9 } }
  - { key: bucket, rate_limit: { per: 1s, requests_per_unit: 1, algorithm: token_bucket, size: 10 } }
  - { key: banned, rate_limit: { per: 1h, requests_per_unit: 2, ban: { after: 2, within: 1m, for: 1m } } }
  - key: user
    value_to_metric: true
    descriptors:
    - { key: path, rate_limit: { per: 1h, requests_per_unit: 2 } }
  - key: all
    descriptors:
    - { key: path, detailed_metric: true, rate_limit: { per: 1h, requests_per_unit: 2 } }
";

struct World {
    limiter: Limiter,
    counts: LimitCounts,
}

impl World {
    fn new(settings: LimitCountSettings) -> Self {
        let options = LoadOptions { series_max: settings.series_max, ..LoadOptions::default() };
        let rules = RuleSet::parse(&[Source::file("test.yaml", RULES)], &options);
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        let store =
            StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 100, on_full: OnFull::Deny };
        let counts = LimitCounts::new(settings);
        Self { limiter: Limiter::new(rules, store, false), counts }
    }

    /// A world whose counters are full.
    fn full() -> Self {
        let world = Self::new(LimitCountSettings::default());
        let keys = (0..100).map(|key| &*Box::leak(format!("bucket={key}").into_boxed_str()));
        keys.for_each(|key| _ = world.decide(&[(key, hits(1))]));
        world
    }

    /// Decides one request. Each descriptor is `key=value key=value` and its hits.
    fn decide(&self, descriptors: &[(&'static str, Hits)]) -> Code {
        let mut request = Request::new("d");
        for (text, hits) in descriptors {
            let entries = text.split(' ').map(|entry| {
                let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
                Entry { key, value }
            });
            request.push(Descriptor { entries: entries.collect(), limit: None, hits: *hits });
        }
        let pinned = self.limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(1_700_000_000_000));
        self.counts.count(&request, &decision, false);
        decision.code
    }

    /// The counts that are not zero, as `limit outcome hits/requests`, in order.
    fn counted(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let rules = self.limiter.rules();
        let named = rules.limits().series();
        let mut add = |name: &str, counts: &OutcomeCounts| {
            for outcome in Outcome::ALL.iter().copied().filter(|outcome| counts.requests(*outcome) > 0) {
                let (hits, requests) = (counts.hits(outcome), counts.requests(outcome));
                lines.push(format!("{name} {} {hits}/{requests}", outcome.name()));
            }
        };
        for (series, name) in &named {
            add(&name.limit, &self.counts.reader().counts(*series));
        }
        add("other", &self.counts.reader().counts(SeriesId::OTHER));
        for ((series, values), counts) in self.counts.by_values(|_| true).0 {
            let name = named.iter().find(|(id, _)| *id == series).map(|(_, name)| &*name.limit);
            add(&format!("{} [{values}]", name.unwrap_or_default()), &counts);
        }
        lines.sort_unstable();
        lines
    }
}

fn world() -> World {
    World::new(LimitCountSettings::default())
}

fn hits(number: u64) -> Hits {
    Hits::new(Some(number), 0, false)
}

/// One denied call with 2^64 - 15 hits set the count from 15 to 0.
#[test]
fn counts_of_hits_saturate() {
    let world = world();
    world.decide(&[("one", hits(15))]);
    world.decide(&[("one", hits(u64::MAX - 14))]);
    assert_eq!(world.counted(), [format!("single denied {}/2", u64::MAX)]);
    world.decide(&[("user=ann path", hits(15))]);
    world.decide(&[("user=ann path", hits(u64::MAX - 14))]);
    let by_values = world.counted().into_iter().find(|line| line.contains("user=ann")).unwrap_or_default();
    assert!(by_values.ends_with(&format!("denied {}/2", u64::MAX)), "{by_values}");
}

#[test]
fn denials_of_a_ban_are_parts_of_those_of_its_limit() {
    let world = world();
    for _ in 0..4 {
        world.decide(&[("banned", hits(2))]);
    }
    let of_limit = ["banned admitted 2/1", "banned ban_begun 2/1", "banned banned 4/2", "banned denied 6/3"];
    assert_eq!(world.counted(), [&of_limit[..], &["banned near_limit 1/1"]].concat());
}

#[test]
fn admitted_hits_beyond_the_percentage_are_near_the_limit() {
    let world = world();
    world.decide(&[("ten", hits(7))]);
    assert_eq!(world.counted(), ["ten admitted 7/1"]);
    world.decide(&[("ten", hits(2))]);
    assert_eq!(world.counted(), ["ten admitted 9/2", "ten near_limit 1/1"]);
    world.decide(&[("ten", hits(2))]);
    world.decide(&[("ten", hits(1))]);
    assert_eq!(world.counted(), ["ten admitted 10/3", "ten denied 2/1", "ten near_limit 2/2"]);
}

/// The rate of 1 was used as the capacity, so that only the last hit was near.
#[test]
fn hits_of_a_bucket_are_near_its_capacity_not_its_rate() {
    let world = world();
    world.decide(&[("bucket", hits(7))]);
    assert_eq!(world.counted(), ["bucket admitted 7/1"]);
    world.decide(&[("bucket", hits(2))]);
    assert_eq!(world.counted(), ["bucket admitted 9/2", "bucket near_limit 1/1"]);
}

#[test]
fn a_limit_that_fits_in_a_denied_request_has_admitted_nothing() {
    let world = world();
    world.decide(&[("one", hits(1))]);
    assert_eq!(world.decide(&[("one", hits(1)), ("ten", hits(3))]), Code::OverLimit);
    assert_eq!(
        world.counted(),
        ["single admitted 1/1", "single denied 1/1", "single near_limit 1/1", "ten denied_by_other 3/1"]
    );
}

/// Such denials counted as denials by the limit, whose alert fired during an outage.
#[test]
fn denials_that_no_limit_caused_are_apart_by_their_cause() {
    let world = World::full();
    let bucket = world.counted();
    assert_eq!(world.decide(&[("two", hits(1))]), Code::OverLimit);
    let full = ["daily denied_counters_full 1/1", "hourly denied_counters_full 1/1"];
    assert_eq!(world.counted(), [&bucket[..], &full.map(str::to_owned)].concat());

    let mut request = Request::new("d");
    let entries = [Entry { key: "two", value: "" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: hits(3) });
    let pinned = world.limiter.pin();
    let mut decision = pinned.decide(&request, Timestamp::from_millis(1_700_000_000_000));
    decision.rare = Some(Box::new(RareNumbers { is_without_store: true, ..RareNumbers::default() }));
    world.counts.count(&request, &decision, false);
    let away = ["daily denied_store_away 3/1", "hourly denied_store_away 3/1"];
    assert_eq!(
        world.counted(),
        [bucket, vec![full[0].into(), away[0].into(), full[1].into(), away[1].into()]].concat()
    );
}

/// They counted as `shadow_denied`, where the owner of a limit reads what it would deny, before enforcing it.
#[test]
fn hits_in_shadow_that_no_limit_would_deny_are_apart_by_their_cause() {
    let world = World::full();
    let bucket = world.counted();
    assert_eq!(world.decide(&[("shadow", hits(1))]), Code::Ok);
    let full = "shadow shadow_counters_full 1/1";
    assert_eq!(world.counted(), [&bucket[..], &[full.to_owned()]].concat());

    let mut request = Request::new("d");
    let entries = [Entry { key: "shadow", value: "" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: hits(1) });
    let pinned = world.limiter.pin();
    let mut decision = pinned.decide(&request, Timestamp::from_millis(1_700_000_000_000));
    decision.rare = Some(Box::new(RareNumbers { is_without_store: true, ..RareNumbers::default() }));
    world.counts.count(&request, &decision, false);
    let away = "shadow shadow_store_away 1/1";
    assert_eq!(world.counted(), [bucket, vec![full.into(), away.into()]].concat());
}

#[test]
fn shadow_rules_show_what_they_would_have_denied() {
    let world = world();
    world.decide(&[("shadow", hits(1))]);
    assert_eq!(world.decide(&[("shadow", hits(5))]), Code::Ok);
    assert_eq!(world.counted(), ["shadow admitted 1/1", "shadow near_limit 1/1", "shadow shadow_denied 5/1"]);
}

#[test]
fn a_quota_that_another_one_overrules_has_denied_in_shadow_only() {
    let world = world();
    assert_eq!(world.decide(&[("quota_a", hits(2)), ("quota_b", hits(2))]), Code::Ok);
    assert_eq!(world.counted(), ["quota_a shadow_denied 2/1", "quota_b admitted 2/1"]);
}

#[test]
fn every_limit_of_a_rule_is_counted_not_only_the_tightest() {
    let world = world();
    world.decide(&[("two", hits(18))]);
    assert_eq!(
        world.counted(),
        ["daily admitted 18/1", "daily near_limit 2/1", "hourly admitted 18/1", "hourly near_limit 2/1"]
    );
    world.decide(&[("two", hits(3))]);
    let denied: Vec<_> = world.counted().into_iter().filter(|line| line.contains("denied")).collect();
    assert_eq!(denied, ["daily denied_by_other 3/1", "hourly denied 3/1"]);
}

#[test]
fn peeks_count_requests_and_no_hits_and_hits_given_back_are_apart() {
    let world = world();
    world.decide(&[("one", hits(0))]);
    world.decide(&[("one", hits(1))]);
    world.decide(&[("one", hits(0))]);
    world.decide(&[("one", Hits::new(Some(1), 0, true))]);
    assert_eq!(
        world.counted(),
        ["single admitted 1/2", "single denied 0/1", "single given_back 1/1", "single near_limit 1/1"]
    );
}

#[test]
fn values_are_shown_where_the_rule_says_so() {
    let world = world();
    world.decide(&[("user=ann path=/x", hits(1)), ("all=ann path=/y", hits(1))]);
    world.decide(&[("user=ann path=/z", hits(1))]);
    assert_eq!(
        world.counted(),
        ["all → path [all=ann → path=/y] admitted 1/1", "user → path [user=ann → path] admitted 2/2"]
    );
}

#[test]
fn values_beyond_the_bound_are_counted_together() {
    let world = World::new(LimitCountSettings { series_max: 30, ..LimitCountSettings::default() });
    let texts: Vec<&'static str> =
        (0..40).map(|user| &*Box::leak(format!("user={user} path=/").into_boxed_str())).collect();
    texts.iter().chain(&texts).for_each(|text| _ = world.decide(&[(text, hits(1))]));
    let (by_values, number) = world.counts.by_values(|_| true);
    assert_eq!((by_values.len(), number), (31, 30));
    let other = by_values.iter().find(|((_, values), _)| &**values == OTHER_VALUES);
    assert_eq!(other.map(|(_, counts)| counts.hits(Outcome::Admitted)), Some(20));
    assert_eq!(world.counts.by_values(|_| false).1, 0, "values of series that are gone are dropped");
}

#[test]
fn limits_beyond_the_bound_are_counted_together() {
    let world = World::new(LimitCountSettings { series_max: 1, ..LimitCountSettings::default() });
    world.decide(&[("ten", hits(1)), ("one", hits(1)), ("two", hits(2))]);
    assert_eq!(world.counted(), ["other admitted 5/3", "other near_limit 1/1", "ten admitted 1/1"]);
}

#[test]
fn counts_start_at_zero_when_a_slot_has_another_name() {
    let counts = LimitCounts::default();
    let (former, later) = (SeriesId { number: 5, use_number: 0 }, SeriesId { number: 5, use_number: 1 });
    let thread = ThreadIndex::current();
    counts.threads.of(thread).cells(former).add(thread, Outcome::Denied, 3);
    assert_eq!(counts.reader().counts(former).hits(Outcome::Denied), 3);
    assert_eq!(counts.reader().counts(later), OutcomeCounts::default());
    counts.threads.of(thread).cells(later).add(thread, Outcome::Denied, 1);
    assert_eq!(counts.reader().counts(later).hits(Outcome::Denied), 1);
    assert_eq!(counts.reader().counts(former), OutcomeCounts::default());
}

#[test]
fn counts_of_many_threads_are_not_lost() {
    let world = world();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| _ = world.decide(&[("ten", hits(1))])));
        }
    });
    assert_eq!(world.counted(), ["ten admitted 10/10", "ten denied 390/390", "ten near_limit 2/2"]);
}
