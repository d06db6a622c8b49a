//! The headers of the reference server.

use crate::limit::{Code, Decision, Status};
use smol_str::SmolStr;

/// Three plain numbers of one descriptor, as the reference server sends them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceHeaders {
    /// Name of the header with the limit, as it is written on the wire.
    pub limit: SmolStr,
    /// Name of the header with the hits that remain.
    pub remaining: SmolStr,
    /// Name of the header with the seconds until the window ends.
    pub reset: SmolStr,
    /// Every limit is a quota.
    pub quota_mode: bool,
}

impl Default for ReferenceHeaders {
    fn default() -> Self {
        Self {
            limit: SmolStr::new_static("RateLimit-Limit"),
            remaining: SmolStr::new_static("RateLimit-Remaining"),
            reset: SmolStr::new_static("RateLimit-Reset"),
            quota_mode: false,
        }
    }
}

impl ReferenceHeaders {
    /// The headers for a decision; none if no limit applies.
    pub(super) fn headers(&self, decision: &Decision<'_>) -> Vec<(SmolStr, String)> {
        let Some((status, limit)) = self.described(decision).and_then(|status| Some((status, status.limit?)))
        else {
            return Vec::new();
        };
        let reset = status.reset.and_then(|reset| reset.seconds_rounded_up()).unwrap_or_default();
        let numbers = [u64::from(limit.requests), u64::from(status.remaining), reset];
        let names = [&self.limit, &self.remaining, &self.reset];
        names.into_iter().cloned().zip(numbers.map(|number| number.to_string())).collect()
    }

    /// The last descriptor that is over a limit which is no quota; else the first of those with the least remaining. One with
    /// 4294967295 remaining is not described.
    fn described<'d, 'r>(&self, decision: &'d Decision<'r>) -> Option<&'d Status<'r>> {
        let limited = || decision.statuses.iter().filter(|status| status.limit.is_some());
        let is_quota = |status: &Status<'_>| self.quota_mode || status.rule.is_some_and(|rule| rule.quota);
        let over = limited().rfind(|status| status.code == Code::OverLimit && !is_quota(status));
        let least =
            || limited().filter(|status| status.remaining < u32::MAX).min_by_key(|status| status.remaining);
        over.or_else(least)
    }
}
