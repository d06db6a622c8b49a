//! A replay as scenarios: the counts, the keys, the worst minute and the waits follow from events and rules.

use super::{
    CancelledStep, Event, EventDescriptor, LoggedSource, Place, RecordedStatus, Replay, Report, RulesStep,
    Step, StepRef,
};
use std::time::Duration;
use tidegate_core::{
    limit::{Code, Hits, Reset, Timestamp},
    limiter::Compat,
    rules::{LoadOptions, RuleSet, Semantics, Source},
};

/// An admitted hit of a user, with no limit recorded.
pub(super) fn event(time: u64, key: &str, value: &str) -> Event {
    let recorded = RecordedStatus { code: Code::Ok, remaining: 0, reset: None, rule: None };
    let entries = vec![(key.into(), value.into())];
    Event {
        time: Timestamp::from_nanos(time),
        place: None,
        is_report: false,
        domain: "d".into(),
        descriptors: vec![EventDescriptor {
            entries,
            hits: Hits::ONE,
            own_limit: None,
            recorded: Some(recorded),
        }],
        code: Code::Ok,
        sample: 1.0,
        is_hashed: false,
        ticket: None,
    }
}

fn record(event: &mut Event) -> &mut RecordedStatus {
    event.descriptors[0].recorded.as_mut().expect("a status")
}

fn rules(limit: u32) -> RuleSet {
    let text = format!(
        "{{domain: d, descriptors: [{{key: user, rate_limit: {{unit: minute, requests_per_unit: {limit}, algorithm: fixed_window}}}}]}}"
    );
    RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn replayed(proposed: u32, current: Option<u32>, events: &[Event]) -> Report {
    let mut replay = Replay::new(rules(proposed), current.map(rules), 1_000);
    events.iter().for_each(|event| replay.replay(event));
    replay.into_report().0
}

const SECOND: u64 = 1_000_000_000;

/// Four hits of `a` and one of `b` in the first minute, three of `a` in the second.
fn two_minutes() -> Vec<Event> {
    let of = |second: u64, user: &str| event(second * SECOND, "user", user);
    vec![of(0, "a"), of(1, "a"), of(2, "b"), of(3, "a"), of(10, "a"), of(60, "a"), of(61, "a"), of(90, "a")]
}

#[test]
fn a_lower_limit_denies_by_key_and_minute() {
    let report = replayed(1, Some(3), &two_minutes());
    assert_eq!(report.requests, 8);
    assert_eq!((report.proposed.admitted, report.proposed.denied), (3, 5));
    assert_eq!((report.current.admitted, report.current.denied), (7, 1));
    assert_eq!((report.newly_denied, report.newly_admitted), (4, 0));
    assert_eq!(report.keys_newly_denied.all, 1);
    let top = &report.keys_newly_denied.top[0];
    assert_eq!((&*top.key.entries[0].1, top.requests), ("a", 4));
    assert!((top.per_minute - 4.0 / 1.5).abs() < 1e-9, "{} in 90 s", top.per_minute);
    let worst = report.proposed.worst_minute.expect("a minute");
    assert_eq!((worst.start, worst.requests, worst.denied), (Timestamp::EPOCH, 5, 3));
    assert_eq!(report.proposed.longest_wait, Some(Duration::from_secs(59)), "from 0:01 to 1:00");
    let rule = &report.rules[0];
    assert_eq!(
        (&*rule.rule, rule.proposed.all, rule.proposed.denied, rule.current.denied),
        ("user", 8, 5, 1)
    );
    assert!((rule.proposed.of_denied() - 5.0 / 8.0).abs() < 1e-9);
}

#[test]
fn a_higher_limit_admits_what_was_denied() {
    let report = replayed(3, Some(1), &two_minutes());
    assert_eq!((report.newly_denied, report.newly_admitted), (0, 4));
    assert_eq!((report.keys_newly_denied.all, report.keys_newly_admitted.all), (0, 1));
}

#[test]
fn the_same_rules_change_no_response() {
    let report = replayed(2, Some(2), &two_minutes());
    assert_eq!((report.newly_denied, report.newly_admitted, report.responses_changed), (0, 0, 0));
    let report = replayed(2, Some(3), &two_minutes());
    assert_eq!(report.responses_changed, 7, "all but the hit that both deny");
}

#[test]
fn the_estimated_wait_of_a_request_that_is_denied_a_slot_is_not_compared() {
    let text = "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1, \
                max_hold: 1m, max_wait: 0s}}]}";
    let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).expect("good");
    let of = |code: Code, remaining: u32, secs: u64| {
        let mut event = event(0, "user", "a");
        event.code = code;
        let reset = Some(Reset::After(Duration::from_secs(secs)));
        *record(&mut event) = RecordedStatus { code, remaining, reset, rule: Some("user".into()) };
        event
    };
    let changed = |events: [Event; 2]| {
        let mut replay = Replay::new(rules.clone(), None, 1_000);
        events.iter().for_each(|event| replay.replay(event));
        replay.into_report().0.responses_changed
    };
    assert_eq!(changed([of(Code::Ok, 0, 60), of(Code::OverLimit, 0, 7)]), 0);
    assert_eq!(changed([of(Code::Ok, 0, 59), of(Code::OverLimit, 0, 60)]), 1, "no estimate");
    assert_eq!(changed([of(Code::Ok, 0, 60), of(Code::OverLimit, 1, 60)]), 1, "others remain");
}

#[test]
fn without_current_rules_the_log_is_the_comparison() {
    let mut events = two_minutes();
    for event in &mut events {
        event.code = Code::OverLimit;
        record(event).code = Code::OverLimit;
    }
    let report = replayed(100, None, &events);
    assert!(report.is_current_recorded);
    assert_eq!((report.current.denied, report.newly_admitted), (8, 8));
    let requests: Vec<u64> = report.keys_newly_admitted.top.iter().map(|key| key.requests).collect();
    assert_eq!(requests, [7, 1], "a, then b");
    let names: Vec<&str> = report.rules.iter().map(|row| &*row.rule).collect();
    assert_eq!(names, ["(no limit)", "user"], "the log has no limit, the rules have one");
}

#[test]
fn time_that_runs_backwards_is_counted_and_decided_at_the_latest_time() {
    let report = replayed(1, Some(1), &[event(61 * SECOND, "user", "a"), event(59 * SECOND, "user", "a")]);
    assert_eq!((report.out_of_order, report.proposed.denied), (1, 1), "not in the minute before");
    assert_eq!(report.last, Some(Timestamp::from_nanos(61 * SECOND)));
}

#[test]
fn numbered_requests_are_out_of_order_by_their_numbers_and_between_processes_by_time() {
    let numbered = |run: u64, number: u64, second: u64| Event {
        place: Some(Place { run, number, generation: 1 }),
        ..event(second * SECOND, "user", "a")
    };
    for (events, expected) in [
        (&[numbered(1, 1, 9), numbered(1, 2, 8), numbered(2, 1, 9), numbered(1, 3, 10)][..], 0),
        (&[numbered(1, 2, 9), numbered(1, 1, 9)], 1),
        (&[numbered(1, 1, 100), numbered(2, 1, 9)], 1),
        (&[numbered(1, 2, 9), numbered(2, 1, 9), numbered(1, 1, 9)], 1),
    ] {
        assert_eq!(replayed(1, None, events).out_of_order, expected, "{events:?}");
    }
}

/// One request each minute, from this place on.
fn put_in_force(place: Place, global_shadow: bool) -> Step {
    let text = "{domain: d, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}";
    let source = Source::file("rules.yaml", text);
    Step::Rules(RulesStep {
        time: Timestamp::from_nanos(place.run),
        place,
        semantics: Semantics::default(),
        default_algorithm: None,
        merge_domains: false,
        global_shadow,
        compat: Compat::default(),
        sources: vec![LoggedSource { id: source.id, sha256: "1".into(), text: Some(text.into()) }],
    })
}

/// Switches of the first process applied to all: each denial of the second was newly admitted.
#[test]
fn decisions_are_replayed_with_the_switches_of_their_process_and_counters_stay() {
    let put_in_force =
        |run: u64, global_shadow: bool| put_in_force(Place { run, number: 0, generation: 1 }, global_shadow);
    let decided = |run: u64, number: u64, code: Code| {
        let place = Some(Place { run, number, generation: 1 });
        Step::Decision(Event { place, code, ..event(10 + number, "user", "a") })
    };
    let mut replay = Replay::as_logged(1_000);
    for step in [
        put_in_force(1, true),
        decided(1, 1, Code::Ok),
        decided(1, 2, Code::Ok),
        put_in_force(2, false),
        decided(2, 3, Code::OverLimit),
        // The first process is still running.
        decided(1, 4, Code::Ok),
        decided(2, 5, Code::OverLimit),
    ] {
        replay.apply(StepRef::Kept(&step)).expect("the rules are good");
    }
    let report = replay.into_report().0;
    assert_eq!((report.newly_denied, report.newly_admitted, report.proposed.denied), (0, 0, 2));
}

/// They were decided by the rules before.
#[test]
fn requests_whose_rules_the_log_lacks_are_not_replayed() {
    let decided = |number: u64, generation: u64| {
        let place = Some(Place { run: 1, number, generation });
        Step::Decision(Event { place, ..event(10 + number, "user", "a") })
    };
    let of = |number: u64, generation: u64| put_in_force(Place { run: 1, number, generation }, false);
    let mut replay = Replay::as_logged(1_000);
    for step in
        [decided(1, 1), of(2, 1), decided(3, 1), decided(4, 2), of(5, 3), decided(6, 2), decided(7, 1)]
    {
        replay.apply(StepRef::Kept(&step)).expect("the rules are good");
    }
    assert_eq!((replay.decided(), replay.without_rules()), (2, 3));
}

#[test]
fn hits_beyond_the_limit_are_never_admitted() {
    let mut event = event(0, "user", "a");
    event.descriptors[0].hits = Hits::Take(5.try_into().unwrap());
    let report = replayed(4, Some(5), &[event]);
    assert_eq!((report.proposed.never_admitted, report.proposed.longest_wait), (1, None));
    assert_eq!(report.newly_denied, 1);
}

/// As after `quota_mode` is removed from a rule.
#[test]
fn a_request_whose_descriptors_are_over_on_both_sides_has_a_key() {
    let mut event = event(0, "user", "a");
    record(&mut event).code = Code::OverLimit;
    let report = replayed(0, None, &[event]);
    assert_eq!((report.newly_denied, report.keys_newly_denied.all), (1, 1));
}

#[test]
fn a_full_store_is_reported() {
    let mut replay = Replay::new(rules(1), None, 2);
    for user in ["a", "b", "c"] {
        replay.replay(&event(0, "user", user));
    }
    assert!(replay.no_room() > 0);
}

#[test]
fn the_ends_in_a_log_end_what_the_replay_has_admitted() {
    let rules = || {
        let text = "{domain: d, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 10, \
                    algorithm: fixed_window, reserve: 6}}]}";
        RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).expect("good rules")
    };
    let start = |ticket: &str| {
        let mut start = event(0, "user", "a");
        start.ticket = Some(ticket.into());
        start
    };
    let end = |ticket: &str, hits: u64| {
        let mut end = event(0, "slot", ticket);
        end.descriptors[0].hits = Hits::new(Some(hits), 1, false);
        end
    };
    // 1 instead of 6; 4 likewise, once; then 6 do not fit, and their end has no effect.
    let events = [
        [start("slot-1"), end("slot-1", 1), start("slot-2"), end("slot-1", 0)],
        [end("slot-2", 4), start("slot-3"), end("slot-3", 0), end("slot-4", 0)],
    ];
    let mut replay = Replay::new(rules(), Some(rules()), 1_000);
    events.iter().flatten().for_each(|event| replay.replay(event));
    let (report, _) = replay.into_report();
    assert_eq!((report.proposed.admitted, report.proposed.denied, report.current.denied), (7, 1, 1));
}

#[test]
fn the_renewals_in_a_log_renew_what_the_replay_has_admitted() {
    let text = "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1, \
                max_hold: 10s, max_wait: 0s}}]}";
    let rules =
        RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).expect("good rules");
    let mut replay = Replay::new(rules, None, 1_000);
    let mut decide = |secs: u64, ticket: Option<&str>, renewed: Option<&str>| {
        let mut event = event(secs * 1_000_000_000, "user", "a");
        event.ticket = ticket.map(Into::into);
        event.descriptors[0].entries.extend(renewed.map(|ticket| ("renew".into(), ticket.into())));
        replay.replay(&event);
    };
    decide(0, Some("slot-1"), None);
    decide(9, None, Some("slot-1"));
    decide(18, None, Some("slot-1"));
    // Denied: the first is held until 28.
    decide(27, Some("slot-2"), None);
    decide(28, Some("slot-3"), None);
    // Denied: it has ended.
    decide(28, None, Some("slot-1"));
    let (report, _) = replay.into_report();
    assert_eq!((report.proposed.admitted, report.proposed.denied), (4, 2));
}

#[test]
fn a_call_that_was_reset_ends_what_each_side_has_admitted_once() {
    let rules = |in_flight: u32| {
        let text = format!(
            "{{domain: d, descriptors: [{{key: user, rate_limit: {{algorithm: concurrency, \
             requests_in_flight: {in_flight}, max_hold: 1h, max_wait: 0s}}}}]}}"
        );
        RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).expect("good rules")
    };
    let mut replay = Replay::new(rules(1), Some(rules(2)), 1_000);
    let start = |replay: &mut Replay, ticket: &str| {
        let mut start = event(0, "user", "a");
        start.ticket = Some(ticket.into());
        replay.replay(&start);
    };
    let cancel = |replay: &mut Replay, ticket: &str| {
        replay.cancel(&CancelledStep { time: Timestamp::from_nanos(1), place: None, ticket: ticket.into() });
    };
    // The proposed limit admits the first and the third. The second had nothing to end.
    ["slot-1", "slot-2"].iter().for_each(|ticket| start(&mut replay, ticket));
    ["slot-2", "slot-2"].iter().for_each(|ticket| cancel(&mut replay, ticket));
    cancel(&mut replay, "slot-1");
    cancel(&mut replay, "slot-7");
    ["slot-3", "slot-4", "slot-5"].iter().for_each(|ticket| start(&mut replay, ticket));
    let (report, _) = replay.into_report();
    assert_eq!((report.proposed.denied, report.current.denied), (3, 1));
}

/// A log of requests with their holds, under a limit of requests in flight. As the holds are known, so is what another limit does.
mod requests_in_flight {
    use super::*;

    const USERS: u64 = 3;
    /// Nanoseconds of a tenth of a second.
    const STEP: u64 = SECOND / 10;

    /// A request of a user: the step at which it is sent, and the steps for which it holds its slot if it is admitted.
    struct Sent {
        at: u64,
        user: u64,
        hold: u64,
    }

    fn sent(hold_of: impl Fn(u64) -> u64) -> Vec<Sent> {
        let mut state = 7_u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % end
        };
        let mut at = 0;
        let mut next = |_| {
            at += below(4);
            let user = below(USERS);
            Sent { at, user, hold: hold_of(below(1 << 20)) }
        };
        (0..4_000).map(&mut next).collect()
    }

    /// Whether each request is admitted, by a list of the requests in flight.
    fn admitted(sent: &[Sent], limit: usize) -> Vec<bool> {
        let mut ends: Vec<(u64, u64)> = Vec::new();
        let admits = |Sent { at, user, hold }: &Sent| {
            ends.retain(|(_, end)| end > at);
            let fits = ends.iter().filter(|(of, _)| of == user).count() < limit;
            if fits {
                ends.push((*user, at + hold));
            }
            fits
        };
        sent.iter().map(admits).collect()
    }

    /// Denials of a limit in a replay of the log that another limit has made.
    fn replayed_denials(sent: &[Sent], logged: usize, proposed: usize) -> u64 {
        let mut events: Vec<Event> = Vec::new();
        for (number, (Sent { at, user, hold }, admitted)) in
            sent.iter().zip(admitted(sent, logged)).enumerate()
        {
            let mut start = event(at * STEP, "user", &user.to_string());
            start.code = if admitted { Code::Ok } else { Code::OverLimit };
            if admitted {
                let ticket = format!("slot-{number}");
                events.push(event((at + hold) * STEP, "slot", &ticket));
                start.ticket = Some(ticket.into());
            }
            events.push(start);
        }
        // If several are at one time, ends are first.
        events.sort_by_key(|event| (event.time, event.descriptors[0].entries[0].0 == "user"));
        let text = format!(
            "{{domain: d, descriptors: [{{key: user, rate_limit: {{algorithm: concurrency, \
             requests_in_flight: {proposed}, max_hold: 10m, max_wait: 0s}}}}]}}"
        );
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default());
        let mut replay = Replay::new(rules.expect("good rules"), None, 1_000);
        events.iter().for_each(|event| replay.replay(event));
        replay.into_report().0.proposed.denied
    }

    fn denials(sent: &[Sent], limit: usize) -> u64 {
        admitted(sent, limit).iter().filter(|admitted| !**admitted).count() as u64
    }

    #[test]
    fn the_limit_of_the_log_and_lower_ones_deny_what_they_did() {
        let sent = sent(|number| 1 + number % 40);
        for limit in 1..=3 {
            assert_eq!(replayed_denials(&sent, 3, limit), denials(&sent, limit), "{limit} in flight");
        }
    }

    #[test]
    fn higher_limits_deny_what_they_would_where_all_holds_are_alike() {
        let sent = sent(|_| 20);
        assert!(denials(&sent, 1) > 2_000 && denials(&sent, 4) > 400);
        for limit in 2..=8 {
            let (found, truth) = (replayed_denials(&sent, 1, limit), denials(&sent, limit));
            // Until the first hold has ended, no hold is known.
            assert!(found.abs_diff(truth) <= 3, "{limit} in flight: {found} denied, {truth} in truth");
        }
    }

    /// Requests that only the replay admits have the mean hold. The log does not have their own.
    #[test]
    fn higher_limits_deny_about_what_they_would_where_holds_differ() {
        let sent = sent(|number| 1 + number % 40);
        for limit in 2..=5 {
            let (found, truth) = (replayed_denials(&sent, 1, limit), denials(&sent, limit));
            println!("{limit} in flight: {found} denied, {truth} in truth");
            assert!(found.abs_diff(truth) <= truth / 8 + 10, "{limit}: {found} denied, {truth} in truth");
        }
    }
}
