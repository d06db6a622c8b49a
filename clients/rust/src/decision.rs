//! Decisions: values that hold the answer for one request.

use crate::request::Unit;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{Entry, RETRY_AFTER},
};
use std::{sync::Arc, time::Duration};

/// Origin of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The server.
    Decided,
    /// An earlier denial by the server whose reset has not passed.
    DeniedLocally,
    /// The policy [`Open`](crate::OnFailure::Open), since no answer arrived.
    FailedOpen,
    /// The policy [`Closed`](crate::OnFailure::Closed), since no answer arrived.
    FailedClosed,
}

impl Reason {
    /// The reason as metrics and logs have it: `decided`, `denied_locally`, `failed_open`, `failed_closed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::DeniedLocally => "denied_locally",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
        }
    }
}

/// A number of requests per window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Hits that fit into one window.
    pub requests: u32,
    /// The window as a unit; None if it is not one.
    pub unit: Option<Unit>,
    /// The limit's name in the rules; empty if it has none.
    pub name: String,
    /// The length of the window, exact; None if the server does not send it.
    pub window: Option<Duration>,
}

/// A property of a rule that bears on its denials.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// `quota_mode`: it denies only if all quotas of the request are over their limits.
    Quota,
    /// `max_wait`, or a limit of requests in flight: the same request may be admitted before its reset.
    Queued,
}

/// The answer for one descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whether the descriptor is over its limit.
    pub over_limit: bool,
    /// The tightest limit that applies; None if nothing limits the descriptor.
    pub limit: Option<Limit>,
    /// Hits that are left.
    pub remaining: u32,
    /// Time until the limit resets; None if no wait helps.
    pub reset_after: Option<Duration>,
    /// The mode of the rule; None for most.
    pub mode: Option<Mode>,
}

/// A header that the rules or the server add: its name and its value.
pub type Header = (String, String);

/// The decision on a request, and the state of its limits.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request is admitted.
    pub allowed: bool,
    /// Origin of the decision.
    pub reason: Reason,
    /// Requests per unit of the governing limit; None if nothing limits the request.
    pub limit: Option<u32>,
    /// Hits left of the governing limit.
    pub remaining: Option<u32>,
    /// The name of the governing limit; empty if it has none.
    pub rule: String,
    /// Time until the governing limit resets; None if no wait helps.
    pub reset_after: Option<Duration>,
    /// Time after which a denied request would be admitted; None if allowed, or if no wait helps.
    pub retry_after: Option<Duration>,
    /// Names the slots and estimates that the request holds; None if it holds none. See [`Tidegate::acquire`](crate::Tidegate::acquire).
    pub ticket: Option<String>,
    /// Hits of the largest slot or estimate; 1 without a ticket.
    pub ticket_cost: u64,
    /// One status for each descriptor, in order; empty without an answer.
    pub statuses: Vec<Status>,
    /// Why no answer arrived: the name of a gRPC status code, or `BREAKER_OPEN`; None if an answer arrived.
    pub error: Option<&'static str>,
    /// The cause in words, such as a refused connection; None if an answer arrived.
    pub error_message: Option<Arc<str>>,
    /// Headers that the rules add to the request.
    pub request_headers: Vec<Header>,
    /// Headers that the rules or the server add to the response.
    pub response_headers: Vec<Header>,
    /// The body that the rules give a denial; empty for the caller's own.
    pub body: Bytes,
}

impl Decision {
    /// Creates the decision of a server's response with these statuses; for tests of applications.
    pub fn new(allowed: bool, reason: Reason, statuses: Vec<Status>) -> Self {
        let mut decision = Self {
            allowed,
            reason,
            limit: None,
            remaining: None,
            rule: String::new(),
            reset_after: None,
            retry_after: None,
            ticket: None,
            ticket_cost: 1,
            statuses,
            error: None,
            error_message: None,
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            body: Bytes::new(),
        };
        let governing = if allowed {
            let limited = decision.statuses.iter().filter(|status| status.limit.is_some());
            limited.min_by_key(|status| status.remaining)
        } else {
            let governing = governing_denial(&decision.statuses);
            decision.retry_after = governing.and_then(|status| status.reset_after);
            governing
        };
        if let Some(Status { limit: Some(limit), remaining, reset_after, .. }) = governing {
            decision.limit = Some(limit.requests);
            decision.rule.clone_from(&limit.name);
            decision.remaining = Some(*remaining);
            decision.reset_after = *reset_after;
        }
        decision
    }

    /// Returns the same denial as of a later time, as decided locally.
    pub(crate) fn after(&self, elapsed: Duration) -> Self {
        let less = |wait: Option<Duration>| wait.map(|wait| wait.saturating_sub(elapsed));
        let mut later = self.clone();
        later.reason = Reason::DeniedLocally;
        later.reset_after = less(later.reset_after);
        later.retry_after = less(later.retry_after);
        for status in &mut later.statuses {
            status.reset_after = less(status.reset_after);
        }
        for (name, value) in &mut later.response_headers {
            age(name, value, elapsed);
        }
        later
    }

    /// Whether a limit marks the request instead of denying it. The client must not learn that.
    fn is_marked(&self) -> bool {
        self.allowed && !self.request_headers.is_empty()
    }

    /// Returns the headers for the response: `RateLimit`, `RateLimit-Policy` and `Retry-After`. Headers of the server come
    /// last and replace those of the same name.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let applying = distinct(self.statuses.iter());
        if !applying.is_empty() && !self.is_marked() {
            insert(&mut headers, "ratelimit-policy", &joined(&applying, policy));
            let shown = if self.allowed { applying } else { distinct(denying(&self.statuses)) };
            if !shown.is_empty() {
                // An admission has no `t`: its reset is the time until the whole limit is free.
                let item = if self.allowed { available } else { available_until };
                insert(&mut headers, "ratelimit", &joined(&shown, item));
            }
        }
        if let Some(wait) = self.retry_after {
            insert(&mut headers, RETRY_AFTER.as_str(), &seconds(wait).to_string());
        }
        self.insert_own(&mut headers);
        headers
    }

    /// Returns the headers of [`Self::headers`], and `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub fn legacy_headers(&self) -> HeaderMap {
        let mut headers = self.headers();
        if let (Some(limit), Some(remaining), false) = (self.limit, self.remaining, self.is_marked()) {
            insert(&mut headers, "x-ratelimit-limit", &limit.to_string());
            insert(&mut headers, "x-ratelimit-remaining", &remaining.min(limit).to_string());
            if let Some(reset) = self.reset_after.filter(|_| !self.is_queued_admission()) {
                insert(&mut headers, "x-ratelimit-reset", &seconds(reset).to_string());
            }
        }
        self.insert_own(&mut headers);
        headers
    }

    /// Whether the governing limit of an admission may admit before its reset.
    fn is_queued_admission(&self) -> bool {
        let limited = self.statuses.iter().filter(|status| status.limit.is_some());
        let governing = limited.min_by_key(|status| status.remaining);
        self.allowed && governing.is_some_and(|status| status.mode == Some(Mode::Queued))
    }

    fn insert_own(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.response_headers {
            insert(headers, name, value);
        }
    }
}

/// Inserts a header. An invalid header is left out: the server has checked those of its rules.
pub(crate) fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        match headers.entry(name) {
            Entry::Occupied(mut occupied) => _ = occupied.insert(value),
            Entry::Vacant(vacant) => _ = vacant.insert(value),
        }
    }
}

/// The statuses that deny: those over their limits, quotas only if all of them are.
fn denying(statuses: &[Status]) -> impl Iterator<Item = &Status> {
    let is_quota = |status: &Status| status.mode == Some(Mode::Quota);
    let quotas_deny = statuses.iter().filter(|status| is_quota(status)).all(|status| status.over_limit);
    statuses.iter().filter(move |status| status.over_limit && (quotas_deny || !is_quota(status)))
}

/// The denying status with the longest wait. Of denying quotas, only the quota with the shortest wait counts: the request is admitted when
/// the first quota resets.
fn governing_denial(statuses: &[Status]) -> Option<&Status> {
    let is_quota = |status: &&Status| status.mode == Some(Mode::Quota);
    let quota = denying(statuses).filter(is_quota);
    let quota = quota.reduce(|shortest, status| if is_longer(shortest, status) { status } else { shortest });
    longest(
        denying(statuses)
            .filter(|status| !is_quota(status) || quota.is_some_and(|one| std::ptr::eq(one, *status))),
    )
}

/// The least number of seconds that is a time since 1970, as `--response-headers x-unix` sends it, and does not age. As a time until a
/// reset it would be more than 31 years.
const UNIX_TIME_MIN: u64 = 1_000_000_000;

/// Ages a header of the server that is, or contains, a time until a reset.
fn age(name: &str, value: &mut String, elapsed: Duration) {
    let later = |text: &str| match text.parse::<u64>() {
        Ok(wait) if wait < UNIX_TIME_MIN => wait.saturating_sub(elapsed.as_secs()).to_string(),
        _ => text.to_owned(),
    };
    if ["retry-after", "ratelimit-reset", "x-ratelimit-reset"]
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one))
    {
        *value = later(value.trim());
    } else if name.eq_ignore_ascii_case("ratelimit") {
        let mut parts = value.split(";t=");
        let mut aged = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            aged += ";t=";
            aged += &later(&part[..digits]);
            aged += &part[digits..];
        }
        *value = aged;
    }
}

/// The status with the longest wait, the first if several are equal; an absent wait is longer than any.
fn longest<'s>(statuses: impl Iterator<Item = &'s Status>) -> Option<&'s Status> {
    statuses.reduce(|longest, status| if is_longer(status, longest) { status } else { longest })
}

fn is_longer(status: &Status, than: &Status) -> bool {
    match (status.reset_after, than.reset_after) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(wait), Some(than)) => wait > than,
    }
}

/// Whole seconds, rounded up: waiting that long is long enough.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The limits of the statuses, each once with its tighter status.
fn distinct<'s>(statuses: impl Iterator<Item = &'s Status>) -> Vec<(&'s Limit, &'s Status)> {
    let mut distinct: Vec<(&Limit, &Status)> = Vec::new();
    for (limit, status) in statuses.filter_map(|status| Some((status.limit.as_ref()?, status))) {
        let is_same = |(known, _): &&mut (&Limit, &Status)| {
            known.name == limit.name && (!known.name.is_empty() || **known == *limit)
        };
        match distinct.iter_mut().find(is_same) {
            Some(known) if is_tighter(status, known.1) => *known = (limit, status),
            Some(_) => {}
            None => distinct.push((limit, status)),
        }
    }
    distinct
}

fn is_tighter(status: &Status, than: &Status) -> bool {
    match (status.over_limit, than.over_limit) {
        (true, true) => is_longer(status, than),
        (false, false) => status.remaining < than.remaining,
        (is_over, _) => is_over,
    }
}

fn joined(limits: &[(&Limit, &Status)], item: fn(&Limit, &Status) -> String) -> String {
    limits.iter().map(|(limit, status)| item(limit, status)).collect::<Vec<_>>().join(", ")
}

fn policy(limit: &Limit, _: &Status) -> String {
    // The draft's windows are whole seconds.
    let whole = limit.window.filter(|window| window.subsec_nanos() == 0);
    let window = whole.map(|window| format!(";w={}", window.as_secs())).unwrap_or_default();
    format!("{};q={}{window}", quoted(limit), limit.requests)
}

fn available(limit: &Limit, status: &Status) -> String {
    format!("{};r={}", quoted(limit), status.remaining.min(limit.requests))
}

fn available_until(limit: &Limit, status: &Status) -> String {
    let reset = status.reset_after.map(|reset| format!(";t={}", seconds(reset))).unwrap_or_default();
    available(limit, status) + &reset
}

/// A window as a whole number of the largest possible unit: `10s`, `250ms`.
fn window_text(window: Duration) -> String {
    const SCALES: [(u128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanos = window.as_nanos();
    let scale = SCALES.into_iter().find(|(scale, _)| nanos.is_multiple_of(*scale));
    scale.map(|(scale, suffix)| format!("{}{suffix}", nanos / scale)).unwrap_or_default()
}

/// The limit's name as a structured String (RFC 9651).
fn quoted(limit: &Limit) -> String {
    let name = match (limit.name.as_str(), limit.unit, limit.window) {
        ("", Some(unit), _) => format!("{}-per-{}", limit.requests, unit.name()),
        ("", None, Some(window)) => format!("{}-per-{}", limit.requests, window_text(window)),
        ("", None, None) => limit.requests.to_string(),
        (name, _, _) => name.to_owned(),
    };
    let mut text = String::from('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            other => text += &format!("%{other:02X}"),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_reset_does_not_age() {
        for (sent, aged) in [("1767225600", "1767225600"), ("60", "58")] {
            let mut value = sent.to_owned();
            age("X-RateLimit-Reset", &mut value, Duration::from_millis(2_500));
            assert_eq!(value, aged);
        }
    }
}
