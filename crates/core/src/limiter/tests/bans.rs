//! Bans: which denials count, and how a ban affects other limits of a request. Its beginning and end are tested in `algorithm/ban.rs`, and
//! whole decisions with bans by the simulator (`tests/sim`).

use super::*;
use crate::{limit::BanPhase, store::OnFull};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { per: 1s, requests_per_unit: 2, algorithm: fixed_window, ban: { after: 3 denials, within: 10s, for: 60s } }
  - key: other
    rate_limit: { per: 1s, requests_per_unit: 1, algorithm: fixed_window }
  - key: trial
    shadow_mode: true
    rate_limit: { per: 1s, requests_per_unit: 1, algorithm: fixed_window, ban: { after: 2, within: 10s, for: 60s } }
";

#[test]
fn a_key_that_goes_on_is_banned_until_exactly_the_end_of_its_ban() {
    let limiter = limiter(RULES);
    check(
        &limiter,
        &[
            (0, "user=a +2", &["ok 0"]),
            (100, "user=a", &["over 0 900"]),
            (200, "user=a", &["over 0 800"]),
            // The third denial begins the ban: waiting for the window is not enough.
            (300, "user=a", &["over 0 60000"]),
            (1_000, "user=a", &["over 0 59300"]),
            (1_000, "user=b", &["ok 1"]),
            (1_000, "user=a ?", &["over 0 59300"]),
            (60_299, "user=a", &["over 0 1"]),
            (60_300, "user=a", &["ok 1"]),
            // Denials before and during the ban do not count after it.
            (60_300, "user=a", &["ok 0"]),
            (60_300, "user=a", &["over 0 700"]),
            (60_300, "user=a", &["over 0 700"]),
            (61_000, "user=a", &["ok 1"]),
        ],
    );
}

#[test]
fn only_denials_by_the_limit_itself_count() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "other=x", &["ok 0"])]);
    for _ in 0..5 {
        check(&limiter, &[(0, "user=a; other=x", &["ok 2", "over 0 1000"])]);
    }
    // A peek is no denied request.
    check(&limiter, &[(0, "user=a +2", &["ok 0"])]);
    for _ in 0..5 {
        check(&limiter, &[(0, "user=a ?", &["over 0 1000"])]);
    }
    check(
        &limiter,
        &[(0, "user=a", &["over 0 1000"]), (0, "user=a; user=a +9", &["over never", "over never"])],
    );
    check(&limiter, &[(0, "user=a", &["over 0 60000"])]);
}

#[test]
fn a_ban_charges_no_sibling_and_gives_back_what_the_client_gives_back() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "user=a +2", &["ok 0"])]);
    (0..3).for_each(|_| _ = send(&limiter, 0, "user=a"));
    check(
        &limiter,
        &[
            (2_000, "user=a; other=x", &["over 0 58000", "ok 1"]),
            (2_000, "other=x", &["ok 0"]),
            (2_000, "user=a -1", &["ok 2"]),
        ],
    );
}

#[test]
fn hits_that_never_fit_never_do_after_the_ban_either() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "user=a +3", &["over never"]), (0, "user=a +3", &["over never"])]);
    check(&limiter, &[(0, "user=a +3", &["over never"]), (0, "user=a", &["over 0 60000"])]);
}

#[test]
fn a_ban_in_shadow_mode_is_reported_and_denies_nothing() {
    let limiter = limiter(RULES);
    let phases: Vec<_> = [0, 0, 0, 5_000, 60_000]
        .into_iter()
        .map(|millis| {
            let mut request = Request::new("d");
            request.push(descriptor("trial=a"));
            let pinned = limiter.pin();
            let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
            (decision.code, decision.statuses[0].is_over, decision.statuses[0].ban)
        })
        .collect();
    let ok = Code::Ok;
    let expected = [
        (ok, false, BanPhase::None),
        (ok, true, BanPhase::None),
        (ok, true, BanPhase::Begins),
        (ok, true, BanPhase::InForce),
        (ok, false, BanPhase::None),
    ];
    assert_eq!(phases, expected);
}

/// The table in docs/rules-reference.md, row by row: what becomes of a ban from 0 to 60 s.
mod after_changes {
    use super::*;
    use crate::rules::{OverrideAction, OverrideLimit, OverrideRule, SourceId};

    fn banned() -> Limiter {
        let limiter = limiter(RULES);
        (0..6).for_each(|_| _ = send(&limiter, 0, "user=a"));
        check(&limiter, &[(1_000, "user=a", &["over 0 59000"])]);
        limiter
    }

    fn without_ban() -> String {
        RULES.replace(", ban: { after: 3 denials, within: 10s, for: 60s }", "")
    }

    fn put_override(limiter: &Limiter) {
        let limits = vec![OverrideLimit::new(10, "1s", None, None).expect("valid")];
        let (entries, action) = (vec![("user".into(), "a".into())], OverrideAction::Limits(limits));
        let rule = OverrideRule { id: "o".into(), domain: "d".into(), entries, action };
        put_overlays(limiter, RULES, vec![Source::of_override(rule)]);
    }

    #[test]
    fn a_reload_that_changes_other_rules_or_the_number_of_the_limit_keeps_it() {
        let limiter = banned();
        replace_rules(&limiter, &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
        check(&limiter, &[(59_999, "user=a", &["over 0 1"]), (60_000, "user=a", &["ok 8"])]);
    }

    #[test]
    fn a_reload_that_changes_the_ban_keeps_its_end() {
        let limiter = banned();
        replace_rules(&limiter, &RULES.replace("for: 60s", "for: 5s").replace("after: 3", "after: 1"));
        check(&limiter, &[(59_999, "user=a", &["over 0 1"]), (60_000, "user=a", &["ok 1"])]);
    }

    /// The ban came back with its old end once the rules had a ban again.
    #[test]
    fn a_reload_that_removes_the_ban_ends_it_for_good() {
        for is_asked_meanwhile in [false, true] {
            let limiter = banned();
            replace_rules(&limiter, &without_ban());
            if is_asked_meanwhile {
                check(&limiter, &[(10_000, "user=a", &["ok 1"])]);
            }
            replace_rules(&limiter, &RULES.replace("for: 60s", "for: 1m"));
            check(&limiter, &[(20_000, "user=a +2", &["ok 0"])]);
            // Earlier denials do not count either.
            check(&limiter, &[(20_001, "user=a", &["over 0 999"]), (20_002, "user=a", &["over 0 998"])]);
            check(&limiter, &[(20_003, "user=a", &["over 0 60000"])]);
            // The same each time.
            replace_rules(&limiter, &without_ban());
            replace_rules(&limiter, RULES);
            check(&limiter, &[(30_000, "user=a", &["ok 1"])]);
        }
    }

    /// Snapshots kept the ban's counter, and a start with a ban in its rules read it as its own.
    #[test]
    fn a_reload_that_removes_the_ban_drops_its_counters() {
        let limiter = banned();
        assert_eq!(limiter.store().counters(), 2);
        replace_rules(&limiter, &without_ban());
        assert_eq!(limiter.store().counters(), 1);
    }

    #[test]
    fn a_reload_that_removes_the_rule_ends_it_for_good() {
        let limiter = banned();
        replace_rules(&limiter, "domain: d\ndescriptors: [{ key: other }]\n");
        replace_rules(&limiter, RULES);
        check(&limiter, &[(20_000, "user=a", &["ok 1"])]);
    }

    #[test]
    fn an_override_lifts_it_for_as_long_as_the_override_is_in_force() {
        let limiter = banned();
        put_override(&limiter);
        check(&limiter, &[(10_000, "user=a", &["ok 9"])]);
        put_overlays(&limiter, RULES, Vec::new());
        check(&limiter, &[(20_000, "user=a", &["over 0 40000"]), (60_000, "user=a", &["ok 1"])]);
    }

    #[test]
    fn a_block_counts_no_denials_and_the_ban_keeps_its_end() {
        let limiter = banned();
        let blocks = Source::new(SourceId::Blocks("blocks".into()), "user=a\nuser=b\n");
        put_overlays(&limiter, RULES, vec![blocks]);
        check(&limiter, &[(10_000, "user=a", &["over never"])]);
        (0..9).for_each(|n| check(&limiter, &[(10_000 + n, "user=b", &["over never"])]));
        put_overlays(&limiter, RULES, Vec::new());
        check(&limiter, &[(20_000, "user=b", &["ok 1"]), (20_000, "user=a", &["over 0 40000"])]);
        check(&limiter, &[(60_000, "user=a", &["ok 1"])]);
    }

    #[test]
    fn denials_by_an_override_begin_no_ban() {
        let limiter = limiter(RULES);
        put_override(&limiter);
        (0..6).for_each(|_| _ = send(&limiter, 0, "user=a +9"));
        put_overlays(&limiter, RULES, Vec::new());
        check(&limiter, &[(1_000, "user=a", &["ok 1"])]);
    }

    #[test]
    fn a_reload_without_the_ban_under_an_override_ends_it_for_good() {
        let limiter = banned();
        put_override(&limiter);
        replace_rules(&limiter, &without_ban());
        replace_rules(&limiter, RULES);
        check(&limiter, &[(20_000, "user=a", &["ok 1"])]);
    }

    #[test]
    fn a_reset_of_the_key_or_of_the_rule_ends_it_for_good() {
        let now = Timestamp::from_millis(MIDNIGHT_MILLIS + 10_000);
        let limiter = banned();
        assert_eq!(limiter.pin().reset_rule("d", Some("user"), now).map(|removed| removed.counters), Ok(2));
        check(&limiter, &[(10_000, "user=a", &["ok 1"])]);
        let mut request = Request::new("d");
        request.push(descriptor("user=a"));
        let limiter = banned();
        put_override(&limiter);
        limiter.pin().reset(&request, now).expect("a known domain");
        put_overlays(&limiter, RULES, Vec::new());
        check(&limiter, &[(10_000, "user=a", &["over 0 50000"])]);
    }
}

#[test]
fn service_limits_of_a_banned_key_are_used_up_until_the_end_of_the_ban() {
    let limiter = limiter(RULES);
    (0..5).for_each(|_| _ = send(&limiter, 0, "user=a"));
    let mut request = Request::new("d");
    request.push(descriptor("user=a"));
    let pinned = limiter.pin();
    let limits = pinned.service_limits(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + 10_000));
    let shown: Vec<_> = limits
        .iter()
        .map(|limit| (limit.quota, limit.available, limit.effective_window, limit.banned_for))
        .collect();
    let left = Duration::from_secs(50);
    assert_eq!(shown, [(2, 0, Reset::After(left), Some(left))]);
}

/// With these semantics, a peek of a key at its limit is otherwise OK.
#[test]
fn a_peek_of_a_banned_key_is_denied_with_the_references_semantics_too() {
    let limiter = limiter_of(RULES, Semantics::Reference, 1000, OnFull::Deny);
    check(&limiter, &[(0, "user=a +2", &["ok 0"]), (0, "user=a ?", &["ok 0"])]);
    (0..3).for_each(|_| _ = send(&limiter, 300, "user=a"));
    check(
        &limiter,
        &[
            (300, "user=a ?", &["over 0 60000"]),
            (1_500, "user=a ?", &["over 0 58800"]),
            (1_500, "user=a", &["over 0 58800"]),
            (1_500, "user=b ?", &["ok 2"]),
            (60_300, "user=a ?", &["ok 2"]),
            (60_300, "user=a", &["ok 1"]),
        ],
    );
    let phase = |millis| {
        let mut request = Request::new("d");
        request.push(descriptor("user=a ?"));
        let pinned = limiter.pin();
        pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + millis)).statuses[0].ban
    };
    assert_eq!([1_500, 60_299, 60_300].map(phase), [BanPhase::InForce, BanPhase::InForce, BanPhase::None]);
}

/// Without room for the counter of denials, a denial is not counted; requests that need no new counter are decided as ever.
#[test]
fn a_full_store_neither_bans_nor_denies_more() {
    let limiter = limiter_of(RULES, Semantics::Exact, 1, OnFull::Deny);
    check(&limiter, &[(0, "user=a +2", &["ok 0"])]);
    (0..9).for_each(|_| check(&limiter, &[(0, "user=a", &["over 0 1000"])]));
    check(&limiter, &[(1_000, "user=a", &["ok 1"])]);
    check(&limiter, &[(1_000, "user=b", &["over full"])]);
}
