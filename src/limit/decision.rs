//! What is answered: a verdict for the request and one for each descriptor.

use super::{OnDeny, Unit, Window};
use smallvec::SmallVec;
use std::{sync::Arc, time::Duration};

/// The verdict on a descriptor, or on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Let it through.
    Ok,
    /// Deny it.
    OverLimit,
}

/// When a descriptor's state will have changed for the better.
///
/// Over: how long until this same request would be admitted if nothing else came.
/// OK: how long until the whole limit is free again if nothing else came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reset {
    /// After exactly this long, and not a nanosecond earlier.
    After(Duration),
    /// Never: the request asks for more than the limit can ever hold.
    Never,
}

impl Reset {
    /// Now already.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// In whole seconds, rounded up, so that a client that waits this long has waited long enough. None for never.
    pub fn seconds_rounded_up(self) -> Option<u64> {
        match self {
            Self::After(wait) => Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            Self::Never => None,
        }
    }
}

/// The limit that a status speaks of, as the wire reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLimit<'r> {
    /// The rule's name; empty if it has none.
    pub name: &'r str,
    /// Hits that fit in one window.
    pub requests: u32,
    /// The window; a month counts as 30 days and a year as 365, also where the calendar is followed.
    pub window: Window,
    /// The window's unit, if the window is exactly one unit long.
    pub unit: Option<Unit>,
}

/// What answers can say of a rule besides the numbers of its limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleInfo {
    /// The way through the tree: `key=value → key`. No two rules of a domain have the same.
    pub path: Arc<str>,
    /// The file, line and column of the descriptor.
    pub declared_at: Box<str>,
    /// It denies only together with every other quota rule of the request.
    pub quota: bool,
    /// Whatever the rule's author wants answers to say of it.
    pub metadata: Option<serde_json::Value>,
    /// What becomes of the requests that it denies; none for a plain denial. Boxed, since few rules have it.
    pub on_deny: Option<Box<OnDeny>>,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status<'r> {
    /// The verdict. A shadow rule's is always OK.
    pub code: Code,
    /// The tightest limit that applies; none if nothing limits the descriptor.
    pub limit: Option<CurrentLimit<'r>>,
    /// How many hits would be admitted now.
    pub remaining: u32,
    /// See [`Reset`]; none where there is no limit.
    pub reset: Option<Reset>,
    /// The rule whose limit this is; none where there is no limit, or where the request brought its own.
    pub rule: Option<&'r RuleInfo>,
}

impl Status<'_> {
    /// No limit applies: no rule matched, the rule only lists, or another rule replaced it.
    pub const NO_LIMIT: Self = Self { code: Code::Ok, limit: None, remaining: 0, reset: None, rule: None };
    /// A rule says that nothing limits this.
    pub const UNLIMITED: Self = Self { remaining: u32::MAX, ..Self::NO_LIMIT };
}

/// The answer for one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision<'r> {
    /// The verdict on the whole.
    pub code: Code,
    /// One for each descriptor, in the request's order.
    pub statuses: SmallVec<[Status<'r>; 4]>,
}
