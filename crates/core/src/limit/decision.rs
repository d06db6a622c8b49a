//! A decision: the verdict on a request, and a status for each descriptor.

use super::{OnDeny, SeriesId, Unit, Window};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::{sync::Arc, time::Duration};

/// The verdict on a descriptor, or on a request. In files its name is that of the rate limit API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// Admitted.
    Ok,
    /// Denied.
    OverLimit,
}

/// Time until a descriptor's numbers improve, if no other request arrives.
///
/// OVER_LIMIT: the wait after which this same request is admitted. OK: the wait after which the whole limit is free again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reset {
    /// After exactly this long, and not a nanosecond earlier.
    After(Duration),
    /// Never: the hits exceed what the limit ever admits.
    Never,
}

impl Reset {
    /// Now.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// In whole seconds, rounded up, so that a client that waits this long has waited long enough. None for never.
    pub fn seconds_rounded_up(self) -> Option<u64> {
        match self {
            Self::After(wait) => Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            Self::Never => None,
        }
    }
}

/// A ban of a key by a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BanPhase {
    /// None.
    #[default]
    None,
    /// It begins with this request, which the limit denies.
    Begins,
    /// It is in force, and denies this request.
    InForce,
}

impl BanPhase {
    /// The name in logs and metadata; none without a ban.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Begins => Some("begins"),
            Self::InForce => Some("in_force"),
        }
    }
}

/// Why hits that exceed no limit were denied, or hits were admitted that no limit has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenialCause {
    /// They need a new counter, and there is no room for it.
    CountersFull,
    /// The shared store did not decide.
    StoreAway,
}

impl DenialCause {
    /// The name in logs, metadata and the control API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CountersFull => "counters_full",
            Self::StoreAway => "store_away",
        }
    }
}

/// The limit of a status, as `current_limit` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLimit<'r> {
    /// The rule's name; empty if it has none.
    pub name: &'r str,
    /// Hits that fit in one window.
    pub requests: u32,
    /// The most hits that are available at once: the burst of a bucket, else those of a window.
    pub capacity: u32,
    /// The window; a month counts as 30 days and a year as 365, even where windows follow the calendar.
    pub window: Window,
    /// The window's unit, if the window is exactly one unit long.
    pub unit: Option<Unit>,
}

/// Facts about a rule that responses may carry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleInfo {
    /// The path through the tree: `key=value → key`. Unique in a domain.
    pub path: Arc<str>,
    /// The file, line and column of the descriptor.
    pub declared_at: Box<str>,
    /// Whether it denies only if every quota rule of the request is over its limit.
    pub quota: bool,
    /// Whether one of its limits queues hits that do not fit: its denials depend on the caller's deadline.
    pub queues: bool,
    /// Whether one of its limits is of requests in flight: its resets are estimates.
    pub holds_slots: bool,
    /// The entries whose values metrics show, the first one in the lowest bit.
    pub shown_values: u64,
    /// For each entry the text by which the reference server finds it, for metrics with its names. Empty except with its
    /// semantics.
    pub metric_labels: Box<[MetricLabel]>,
    /// The `metadata` of the rule, free for its author.
    pub metadata: Option<serde_json::Value>,
    /// The response to requests that it denies; none for a plain denial. Boxed because few rules have it.
    pub on_deny: Option<Box<OnDeny>>,
}

/// An entry of a rule as the reference server names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricLabel {
    /// `key_value`, or the key alone; either may have wildcards.
    pub text: Box<str>,
    /// All values that match share one counter.
    pub shares_counter: bool,
}

/// The status of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status<'r> {
    /// The verdict. A shadow rule's is always OK.
    pub code: Code,
    /// The tightest limit that applies; none if nothing limits the descriptor.
    pub limit: Option<CurrentLimit<'r>>,
    /// Hits that would be admitted now.
    pub remaining: u32,
    /// See [`Reset`]; none where there is no limit.
    pub reset: Option<Reset>,
    /// The rule of the limit; none without a limit, or for a limit in the request.
    pub rule: Option<&'r RuleInfo>,
    /// The series of the limit.
    pub series: SeriesId,
    /// Whether the hits did not fit. In shadow mode the code is OK nonetheless.
    pub is_over: bool,
    /// The ban of the limit, which makes the hits not fit.
    pub ban: BanPhase,
    /// Whether metrics show values of the descriptor: see [`RuleInfo::shown_values`].
    pub shows_values: bool,
}

impl Status<'_> {
    /// No limit applies: no rule matched, the rule only lists, or another rule replaced it.
    pub const NO_LIMIT: Self = Self {
        code: Code::Ok,
        limit: None,
        remaining: 0,
        reset: None,
        rule: None,
        series: SeriesId::OTHER,
        is_over: false,
        ban: BanPhase::None,
        shows_values: false,
    };
    /// The rule has `unlimited: true`.
    pub const UNLIMITED: Self = Self { remaining: u32::MAX, ..Self::NO_LIMIT };

    /// Whether it is [`Self::NO_LIMIT`].
    #[inline]
    pub fn is_without_limit(&self) -> bool {
        self.limit.is_none() && self.remaining == 0 && self.code == Code::Ok
    }
}

/// A limit that applied to a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedLimit {
    /// Index of the descriptor.
    pub descriptor: u32,
    /// See [`CurrentLimit::capacity`].
    pub capacity: u32,
    /// Hits that would be admitted now.
    pub remaining: u32,
    /// The series of the limit.
    pub series: SeriesId,
    /// Whether the hits did not fit.
    pub is_over: bool,
    /// See [`Status::reset`].
    pub reset: Option<Reset>,
    /// See [`Status::ban`].
    pub ban: BanPhase,
}

/// The slots that an admitted request holds while it is in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantedSlot {
    /// Names them in a release.
    pub ticket: Box<str>,
    /// The most hits of one slot.
    pub cost: u64,
    /// The shortest time for which a slot is held, unless it is renewed.
    pub hold: Duration,
}

/// One limit that applies to a descriptor, and its counter at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceLimit<'r> {
    /// Index of the descriptor in the request.
    pub descriptor: usize,
    /// The limit, as a status reports it.
    pub limit: CurrentLimit<'r>,
    /// The most hits that are ever available at once: the burst of a bucket, else the hits of a window.
    pub quota: u32,
    /// The time in which `quota` hits become available: for a bucket the time to refill it, else the window.
    pub window: Duration,
    /// Whether it limits requests in flight, which have no window: `window` is then the longest time that a slot is held.
    pub in_flight: bool,
    /// Hits available now. At most `quota`.
    pub available: u32,
    /// The effective window: how long no more than `available` hits can be used. It is `window` if nothing is used.
    /// Never for a limit that admits nothing.
    pub effective_window: Reset,
    /// The wait until it would admit the hits of the request, if it does not admit them now.
    pub denied_for: Option<Reset>,
    /// Time until the end of the ban of its key, if one is in force.
    pub banned_for: Option<Duration>,
    /// The held slots, for operators: only for a limit of requests in flight, and only if requested.
    pub slots: Option<HeldSlots>,
    /// What is reserved, for operators: only for a limit with open reservations, and only if requested.
    pub reserved: Option<ReservedHits>,
}

/// Estimates of one key whose actual costs are not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservedHits {
    /// Number of requests.
    pub requests: usize,
    /// Their estimates.
    pub hits: u64,
}

/// Slots of requests in flight of one key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldSlots {
    /// Number of all.
    pub count: usize,
    /// The first of them, at most [`HeldSlots::SHOWN_MAX`], by the time at which they end.
    pub first: Vec<HeldSlot>,
}

impl HeldSlots {
    /// Slots that are listed one by one.
    pub const SHOWN_MAX: usize = 100;
}

/// A slot at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSlot {
    /// Hits that it holds.
    pub hits: u32,
    /// Time since it was taken.
    pub age: Duration,
    /// Time until it ends, if it is not released.
    pub left: Duration,
}

/// Numbers of a decision that only some responses and metrics report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RareNumbers<'r> {
    /// Hits that the counter of each descriptor has beyond its limit; empty if there are none, or with Tidegate's semantics.
    pub excess: Box<[u64]>,
    /// The limits that apply, where the counters are not in this process and responses report them.
    pub service_limits: Option<Vec<ServiceLimit<'r>>>,
    /// Whether a shared store should have decided, and did not.
    pub is_without_store: bool,
    /// Indices of descriptors whose entry for the day on which their windows begin is no day.
    pub unknown_days: Vec<u32>,
}

/// The decision on one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision<'r> {
    /// The verdict on the request.
    pub code: Code,
    /// One for each descriptor, in the request's order.
    pub statuses: SmallVec<[Status<'r>; 4]>,
    /// Limits that no status reports, for metrics: those of rules with several limits.
    pub beside: SmallVec<[AppliedLimit; 2]>,
    /// Numbers that few decisions have. Boxed together, so that most decisions are smaller.
    pub rare: Option<Box<RareNumbers<'r>>>,
    /// The slots that the request holds, if a limit of requests in flight applies to it. Boxed because few do.
    pub slot: Option<Box<GrantedSlot>>,
    /// Number of the decision: of two decisions on one counter, the later has the greater number. 0 if decisions are not numbered.
    pub number: u64,
}

impl<'r> Decision<'r> {
    /// A decision in which at most one limit applies to each descriptor.
    #[inline]
    pub fn new(code: Code, statuses: SmallVec<[Status<'r>; 4]>) -> Self {
        Self { code, statuses, beside: SmallVec::new(), rare: None, slot: None, number: 0 }
    }

    /// Whether a shared store should have decided, and did not.
    pub fn is_without_store(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_without_store)
    }

    /// Why the hits of a status were denied, or admitted uncounted, if not by a limit: nothing is then known of the counter.
    pub fn cause(&self, status: &Status<'_>) -> Option<DenialCause> {
        status.limit?;
        // A counter that has decided has hits that remain, or a time until they do.
        let is_uncounted = !status.is_over && status.remaining == 0 && status.reset.is_none();
        if is_uncounted && self.is_without_store() {
            return Some(DenialCause::StoreAway);
        }
        self.cause_of(status.is_over, status.reset)
    }

    /// Why hits of one limit were denied.
    pub fn cause_of(&self, is_over: bool, reset: Option<Reset>) -> Option<DenialCause> {
        let cause = if self.is_without_store() { DenialCause::StoreAway } else { DenialCause::CountersFull };
        (is_over && reset.is_none()).then_some(cause)
    }

    /// Hits that the counter of a descriptor has beyond its limit, with the semantics of the reference server.
    pub fn excess(&self, descriptor: usize) -> u64 {
        self.rare.as_ref().and_then(|rare| rare.excess.get(descriptor)).copied().unwrap_or(0)
    }

    /// See [`RareNumbers::service_limits`].
    pub fn service_limits(&self) -> Option<&[ServiceLimit<'r>]> {
        self.rare.as_ref()?.service_limits.as_deref()
    }
}
