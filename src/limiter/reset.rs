//! Resets by operators: counters are removed, and count from zero.

use super::{Pinned, plan::Plan};
use crate::{
    limit::{LimitId, Request},
    rules::DomainRules,
    store::Removed,
};
use std::{cell::RefCell, collections::HashMap};

/// Reason why counters cannot be reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResetError {
    /// The domain has no rules.
    #[error("the domain has no rules")]
    UnknownDomain,
    /// The domain has no such rule.
    #[error("the domain has no such rule")]
    UnknownRule,
    /// Queued requests have positions in the counters.
    #[error("the domain has rules with max_wait; requests that are queued have positions in its counters")]
    Queues,
    /// The counters are not in this process.
    #[error("the counters of the domain are in a shared store")]
    Shared,
}

impl Pinned<'_> {
    /// Removes the counters that the request would be charged to, all at one moment.
    pub fn reset(&self, request: &Request<'_>) -> Result<Removed, ResetError> {
        let domain = self.resettable(request.domain())?;
        let plan = Plan::new(domain, &self.in_force.keys, request);
        Ok(self.limiter.store.remove_all(plan.charges.iter().map(|charge| charge.key).collect()))
    }

    /// Removes the counters of a rule, or of all rules of the domain, including those counted under its former limits. Reads every
    /// counter, a few pages under each lock: decisions made meanwhile may precede or follow it.
    pub fn reset_rule(&self, domain: &str, path: Option<&str>) -> Result<Removed, ResetError> {
        let rules = self.resettable(domain)?;
        if path.is_some_and(|path| !rules.rules().iter().any(|rule| *rule.info.path == *path)) {
            return Err(ResetError::UnknownRule);
        }
        // While the numbers are pinned, none of them changes its meaning.
        let limits = self.in_force.rules.limits();
        let _pinned = limits.pin();
        let known: RefCell<HashMap<LimitId, bool>> = RefCell::default();
        let is_selected = |id: LimitId| {
            *known.borrow_mut().entry(id).or_insert_with(|| {
                limits.get(id).is_some_and(|info| {
                    *info.identity.domain == *domain && path.is_none_or(|path| *info.identity.path == *path)
                })
            })
        };
        let counters = self.limiter.store.remove_of_limits(is_selected);
        Ok(Removed { counters, number: self.limiter.store.next_number() })
    }

    fn resettable(&self, domain: &str) -> Result<&DomainRules, ResetError> {
        let rules = self.in_force.rules.domain(domain).ok_or(ResetError::UnknownDomain)?;
        match (rules.is_shared(), rules.may_queue()) {
            (true, _) => Err(ResetError::Shared),
            (_, true) => Err(ResetError::Queues),
            _ => Ok(rules),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{Code, Descriptor, Entry, Hits, Timestamp},
        limiter::{Limiter, tests},
    };

    const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: path, rate_limit: { unit: day, requests_per_unit: 1 } }
";

    fn request<'t>(key: &'t str, value: &'t str) -> Request<'t> {
        let mut request = Request::new("d");
        let entries = [Entry { key, value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        request
    }

    fn is_admitted(limiter: &Limiter, key: &str, value: &str) -> bool {
        let now = Timestamp::from_millis(tests::MIDNIGHT_MILLIS);
        limiter.pin().decide(&request(key, value), now).code == Code::Ok
    }

    #[test]
    fn a_reset_frees_the_counters_of_the_request_or_of_the_rule_and_no_others() {
        let limiter = tests::limiter(RULES);
        let all = [("user", "a"), ("user", "b"), ("path", "x")];
        let denied = |limiter: &Limiter| {
            let is_denied = |(key, value): &&(&'static str, &'static str)| !is_admitted(limiter, key, value);
            all.iter().filter(is_denied).map(|(_, value)| *value).collect::<Vec<_>>()
        };
        assert_eq!(denied(&limiter), [""; 0]);
        let removed = |counters: usize| Ok(Removed { counters, number: 0 });
        assert_eq!(limiter.pin().reset(&request("user", "a")), removed(1));
        assert_eq!(denied(&limiter), ["b", "x"]);
        assert_eq!(limiter.pin().reset_rule("d", Some("user")), removed(2));
        assert_eq!(denied(&limiter), ["x"]);
        assert_eq!(limiter.pin().reset_rule("d", None), removed(3));
        assert_eq!(denied(&limiter), [""; 0]);
        assert_eq!(limiter.pin().reset_rule("d", Some("none")), Err(ResetError::UnknownRule));
        assert_eq!(limiter.pin().reset_rule("e", None), Err(ResetError::UnknownDomain));
    }

    /// Counters keep the number of the limit that they were counted under until they are used again.
    #[test]
    fn counters_of_a_former_limit_of_the_rule_are_reset_too() {
        let limiter = tests::limiter(RULES);
        assert!(is_admitted(&limiter, "user", "a"));
        tests::replace_rules(&limiter, &RULES.replace("unit: day", "unit: hour"));
        let removed = limiter.pin().reset_rule("d", Some("user"));
        assert_eq!(removed.map(|removed| removed.counters), Ok(1));
        assert!(is_admitted(&limiter, "user", "a"));
    }

    #[test]
    fn counters_in_which_requests_may_be_queued_are_not_reset() {
        let bucket = "algorithm: leaky_bucket, burst: 1, max_wait: 1s";
        let rules = RULES.replacen("requests_per_unit: 1", &format!("requests_per_unit: 1, {bucket}"), 1);
        let limiter = tests::limiter(&rules);
        assert_eq!(limiter.pin().reset(&request("path", "x")), Err(ResetError::Queues));
    }
}
