//! Settings of a domain that is served over RLQS.

use super::percent::Percent;

/// How a domain is served over RLQS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaSettings {
    /// Number of clients that share each limit, as the rule file states it. There may be more.
    pub clients: u32,
    /// The most that the clients of one peer may have of a limit together.
    pub max_share: Percent,
    /// Most of a limit that all clients together have if nothing records assignments: a starting server counts that much as assigned.
    pub unrecorded: Percent,
    /// The least part of each limit that clients together must get at worst; a rule with less is an error.
    pub min_use: Percent,
}
