//! A rule: the limits and options of one node of the rule tree, for the descriptors that match it.

use super::{Origin, conditions, schedule::Schedule};
use crate::{
    algorithm::{Algorithm, Ban, FixedWindow, Schedule as Ends, SlidingWindow, State},
    key::Fingerprint,
    limit::{CurrentLimit, Descriptor, LimitId, Reset, RuleInfo, SeriesId, Timestamp, Unit, Window},
    prefetch::prefetch,
};
use smallvec::SmallVec;
use std::{num::NonZeroU32, sync::Arc};
use tidegate_cel::Expression;

/// The requests whose hits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Charge {
    /// Hits of admitted requests.
    #[default]
    Admitted,
    /// Hits are counted in any case, beyond the limit too: for costs that are known only afterwards.
    Always,
}

/// Semantics of decisions where Tidegate and the reference server differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Semantics {
    /// Exact resets; a peek reports whether one more hit would be admitted.
    #[default]
    Exact,
    /// As the reference server: a reset is the end of the window, and a peek is admitted at exactly the limit.
    Reference,
}

impl Semantics {
    /// See [`RuleLimit::is_joined`]: holds for limits that the reference server has too.
    pub(super) fn joins(self, algorithm: &Algorithm, charge: Charge, unit: Option<Unit>) -> bool {
        let is_on_the_clock =
            matches!(algorithm, Algorithm::FixedWindow(FixedWindow { schedule: Ends::Clock(_), .. }));
        self == Self::Reference && is_on_the_clock && charge == Charge::Always && unit.is_some()
    }

    /// The algorithm of a limit that names none, unless [`LoadOptions`](super::LoadOptions) have a default.
    pub(super) fn algorithm(self, limit: u32, window: Window) -> Algorithm {
        match self {
            Self::Exact => Algorithm::SlidingWindow(SlidingWindow { limit, window }),
            Self::Reference => Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
        }
    }
}

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
    /// Which limit a counter belongs to.
    pub id: LimitId,
    /// Part of the counter's key: distinguishes the limits of one rule. Made of the limit's name, so that the limits
    /// beside it do not matter; 0 for the only limit without a name, made of the window for one of several without.
    pub tag: u32,
    /// Index of its name in [`RuleSet::limit_names`](super::RuleSet::limit_names): dense, and not stable across reloads.
    pub index: u32,
    /// Its series in metrics: that of its name, and stable across reloads.
    pub series: SeriesId,
    /// The name in statuses and `replaces`; may be empty.
    pub name: Box<str>,
    /// Hits per window, as statuses report it.
    pub requests: u32,
    /// The time that `requests` are for.
    pub window: Window,
    /// The window's unit, if it is exactly one unit long.
    pub unit: Option<Unit>,
    /// The arithmetic.
    pub algorithm: Algorithm,
    /// Whether denied requests are charged.
    pub charge: Charge,
    /// Tidegate's semantics, or those of the reference server.
    pub semantics: Semantics,
    /// Whether its counters are named as the reference server names them: by the joined texts of domain and entries, and the
    /// window. Rules and limits in requests share them, and requests are charged one descriptor after another.
    pub is_joined: bool,
    /// Whether each server counts for itself (`counters: local`), also where the counters of the domain are in a shared store.
    pub is_local: bool,
    /// Whether it is that of an override, whose counters are those of the rule behind it.
    pub continues: bool,
    /// None until [`RuleSet::set_key_prefixes`](super::RuleSet::set_key_prefixes), which needs the secret of the keys. None
    /// also where descriptors are found by joined texts.
    pub key_prefix: Option<KeyPrefix>,
    /// Limits that apply at times in the place of this one, in the same counters.
    pub schedule: Option<Box<Schedule>>,
    /// The condition of the limit: without it, or if it holds, the limit applies.
    pub when: Option<Arc<Expression>>,
    /// Its denials and the bans that they begin: a limit that is [`Algorithm::Ban`], with the name and the numbers of this one.
    pub ban: Option<Box<Self>>,
}

impl RuleLimit {
    /// Whether its condition holds for a request with these descriptors, if it has one.
    #[inline]
    pub fn applies(&self, descriptors: &[Descriptor<'_>]) -> bool {
        self.when.as_ref().is_none_or(|when| conditions::holds(when, self, descriptors))
    }

    /// The limit as a status reports it.
    pub fn current(&self) -> CurrentLimit<'_> {
        let (requests, capacity) = (self.requests, self.capacity());
        CurrentLimit { name: &self.name, requests, capacity, window: self.window, unit: self.unit }
    }

    /// The most hits that are available at once: the burst of a bucket, else those of a window.
    #[inline]
    pub fn capacity(&self) -> u32 {
        match &self.algorithm {
            Algorithm::TokenBucket(bucket) => bucket.size,
            Algorithm::LeakyBucket(bucket) => bucket.burst,
            _ => self.requests,
        }
    }

    /// The least wait after which `hits` would be admitted if no other hits arrived, by its schedule too.
    #[inline]
    pub fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        match &self.schedule {
            None => self.algorithm.until_admits(state, hits, now),
            Some(schedule) => schedule.until_admits(self, state, hits, now),
        }
    }

    /// When it bans a key.
    pub fn ban(&self) -> Option<Ban> {
        match self.ban.as_ref()?.algorithm {
            Algorithm::Ban(ban) => Some(ban),
            _ => None,
        }
    }

    /// The limit that applies at a moment: this one, or one of its schedule.
    #[inline]
    pub fn at(&self, now: Timestamp) -> &Self {
        self.schedule.as_ref().and_then(|schedule| schedule.limit_at(now)).unwrap_or(self)
    }

    /// Whether it counts admitted hits only, in a state of two words, denies others at once, and has Tidegate's semantics.
    fn is_plain(&self) -> bool {
        self.counts_plainly() && self.algorithm.keeps_words()
    }

    /// Whether it counts admitted hits only, by one number at all times, bans and queues none, gives them no slots, and has Tidegate's
    /// semantics.
    fn counts_plainly(&self) -> bool {
        self.charge == Charge::Admitted
            && self.semantics == Semantics::Exact
            && self.algorithm.queueing().is_none()
            && self.when.is_none()
            && self.schedule.is_none()
            && !self.algorithm.holds_slots()
            && self.ban.is_none()
    }
}

/// A node of the tree. One that has no limits and is not unlimited only lists its descriptors: OK.
///
/// The fields that most decisions read are first and adjacent: with many rules, none is in a near cache.
#[derive(Clone, PartialEq, Debug)]
#[repr(C)]
pub struct Rule {
    /// All must admit. Empty for an unlimited rule and for an allow-list entry.
    pub limits: SmallVec<[RuleLimit; 1]>,
    /// See [`Rule::plain_limit`]; computed once, from fields in other cache lines.
    pub(super) has_plain_limit: bool,
    /// Whether [`RuleInfo::shown_values`] has any.
    pub shows_values: bool,
    /// Not limited, and reported as such.
    pub unlimited: bool,
    /// Nothing is denied.
    pub shadow: bool,
    /// Description of the rule for responses: its path, and options.
    pub info: RuleInfo,
    /// Place at which the descriptor is declared.
    pub origin: Origin,
    /// Place of the extension with further keys, in another document.
    pub extended_at: Option<Box<Origin>>,
    /// Names of limits that do not apply to a request that matches this rule.
    pub replaces: Box<[Box<str>]>,
    /// Metrics show every value of the descriptor, not only those that the rule names.
    pub detailed_metric: bool,
    /// Metrics show the value of this rule's entry, even if the rule names none.
    pub value_to_metric: bool,
    /// Index of the entry whose value chooses the slot of the counters in a cluster; all entries choose it if none.
    pub shard_by: Option<u32>,
    /// Whether shared counters of the rule are never leased: the store makes every decision.
    pub is_never_leased: bool,
}

impl Rule {
    /// The same rule with `has_plain_limit` computed.
    pub(super) fn with_plain_limit(mut self) -> Self {
        let is_plain = !self.shadow && !self.info.quota && !self.unlimited;
        self.has_plain_limit = is_plain && matches!(&*self.limits, [limit] if limit.is_plain());
        self
    }

    /// The origin and that of the extension, as people and tools are shown them.
    pub fn declared_at(&self) -> String {
        match &self.extended_at {
            None => self.origin.to_string(),
            Some(extension) => format!("{}, extended at {extension}", self.origin),
        }
    }

    /// Prefetches the fields that a decision reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.limits);
        prefetch(&self.has_plain_limit);
    }

    /// The plain limit of a rule: its only limit, which denies requests over it and counts only admitted hits, in a state of
    /// two words.
    #[inline]
    pub fn plain_limit(&self) -> Option<&RuleLimit> {
        if self.has_plain_limit { self.limits.first() } else { None }
    }

    /// The limit of a rule whose shared counters may be leased: its only limit, which denies requests over it, counts only admitted
    /// hits, and queues none.
    pub fn leasable_limit(&self) -> Option<&RuleLimit> {
        let is_plain = !self.shadow && !self.info.quota && !self.unlimited;
        match &*self.limits {
            [limit] if is_plain && !limit.is_local && !self.is_never_leased && limit.counts_plainly() => {
                Some(limit)
            }
            _ => None,
        }
    }

    /// Whether each server counts for itself, also where the counters of the domain are in a shared store.
    pub fn is_local(&self) -> bool {
        self.limits.iter().any(|limit| limit.is_local)
    }

    /// `counters` as a rule file has it; `default` if it does not.
    pub fn counters_text(&self) -> &'static str {
        if self.is_local() { "local" } else { "default" }
    }

    /// `lease` as a rule file has it.
    pub fn lease_text(&self) -> &'static str {
        if self.is_never_leased { "off" } else { "auto" }
    }

    /// The semantics of its limits.
    pub fn semantics(&self) -> Semantics {
        self.limits.first().map_or_else(Semantics::default, |limit| limit.semantics)
    }

    /// The limit of this rule that the limit of this index of an override with these windows is in the place of: that of its window, else
    /// that of its position, unless another limit of the override is in the place of that.
    pub fn overridden_limit(&self, index: usize, windows: &[Window]) -> Option<&RuleLimit> {
        let window = *windows.get(index)?;
        let of_window = self.limits.iter().find(|limit| limit.window == window);
        let of_position = || self.limits.get(index).filter(|limit| !windows.contains(&limit.window));
        of_window.or_else(of_position)
    }

    /// Whether hits count under it: not if it is a block, or an override without limits to count under.
    pub(crate) fn is_counted(&self) -> bool {
        self.limits.iter().any(|limit| limit.continues)
    }

    /// Whether it has a limit of requests in flight.
    pub fn holds_slots(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.holds_slots())
    }

    /// Whether its requests may wait for slots. Those of a quota do not, since another quota may admit them.
    pub fn waits_for_slots(&self) -> bool {
        !self.shadow
            && !self.info.quota
            && self.limits.iter().any(|limit| limit.algorithm.slot_queue().is_some())
    }

    /// Whether it may queue requests.
    pub fn may_queue(&self) -> bool {
        !self.shadow && self.limits.iter().any(|limit| limit.algorithm.queueing().is_some())
    }
}
