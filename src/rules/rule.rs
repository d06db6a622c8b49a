//! What one node of the rule tree says about the descriptors that reach it.

use super::Origin;
use crate::{
    algorithm::{Algorithm, FixedWindow, SlidingWindow},
    key::Fingerprint,
    limit::{CurrentLimit, LimitId, RuleInfo, Unit, Window},
    prefetch::prefetch,
};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// What happens to a counter when its limit does not admit the hits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Charge {
    /// Hits are counted only if the whole request is admitted.
    #[default]
    Admitted,
    /// Hits are counted in any case, beyond the limit too: what was used is known only afterwards.
    Always,
}

/// Whose answers to give where Tidegate's are better than the reference server's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Semantics {
    /// Exact resets; a peek tells whether one more hit would be admitted.
    #[default]
    Exact,
    /// As the reference server: a reset is the end of the window, and a check passes at exactly the limit.
    Reference,
}

impl Semantics {
    /// The algorithm of a limit that names none.
    pub(super) fn algorithm(self, limit: u32, window: Window) -> Algorithm {
        match self {
            Self::Exact => Algorithm::SlidingWindow(SlidingWindow { limit, window }),
            Self::Reference => Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
        }
    }
}

/// The keys of a limit's counters, as far as its rule alone tells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPrefix {
    /// What is hashed by then.
    pub fingerprint: Fingerprint,
    /// How many keys and values of entries are in it, in their order. At least the first key: every rule has one.
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
    /// The name that answers and `replaces` use; may be empty.
    pub name: Box<str>,
    /// Hits per window, as answers report it.
    pub requests: u32,
    /// The time that `requests` are for.
    pub window: Window,
    /// The window's unit, if it is exactly one unit long.
    pub unit: Option<Unit>,
    /// The arithmetic.
    pub algorithm: Algorithm,
    /// What a denied request does to the counter.
    pub charge: Charge,
    /// Ours, or the reference server's.
    pub semantics: Semantics,
    /// None until somebody who has the secret of the keys [starts](super::RuleSet::set_key_prefixes) them.
    pub key_prefix: Option<KeyPrefix>,
}

impl RuleLimit {
    /// The limit as a status reports it.
    pub fn current(&self) -> CurrentLimit<'_> {
        CurrentLimit { name: &self.name, requests: self.requests, window: self.window, unit: self.unit }
    }

    /// Whether it counts what is admitted and nothing else, in two words, denies at once what is not, and answers as
    /// Tidegate does.
    fn is_plain(&self) -> bool {
        let algorithm = &self.algorithm;
        self.charge == Charge::Admitted
            && self.semantics == Semantics::Exact
            && algorithm.keeps_words()
            && algorithm.queueing().is_none()
    }
}

/// What a node of the tree says. A node that has no limits and is not unlimited only lists its descriptors: OK.
///
/// What most decisions read comes first, side by side: of many rules none is in a near cache.
#[derive(Clone, PartialEq, Debug)]
#[repr(C)]
pub struct Rule {
    /// All must admit. Empty for an unlimited or a merely listed descriptor.
    pub limits: SmallVec<[RuleLimit; 1]>,
    /// See [`Rule::plain_limit`]; found out once, from what lies further off.
    pub(super) has_plain_limit: bool,
    /// Nothing limits this, and the answer says so.
    pub unlimited: bool,
    /// Would-be denials are reported in metrics only.
    pub shadow: bool,
    /// What answers can say of it, its path above all.
    pub info: RuleInfo,
    /// Where the descriptor is declared.
    pub origin: Origin,
    /// Names of limits that do not apply to a request that reaches this rule.
    pub replaces: Box<[Box<str>]>,
    /// Metrics show every value of the descriptor, not only those that the rule names.
    pub detailed_metric: bool,
    /// Metrics show the value of this rule's entry, even if the rule names none.
    pub value_to_metric: bool,
}

impl Rule {
    /// The same, knowing whether it has a plain limit.
    pub(super) fn with_plain_limit(mut self) -> Self {
        let is_plain = !self.shadow && !self.info.quota && !self.unlimited;
        self.has_plain_limit = is_plain && matches!(&*self.limits, [limit] if limit.is_plain());
        self
    }

    /// Asks memory for what a decision reads of it, and does not wait.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.limits);
        prefetch(&self.has_plain_limit);
    }

    /// The limit of a rule that does nothing but limit: it is alone, it denies what is over it, and only what is admitted
    /// is counted, in two words.
    #[inline]
    pub fn plain_limit(&self) -> Option<&RuleLimit> {
        if self.has_plain_limit { self.limits.first() } else { None }
    }

    /// Whether it may hold an answer until its turn.
    pub fn may_queue(&self) -> bool {
        !self.shadow && self.limits.iter().any(|limit| limit.algorithm.queueing().is_some())
    }
}
