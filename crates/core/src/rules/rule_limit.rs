//! A limit of a rule, with its schedule: limits that apply at times of the week, instead of the declared limit.
//!
//! All limits of a schedule count by the same algorithm in the same counters, and differ only in the number that they admit: what was used
//! stays used when another limit begins to apply.

use super::{
    Reserve, expressions,
    limits::LimitNumbers,
    semantics::{ChargePolicy, Semantics},
};
use crate::{
    algorithm::{Algorithm, Anchor, Ban, Calendar, Hours, Period, Schedule, State, Timetable},
    key::Fingerprint,
    limit::{CurrentLimit, Descriptor, Entry, Hits, LimitId, Reset, SeriesId, Timestamp, Unit, Window},
};
use std::{
    fmt,
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};
use tidegate_cel::Expression;

/// The part of the keys of a limit's counters that depends on its rule alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPrefix {
    /// Hash of the prefix.
    pub fingerprint: Fingerprint,
    /// Number of keys and values of entries in it, in order. At least the first key: every rule has one.
    pub texts: NonZeroU32,
}

/// One limit of a rule. A rule may have several; all must admit.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleLimit {
    /// Names the limit in its counters.
    pub id: LimitId,
    /// Part of the counter's key: distinguishes the limits of one rule. Made of the limit's name, so that the limits beside it do not
    /// matter. Without a name, it is 0 for the only such limit of a rule, and made of the window if there are several.
    pub tag: u32,
    /// Its index among the limits of the rule set: dense, and not stable across reloads.
    pub index: u32,
    /// Its series in metrics: that of its name, and stable across reloads.
    pub series: SeriesId,
    /// The name in statuses and `replaces`; may be empty.
    pub name: Box<str>,
    /// Hits per window, as statuses report it.
    pub requests: u32,
    /// The most hits that are available at once: the burst of a bucket, else those of a window.
    pub capacity: u32,
    /// The time that `requests` are for.
    pub window: Window,
    /// The window's unit, if it is exactly one unit long.
    pub unit: Option<Unit>,
    /// The arithmetic.
    pub algorithm: Algorithm,
    /// Whether denied requests are charged.
    pub charge: ChargePolicy,
    /// Bound on the hits counted beyond the limit (a debt), in multiples of `requests`. None if nothing bounds them but the algorithm.
    pub debt_max: Option<u32>,
    /// Tidegate's semantics, or those of the reference server.
    pub semantics: Semantics,
    /// Whether its counters are named as the reference server names them: by the joined texts of domain and entries, and the
    /// window. Rules and limits in requests share them, and requests are charged one descriptor after another.
    pub is_joined: bool,
    /// Whether each server counts for itself (`counters: local`), even if the counters of the domain are in a shared store.
    pub is_local: bool,
    /// Whether it is an override's limit, which counts in the counters of a limit of the rule behind it, if it
    /// [continues](Self::is_continued_by) one.
    pub continues: bool,
    /// None until [`RuleSet::set_key_prefixes`](super::RuleSet::set_key_prefixes), which needs the secret of the keys. Always
    /// none where descriptors are found by joined texts.
    pub key_prefix: Option<KeyPrefix>,
    /// Limits that apply at times instead of this one, in the same counters.
    pub schedule: Option<Box<LimitSchedule>>,
    /// The condition of the limit: without it, or if it holds, the limit applies.
    pub when: Option<Arc<Expression>>,
    /// For a limit of an override, the name of the limit that it stands instead of: conditions have it as `limit.name`.
    pub(crate) instead_of: Box<str>,
    /// The limit that counts its denials and begins bans: an [`Algorithm::Ban`], with the name and the numbers of this limit.
    pub ban: Option<Box<Self>>,
    /// The estimate that it charges before the cost of a request is known.
    pub reserve: Option<Reserve>,
    /// Limits that apply instead of this one by the day that an entry states, in the same counters.
    pub(crate) anchors: Option<Box<EntryAnchors>>,
}

impl RuleLimit {
    /// A limit without a name that charges admitted hits, by Tidegate's semantics and without any option.
    pub(super) fn new(
        LimitNumbers { id, index, series }: LimitNumbers,
        tag: u32,
        (requests, window): (u32, Window),
        algorithm: Algorithm,
    ) -> Self {
        Self {
            id,
            tag,
            index,
            series,
            name: "".into(),
            requests,
            capacity: algorithm.capacity().unwrap_or(requests),
            window,
            unit: Unit::of_window(window),
            algorithm,
            charge: ChargePolicy::Admitted,
            debt_max: None,
            semantics: Semantics::Exact,
            is_joined: false,
            is_local: false,
            continues: false,
            key_prefix: None,
            schedule: None,
            when: None,
            instead_of: "".into(),
            ban: None,
            reserve: None,
            anchors: None,
        }
    }

    /// The limit, with the windows that begin on the days which an entry states, if its calendar has such days.
    pub(super) fn with_anchors(self, entry: Option<&AnchorEntry>) -> Self {
        let anchors = entry.and_then(|entry| EntryAnchors::new(entry.clone(), &self));
        Self { anchors: anchors.map(Box::new), ..self }
    }

    /// The entry that states the days on which its windows begin.
    pub(super) fn anchor_entry(&self) -> Option<&AnchorEntry> {
        self.anchors.as_ref().map(|anchors| anchors.entry())
    }

    /// The limits by the day that an entry states, if an entry states it.
    pub(super) fn anchors(&self) -> Option<&EntryAnchors> {
        self.anchors.as_deref()
    }

    /// The limit of a descriptor with these entries: this limit, or the limit of the day that an entry states. None if that is no day.
    #[inline]
    pub(crate) fn of_entries(&self, entries: &[Entry<'_>]) -> Option<&Self> {
        match &self.anchors {
            None => Some(self),
            Some(anchors) => anchors.limit(entries),
        }
    }

    /// Whether its condition holds for a request with these descriptors, if it has one.
    #[inline]
    pub fn applies(&self, descriptors: &[Descriptor<'_>]) -> bool {
        let name = if self.continues { &self.instead_of } else { &self.name };
        self.when.as_ref().is_none_or(|when| expressions::holds(when, name, descriptors))
    }

    /// Whether its charges depend on more than the hits of a request, because it has a condition, a ban or an estimate, gives slots, or has
    /// windows that begin on a day that an entry states.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.when.is_some()
            || self.ban.is_some()
            || self.reserve.is_some()
            || self.anchors.is_some()
            || self.algorithm.holds_slots()
    }

    /// Whether the limit of an override that stands instead of this one, with this window, counts in its counters. A counter keeps hits no
    /// longer than its window: under a shorter window it would forget hits that count here when the override ends. Requests in flight
    /// have no window.
    pub(super) fn is_continued_by(&self, window: Window) -> bool {
        self.window <= window || self.algorithm.holds_slots()
    }

    /// Whether a state counted under the other limit is the same under this limit, whatever was used.
    pub(super) fn keeps_state_of(&self, other: &Self) -> bool {
        self.algorithm.reads_as(&other.algorithm) && self.counted_at_most() == other.counted_at_most()
    }

    /// The limit as a status reports it.
    pub fn current(&self) -> CurrentLimit<'_> {
        let Self { name, requests, capacity, window, unit, .. } = self;
        CurrentLimit { name, requests: *requests, capacity: *capacity, window: *window, unit: *unit }
    }

    /// The hits that a request with `hits` is charged at its start. An estimate is at most what the limit admits at once, which an override
    /// or a schedule may have lowered.
    #[inline]
    pub fn hits_at_start(&self, hits: Hits) -> Hits {
        match (hits, self.reserve) {
            (Hits::Take(_), Some(Reserve { hits: Some(_), .. })) => {
                NonZeroU64::new(self.hits_of_peek()).map_or(hits, Hits::Take)
            }
            _ => hits,
        }
    }

    /// The hits that a peek stands for: those of a request that starts.
    #[inline]
    pub fn hits_of_peek(&self) -> u64 {
        match self.reserve {
            Some(Reserve { hits: Some(hits), .. }) => hits.get().min(self.capacity.max(1)).into(),
            _ => 1,
        }
    }

    /// The most hits that a counter of the limit has, debts and queued hits included; none if only the algorithm bounds them.
    #[inline]
    pub fn counted_at_most(&self) -> Option<u64> {
        let debt = u64::from(self.debt_max?).saturating_mul(self.requests.into());
        let queued =
            self.algorithm.queueing().and_then(|bucket| bucket.queue).map_or(0, |queue| queue.hits_max);
        Some(debt.saturating_add(self.capacity.into()).saturating_add(queued.into()))
    }

    /// The part of always-counted hits that the bound on debts allows.
    #[inline]
    pub(crate) fn within_debt(&self, state: &State, hits: u64, now: Timestamp) -> u64 {
        match self.counted_at_most() {
            None => hits,
            Some(most) => hits.min(most.saturating_sub(self.algorithm.used(state, now))),
        }
    }

    /// The least wait until `hits` would be admitted if no other hits arrived, by its schedule too.
    #[inline]
    pub fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        match &self.schedule {
            None => self.algorithm.until_admits(state, hits, now),
            Some(schedule) => schedule.until_admits(self, state, (0, |_: &Self| hits), now),
        }
    }

    /// As [`Self::until_admits`], for a request that also gives hits back, and that charges each limit of the schedule its own `hits`.
    pub(crate) fn until_admits_any(
        &self,
        state: &State,
        (given, hits): (u64, impl Fn(&Self) -> u64),
        now: Timestamp,
    ) -> Reset {
        match &self.schedule {
            None => self.algorithm.until_admits_after(state, (given, hits(self)), now),
            Some(schedule) => schedule.until_admits(self, state, (given, hits), now),
        }
    }

    /// The calendar that its windows follow, for people: `month from 17 06:00 in Europe/Berlin`.
    pub fn calendar(&self) -> Option<String> {
        let calendar = self.algorithm.calendar()?;
        Some(match &self.anchors {
            None => calendar.to_string(),
            Some(anchors) => {
                let (unit, key) = (calendar.period().unit(), &anchors.entry().key);
                format!("{unit} from the day in {key} in {}", calendar.zone().name())
            }
        })
    }

    /// Its ban of keys, if it has one.
    pub fn ban(&self) -> Option<Ban> {
        match self.ban.as_ref()?.algorithm {
            Algorithm::Ban(ban) => Some(ban),
            _ => None,
        }
    }

    /// The limit that applies at a moment: this limit, or one of its schedule.
    #[inline]
    pub fn at(&self, now: Timestamp) -> &Self {
        self.schedule.as_ref().and_then(|schedule| schedule.limit_at(now)).unwrap_or(self)
    }

    /// The limit that admits most at any time: this limit, or one of its schedule.
    pub(super) fn greatest(&self) -> &Self {
        let scheduled = self.schedule.iter().flat_map(|schedule| schedule.limits());
        scheduled
            .fold(self, |greatest, limit| if limit.requests > greatest.requests { limit } else { greatest })
    }

    /// Whether it counts admitted hits only, in a state of two words, denies others at once, and has Tidegate's semantics.
    pub(super) fn is_plain(&self) -> bool {
        self.counts_plainly() && self.algorithm.keeps_words()
    }

    /// Whether it counts admitted hits only, by one number at all times, bans and queues none, gives them no tickets, has Tidegate's
    /// semantics, and has the same windows for all keys.
    pub(super) fn counts_plainly(&self) -> bool {
        self.charge == ChargePolicy::Admitted
            && self.semantics == Semantics::Exact
            && self.algorithm.queueing().is_none()
            && self.when.is_none()
            && self.schedule.is_none()
            && !self.algorithm.holds_slots()
            && self.ban.is_none()
            && self.reserve.is_none()
            && self.anchors.is_none()
    }
}

/// The limits of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitSchedule {
    timetable: Timetable,
    /// By the hours of the timetable.
    limits: Box<[RuleLimit]>,
}

/// A limit and its hours: `50 mon-fri 08:00-18:00 Europe/Berlin`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScheduledLimit<'s> {
    /// Hits per window; [`LimitSchedule::UNLIMITED`] if nothing limits them.
    pub requests: u32,
    /// The times of the week.
    pub hours: Hours,
    /// The time zone.
    pub zone: &'s str,
}

impl LimitSchedule {
    /// A number that no counter exceeds.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The numbers that `declared` admits in the hours of the timetable.
    pub(super) fn new(timetable: Timetable, declared: &RuleLimit, requests: &[u32]) -> Self {
        let limit = |&requests: &u32| {
            let algorithm = declared.algorithm.with_requests(requests, declared.requests, declared.window);
            let capacity = algorithm.capacity().unwrap_or(requests);
            RuleLimit { requests, capacity, algorithm, ..declared.clone() }
        };
        Self { timetable, limits: requests.iter().map(limit).collect() }
    }

    /// Its limits.
    pub(super) fn limits(&self) -> &[RuleLimit] {
        &self.limits
    }

    /// The times at which its limits apply.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Its limits, the first of which applies where hours overlap.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = ScheduledLimit<'_>> {
        let zone = self.timetable.zone().name();
        let both = self.timetable.hours().iter().zip(&self.limits);
        both.map(move |(hours, limit)| ScheduledLimit { requests: limit.requests, hours: *hours, zone })
    }

    /// The limit that applies at a moment instead of the declared limit.
    #[inline]
    pub(crate) fn limit_at(&self, now: Timestamp) -> Option<&RuleLimit> {
        self.limits.get(self.timetable.at(now)?)
    }

    /// The least wait until the limit that applies then admits what it would charge, if no other hits arrived and the request gives back
    /// `given` hits.
    fn until_admits(
        &self,
        declared: &RuleLimit,
        state: &State,
        (given, hits): (u64, impl Fn(&RuleLimit) -> u64),
        now: Timestamp,
    ) -> Reset {
        let all = self.limits.iter().enumerate().map(|(index, limit)| (Some(index), limit));
        // Hits that fit a limit still fit it later: of each limit only the first moment matters.
        let moments = all.chain([(None, declared)]).filter_map(|(hours, limit)| {
            match limit.algorithm.until_admits_after(state, (given, hits(limit)), now) {
                Reset::After(wait) => self.timetable.first_at(hours, now.saturating_add(wait)),
                Reset::Never => None,
            }
        });
        moments.min().map_or(Reset::Never, |moment| Reset::After(moment.since(now)))
    }

    /// Whether both admit the same at the same times.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.timetable == other.timetable && self.entries().eq(other.entries())
    }
}

impl fmt::Display for ScheduledLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.requests {
            LimitSchedule::UNLIMITED => f.write_str("unlimited")?,
            requests => write!(f, "{requests}")?,
        }
        write!(f, " {} {}", self.hours, self.zone)
    }
}

/// The entry of a descriptor that states the day on which windows begin.
#[derive(Clone, PartialEq, Debug)]
pub struct AnchorEntry {
    /// Its key.
    pub key: Box<str>,
    /// Its index among the entries.
    pub index: u32,
}

/// The limits by the day that an entry states.
#[derive(Clone, PartialEq, Debug)]
pub struct EntryAnchors {
    entry: AnchorEntry,
    period: Period,
    /// In the order of [`Anchor::days`].
    limits: Box<[RuleLimit]>,
}

impl EntryAnchors {
    /// The anchors of a limit whose calendar has [`Anchor::OF_ENTRY`].
    pub(super) fn new(entry: AnchorEntry, declared: &RuleLimit) -> Option<Self> {
        let calendar = declared.algorithm.calendar()?;
        let limit = |anchor| RuleLimit {
            algorithm: from(&declared.algorithm, calendar, anchor),
            anchors: None,
            ..declared.clone()
        };
        let limits = Anchor::days(calendar.period()).map(limit).collect();
        Some(Self { entry, period: calendar.period(), limits })
    }

    /// The limit of a descriptor with these entries; none if the value of its entry is no day.
    pub(crate) fn limit(&self, entries: &[Entry<'_>]) -> Option<&RuleLimit> {
        let value = entries.get(self.entry.index as usize)?.value;
        self.limits.get(Anchor::parse_day(self.period, value)?.day_index())
    }

    /// The entry that states the day.
    pub(super) fn entry(&self) -> &AnchorEntry {
        &self.entry
    }

    /// The period of the windows.
    pub(super) fn period(&self) -> Period {
        self.period
    }
}

/// The same fixed window, with periods from another anchor on.
fn from(algorithm: &Algorithm, calendar: &Calendar, anchor: Anchor) -> Algorithm {
    let limit = algorithm.fixed().map_or(0, |fixed| fixed.limit);
    Algorithm::fixed_window(limit, Schedule::Calendar(calendar.from(anchor)))
}
