//! Headers that tell the client how much is left and how long to wait.
//!
//! A denial speaks of the limits that deny; what is admitted, of all that apply. A marked request gets none: whoever
//! marks has someone else decide what the client is to know.

use crate::limit::{Code, CurrentLimit, Decision, Denial, Reset, Status};
use http::{HeaderName, header::RETRY_AFTER};
use smallvec::SmallVec;
use std::borrow::Cow;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which headers are sent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResponseHeaders {
    /// `RateLimit` and `RateLimit-Policy`, the structured fields of version 10 of the IETF draft.
    pub structured: bool,
    /// Three plain numbers, under each of these names.
    pub plain: Vec<PlainHeaders>,
    /// `Retry-After`, with denials.
    pub retry_after: bool,
}

/// The names of the three headers that hold plain numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainHeaders {
    /// How many hits fit in a window.
    pub limit: HeaderName,
    /// How many are left.
    pub remaining: HeaderName,
    /// In how many seconds that changes.
    pub reset: HeaderName,
}

impl PlainHeaders {
    /// `RateLimit-Limit` and so on, of the IETF draft up to its version 06.
    pub const DRAFT_06: Self = Self {
        limit: HeaderName::from_static("ratelimit-limit"),
        remaining: HeaderName::from_static("ratelimit-remaining"),
        reset: HeaderName::from_static("ratelimit-reset"),
    };
    /// `X-RateLimit-Limit` and so on, which came before it.
    pub const X: Self = Self {
        limit: HeaderName::from_static("x-ratelimit-limit"),
        remaining: HeaderName::from_static("x-ratelimit-remaining"),
        reset: HeaderName::from_static("x-ratelimit-reset"),
    };
}

/// The headers for a decision.
pub(super) fn headers(
    headers: &ResponseHeaders,
    decision: &Decision<'_>,
    denial: Option<&Denial<'_>>,
) -> Vec<(HeaderName, String)> {
    let mut told = Vec::new();
    if let Some(Denial::Marked(_)) = denial {
        return told;
    }
    let applying = distinct(decision.statuses.iter());
    let speaking = if denial.is_some() { distinct(decision.denying()) } else { applying.clone() };
    if headers.structured && !applying.is_empty() {
        told.push((RATELIMIT_POLICY, list(&applying, policy)));
        told.push((RATELIMIT, list(&speaking, service_limit)));
    }
    if let Some((limit, status)) = speaking.iter().copied().reduce(tighter) {
        for names in &headers.plain {
            told.push((names.limit.clone(), limit.requests.to_string()));
            told.push((names.remaining.clone(), status.remaining.to_string()));
            told.extend(seconds(status.reset).map(|seconds| (names.reset.clone(), seconds.to_string())));
        }
    }
    if headers.retry_after && denial.is_some() {
        told.extend(retry_after(decision).map(|seconds| (RETRY_AFTER, seconds.to_string())));
    }
    told
}

/// A limit and the status that tells of it.
type Limited<'d, 'r> = (CurrentLimit<'r>, &'d Status<'r>);

/// The limits that the statuses tell of, each once: of several statuses of one limit the tightest.
fn distinct<'d, 'r: 'd>(statuses: impl Iterator<Item = &'d Status<'r>>) -> SmallVec<[Limited<'d, 'r>; 2]> {
    let mut distinct: SmallVec<[Limited<'d, 'r>; 2]> = SmallVec::new();
    for limited in statuses.filter_map(|status| Some((status.limit?, status))) {
        match distinct.iter_mut().find(|(known, _)| has_one_name(known, &limited.0)) {
            Some(known) => *known = tighter(*known, limited),
            None => distinct.push(limited),
        }
    }
    distinct
}

/// Whether [`name`] makes the same of both.
fn has_one_name(one: &CurrentLimit<'_>, other: &CurrentLimit<'_>) -> bool {
    let of_numbers = |limit: &CurrentLimit<'_>| (limit.requests, limit.window);
    one.name == other.name && (!one.name.is_empty() || of_numbers(one) == of_numbers(other))
}

/// Of two that are over, the one to wait longer for; one that is over before one that is not; else the one with less left.
/// The first, if there is no difference.
fn tighter<'d, 'r>(first: Limited<'d, 'r>, second: Limited<'d, 'r>) -> Limited<'d, 'r> {
    let (one, other) = (first.1, second.1);
    let second_is_tighter = match (one.code, other.code) {
        (Code::OverLimit, Code::OverLimit) => other.reset > one.reset,
        (Code::Ok, Code::OverLimit) => true,
        (Code::OverLimit, Code::Ok) => false,
        (Code::Ok, Code::Ok) => other.remaining < one.remaining,
    };
    if second_is_tighter { second } else { first }
}

/// A structured list (RFC 9651) of one item for each limit.
fn list(limits: &[Limited<'_, '_>], item: fn(&Limited<'_, '_>) -> String) -> String {
    limits.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// `"burst";q=100;w=60`. A window that is no whole number of seconds is left out.
fn policy((limit, _): &Limited<'_, '_>) -> String {
    let mut item = format!("{};q={}", quoted(&name(limit)), limit.requests);
    let window = limit.window.duration();
    if window.subsec_nanos() == 0 {
        item += &format!(";w={}", window.as_secs());
    }
    item
}

/// `"burst";r=50;t=30`.
fn service_limit((limit, status): &Limited<'_, '_>) -> String {
    let mut item = format!("{};r={}", quoted(&name(limit)), status.remaining);
    if let Some(seconds) = seconds(status.reset) {
        item += &format!(";t={seconds}");
    }
    item
}

/// The limit's name, or what it says if it has none.
fn name<'r>(limit: &CurrentLimit<'r>) -> Cow<'r, str> {
    match (limit.name, limit.unit) {
        ("", Some(unit)) => format!("{}-per-{unit}", limit.requests).into(),
        ("", None) => format!("{}-per-{}", limit.requests, limit.window).into(),
        (name, _) => name.into(),
    }
}

/// A structured String. It holds visible ASCII alone; other characters are percent-encoded.
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

/// Whole seconds, rounded up: who waits that long has waited long enough. None if no wait helps, or nobody knows.
fn seconds(reset: Option<Reset>) -> Option<u64> {
    reset?.seconds_rounded_up()
}

/// Until every limit that denies admits, as far as that is known; none if one of them never will.
fn retry_after(decision: &Decision<'_>) -> Option<u64> {
    let resets = decision.denying().filter_map(|status| status.reset);
    // Never is the longest of all.
    seconds(resets.max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Header, Unit, Window};
    use std::time::Duration;

    const MINUTE: (Option<Unit>, u64) = (Some(Unit::Minute), 60_000);
    const TEN_SECONDS: (Option<Unit>, u64) = (None, 10_000);
    const NEVER: Option<Reset> = Some(Reset::Never);

    /// 20 in a window, of which so many are left until a reset.
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

    /// Each header as `name: value`, with all that are to be had.
    fn headers(statuses: &[Status<'static>]) -> Vec<String> {
        let is_over = statuses.iter().any(|status| status.code == Code::OverLimit);
        let code = if is_over { Code::OverLimit } else { Code::Ok };
        let decision = Decision { code, statuses: statuses.into() };
        let plain = vec![PlainHeaders::X];
        let headers = ResponseHeaders { structured: true, plain, retry_after: true };
        let told = super::headers(&headers, &decision, decision.denial().as_ref());
        told.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn what_is_admitted_hears_of_every_limit_and_plainly_of_the_one_with_least_left() {
        let statuses = [
            limit("burst", TEN_SECONDS, 7, millis(9_001)),
            Status::NO_LIMIT,
            limit("", MINUTE, 3, millis(60_000)),
        ];
        assert_eq!(
            headers(&statuses),
            [
                r#"ratelimit-policy: "burst";q=20;w=10, "20-per-minute";q=20;w=60"#,
                r#"ratelimit: "burst";r=7;t=10, "20-per-minute";r=3;t=60"#,
                "x-ratelimit-limit: 20",
                "x-ratelimit-remaining: 3",
                "x-ratelimit-reset: 60",
            ]
        );
        assert!(headers(&[Status::NO_LIMIT, Status::UNLIMITED]).is_empty());
    }

    #[test]
    fn a_denial_hears_of_those_that_deny_and_is_to_wait_for_the_last_of_them() {
        let statuses = [
            over(limit("burst", TEN_SECONDS, 0, millis(2_500))),
            limit("daily", MINUTE, 0, millis(60_000)),
            over(limit("team", MINUTE, 1, millis(4_000))),
        ];
        assert_eq!(
            headers(&statuses)[1..],
            [
                r#"ratelimit: "burst";r=0;t=3, "team";r=1;t=4"#,
                "x-ratelimit-limit: 20",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 4",
                "retry-after: 4",
            ]
        );
    }

    #[test]
    fn a_client_that_waits_what_any_header_says_has_waited_long_enough() {
        for wait_millis in [1, 999, 1_000, 1_001, 59_999] {
            let told = headers(&[over(limit("a", MINUTE, 0, millis(wait_millis)))]);
            let seconds = wait_millis.div_ceil(1000);
            assert_eq!(told[1], format!(r#"ratelimit: "a";r=0;t={seconds}"#));
            assert_eq!(
                told[4..],
                [format!("x-ratelimit-reset: {seconds}"), format!("retry-after: {seconds}")]
            );
        }
    }

    #[test]
    fn nobody_is_told_to_wait_for_what_never_comes() {
        let statuses = [over(limit("a", MINUTE, 5, NEVER)), over(limit("b", MINUTE, 0, millis(1)))];
        assert_eq!(
            headers(&statuses)[1..],
            [r#"ratelimit: "a";r=5, "b";r=0;t=1"#, "x-ratelimit-limit: 20", "x-ratelimit-remaining: 5"]
        );
        let full = headers(&[over(limit("a", MINUTE, 0, None))]);
        assert_eq!(full[1..], [r#"ratelimit: "a";r=0"#, "x-ratelimit-limit: 20", "x-ratelimit-remaining: 0"]);
    }

    #[test]
    fn a_name_is_quoted_and_told_once() {
        let name = "a \"b\" \\ ü";
        let statuses = [limit(name, TEN_SECONDS, 5, millis(1)), limit(name, MINUTE, 4, None)];
        assert_eq!(
            headers(&statuses)[..2],
            [r#"ratelimit-policy: "a \"b\" \\ %C3%BC";q=20;w=60"#, r#"ratelimit: "a \"b\" \\ %C3%BC";r=4"#]
        );
        let unnamed = [limit("", (None, 250), 5, None), limit("", TEN_SECONDS, 4, None)];
        assert_eq!(headers(&unnamed)[0], r#"ratelimit-policy: "20-per-250ms";q=20, "20-per-10s";q=20;w=10"#);
    }

    #[test]
    fn a_marked_request_hears_nothing_and_a_rules_own_header_comes_first() {
        let header = |name| Header {
            name: HeaderName::from_static(name),
            value: http::HeaderValue::from_static("120"),
        };
        let decision = Decision {
            code: Code::OverLimit,
            statuses: [over(limit("a", MINUTE, 0, millis(1)))].into_iter().collect(),
        };
        let headers = ResponseHeaders { plain: vec![PlainHeaders::X], retry_after: true, structured: true };
        let mark = header("x-mark");
        let marked = Denial::Marked([&mark].into_iter().collect());
        assert!(super::headers(&headers, &decision, Some(&marked)).is_empty());
    }
}
