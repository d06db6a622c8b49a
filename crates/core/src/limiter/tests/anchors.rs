//! Windows of a calendar that begin on the day which an entry of the descriptor states.

use super::*;
use crate::rules::{OverrideAction, OverrideLimit, OverrideRule};

const DAY: u64 = 86_400_000;

const BILLING: &str = "
domain: d
descriptors:
  - key: customer
    descriptors:
      - key: billing_day
        rate_limit: { requests_per_unit: 3, algorithm: fixed_window, calendar: { month: { entry: billing_day } } }
";

/// On a Wednesday, 15 November.
#[test]
fn each_key_has_the_windows_of_its_own_day() {
    let limiter = limiter(BILLING);
    check(
        &limiter,
        &[
            (0, "customer=a,billing_day=17 +3", &["ok 0"]),
            (0, "customer=a,billing_day=17", &["over 0 172800000"]),
        ],
    );
    let wait = |days: u64| format!("over 0 {}", days * DAY);
    check(
        &limiter,
        &[
            (0, "customer=b,billing_day=31 +3", &["ok 0"]),
            (0, "customer=b,billing_day=31", &[&wait(15)]),
            (0, "customer=c,billing_day=15 +3", &["ok 0"]),
            (0, "customer=c,billing_day=15", &[&wait(30)]),
            // The same customers, when the window of the first has ended.
            (2 * DAY - 1, "customer=a,billing_day=17", &["over 0 1"]),
            (2 * DAY, "customer=a,billing_day=17", &["ok 2"]),
            (2 * DAY, "customer=b,billing_day=31", &[&wait(13)]),
        ],
    );
}

#[test]
fn a_value_that_is_no_day_is_limited_by_months_from_the_first_and_named() {
    let limiter = limiter(BILLING);
    let december = format!("over 0 {}", 16 * DAY);
    for value in ["", "0", "32", "seventeen", "17 06:00"] {
        let entries = format!("customer=a,billing_day={value}");
        let mut request = Request::new("d");
        request.push(descriptor("customer=a,billing_day=3 ?"));
        let mut invalid = descriptor("customer=a,billing_day=3");
        invalid.entries[1].value = value;
        invalid.hits = Hits::Take(NonZeroU64::new(3).unwrap());
        request.push(invalid.clone());
        let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, now);
        assert_eq!((decision.code, shown(&decision)), (Code::Ok, vec!["ok 3".into(), "ok 0".into()]));
        assert_eq!(decision.rare.expect("an unknown day").unknown_days, [1], "{entries}");
        let mut request = Request::new("d");
        invalid.hits = Hits::ONE;
        request.push(invalid);
        assert_eq!(shown(&pinned.decide(&request, now)), std::slice::from_ref(&december), "{entries}");
    }
    let mut request = Request::new("d");
    request.push(descriptor("customer=a,billing_day=3"));
    let decided = limiter.pin().decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS)).rare.is_none();
    assert!(decided, "a day is known");
}

#[test]
fn a_key_is_banned_whatever_the_day_of_its_windows() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: day
    rate_limit:
      algorithm: fixed_window
      calendar: { month: { entry: day } }
      requests_per_unit: 1
      ban: { after: 2 denials, within: 1m, for: 60d }
",
    );
    for day in ["17", "no-day"] {
        let request = format!("day={day}");
        (0..3).for_each(|_| _ = send(&limiter, 0, &request));
        // Also when the next window has begun.
        let banned = format!("over 0 {}", 40 * DAY);
        check(&limiter, &[(20 * DAY, &request, &[&banned])]);
    }
}

#[test]
fn weeks_and_years_begin_on_the_day_of_an_entry_too() {
    let rules = |period: &str| {
        let calendar = format!("calendar: {{ {period}: {{ entry: k }} }}");
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ requests_per_unit: 1, algorithm: fixed_window, {calendar} }}\n"
        )
    };
    let wait = |days: u64| format!("over 0 {}", days * DAY);
    for (period, value, days) in
        [("week", "Friday", 2), ("week", "mon", 5), ("year", "11-20", 5), ("year", "02-29", 106)]
    {
        let limiter = limiter(&rules(period));
        let request = format!("k={value}");
        check(&limiter, &[(0, &request, &["ok 0"]), (0, &request, &[&wait(days)])]);
    }
}

#[test]
fn a_reload_that_adds_or_removes_the_entry_keeps_used_hits() {
    let fixed = BILLING.replace("{ entry: billing_day }", "20");
    let limiter = limiter(&fixed);
    let key = "customer=a,billing_day=17";
    check(
        &limiter,
        &[
            (0, "customer=a,billing_day=17 +2", &["ok 1"]),
            (0, "customer=a,billing_day=17 +3", &[&format!("over 1 {}", 5 * DAY)]),
        ],
    );
    replace_rules(&limiter, BILLING);
    check(&limiter, &[(0, key, &["ok 0"]), (0, key, &[&format!("over 0 {}", 2 * DAY)])]);
    // Another number is another limit: the window stays that of the key.
    replace_rules(&limiter, &BILLING.replace("unit: 3", "unit: 4"));
    check(&limiter, &[(DAY, key, &["ok 0"]), (DAY, key, &[&format!("over 0 {DAY}")])]);
    replace_rules(&limiter, &fixed);
    check(&limiter, &[(DAY, key, &[&format!("over 0 {}", 4 * DAY)])]);
}

#[test]
fn an_override_keeps_the_day_of_the_key() {
    let limiter = limiter(BILLING);
    let key = "customer=a,billing_day=17";
    check(&limiter, &[(0, "customer=a,billing_day=17 +3", &["ok 0"])]);
    let limits = vec![OverrideLimit::new(4, "month", None, None).expect("valid")];
    let entries = vec![("customer".into(), "a".into()), ("billing_day".into(), "17".into())];
    let rule =
        OverrideRule { id: "o".into(), domain: "d".into(), entries, action: OverrideAction::Limits(limits) };
    put_overlays(&limiter, BILLING, vec![Source::of_override(rule)]);
    check(&limiter, &[(0, key, &["ok 0"]), (0, key, &[&format!("over 0 {}", 2 * DAY)])]);
}
