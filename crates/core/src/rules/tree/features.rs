//! Facts about a domain that follow from all of its rules, computed once.

/// Features that some rule of a domain has, overrides and blocks included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// A rule replaces limits of others.
    pub replaces: bool,
    /// A limit has a schedule.
    pub schedules: bool,
    /// A rule may queue requests.
    pub queues: bool,
    /// Requests may wait for slots.
    pub waits_for_slots: bool,
    /// A rule has local counters although the domain is shared.
    pub local_rules: bool,
    /// A limit gives tickets: for requests in flight, or for estimates.
    pub tickets: bool,
    /// Whether the class of a request depends on more than its hits: counters of all rules are shared, requests may release slots, or
    /// limits apply by conditions.
    pub is_apart: bool,
}
