//! Every stated wait is true: a caller that waits it, alone, is then admitted, and not a nanosecond earlier. In all combinations of
//! algorithms, `charge`, `reserve`, bans, schedules, overrides, quotas, shadow rules, several limits and descriptors, and peeks.

use super::*;
use crate::rules::{OverrideAction, OverrideLimit, OverrideRule};
use proptest::{collection::vec, prelude::*, sample::select};

/// Half a minute after midnight: at 00:01 the limits with schedules change.
const START_MILLIS: u64 = MIDNIGHT_MILLIS + 30_000;

const ALGORITHMS: [&str; 8] = [
    "algorithm: sliding_log",
    "algorithm: sliding_window",
    "precision: 5",
    "algorithm: fixed_window",
    "algorithm: fixed_window, aligned: first_hit",
    "algorithm: token_bucket",
    "algorithm: token_bucket, refill: intervals",
    "algorithm: leaky_bucket",
];

const ADDITIONS: [&str; 9] = [
    "",
    ", charge: always",
    ", reserve: 3, max_hold: 7s",
    ", reserve: 2, max_hold: 4s, on_lost_end: return",
    ", reserve: 3, ban: {after: 1, within: 10s, for: 5s}",
    ", ban: {after: 2, within: 5s, for: 9s}",
    ", charge: always, ban: {after: 2, within: 5s, for: 3s}",
    ", schedule: [{hours: '00:00-00:01', days: wed, requests_per_unit: 2}]",
    ", reserve: 3, schedule: [{hours: '00:00-00:01', days: wed, requests_per_unit: 2}]",
];

/// The code of a response, the code, the remaining hits and the reset of each status, and the wait of a denial.
type Outcome = (Code, Vec<(Code, u32, Option<Reset>)>, Option<Reset>);

/// A step, some milliseconds after the step before it.
#[derive(Clone, Debug)]
enum Step {
    Request(String),
    /// Ends the request with the first ticket that has no end.
    End(u64),
    /// Sets an override of `a=x`, or removes it.
    Override,
}

#[derive(Clone, Debug)]
struct History {
    rules: String,
    steps: Vec<(u64, Step)>,
}

/// A limiter after some steps, and the time.
struct After {
    limiter: Limiter,
    rules: String,
    now: Timestamp,
    tickets: Vec<String>,
    is_overridden: bool,
}

impl After {
    /// None if the limits do not go together.
    fn new(rules: &str) -> Option<Self> {
        let source = Source::file("test.yaml", rules);
        let parsed = RuleSet::parse(&[source], &LoadOptions::default()).ok()?;
        let store =
            StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 1_000, on_full: OnFull::Deny };
        let limiter = Limiter::new(parsed, store, false);
        let now = Timestamp::from_millis(START_MILLIS);
        Some(Self { limiter, rules: rules.to_owned(), now, tickets: Vec::new(), is_overridden: false })
    }

    fn decide(&mut self, text: &str, now: Timestamp) -> Outcome {
        let mut request = Request::new("d");
        text.split("; ").for_each(|text| request.push(descriptor(text)));
        let pinned = self.limiter.pin();
        let decision = pinned.decide(&request, now);
        self.tickets.extend(decision.slot.as_ref().map(|slot| slot.ticket.to_string()));
        let wait = decision.awaited().map(|status| status.reset.expect("a wait")).max();
        let statuses = decision.statuses.iter().map(|one| (one.code, one.remaining, one.reset)).collect();
        (decision.code, statuses, wait)
    }

    fn step(&mut self, (wait, step): &(u64, Step)) -> Option<Outcome> {
        self.now = self.now.saturating_add_nanos(wait * 1_000_000);
        match step {
            Step::Request(text) => return Some(self.decide(text, self.now)),
            Step::End(cost) if !self.tickets.is_empty() => {
                let ticket = self.tickets.remove(0);
                self.decide(&format!("a=x,slot={ticket} +{}", cost.max(&1)), self.now);
            }
            Step::End(_) => {}
            Step::Override => {
                self.is_overridden = !self.is_overridden;
                let rule = || {
                    let limits = vec![OverrideLimit::new(3, "10s", None, None).expect("valid")];
                    let entries = vec![("a".into(), "x".into())];
                    let action = OverrideAction::Limits(limits);
                    Source::of_override(OverrideRule { id: "o".into(), domain: "d".into(), entries, action })
                };
                let overlaid = if self.is_overridden { vec![rule()] } else { Vec::new() };
                put_overlays(&self.limiter, &self.rules, overlaid);
            }
        }
        None
    }
}

impl History {
    /// A limiter after the first steps.
    fn replay(&self, steps: usize) -> After {
        let mut after = After::new(&self.rules).expect("they were parsed before");
        self.steps[..steps].iter().for_each(|step| _ = after.step(step));
        after
    }
}

fn limit(name: &'static str) -> impl Strategy<Value = String> {
    (select(&ALGORITHMS[..]), select(&ADDITIONS[..]), 2..6_u32, select(vec![4, 10, 40])).prop_map(
        move |(algorithm, addition, requests, secs)| {
            format!("{{name: {name}, per: {secs}s, requests_per_unit: {requests}, {algorithm}{addition}}}")
        },
    )
}

/// Further options of a rule.
const MODES: [&str; 4] = ["", "", "quota_mode: true, ", "shadow_mode: true, "];

fn rules() -> impl Strategy<Value = String> {
    let limits = (limit("one"), proptest::option::of(limit("two")), limit("three"), limit("four"));
    (limits, select(&MODES[..]), select(&MODES[..])).prop_map(|((one, two, three, four), of_b, of_c)| {
        let of_a = [Some(one), two].into_iter().flatten().collect::<Vec<_>>().join(", ");
        format!(
            "domain: d\ndescriptors:\n  - {{key: a, rate_limits: [{of_a}]}}\n  - {{key: b, {of_b}rate_limits: [{three}]}}\n  - {{key: c, {of_c}rate_limits: [{four}]}}\n"
        )
    })
}

fn request() -> impl Strategy<Value = String> {
    let hits = || prop_oneof![3 => Just("+1"), 2 => Just("+2"), 1 => Just("+4"), 1 => Just("?")];
    prop_oneof![
        3 => hits().prop_map(|hits| format!("a=x {hits}")),
        2 => (hits(), hits()).prop_map(|(a, b)| format!("a=x {a}; b=x {b}")),
        2 => (hits(), hits(), hits()).prop_map(|(a, b, c)| format!("a=x {a}; b=x {b}; c=x {c}")),
        1 => (hits(), hits()).prop_map(|(b, c)| format!("b=x {b}; c=x {c}")),
        1 => (hits(), hits()).prop_map(|(a, b)| format!("a=x {a}; a=x {b}")),
        1 => hits().prop_map(|hits| format!("a=x -1; b=x {hits}; a=x +2")),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let step = prop_oneof![
        12 => request().prop_map(Step::Request),
        2 => (0..4_u64).prop_map(Step::End),
        1 => Just(Step::Override),
    ];
    (rules(), vec((0..4_000_u64, step), 1..14)).prop_map(|(rules, steps)| History { rules, steps })
}

#[test]
fn nearly_all_limits_of_these_histories_are_valid() {
    let all =
        ALGORITHMS.iter().flat_map(|algorithm| ADDITIONS.map(|addition| format!("{algorithm}{addition}")));
    let refused: Vec<String> = all
        .filter(|limit| {
            let limit = format!("{{name: one, per: 40s, requests_per_unit: 4, {limit}}}");
            After::new(&format!("domain: d\ndescriptors: [{{key: a, rate_limits: [{limit}]}}]\n")).is_none()
        })
        .collect();
    // Buckets have no schedules.
    let is_expected = |limit: &String| limit.contains("bucket") && limit.contains("schedule");
    assert!(refused.iter().all(is_expected), "{refused:?}");
}

proptest! {
    #[test]
    fn a_caller_that_waits_the_stated_time_is_admitted_and_a_nanosecond_less_is_not(history in history()) {
        // Some limits do not go together, such as two of one window.
        let Some(mut after) = After::new(&history.rules) else { return Ok(()) };
        for (index, step) in history.steps.iter().enumerate() {
            let decided = after.step(step);
            let (Some((code, statuses, wait)), Step::Request(text)) = (decided, &step.1) else { continue };
            if code == Code::Ok {
                let [(_, remaining, _)] = statuses[..] else { continue };
                if text.starts_with('a') && !history.rules.contains("reserve") && remaining < 100 {
                    // What remains is admitted, and no more.
                    let more = history.replay(index + 1).decide(&format!("a=x +{}", remaining + 1), after.now);
                    prop_assert_eq!(more.0, Code::OverLimit, "{} more than remain after {}", text, index);
                    if remaining > 0 {
                        let rest = history.replay(index + 1).decide(&format!("a=x +{remaining}"), after.now);
                        prop_assert_eq!(rest.0, Code::Ok, "what remains after {} at {}", text, index);
                    }
                }
                continue;
            }
            let wait = wait.expect("one of them denies");
            let until = |nanos: u64| after.now.saturating_add_nanos(nanos);
            match wait {
                Reset::After(wait) => {
                    let nanos = u64::try_from(wait.as_nanos()).expect("a short wait");
                    prop_assert!(nanos > 0);
                    let early = history.replay(index + 1).decide(text, until(nanos - 1));
                    prop_assert_eq!(early.0, Code::OverLimit, "{} at {}, before {:?}: {:?}", text, index, wait, early.1);
                    let then = history.replay(index + 1).decide(text, until(nanos));
                    prop_assert_eq!(then.0, Code::Ok, "{} at {}, after {:?}: {:?}", text, index, wait, then.1);
                }
                Reset::Never => {
                    for secs in [1, 10, 100, 10_000, 1_000_000] {
                        let later = history.replay(index + 1).decide(text, until(secs * 1_000_000_000));
                        prop_assert_eq!(later.0, Code::OverLimit, "{} at {}, after {} s", text, index, secs);
                    }
                }
            }
        }
    }
}

/// The second limit denies for 10 s; its denial fills the first limit, which then denies for an hour.
#[test]
fn a_wait_includes_what_its_denial_has_charged() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limits:
      - {name: hourly, unit: hour, requests_per_unit: 2, charge: always, algorithm: sliding_log}
      - {name: burst, per: 10s, requests_per_unit: 1, algorithm: sliding_log}
  - {key: b, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: sliding_log}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 2, charge: always, algorithm: sliding_log}}
",
    );
    check(
        &limiter,
        &[
            (0, "a=x", &["ok 0"]),
            (0, "a=x", &["over 0 3600000"]),
            (3_599_999, "a=x ?", &["over 0 1"]),
            (3_600_000, "a=x", &["ok 0"]),
        ],
    );
    // The same across descriptors.
    check(
        &limiter,
        &[
            (0, "b=x; c=x", &["ok 0", "ok 1"]),
            (0, "b=x; c=x", &["over 0 3600000", "ok 0"]),
            (3_600_000, "b=x; c=x", &["ok 0", "ok 1"]),
        ],
    );
}

/// The denial fills the only quota, which then denies by itself.
#[test]
fn a_wait_includes_a_quota_that_its_denial_has_charged() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: b, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: sliding_log}}
  - {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2, charge: always, algorithm: sliding_log}}
  - {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2, algorithm: sliding_log}}
",
    );
    check(
        &limiter,
        &[
            (0, "b=x; q=x", &["ok 0", "ok 1"]),
            (0, "b=x; q=x", &["over 0 3600000", "ok 0"]),
            // Another quota admits then.
            (0, "b=x; q=y; r=y", &["over 0 10000", "ok 1", "ok 2"]),
            (3_600_000, "b=x; q=x", &["ok 0", "ok 1"]),
        ],
    );
}

/// A peek of a banned key stated the end of the ban, at which the estimate did not fit.
#[test]
fn a_peek_of_a_banned_key_waits_for_the_estimate_of_a_start() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: {per: 10s, requests_per_unit: 4, algorithm: sliding_log, reserve: 3, ban: {after: 1, within: 10s, for: 5s}}
",
    );
    let mut wanted = Request::new("d");
    wanted.push(descriptor("a=x"));
    let at = |millis| Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
    assert_eq!(limiter.pin().decide(&wanted, at(0)).code, Code::Ok);
    check(
        &limiter,
        &[
            (1, "a=x", &["over 0 9999"]),
            (1, "a=x ?", &["over 0 9999"]),
            (5_001, "a=x ?", &["over 1 4999"]),
            (10_000, "a=x ?", &["ok 4"]),
        ],
    );
}

/// The estimate is at most the limit, which the schedule changes: a caller that waited for the smaller estimate was denied.
#[test]
fn a_wait_across_a_change_of_the_schedule_is_for_the_estimate_of_its_end() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit:
      per: 40s
      requests_per_unit: 5
      algorithm: sliding_log
      reserve: 4
      schedule: [{hours: '00:00-00:01', days: wed, requests_per_unit: 2}]
",
    );
    let mut wanted = Request::new("d");
    wanted.push(descriptor("a=x"));
    let at = |millis| Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
    assert_eq!(limiter.pin().decide(&wanted, at(30_000)).code, Code::Ok);
    // Two hits are held until 1:10. From 1:00 on four do not fit beside them.
    check(&limiter, &[(40_000, "a=x", &["over 0 30000"]), (40_000, "a=x ?", &["over 0 30000"])]);
    assert_eq!(limiter.pin().decide(&wanted, at(69_999)).code, Code::OverLimit);
    assert_eq!(limiter.pin().decide(&wanted, at(70_000)).code, Code::Ok);
}

/// The hits that can be given back are fewer while an estimate is open: the stated wait was the end of its hits, not its deadline.
#[test]
fn a_wait_ends_when_the_hits_of_an_open_estimate_can_be_given_back() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: {per: 10s, requests_per_unit: 5, algorithm: sliding_log, reserve: 3, max_hold: 7s}
",
    );
    check(
        &limiter,
        &[
            (0, "a=x", &["ok 2"]),
            (0, "a=x -1; a=x", &["ok 2", "over 2 7000"]),
            (6_999, "a=x -1; a=x", &["ok 2", "over 2 1"]),
            (7_000, "a=x -1; a=x", &["ok 0", "ok 0"]),
        ],
    );
}
