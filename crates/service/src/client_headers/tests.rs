use super::*;
use tidegate_core::limit::{CurrentLimit, Header, Timestamp, Unit, Window};

const MINUTE: (Option<Unit>, u64) = (Some(Unit::Minute), 60_000);
const TEN_SECONDS: (Option<Unit>, u64) = (None, 10_000);
const NEVER: Option<Reset> = Some(Reset::Never);

/// A limit of 20 in a window, with its available quota and reset.
fn limit(
    name: &'static str,
    (unit, millis): (Option<Unit>, u64),
    remaining: u32,
    reset: Option<Reset>,
) -> Status<'static> {
    let window = Window::from_nanos(millis * 1_000_000).expect("a window");
    let limit = Some(CurrentLimit { name, requests: 20, capacity: 20, window, unit });
    Status { limit, remaining, reset, ..Status::NO_LIMIT }
}

fn over(status: Status<'static>) -> Status<'static> {
    Status { code: Code::OverLimit, ..status }
}

fn millis(millis: u64) -> Option<Reset> {
    Some(Reset::After(Duration::from_millis(millis)))
}

fn all(structured: StructuredHeaders) -> ResponseHeaders {
    let structured = Some(structured);
    ResponseHeaders {
        structured,
        plain: vec![PlainHeaders::X],
        retry_after: Some(RetryAfter::Seconds),
        jitter_seconds: 0,
        limitador: false,
        reference: None,
    }
}

fn sent(jitter_seconds: u32) -> Sent {
    Sent::new(Timestamp::from_millis(784_111_776_400), 5, jitter_seconds)
}

/// The service limits of the statuses.
fn limits(statuses: &[Status<'static>]) -> Vec<ServiceLimit<'static>> {
    let limit = |(descriptor, status): (usize, &Status<'static>)| {
        let limit = status.limit?;
        let (window, available) = (limit.window.duration(), status.remaining);
        let effective_window = Reset::After(Duration::from_millis(1_500));
        Some(ServiceLimit {
            descriptor,
            limit,
            quota: limit.requests,
            window,
            in_flight: false,
            available,
            effective_window,
            denied_for: status.reset.filter(|_| status.code == Code::OverLimit),
            banned_for: None,
            slots: None,
            reserved: None,
        })
    };
    statuses.iter().enumerate().filter_map(limit).collect()
}

fn decision(statuses: &[Status<'static>]) -> Decision<'static> {
    let is_over = statuses.iter().any(|status| status.code == Code::OverLimit);
    let code = if is_over { Code::OverLimit } else { Code::Ok };
    Decision::new(code, statuses.into())
}

/// Each header as `name: value`.
fn made(draft: StructuredHeaders, decision: &Decision<'_>, limits: &[ServiceLimit<'_>]) -> Vec<String> {
    let made = headers(&all(draft), decision, decision.denial().as_ref(), limits, sent(0));
    made.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

fn draft10(statuses: &[Status<'static>]) -> Vec<String> {
    made(StructuredHeaders::Draft10, &decision(statuses), &limits(statuses))
}

#[test]
fn an_admission_reports_every_limit_and_in_plain_headers_the_one_with_the_least_available() {
    let statuses = [
        limit("burst", TEN_SECONDS, 7, millis(9_001)),
        Status::NO_LIMIT,
        limit("", MINUTE, 3, millis(60_000)),
    ];
    assert_eq!(
        draft10(&statuses),
        [
            r#"ratelimit-policy: "burst";q=20;w=10, "20-per-minute";q=20;w=60"#,
            r#"ratelimit: "burst";r=7;t=10, "20-per-minute";r=3;t=60"#,
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 3",
            "x-ratelimit-reset: 60",
        ]
    );
    assert!(draft10(&[Status::NO_LIMIT, Status::UNLIMITED]).is_empty());
}

#[test]
fn a_denial_by_quotas_states_the_wait_for_the_first_of_them() {
    let rule: &'static tidegate_core::limit::RuleInfo = Box::leak(Box::new(tidegate_core::limit::RuleInfo {
        path: "own".into(),
        declared_at: "rules.yaml:1:1".into(),
        quota: true,
        queues: false,
        holds_slots: false,
        shown_values: 0,
        metric_labels: Box::default(),
        metadata: None,
        on_deny: None,
    }));
    let quota = |status| Status { rule: Some(rule), ..over(status) };
    let quotas = [
        quota(limit("own", TEN_SECONDS, 0, millis(850))),
        quota(limit("team", MINUTE, 0, millis(757_000))),
        quota(limit("zero", MINUTE, 0, NEVER)),
    ];
    let waits = |statuses: &[Status<'static>]| {
        let made = draft10(statuses);
        made.into_iter().filter(|line| line.contains("reset") || line.contains("retry")).collect::<Vec<_>>()
    };
    assert_eq!(waits(&quotas), ["x-ratelimit-reset: 1", "retry-after: 1"]);
    let [own, team, _] = quotas;
    let other = over(limit("all", MINUTE, 0, millis(6_500)));
    assert_eq!(waits(&[own, team, other]), ["x-ratelimit-reset: 7", "retry-after: 7"]);
    let admitting = Status { rule: Some(rule), ..limit("own", TEN_SECONDS, 3, millis(0)) };
    assert_eq!(waits(&[team, other, admitting]), ["x-ratelimit-reset: 7", "retry-after: 7"]);
}

#[test]
fn a_denial_reports_the_limits_that_deny_and_the_longest_of_their_waits() {
    let statuses = [
        over(limit("burst", TEN_SECONDS, 0, millis(2_500))),
        limit("daily", MINUTE, 0, millis(60_000)),
        over(limit("team", MINUTE, 1, millis(4_000))),
    ];
    assert_eq!(
        draft10(&statuses),
        [
            r#"ratelimit-policy: "burst";q=20;w=10, "daily";q=20;w=60, "team";q=20;w=60"#,
            r#"ratelimit: "burst";r=0;t=3, "team";r=1;t=4"#,
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 4",
            "retry-after: 4",
        ]
    );
}

#[test]
fn draft_11_reports_the_effective_window() {
    let statuses = [limit("a", MINUTE, 7, millis(9_001)), limit("b", TEN_SECONDS, 3, millis(9_001))];
    let admitted = made(StructuredHeaders::Draft11, &decision(&statuses), &limits(&statuses));
    assert_eq!(admitted[1], r#"ratelimit: "a";r=7;t=2, "b";r=3;t=2"#);
    let statuses = [limit("a", MINUTE, 7, millis(9_001)), over(limit("b", MINUTE, 0, millis(4_000)))];
    let denied = made(StructuredHeaders::Draft11, &decision(&statuses), &limits(&statuses));
    assert_eq!(denied[1], r#"ratelimit: "b";r=0;t=2"#);
    let no_room = [over(limit("a", MINUTE, 0, None))];
    let mut limits = limits(&no_room);
    limits[0].available = 20;
    let denied = made(StructuredHeaders::Draft11, &decision(&no_room), &limits);
    assert_eq!(denied[1], r#"ratelimit: "a";r=0"#);
}

/// `"20-per-minute";q=20;w=60` would mean that 20 requests a minute are admitted, however short they are.
#[test]
fn requests_in_flight_are_not_stated_as_a_rate() {
    let statuses = [limit("", MINUTE, 4, millis(9_000)), limit("", MINUTE, 7, millis(9_000))];
    let in_flight = |statuses: &[Status<'static>]| {
        let mut limits = limits(statuses);
        limits[0].in_flight = true;
        limits
    };
    for draft in [StructuredHeaders::Draft10, StructuredHeaders::Draft11] {
        let admitted = made(draft, &decision(&statuses), &in_flight(&statuses));
        assert_eq!(admitted[0], r#"ratelimit-policy: "20-in-flight";q=20, "20-per-minute";q=20;w=60"#);
        let wait = if draft == StructuredHeaders::Draft10 { 9 } else { 2 };
        let expected = format!(r#"ratelimit: "20-in-flight";r=4, "20-per-minute";r=7;t={wait}"#);
        assert_eq!(admitted[1], expected);
        let statuses = [over(limit("", MINUTE, 0, millis(1_500)))];
        let denied = made(draft, &decision(&statuses), &in_flight(&statuses));
        assert_eq!(denied[1], r#"ratelimit: "20-in-flight";r=0;t=2"#);
    }
}

#[test]
fn a_client_that_waits_as_any_header_states_has_waited_long_enough() {
    for wait_millis in [1, 999, 1_000, 1_001, 59_999] {
        let made = draft10(&[over(limit("a", MINUTE, 0, millis(wait_millis)))]);
        let seconds = wait_millis.div_ceil(1000);
        assert_eq!(made[1], format!(r#"ratelimit: "a";r=0;t={seconds}"#));
        assert_eq!(made[4..], [format!("x-ratelimit-reset: {seconds}"), format!("retry-after: {seconds}")]);
    }
}

/// Drafts up to 06: a response with the limit header MUST have the reset header.
#[test]
fn the_plain_reset_header_is_sent_also_for_a_reset_that_is_never_or_unknown() {
    let statuses = [over(limit("a", MINUTE, 5, NEVER)), over(limit("b", TEN_SECONDS, 0, millis(1)))];
    assert_eq!(
        draft10(&statuses)[1..],
        [
            r#"ratelimit: "a";r=5, "b";r=0;t=1"#,
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 60",
        ]
    );
    let no_room = draft10(&[over(limit("a", TEN_SECONDS, 0, None))]);
    assert_eq!(
        no_room[1..],
        [
            r#"ratelimit: "a";r=0"#,
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 10",
        ]
    );
}

#[test]
fn the_available_quota_never_exceeds_the_quota_of_a_bucket() {
    let statuses = [limit("bucket", TEN_SECONDS, 99, millis(1_000))];
    let mut limits = limits(&statuses);
    (limits[0].quota, limits[0].window) = (99, Duration::from_millis(49_500));
    assert_eq!(
        made(StructuredHeaders::Draft10, &decision(&statuses), &limits)[..4],
        [
            // The window is not a whole number of seconds.
            r#"ratelimit-policy: "bucket";q=99"#,
            r#"ratelimit: "bucket";r=99;t=1"#,
            "x-ratelimit-limit: 99",
            "x-ratelimit-remaining: 99",
        ]
    );
}

#[test]
fn the_policies_are_the_same_whatever_limit_the_status_reports() {
    let [burst, daily] = ["burst", "daily"].map(|name| limit(name, MINUTE, 3, millis(1)));
    let mut limits = limits(&[burst, daily]);
    limits[1].descriptor = 0;
    let policies = |status| made(StructuredHeaders::Draft10, &decision(&[status]), &limits).swap_remove(0);
    assert_eq!(policies(burst), r#"ratelimit-policy: "burst";q=20;w=60, "daily";q=20;w=60"#);
    assert_eq!(policies(burst), policies(daily));
}

#[test]
fn limits_of_shadow_rules_are_in_no_header() {
    let statuses = [limit("shadow", MINUTE, 0, millis(9_000)), limit("real", MINUTE, 5, millis(1_000))];
    // A shadow rule has no service limits.
    let limits = limits(&statuses).split_off(1);
    assert_eq!(
        made(StructuredHeaders::Draft10, &decision(&statuses), &limits)[..3],
        [r#"ratelimit-policy: "real";q=20;w=60"#, r#"ratelimit: "real";r=5;t=1"#, "x-ratelimit-limit: 20"]
    );
    assert!(made(StructuredHeaders::Draft11, &decision(&statuses), &[]).is_empty());
}

#[test]
fn a_name_is_quoted_and_listed_once() {
    let name = "a \"b\" \\ ü";
    let statuses = [limit(name, TEN_SECONDS, 5, millis(1)), limit(name, MINUTE, 4, None)];
    assert_eq!(
        draft10(&statuses)[..2],
        [r#"ratelimit-policy: "a \"b\" \\ %C3%BC";q=20;w=10"#, r#"ratelimit: "a \"b\" \\ %C3%BC";r=4"#]
    );
    let unnamed = [limit("", (None, 250), 5, None), limit("", TEN_SECONDS, 4, None)];
    assert_eq!(draft10(&unnamed)[0], r#"ratelimit-policy: "20-per-250ms";q=20, "20-per-10s";q=20;w=10"#);
}

#[test]
fn a_marked_request_gets_no_header() {
    let mark =
        Header { name: HeaderName::from_static("x-mark"), value: http::HeaderValue::from_static("120") };
    let statuses = [over(limit("a", MINUTE, 0, millis(1)))];
    let marked = Denial::Mark([&mark].into_iter().collect());
    let options = all(StructuredHeaders::Draft10);
    assert!(headers(&options, &decision(&statuses), Some(&marked), &limits(&statuses), sent(0)).is_empty());
}

/// Three limits of one descriptor: two deny, and one of these never admits the hits.
#[test]
fn every_limit_that_denies_is_listed_and_one_that_never_admits_has_no_wait() {
    let statuses = [over(limit("minute", MINUTE, 0, millis(40_000)))];
    let mut limits = limits(&[statuses[0], statuses[0], statuses[0], statuses[0]]);
    limits.iter_mut().for_each(|limit| limit.descriptor = 0);
    let others = [("burst", Some(Reset::After(Duration::from_secs(3)))), ("size", NEVER), ("daily", None)];
    for (limit, (name, denied_for)) in limits[1..].iter_mut().zip(others) {
        (limit.limit.name, limit.denied_for, limit.available) = (name, denied_for, 2);
    }
    let ratelimit = |draft| made(draft, &decision(&statuses), &limits).swap_remove(1);
    assert_eq!(
        ratelimit(StructuredHeaders::Draft11),
        r#"ratelimit: "minute";r=0;t=2, "burst";r=2;t=2, "size";r=2"#
    );
    assert_eq!(
        ratelimit(StructuredHeaders::Draft10),
        r#"ratelimit: "minute";r=0;t=40, "burst";r=2;t=3, "size";r=2"#
    );
}

/// Five are left until the next second. In the rest of the minute, a client can use only three more.
#[test]
fn of_limits_that_share_a_name_the_effective_window_is_that_of_the_least_available() {
    let statuses = [limit("one", MINUTE, 5, millis(1)), limit("one", TEN_SECONDS, 3, millis(1))];
    let mut limits = limits(&statuses);
    limits[0].effective_window = Reset::After(Duration::from_secs(60));
    let ratelimit = |limits: &[ServiceLimit<'_>]| {
        made(StructuredHeaders::Draft11, &decision(&statuses), limits).swap_remove(1)
    };
    assert_eq!(ratelimit(&limits), r#"ratelimit: "one";r=3;t=2"#);
    limits.reverse();
    assert_eq!(ratelimit(&limits), r#"ratelimit: "one";r=3;t=2"#);
    limits[0].available = 5;
    assert_eq!(ratelimit(&limits), r#"ratelimit: "one";r=5;t=60"#);
}

#[test]
fn a_quota_that_is_over_and_denies_nothing_is_described_only_if_it_has_the_least_left() {
    let quota = over(limit("quota", MINUTE, 3, millis(30_000)));
    for (remaining, described) in [(1, "1"), (4, "3")] {
        let statuses = [quota, limit("all", MINUTE, remaining, millis(1_000))];
        let admitted = Decision::new(Code::Ok, statuses.to_vec().into());
        let made = made(StructuredHeaders::Draft10, &admitted, &limits(&statuses));
        assert!(made.contains(&format!("x-ratelimit-remaining: {described}")), "{made:?}");
    }
}

#[test]
fn the_reset_may_be_a_time_and_retry_after_a_date_and_denials_have_jitter() {
    let options = ResponseHeaders {
        plain: vec![PlainHeaders::DRAFT_06, PlainHeaders::X_UNIX],
        retry_after: Some(RetryAfter::Date),
        jitter_seconds: 9,
        ..ResponseHeaders::default()
    };
    let waits = |status: Status<'static>| {
        let (decision, limits) = (decision(&[status]), limits(&[status]));
        let made =
            headers(&options, &decision, decision.denial().as_ref(), &limits, sent(options.jitter_seconds));
        made.into_iter()
            .filter(|(name, _)| name.contains("reset") || name == "retry-after")
            .map(|(_, value)| value)
            .collect::<Vec<_>>()
    };
    let of_denial = waits(over(limit("", MINUTE, 0, millis(700))));
    assert_eq!(of_denial, ["6", "784111783", "Sun, 06 Nov 1994 08:49:43 GMT"]);
    assert_eq!(waits(limit("", MINUTE, 3, millis(700))), ["1", "784111778"], "admissions have no jitter");
}
