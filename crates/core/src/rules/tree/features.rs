//! Facts about a domain that follow from all of its rules, computed once.

use super::Rule;

/// Features that some rule of a domain has, overrides and blocks included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    /// A rule replaces limits of others.
    pub(super) replaces: bool,
    /// A limit has a schedule.
    pub(super) schedules: bool,
    /// A rule may queue requests.
    pub(super) queues: bool,
    /// Requests may wait for slots.
    pub(super) waits_for_slots: bool,
    /// A rule has local counters although the domain is shared.
    pub(super) local_rules: bool,
    /// A limit gives tickets: for requests in flight, or for estimates.
    pub(super) tickets: bool,
    /// See [`DomainRules::is_apart`](super::DomainRules::is_apart).
    pub(super) is_apart: bool,
}

/// The domain of the rules.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) is_shared: bool,
    /// Whether limits apply by conditions.
    pub(super) is_conditional: bool,
    /// Whether limits that requests bring along charge estimates.
    pub(super) requests_reserve: bool,
}

impl Features {
    /// The features of a domain with these rules.
    pub(super) fn of(rules: &[&Rule], kind: Kind) -> Self {
        let any = |has: fn(&Rule) -> bool| rules.iter().any(|rule| has(rule));
        let local_rules = kind.is_shared && any(Rule::is_local);
        let tickets = any(|rule| rule.holds_slots() || rule.reserves()) || kind.requests_reserve;
        Self {
            replaces: any(|rule| !rule.replaces.is_empty()),
            schedules: any(|rule| rule.limits.iter().any(|limit| limit.schedule.is_some())),
            queues: any(Rule::may_queue),
            waits_for_slots: any(Rule::waits_for_slots),
            local_rules,
            tickets,
            is_apart: tickets || kind.is_conditional || kind.is_shared && !local_rules,
        }
    }
}
