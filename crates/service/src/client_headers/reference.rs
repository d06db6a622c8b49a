//! The headers of the reference server.

use smol_str::SmolStr;
use tidegate_core::limit::{Code, Decision, Status};

/// Three plain numbers of one descriptor, as the reference server sends them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceHeaders {
    /// Name of the header with the limit, as it is written on the wire.
    pub limit: SmolStr,
    /// Name of the header with the hits that remain.
    pub remaining: SmolStr,
    /// Name of the header with the seconds until the window ends.
    pub reset: SmolStr,
    /// Whether every limit is a quota.
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

    /// The last descriptor that is over a limit other than a quota. If there is none, the first with the least remaining, but not if that
    /// is 4294967295.
    fn described<'d, 'r>(&self, decision: &'d Decision<'r>) -> Option<&'d Status<'r>> {
        let limited = || decision.statuses.iter().filter(|status| status.limit.is_some());
        let is_quota = |status: &Status<'_>| self.quota_mode || status.rule.is_some_and(|rule| rule.quota);
        let over = limited().rfind(|status| status.code == Code::OverLimit && !is_quota(status));
        let least =
            || limited().filter(|status| status.remaining < u32::MAX).min_by_key(|status| status.remaining);
        over.or_else(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_core::limit::{CurrentLimit, Reset, RuleInfo, Unit};

    fn rule(quota: bool) -> RuleInfo {
        let (path, declared_at, metric_labels) = ("k".into(), "rules.yaml:1:1".into(), Box::default());
        RuleInfo {
            path,
            declared_at,
            quota,
            queues: false,
            holds_slots: false,
            shown_values: 0,
            metric_labels,
            metadata: None,
            on_deny: None,
        }
    }

    /// The limit in the header for statuses with these limits and remaining hits. Statuses with nothing remaining are over.
    fn described(names: &ReferenceHeaders, statuses: &[(u32, u32, &RuleInfo)]) -> Option<String> {
        let status = |&(requests, remaining, rule): &(u32, u32, _)| Status {
            code: if remaining == 0 { Code::OverLimit } else { Code::Ok },
            limit: Some(CurrentLimit {
                name: "",
                requests,
                capacity: requests,
                window: Unit::Minute.window(),
                unit: Some(Unit::Minute),
            }),
            remaining,
            reset: Some(Reset::After(Duration::from_millis(6_500))),
            rule: Some(rule),
            ..Status::NO_LIMIT
        };
        let decision = Decision::new(Code::Ok, statuses.iter().map(status).collect());
        let headers = names.headers(&decision);
        assert!(headers.is_empty() || headers[2] == ("RateLimit-Reset".into(), "7".to_owned()));
        Some(headers.into_iter().next()?.1)
    }

    #[test]
    fn the_last_denial_that_is_no_quota_is_described_else_the_least_remaining() {
        let (plain, quota, names) = (rule(false), rule(true), ReferenceHeaders::default());
        let of = |statuses: &[(u32, u32, &RuleInfo)]| described(&names, statuses);
        assert_eq!(
            of(&[(1, 0, &plain), (2, 0, &plain), (3, 0, &quota), (4, 1, &plain)]).as_deref(),
            Some("2")
        );
        assert_eq!(of(&[(5, 2, &plain), (6, 1, &plain), (7, 1, &plain)]).as_deref(), Some("6"));
        assert_eq!(of(&[(5, 2, &plain), (8, 0, &quota)]).as_deref(), Some("8"), "a quota by what remains");
        assert_eq!(of(&[(u32::MAX, u32::MAX, &plain)]), None);
        let all_quotas = ReferenceHeaders { quota_mode: true, ..names };
        assert_eq!(described(&all_quotas, &[(1, 0, &plain), (2, 0, &plain)]).as_deref(), Some("1"));
    }
}
