//! Headers for the client: quota policies, available quota and waits.
//!
//! What always holds:
//!
//! - `RateLimit-Policy` lists every limit that applies, always the same for the same request.
//! - The available quota never exceeds the quota of its policy.
//! - A client that waits as long as a header states is admitted, if nothing else uses the limit meanwhile.
//! - Limits that do not deny (`shadow_mode`, `--global-shadow`) are in no header: clients must not slow down for them.
//! - A marked request gets no header: the service behind the proxy decides what its client learns.

use crate::{
    limit::{Code, CurrentLimit, Decision, Denial, Reset, Status},
    limiter::ServiceLimit,
};
use http::{HeaderName, header::RETRY_AFTER};
use std::{borrow::Cow, time::Duration};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The headers that are sent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResponseHeaders {
    /// `RateLimit` and `RateLimit-Policy`, structured fields of the IETF draft.
    pub structured: Option<StructuredHeaders>,
    /// Three plain numbers, under each of these names.
    pub plain: Vec<PlainHeaders>,
    /// `Retry-After`, with denials.
    pub retry_after: bool,
}

/// The meaning of `t` in `RateLimit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StructuredHeaders {
    /// draft-ietf-httpapi-ratelimit-headers-10: the time until the quota resets.
    Draft10,
    /// draft-ietf-httpapi-ratelimit-headers-11: the effective window, in which no more than `r` can be used.
    Draft11,
}

/// The names of the three headers that hold plain numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainHeaders {
    /// The quota.
    pub limit: HeaderName,
    /// The available quota.
    pub remaining: HeaderName,
    /// Seconds until the quota resets. Always present: the drafts up to 06 require it.
    pub reset: HeaderName,
}

impl PlainHeaders {
    /// `RateLimit-Limit` and so on, of the IETF draft up to its version 06.
    pub const DRAFT_06: Self = Self {
        limit: HeaderName::from_static("ratelimit-limit"),
        remaining: HeaderName::from_static("ratelimit-remaining"),
        reset: HeaderName::from_static("ratelimit-reset"),
    };
    /// `X-RateLimit-Limit` and so on, which preceded the draft.
    pub const X: Self = Self {
        limit: HeaderName::from_static("x-ratelimit-limit"),
        remaining: HeaderName::from_static("x-ratelimit-remaining"),
        reset: HeaderName::from_static("x-ratelimit-reset"),
    };
}

impl ResponseHeaders {
    /// Whether service limits are needed to make the headers.
    pub(super) fn need_service_limits(&self) -> bool {
        self.structured.is_some() || !self.plain.is_empty()
    }
}

/// The headers for a decision. `limits` are those of its request, read after it; empty under `--global-shadow`.
pub(super) fn headers(
    headers: &ResponseHeaders,
    decision: &Decision<'_>,
    denial: Option<&Denial<'_>>,
    limits: &[ServiceLimit<'_>],
) -> Vec<(HeaderName, String)> {
    let mut made = Vec::new();
    if let Some(Denial::Marked(_)) = denial {
        return made;
    }
    // A denial reports the limits that deny, so that no wait exceeds `Retry-After`; an admission reports all.
    let denying: Vec<&Status<'_>> = decision.denying().collect();
    let reported = decision.statuses.iter().enumerate().filter(|(_, status)| {
        denial.is_none() || denying.iter().any(|denying| std::ptr::eq(*denying, *status))
    });
    let reported: Vec<Reported<'_>> =
        reported.filter_map(|(descriptor, status)| Reported::new(descriptor, status, limits)).collect();
    if let (Some(draft), false) = (headers.structured, limits.is_empty()) {
        made.push((RATELIMIT_POLICY, list(&distinct(limits), policy)));
        let items: Vec<Item<'_>> = match draft {
            StructuredHeaders::Draft11 if denial.is_none() => {
                limits.iter().map(|limit| Item::effective(limit, true)).collect()
            }
            StructuredHeaders::Draft11 => reported
                .iter()
                .map(|reported| Item::effective(&reported.limit, reported.has_room()))
                .collect(),
            StructuredHeaders::Draft10 => reported.iter().map(Item::until_reset).collect(),
        };
        if !items.is_empty() {
            made.push((RATELIMIT, list(&tightest_by_name(items), service_limit)));
        }
    }
    if let Some(tightest) = reported.iter().copied().reduce(tighter) {
        for names in &headers.plain {
            made.push((names.limit.clone(), tightest.limit.quota.to_string()));
            made.push((names.remaining.clone(), tightest.available().to_string()));
            made.push((names.reset.clone(), tightest.reset_seconds().to_string()));
        }
    }
    if headers.retry_after && denial.is_some() {
        made.extend(retry_after(decision).map(|seconds| (RETRY_AFTER, seconds.to_string())));
    }
    made
}

/// A status, and the service limit that it reports.
#[derive(Clone, Copy)]
struct Reported<'d> {
    status: &'d Status<'d>,
    limit: ServiceLimit<'d>,
}

impl<'d> Reported<'d> {
    /// None for a status without a limit, and for one of a shadow rule.
    fn new(descriptor: usize, status: &'d Status<'_>, limits: &[ServiceLimit<'d>]) -> Option<Self> {
        let current = status.limit?;
        let is_it = |limit: &&ServiceLimit<'_>| limit.descriptor == descriptor && limit.limit == current;
        limits.iter().find(is_it).map(|limit| Self { status, limit: *limit })
    }

    /// False if the request is denied because there is no room for the counter.
    fn has_room(&self) -> bool {
        self.status.code == Code::Ok || self.status.reset.is_some()
    }

    /// The available quota of the decision; the counter may have changed since.
    fn available(&self) -> u32 {
        self.status.remaining.min(self.limit.quota)
    }

    /// The window of the policy where the reset is unknown (no room for the counter) or never (a limit of 0, or more
    /// hits than the limit): by then the quota has been reset, and no earlier attempt is worthwhile.
    fn reset_seconds(&self) -> u64 {
        seconds(self.status.reset).unwrap_or_else(|| seconds_rounded_up(self.limit.window))
    }
}

/// An item of `RateLimit`.
#[derive(Clone)]
struct Item<'d> {
    limit: CurrentLimit<'d>,
    available: u32,
    seconds: Option<u64>,
}

impl<'d> Item<'d> {
    fn until_reset(reported: &Reported<'d>) -> Self {
        let seconds = seconds(reported.status.reset);
        Self { limit: reported.limit.limit, available: reported.available(), seconds }
    }

    fn effective(limit: &ServiceLimit<'d>, has_room: bool) -> Self {
        let ServiceLimit { limit, available, effective_window, .. } = *limit;
        if !has_room {
            return Self { limit, available: 0, seconds: None };
        }
        Self { limit, available, seconds: seconds(Some(effective_window)) }
    }
}

/// One policy for each name, in the order of the request. Of several with one name the one with the largest quota, which
/// the available quota of none exceeds.
fn distinct<'d>(limits: &[ServiceLimit<'d>]) -> Vec<ServiceLimit<'d>> {
    let mut distinct: Vec<ServiceLimit<'d>> = Vec::new();
    for limit in limits {
        match distinct.iter_mut().find(|known| has_one_name(&known.limit, &limit.limit)) {
            Some(known) if known.quota < limit.quota => *known = *limit,
            Some(_) => {}
            None => distinct.push(*limit),
        }
    }
    distinct
}

/// One item for each name, with the least available quota and the longest wait of all that have it.
fn tightest_by_name<'d>(items: Vec<Item<'d>>) -> Vec<Item<'d>> {
    let mut tightest: Vec<Item<'d>> = Vec::new();
    for item in items {
        match tightest.iter_mut().find(|known| has_one_name(&known.limit, &item.limit)) {
            Some(known) => {
                known.available = known.available.min(item.available);
                known.seconds = known.seconds.zip(item.seconds).map(|(one, other)| one.max(other));
            }
            None => tightest.push(item),
        }
    }
    tightest
}

/// Whether [`name`] is the same for both.
fn has_one_name(one: &CurrentLimit<'_>, other: &CurrentLimit<'_>) -> bool {
    let of_numbers = |limit: &CurrentLimit<'_>| (limit.requests, limit.window);
    one.name == other.name && (!one.name.is_empty() || of_numbers(one) == of_numbers(other))
}

/// Of two that are over, the one with the longer wait; one that is over rather than one that is not; else the one with
/// less available. The first, if there is no difference.
fn tighter<'d>(first: Reported<'d>, second: Reported<'d>) -> Reported<'d> {
    let (one, other) = (first.status, second.status);
    let second_is_tighter = match (one.code, other.code) {
        (Code::OverLimit, Code::OverLimit) => other.reset > one.reset,
        (Code::Ok, Code::OverLimit) => true,
        (Code::OverLimit, Code::Ok) => false,
        (Code::Ok, Code::Ok) => other.remaining < one.remaining,
    };
    if second_is_tighter { second } else { first }
}

/// A structured list (RFC 9651).
fn list<T>(items: &[T], item: impl Fn(&T) -> String) -> String {
    items.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// `"burst";q=100;w=60`.
fn policy(ServiceLimit { limit, quota, window, .. }: &ServiceLimit<'_>) -> String {
    let mut item = format!("{};q={quota}", quoted(&name(limit)));
    // Windows have whole seconds in the draft; the time to refill a bucket is rounded up, so that no rate is overstated.
    let is_bucket = *window != limit.window.duration();
    if window.subsec_nanos() == 0 || is_bucket {
        item += &format!(";w={}", seconds_rounded_up(*window));
    }
    item
}

/// `"burst";r=50;t=30`.
fn service_limit(Item { limit, available, seconds }: &Item<'_>) -> String {
    let mut item = format!("{};r={available}", quoted(&name(limit)));
    if let Some(seconds) = seconds {
        item += &format!(";t={seconds}");
    }
    item
}

/// The limit's name, or its numbers if it has none.
fn name<'r>(limit: &CurrentLimit<'r>) -> Cow<'r, str> {
    match (limit.name, limit.unit) {
        ("", Some(unit)) => format!("{}-per-{unit}", limit.requests).into(),
        ("", None) => format!("{}-per-{}", limit.requests, limit.window).into(),
        (name, _) => name.into(),
    }
}

/// A structured String, which holds visible ASCII only; other characters are percent-encoded.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', byte.into()]),
            b' '..=b'~' => quoted.push(byte.into()),
            other => quoted += &format!("%{other:02X}"),
        }
    }
    quoted.push('"');
    quoted
}

/// Whole seconds, rounded up. None if it is never or unknown.
fn seconds(reset: Option<Reset>) -> Option<u64> {
    reset?.seconds_rounded_up()
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The longest known wait of the limits that deny; none if one of them never admits.
fn retry_after(decision: &Decision<'_>) -> Option<u64> {
    let resets = decision.denying().filter_map(|status| status.reset);
    // Never is the longest of all.
    seconds(resets.max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Header, Unit, Window};

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
        let limit = Some(CurrentLimit { name, requests: 20, window, unit });
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
        ResponseHeaders { structured, plain: vec![PlainHeaders::X], retry_after: true }
    }

    /// The service limits that go with the statuses.
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
                available,
                effective_window,
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
        let made = headers(&all(draft), decision, decision.denial().as_ref(), limits);
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

    #[test]
    fn a_client_that_waits_as_any_header_states_has_waited_long_enough() {
        for wait_millis in [1, 999, 1_000, 1_001, 59_999] {
            let made = draft10(&[over(limit("a", MINUTE, 0, millis(wait_millis)))]);
            let seconds = wait_millis.div_ceil(1000);
            assert_eq!(made[1], format!(r#"ratelimit: "a";r=0;t={seconds}"#));
            assert_eq!(
                made[4..],
                [format!("x-ratelimit-reset: {seconds}"), format!("retry-after: {seconds}")]
            );
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
                r#"ratelimit-policy: "bucket";q=99;w=50"#,
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
        let policies =
            |status| made(StructuredHeaders::Draft10, &decision(&[status]), &limits).swap_remove(0);
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
            [
                r#"ratelimit-policy: "real";q=20;w=60"#,
                r#"ratelimit: "real";r=5;t=1"#,
                "x-ratelimit-limit: 20"
            ]
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
        let marked = Denial::Marked([&mark].into_iter().collect());
        let options = all(StructuredHeaders::Draft10);
        assert!(headers(&options, &decision(&statuses), Some(&marked), &limits(&statuses)).is_empty());
    }
}
