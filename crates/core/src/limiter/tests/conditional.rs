//! Limits that apply by conditions: several to one request, all or none.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const LIMITS: &str = "
- namespace: d
  max_value: 10
  seconds: 60
  name: reads
  conditions: [\"descriptors[0]['method'] == 'GET'\"]
- { namespace: d, max_value: 2, seconds: 1, variables: [\"descriptors[0]['user']\"] }
- namespace: d
  max_value: 1
  seconds: 60
  id: writes
  conditions: [\"descriptors[0].method == 'POST'\", \"limit.id == 'writes' && !descriptors[0].path.startsWith('/public')\"]
";

#[test]
fn every_limit_applies_whose_conditions_hold_and_whose_variables_have_values() {
    let limiter = limiter(LIMITS);
    check(
        &limiter,
        &[
            (0, "method=GET", &["ok 9"]),
            // In any order, beside other entries.
            (0, "user=a,x=y,method=GET", &["ok 1"]),
            (0, "method=GET,user=b", &["ok 1"]),
            (0, "method=GET ?", &["ok 7"]),
            (0, "user=a", &["ok 0"]),
            (0, "other=a", &["none"]),
            // The second limit denies: the first is not charged.
            (0, "method=GET,user=a", &["over 0 1000"]),
            (0, "method=GET ?", &["ok 7"]),
            // Windows begin with their first hit.
            (1_000, "user=a", &["ok 1"]),
            (0, "method=POST,path=/admin", &["ok 0"]),
            (0, "method=POST,path=/admin", &["over 0 60000"]),
            (0, "method=POST,path=/public/x", &["none"]),
            (0, "method=POST", &["none"]),
            // The first descriptor has the limits of the request.
            (0, "method=GET; method=GET", &["ok 6", "none"]),
            (0, "other=a; method=GET", &["none", "none"]),
            // Of entries with equal keys the last one counts.
            (0, "method=GET,method=PUT", &["none"]),
            (0, "method=PUT,method=GET", &["ok 5"]),
        ],
    );
}

#[test]
fn a_change_of_the_number_keeps_used_hits_and_one_of_a_condition_begins_anew() {
    let limiter = limiter(LIMITS);
    check(&limiter, &[(0, "method=GET +4", &["ok 6"])]);
    replace_rules(
        &limiter,
        &LIMITS.replace("max_value: 10", "max_value: 5").replace("name: reads", "name: other"),
    );
    check(&limiter, &[(0, "method=GET", &["ok 0"]), (0, "method=GET", &["over 0 60000"])]);
    replace_rules(&limiter, &LIMITS.replace("seconds: 60\n  name", "seconds: 61\n  name"));
    check(&limiter, &[(0, "method=GET", &["ok 9"])]);
}

#[test]
fn blocks_and_overrides_are_in_the_place_of_the_limits_for_their_descriptors() {
    let limiter = limiter(LIMITS);
    let block = Source::new(crate::rules::SourceId::Blocks("blocks".into()), "method=GET\n");
    put_overlays(&limiter, LIMITS, vec![block]);
    check(
        &limiter,
        &[
            (0, "method=GET", &["over never"]),
            (0, "user=a; method=GET", &["ok 2", "over never"]),
            (0, "user=a", &["ok 1"]),
        ],
    );
}

#[test]
fn charges_of_a_report_count_in_any_case() {
    let limiter = limiter(LIMITS);
    let mut request = Request::new("d");
    request.push(descriptor("method=GET +25"));
    let report = request.reporting().checked(&RequestLimits::default()).unwrap();
    limiter.pin().decide(&report, Timestamp::from_millis(MIDNIGHT_MILLIS));
    check(&limiter, &[(0, "method=GET", &["over 0 60000"])]);
}

#[test]
fn a_limit_with_a_condition_applies_where_it_holds() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { unit: day, requests_per_unit: 9, algorithm: fixed_window }
      - name: puts
        unit: day
        requests_per_unit: 1
        when: 'descriptors.exists(d, has(d.method) && d.method == \"PUT\") && limit.name == \"puts\"'
  - key: only
    rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: puts }], when: \"descriptors[0].only == 'x'\" }
",
    );
    check(
        &limiter,
        &[
            (0, "user=a", &["ok 8"]),
            (0, "user=a; method=PUT", &["ok 0", "none"]),
            (0, "user=a; method=PUT", &["over 0 86400000", "none"]),
            (0, "user=a", &["ok 6"]),
            (0, "only=y", &["none"]),
            (0, "only=x", &["ok 0"]),
            (0, "only=x", &["over 0 86400000"]),
            // A limit that does not apply replaces no other.
            (0, "user=a; only=x; method=PUT", &["over 0 86400000", "none", "none"]),
        ],
    );
}

/// `descriptors[N][KEY] == VALUE`, or `!=`.
type Condition = (usize, &'static str, &'static str, bool);

#[derive(Clone, Debug)]
struct Declared {
    max: u64,
    seconds: u64,
    conditions: Vec<Condition>,
    variables: Vec<(usize, &'static str)>,
}

impl Declared {
    fn yaml(&self) -> String {
        let operator = |is_equal| if is_equal { "==" } else { "!=" };
        let conditions: Vec<String> = self
            .conditions
            .iter()
            .map(|(descriptor, key, value, is_equal)| {
                format!("descriptors[{descriptor}]['{key}'] {} '{value}'", operator(*is_equal))
            })
            .collect();
        let variables: Vec<String> = self
            .variables
            .iter()
            .map(|(descriptor, key)| format!("descriptors[{descriptor}].{key}"))
            .collect();
        format!(
            "- {{ namespace: d, max_value: {}, seconds: {}, conditions: {conditions:?}, variables: {variables:?} }}\n",
            self.max, self.seconds
        )
    }

    /// Its identity and the values of its variables, if it applies.
    fn counter(&self, descriptors: &[HashMap<&str, &str>]) -> Option<(String, Vec<String>)> {
        let value = |descriptor: usize, key: &str| descriptors.get(descriptor)?.get(key).copied();
        let holds = |&(descriptor, key, wanted, is_equal): &Condition| {
            value(descriptor, key).is_some_and(|value| (value == wanted) == is_equal)
        };
        if !self.conditions.iter().all(holds) {
            return None;
        }
        let values: Option<Vec<String>> = self
            .variables
            .iter()
            .map(|(descriptor, key)| value(*descriptor, key).map(str::to_owned))
            .collect();
        Some((self.yaml(), values?))
    }
}

/// Admits by a count for each counter, from its first hit on.
fn naive(
    limits: &[Declared],
    counts: &mut HashMap<(String, Vec<String>), (u64, u64)>,
    descriptors: &[HashMap<&str, &str>],
    hits: u64,
    millis: u64,
) -> bool {
    let applied: Vec<_> =
        limits.iter().filter_map(|limit| Some((limit, limit.counter(descriptors)?))).collect();
    for (_, counter) in &applied {
        counts.entry(counter.clone()).and_modify(|count| {
            if count.1 <= millis {
                *count = (0, 0)
            }
        });
    }
    let used = |counter| counts.get(counter).map_or(0, |count: &(u64, u64)| count.0);
    if applied.iter().any(|(limit, counter)| used(counter) + hits > limit.max) {
        return false;
    }
    for (limit, counter) in applied {
        let count = counts.entry(counter).or_default();
        if count.0 == 0 {
            count.1 = millis + limit.seconds * 1_000;
        }
        count.0 += hits;
    }
    true
}

fn keys() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c"])
}

fn values() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["x", "y", ""])
}

fn limits() -> impl Strategy<Value = Vec<Declared>> {
    let condition = (0..2_usize, keys(), values(), any::<bool>());
    let limit = (
        0..6_u64,
        1..3_u64,
        prop::collection::vec(condition, 0..3),
        prop::collection::vec((0..2_usize, keys()), 0..2),
    );
    let limit = limit.prop_map(|(max, seconds, conditions, variables)| Declared {
        max,
        seconds,
        conditions,
        variables,
    });
    prop::collection::vec(limit, 1..6).prop_map(|mut limits: Vec<Declared>| {
        let mut seen = Vec::new();
        limits.retain(|limit| {
            let mut conditions = limit.conditions.clone();
            conditions.sort_unstable();
            conditions.dedup();
            let identity = (limit.seconds, conditions, limit.variables.clone());
            let is_new = !seen.contains(&identity);
            seen.push(identity);
            is_new
        });
        limits
    })
}

proptest! {
    #[test]
    fn requests_are_admitted_as_a_naive_server_admits_them(
        limits in limits(),
        requests in prop::collection::vec(
            (prop::collection::vec(prop::collection::vec((keys(), values()), 1..4), 1..3), 1..3_u64, 0..900_u64),
            1..40,
        ),
    ) {
        let yaml: String = limits.iter().map(Declared::yaml).collect();
        let limiter = limiter(&yaml);
        let (mut counts, mut millis) = (HashMap::new(), 0);
        for (descriptors, hits, later) in requests {
            millis += later;
            let mut request = Request::new("d");
            for entries in &descriptors {
                let entries = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
                let hits = Hits::Take(NonZeroU64::new(hits).unwrap());
                request.push(Descriptor { entries, limit: None, hits });
            }
            let maps: Vec<HashMap<&str, &str>> =
                descriptors.iter().map(|entries| entries.iter().copied().collect()).collect();
            let expected = naive(&limits, &mut counts, &maps, hits, millis);
            let decision = limiter.pin().decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + millis)).code;
            prop_assert_eq!(decision == Code::Ok, expected, "{} {:?}", yaml, descriptors);
        }
    }
}

/// Each limit of a rule replaces another only where it applies itself.
#[test]
fn a_limit_whose_condition_does_not_hold_replaces_none_beside_limits_of_its_rule() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: day, requests_per_unit: 1 }
  - key: plan
    rate_limits:
      - { name: all, unit: day, requests_per_unit: 9 }
      - { name: gold, unit: day, requests_per_unit: 9, replaces: [{ name: per-user }], when: \"descriptors.exists(d, 'gold' in d)\" }
",
    );
    check(
        &limiter,
        &[
            (0, "user=a; plan=p", &["ok 0", "ok 8"]),
            (0, "user=a; plan=p", &["over 0 86400000", "ok 8"]),
            (0, "user=a; plan=p; gold=yes", &["none", "ok 7", "none"]),
        ],
    );
    let pinned = limiter.pin();
    let domain = pinned.rules().domain("d").expect("the domain");
    let [user, plan, gold] =
        [("user", "a"), ("plan", "p"), ("gold", "yes")].map(|(key, value)| [Entry { key, value }]);
    let explained = |descriptors: &[[Entry<'_>; 1]]| {
        let mut request = Request::new("d");
        for &entries in descriptors {
            request.push(Descriptor { entries: entries.into_iter().collect(), limit: None, hits: Hits::ONE });
        }
        domain.explain_request(request.descriptors())[0].in_force().count()
    };
    assert_eq!((explained(&[user, plan]), explained(&[user, plan, gold])), (1, 0));
}
