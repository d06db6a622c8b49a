//! Headers for the client: quota policies, available quota and waits.
//!
//! Invariants:
//!
//! - `RateLimit-Policy` lists every limit that applies. It is always the same for the same request.
//! - The available quota never exceeds the quota of its policy.
//! - A client that waits as long as a header states is admitted, if nothing else uses the limit meanwhile.
//! - Limits that do not deny (`shadow_mode`, `--global-shadow`) are in no header, so that clients do not slow down for them.
//! - A marked request gets no header: the service behind the proxy decides what its client is sent.

mod limitador;
mod reference;
mod waits;

pub use reference::ReferenceHeaders;
pub use waits::RetryAfter;
pub(super) use waits::Sent;

use http::HeaderName;
use smol_str::SmolStr;
use std::{borrow::Cow, time::Duration};
use tidegate_core::limit::{Code, Decision, Denial, Reset, ServiceLimit, Status};

const RATELIMIT: SmolStr = SmolStr::new_static("ratelimit");
const RATELIMIT_POLICY: SmolStr = SmolStr::new_static("ratelimit-policy");
const RETRY_AFTER: SmolStr = SmolStr::new_static("retry-after");

/// The headers that are sent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResponseHeaders {
    /// `RateLimit` and `RateLimit-Policy`, structured fields of the IETF draft.
    pub structured: Option<StructuredHeaders>,
    /// Three plain numbers, under each of these sets of names.
    pub plain: Vec<PlainHeaders>,
    /// `Retry-After`, with denials.
    pub retry_after: Option<RetryAfter>,
    /// The most whole seconds that jitter adds to the waits of a denial, in plain headers and in `Retry-After`.
    pub jitter_seconds: u32,
    /// The three headers of Limitador.
    pub limitador: bool,
    /// The three headers of the reference server.
    pub reference: Option<ReferenceHeaders>,
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
    /// When the quota resets. Always present: the drafts up to 06 require it.
    pub reset: HeaderName,
    /// Whether the reset is a time in seconds since 1970, instead of the seconds until then.
    pub is_reset_time: bool,
}

const X_NAMES: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

impl PlainHeaders {
    /// `RateLimit-Limit` and the like, of the IETF draft up to version 06.
    pub const DRAFT_06: Self = Self::of(["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"], false);
    /// `X-RateLimit-Limit` and the like, from before the draft.
    pub const X: Self = Self::of(X_NAMES, false);
    /// As [`Self::X`], with the time of the reset, as GitHub sends it.
    pub const X_UNIX: Self = Self::of(X_NAMES, true);

    const fn of([limit, remaining, reset]: [&'static str; 3], is_reset_time: bool) -> Self {
        Self {
            limit: HeaderName::from_static(limit),
            remaining: HeaderName::from_static(remaining),
            reset: HeaderName::from_static(reset),
            is_reset_time,
        }
    }
}

impl ResponseHeaders {
    /// A header of the reference server that another of these sets has too: a response would have it twice, with different numbers.
    pub fn sent_twice(&self) -> Option<&str> {
        let others = self.plain.iter().flat_map(|names| [&names.limit, &names.remaining, &names.reset]);
        let mut others: Vec<&str> = others.map(HeaderName::as_str).collect();
        others.extend(self.limitador.then_some(X_NAMES).into_iter().flatten());
        others.extend(self.structured.map(|_| ["ratelimit", "ratelimit-policy"]).into_iter().flatten());
        others.extend(self.retry_after.map(|_| "retry-after"));
        let reference =
            self.reference.iter().flat_map(|names| [&names.limit, &names.remaining, &names.reset]);
        let is_other = |name: &&str| others.iter().any(|other| other.eq_ignore_ascii_case(name));
        reference.map(SmolStr::as_str).find(is_other)
    }

    /// Whether service limits are needed to make the headers.
    pub(super) fn need_service_limits(&self) -> bool {
        self.structured.is_some() || self.limitador || !self.plain.is_empty()
    }
}

/// The headers for a decision. `limits` are the limits of its request, read after the decision. They are empty under `--global-shadow`.
pub(super) fn headers(
    headers: &ResponseHeaders,
    decision: &Decision<'_>,
    denial: Option<&Denial<'_>>,
    limits: &[ServiceLimit<'_>],
    sent: Sent,
) -> Vec<(SmolStr, String)> {
    let sent = if denial.is_some() { sent } else { sent.exactly() };
    let mut made = Vec::new();
    if let Some(Denial::Mark(_)) = denial {
        return made;
    }
    if let Some(names) = &headers.reference {
        made.extend(names.headers(decision));
    }
    if headers.limitador {
        made.extend(limitador::headers(limits));
    }
    // A denial reports only the limits that deny. No wait then exceeds `Retry-After`, except the wait of a quota if another quota resets
    // sooner. An admission reports all limits.
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
                limits.iter().map(|limit| Item::effective(limit).of_admission(limit)).collect()
            }
            StructuredHeaders::Draft11 => denying_limits(&reported, limits, Item::of_denial),
            StructuredHeaders::Draft10 if denial.is_none() => {
                reported.iter().map(|one| Item::until_reset(one).of_admission(&one.limit)).collect()
            }
            StructuredHeaders::Draft10 => denying_limits(&reported, limits, Item::until_admitted),
        };
        if !items.is_empty() {
            made.push((RATELIMIT, list(&tightest_by_name(items, draft), service_limit)));
        }
    }
    let awaited: Vec<&Status<'_>> = decision.awaited().collect();
    let is_awaited = |reported: &Reported<'_>| {
        denial.is_none() || awaited.iter().any(|awaited| std::ptr::eq(*awaited, reported.status))
    };
    let tighter = |first, second| tighter(first, second, denial.is_some());
    if let Some(tightest) = reported.into_iter().filter(is_awaited).reduce(tighter) {
        for names in &headers.plain {
            made.push((names.limit.as_str().into(), tightest.limit.quota.to_string()));
            made.push((names.remaining.as_str().into(), tightest.available().to_string()));
            let reset = match names.is_reset_time {
                true => sent.unix_seconds(tightest.wait()),
                false => sent.seconds(tightest.wait()),
            };
            made.push((names.reset.as_str().into(), reset.to_string()));
        }
    }
    if let (Some(form), true) = (headers.retry_after, denial.is_some()) {
        made.extend(retry_after(decision).map(|wait| (RETRY_AFTER, sent.retry_after(form, wait))));
    }
    made
}

/// A status, and the service limit that it reports.
#[derive(Clone)]
struct Reported<'d> {
    status: &'d Status<'d>,
    limit: ServiceLimit<'d>,
}

impl<'d> Reported<'d> {
    /// None for a status without a limit or with a shadow rule.
    fn new(descriptor: usize, status: &'d Status<'_>, limits: &[ServiceLimit<'d>]) -> Option<Self> {
        let current = status.limit?;
        let is_it = |limit: &&ServiceLimit<'_>| limit.descriptor == descriptor && limit.limit == current;
        limits.iter().find(is_it).map(|limit| Self { status, limit: limit.clone() })
    }

    /// False if the request is denied because there is no room for the counter.
    fn has_room(&self) -> bool {
        self.status.code == Code::Ok || self.status.reset.is_some()
    }

    /// The available quota as of the decision. The counter may have changed since.
    fn available(&self) -> u32 {
        self.status.remaining.min(self.limit.quota)
    }

    /// If the reset is unknown (no room for the counter) or `Never` (a limit of 0, or more hits than the limit): the window of the policy.
    /// By then the quota has been reset, and no earlier attempt is worthwhile.
    fn wait(&self) -> Duration {
        match self.status.reset {
            Some(Reset::After(wait)) => wait,
            Some(Reset::Never) | None => self.limit.window,
        }
    }
}

/// An item of `RateLimit`.
#[derive(Clone)]
struct Item<'d> {
    name: Cow<'d, str>,
    available: u32,
    seconds: Option<u64>,
}

impl<'d> Item<'d> {
    fn until_reset(reported: &Reported<'d>) -> Self {
        let seconds = seconds(reported.status.reset);
        Self { name: name(&reported.limit), available: reported.available(), seconds }
    }

    fn effective(limit: &ServiceLimit<'d>) -> Self {
        Self { name: name(limit), available: limit.available, seconds: seconds(Some(limit.effective_window)) }
    }

    /// The item in the response to an admission: for requests in flight without a time, since they end when they end.
    fn of_admission(self, limit: &ServiceLimit<'_>) -> Self {
        Self { seconds: self.seconds.filter(|_| !limit.in_flight), ..self }
    }

    /// The item of a limit that denies. It has no wait if the limit never admits the request.
    fn of_denial(limit: &ServiceLimit<'d>) -> Self {
        let item = Self::effective(limit);
        if limit.denied_for == Some(Reset::Never) { Self { seconds: None, ..item } } else { item }
    }

    /// The item with the time until the limit admits the request.
    fn until_admitted(limit: &ServiceLimit<'d>) -> Self {
        Self { name: name(limit), available: limit.available, seconds: seconds(limit.denied_for) }
    }
}

/// The limits that deny: those of the statuses, and other limits of the same descriptors.
fn denying_limits<'d>(
    reported: &[Reported<'d>],
    limits: &[ServiceLimit<'d>],
    item: impl Fn(&ServiceLimit<'d>) -> Item<'d>,
) -> Vec<Item<'d>> {
    let mut items = Vec::new();
    for reported in reported {
        let of_descriptor = limits.iter().filter(|limit| limit.descriptor == reported.limit.descriptor);
        for limit in of_descriptor {
            if limit.limit != reported.limit.limit {
                items.extend(limit.denied_for.map(|_| item(limit)));
            } else if reported.has_room() {
                // As of the decision: the counter may have changed since.
                let denied_for = reported.status.reset;
                let limit = ServiceLimit { denied_for, available: reported.available(), ..limit.clone() };
                items.push(item(&limit));
            } else {
                items.push(Item { name: name(limit), available: 0, seconds: None });
            }
        }
    }
    items
}

/// One policy for each name, in the order of the request. If several have one name, the policy with the largest quota: no available quota
/// exceeds it.
fn distinct<'d>(limits: &[ServiceLimit<'d>]) -> Vec<ServiceLimit<'d>> {
    let mut distinct: Vec<ServiceLimit<'d>> = Vec::new();
    for limit in limits {
        match distinct.iter_mut().find(|known| name(known) == name(limit)) {
            Some(known) if known.quota < limit.quota => *known = limit.clone(),
            Some(_) => {}
            None => distinct.push(limit.clone()),
        }
    }
    distinct
}

/// One item for each name, with the least available quota of all limits with that name. In draft 10, its `t` is the longest wait of all. In
/// draft 11, it is the longest effective window of the limits with the least available: when it ends, more is available.
fn tightest_by_name<'d>(items: Vec<Item<'d>>, draft: StructuredHeaders) -> Vec<Item<'d>> {
    let mut tightest: Vec<Item<'d>> = Vec::new();
    for item in items {
        let Some(known) = tightest.iter_mut().find(|known| known.name == item.name) else {
            tightest.push(item);
            continue;
        };
        let counts_both = draft == StructuredHeaders::Draft10 || item.available == known.available;
        if counts_both {
            known.seconds = known.seconds.zip(item.seconds).map(|(one, other)| one.max(other));
        } else if item.available < known.available {
            known.seconds = item.seconds;
        }
        known.available = known.available.min(item.available);
    }
    tightest
}

/// For a denial, the status with the longer wait. Else the status with less available, even if it is a quota that is over and does not
/// deny. The first if there is no difference.
fn tighter<'d>(first: Reported<'d>, second: Reported<'d>, is_denial: bool) -> Reported<'d> {
    let (one, other) = (first.status, second.status);
    let second_is_tighter = if is_denial { other.reset > one.reset } else { other.remaining < one.remaining };
    if second_is_tighter { second } else { first }
}

/// A structured list (RFC 9651).
fn list<T>(items: &[T], item: impl Fn(&T) -> String) -> String {
    items.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// `"burst";q=100;w=60`.
fn policy(limit: &ServiceLimit<'_>) -> String {
    let mut item = format!("{};q={}", quoted(&name(limit)), limit.quota);
    // Windows in the draft are whole seconds.
    if !limit.in_flight && limit.window.subsec_nanos() == 0 {
        item += &format!(";w={}", limit.window.as_secs());
    }
    item
}

/// `"burst";r=50;t=30`.
fn service_limit(Item { name, available, seconds }: &Item<'_>) -> String {
    let mut item = format!("{};r={available}", quoted(name));
    if let Some(seconds) = seconds {
        item += &format!(";t={seconds}");
    }
    item
}

/// The limit's name, or its numbers if it has none.
fn name<'r>(ServiceLimit { limit, in_flight, .. }: &ServiceLimit<'r>) -> Cow<'r, str> {
    match (limit.name, limit.unit) {
        ("", _) if *in_flight => format!("{}-in-flight", limit.requests).into(),
        ("", Some(unit)) => format!("{}-per-{unit}", limit.requests).into(),
        ("", None) => format!("{}-per-{}", limit.requests, limit.window).into(),
        (name, _) => name.into(),
    }
}

/// A structured String. It holds only visible ASCII; other characters are percent-encoded.
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

/// Whole seconds, rounded up. None if the reset is never or unknown.
fn seconds(reset: Option<Reset>) -> Option<u64> {
    reset?.seconds_rounded_up()
}

/// The longest known wait of the limits that deny (for quotas, the shortest). None if one of them never admits.
fn retry_after(decision: &Decision<'_>) -> Option<Duration> {
    let resets = decision.awaited().filter_map(|status| status.reset);
    // `Never` is greater than any wait.
    match resets.max()? {
        Reset::After(wait) => Some(wait),
        Reset::Never => None,
    }
}

#[cfg(test)]
mod tests;
