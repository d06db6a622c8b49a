//! Bans: which denials count, when one begins and ends, and what it does to other limits of a request.

use super::*;
use crate::{
    limit::{BanPhase, RequestLimits},
    store::OnFull,
};
use proptest::{collection::vec, prelude::*};

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
fn a_denied_key_that_is_not_denied_often_enough_is_not_banned() {
    let limiter = limiter(RULES);
    for second in (0..60).step_by(5) {
        let millis = second * 1_000;
        check(&limiter, &[(millis, "user=a +2", &["ok 0"]), (millis, "user=a", &["over 0 1000"])]);
    }
}

#[test]
fn only_denials_by_the_limit_itself_count() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "other=x", &["ok 0"])]);
    for _ in 0..5 {
        check(&limiter, &[(0, "user=a; other=x", &["ok 2", "over 0 1000"])]);
    }
    // Peeks are no requests that were denied.
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

#[test]
fn a_reset_lifts_a_ban_and_a_reload_keeps_it() {
    let limiter = limiter(RULES);
    let ban = |limiter: &Limiter, millis| (0..6).for_each(|_| _ = send(limiter, millis, "user=a"));
    ban(&limiter, 0);
    replace_rules(
        &limiter,
        &RULES.replace("for: 60s", "for: 5s").replace("requests_per_unit: 2", "requests_per_unit: 9"),
    );
    check(&limiter, &[(50_000, "user=a", &["over 0 10000"])]);
    let mut request = Request::new("d");
    request.push(descriptor("user=a"));
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS + 50_000);
    assert_eq!(limiter.pin().reset(&request, now).map(|removed| removed.counters), Ok(2));
    check(&limiter, &[(50_000, "user=a", &["ok 8"])]);
    replace_rules(&limiter, RULES);
    ban(&limiter, 70_000);
    assert_eq!(limiter.pin().reset_rule("d", Some("user"), now).map(|removed| removed.counters), Ok(2));
    check(&limiter, &[(70_000, "user=a", &["ok 1"])]);
    ban(&limiter, 80_000);
    replace_rules(&limiter, &RULES.replace(", ban: { after: 3 denials, within: 10s, for: 60s }", ""));
    check(&limiter, &[(81_000, "user=a", &["ok 1"])]);
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

    /// It came back with its old end when the rules had a ban again.
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
            // Nor do the denials count that were before.
            check(&limiter, &[(20_001, "user=a", &["over 0 999"]), (20_002, "user=a", &["over 0 998"])]);
            check(&limiter, &[(20_003, "user=a", &["over 0 60000"])]);
            // And so each time.
            replace_rules(&limiter, &without_ban());
            replace_rules(&limiter, RULES);
            check(&limiter, &[(30_000, "user=a", &["ok 1"])]);
        }
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

/// There a peek of a key at its limit is OK otherwise.
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

proptest! {
    /// Against lists of all hits and denials; with limits beside, so that denials by others occur.
    #[test]
    fn a_ban_is_that_of_a_naive_list_and_its_reset_is_exact(
        after in 1..4_u32,
        steps in vec((prop_oneof![3 => 0..600_u64, 1 => 4_000..9_000_u64], 1..4_u64, any::<bool>()), 1..60),
    ) {
        let limiter = limiter(&format!("
domain: d
descriptors:
  - key: user
    rate_limit: {{ per: 1s, requests_per_unit: 3, algorithm: sliding_log, ban: {{ after: {after}, within: 2s, for: 5s }} }}
  - key: other
    rate_limit: {{ per: 1s, requests_per_unit: 4, algorithm: sliding_log }}
"));
        let (mut hits_of, mut others): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let (mut denials, mut banned_until, mut now): (Vec<u64>, u64, u64) = (Vec::new(), 0, 0);
        for (wait, hits, with_other) in steps {
            now += wait;
            let text = if with_other { format!("user=a +{hits}; other=x") } else { format!("user=a +{hits}") };
            hits_of.retain(|hit| hit + 1_000 > now);
            others.retain(|hit| hit + 1_000 > now);
            let is_banned = now < banned_until;
            let is_over = hits_of.len() as u64 + hits > 3;
            let other_is_over = with_other && others.len() == 4;
            let (code, statuses) = send(&limiter, now, &text);
            let denied = is_banned || is_over || other_is_over;
            prop_assert_eq!(code == Code::OverLimit, denied);
            prop_assert_eq!(statuses[0].starts_with("over"), is_banned || is_over);
            if !denied {
                hits_of.extend((0..hits).map(|_| now));
                others.extend(with_other.then_some(now));
            } else if is_over && !is_banned {
                denials.retain(|denial| denial + 2_000 > now);
                denials.push(now);
                if denials.len() >= after as usize {
                    (banned_until, denials) = (now + 5_000, Vec::new());
                }
            }
            if (is_banned || is_over) && hits <= 3 {
                // When the ban has ended and enough of the hits that count do not any more.
                let excess = (hits_of.len() as u64 + hits).saturating_sub(3) as usize;
                let free = if excess == 0 { now } else { hits_of[excess - 1] + 1_000 };
                let reset = free.max(banned_until) - now;
                let shown = format!(" {reset}");
                prop_assert!(statuses[0].ends_with(&shown), "{}, not {}", statuses[0], reset);
            }
        }
    }
}
