//! Bans over restarts.

use super::*;

const BANNED: &str = "domain: d\ndescriptors:\n- key: user\n  rate_limit: {unit: second, requests_per_unit: 1, \
                      ban: {after: 1, within: 1m, for: 1h}}\n";

fn second(after: u64) -> Timestamp {
    start_of_time().saturating_add_nanos(after * 1_000_000_000)
}

/// The response to a hit.
fn code(limiter: &Limiter, now: Timestamp) -> Code {
    let mut request = Request::new("d");
    let entries = [Entry { key: "user", value: "ann" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    limiter.pin().decide(&request, now).code
}

#[test]
fn a_ban_outlives_a_restart_and_ends_when_it_was_to_end() {
    let rules = "domain: d\ndescriptors:\n- key: user\n  rate_limit: {per: 1s, requests_per_unit: 1, algorithm: fixed_window, \
                 ban: {after: 2, within: 10s, for: 1h}}\n";
    let decide = |limiter: &Limiter, after| code(limiter, second(after));
    let disk = SimulatedDisk::default();
    let (before, mut writer, _) = start(disk.clone(), rules, second(0)).unwrap();
    (0..3).for_each(|_| _ = decide(&before, 0));
    pass(&mut writer, &before, second(0)).unwrap();
    let (after, mut writer, _) = start(disk.clone(), rules, second(10)).unwrap();
    assert_eq!((decide(&after, 3_599), decide(&after, 3_600)), (Code::OverLimit, Code::Ok));
    // The denials before a ban are in the snapshot too.
    (0..2).for_each(|_| _ = decide(&after, 4_000));
    pass(&mut writer, &after, second(4_000)).unwrap();
    let (again, ..) = start(disk, rules, second(4_001)).unwrap();
    assert_eq!(
        [decide(&again, 4_001), decide(&again, 4_001), decide(&again, 4_003)],
        [Code::Ok, Code::OverLimit, Code::OverLimit]
    );
}

/// The ban was in force again at the third start.
#[test]
fn a_ban_that_the_rules_of_a_restart_do_not_have_is_over_when_later_ones_have_it_again() {
    let with = BANNED;
    let without = with.replace(", ban: {after: 1, within: 1m, for: 1h}", "");
    let disk = SimulatedDisk::default();
    let mut now = start_of_time();
    for (rules, expected) in [(with, Code::OverLimit), (&*without, Code::Ok), (with, Code::Ok)] {
        let (limiter, mut writer, _) = start(disk.clone(), rules, now).expect("it starts");
        limiter.drop_ended_bans();
        if now == start_of_time() {
            assert_eq!(code(&limiter, now), Code::Ok);
            assert_eq!(code(&limiter, now), Code::OverLimit);
        }
        now = now.saturating_add_nanos(10_000_000_000);
        assert_eq!(code(&limiter, now), expected, "{rules}");
        let clock = ManualClock::new(now);
        writer.pass(limiter.store(), limiter.rules().limits(), &clock).expect("memory takes it");
    }
}

fn put_in_force(limiter: &Limiter, rules: &str) {
    let source = Source::file("rules.yaml", rules);
    let next = limiter.update_rules().build(&[source], &LoadOptions::default());
    drop(next.expect("the test's rules are good").put_in_force());
}

/// A start without its rules dropped all bans, and the rules that it awaited began other ones.
#[test]
fn a_ban_outlives_a_start_that_awaits_its_rules() {
    let disk = SimulatedDisk::default();
    let (before, mut writer, _) = start(disk.clone(), BANNED, second(0)).expect("it starts");
    assert_eq!((code(&before, second(0)), code(&before, second(0))), (Code::Ok, Code::OverLimit));
    pass(&mut writer, &before, second(0)).expect("memory takes it");

    let (limiter, mut writer, _) = start(disk.clone(), "domain: other", second(10)).expect("it starts");
    pass(&mut writer, &limiter, second(10)).expect("memory takes it");
    put_in_force(&limiter, BANNED);
    assert_eq!(limiter.drop_ended_bans(), 0);
    assert_eq!((code(&limiter, second(3_599)), code(&limiter, second(3_600))), (Code::OverLimit, Code::Ok));

    // Without rules that have it, it is over.
    let (limiter, ..) = start(disk, "domain: other", second(20)).expect("it starts");
    assert_eq!(limiter.drop_ended_bans(), 1);
    put_in_force(&limiter, BANNED);
    assert_eq!(code(&limiter, second(30)), Code::Ok);
}
