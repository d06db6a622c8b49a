//! Resets by operators: removes counters of this process, which then count from zero; hits of queued requests and outstanding credits stay.
//! Counters in a shared store are reset there, by their keys (`shared/store/resets.rs`).

use super::{
    in_force::{OwnedPinned, Pinned},
    plan::Plan,
};
use crate::{
    limit::{LimitId, Request, Timestamp},
    store::{Key, Removed},
};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

/// Reason why counters cannot be reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResetError {
    /// The domain has no rules.
    #[error("the domain has no rules")]
    UnknownDomain,
    /// The domain has no such rule.
    #[error("the domain has no such rule")]
    UnknownRule,
}

impl Pinned<'_> {
    /// Resets the counters that the request would be charged to, all at one moment.
    pub fn reset(&self, request: &Request<'_>, now: Timestamp) -> Result<Removed, ResetError> {
        let rules = &self.in_force.rules;
        let domain = rules.domain(request.domain()).ok_or(ResetError::UnknownDomain)?;
        let plan = Plan::of_counters(domain, &self.in_force.keys, request);
        let keys = plan.charges.iter().map(|charge| charge.key).collect();
        let removed = self.limiter.empty(keys, rules.limits(), now);
        self.limiter.call_waiting();
        Ok(removed)
    }

    /// Checks that the domain exists and, given a path, that it has this rule.
    pub fn has_rule(&self, domain: &str, path: Option<&str>) -> Result<(), ResetError> {
        let rules = self.in_force.rules.domain(domain).ok_or(ResetError::UnknownDomain)?;
        match path.is_none_or(|path| rules.rules().iter().any(|rule| *rule.info.path == *path)) {
            true => Ok(()),
            false => Err(ResetError::UnknownRule),
        }
    }

    /// Resets the counters of a rule, or of all rules of the domain, including those counted under its former limits. Reads every
    /// counter, a few pages under each lock: decisions made meanwhile may precede or follow it.
    pub fn reset_rule(
        &self,
        domain: &str,
        path: Option<&str>,
        now: Timestamp,
    ) -> Result<Removed, ResetError> {
        self.has_rule(domain, path)?;
        let rules = self.in_force.rules.domain(domain).ok_or(ResetError::UnknownDomain)?;
        // While the numbers are pinned, none of them changes its meaning.
        let limits = self.in_force.rules.limits();
        let _pinned = limits.pin();
        // An override has a path of its own, and the counters of the rule that it continues.
        let of_path = rules.rules().into_iter().filter(|rule| path == Some(&*rule.info.path));
        let of_path: HashSet<LimitId> =
            of_path.flat_map(|rule| rule.limits.iter().map(|limit| limit.id)).collect();
        let known: RefCell<HashMap<LimitId, bool>> = RefCell::default();
        let is_selected = |id: LimitId| {
            *known.borrow_mut().entry(id).or_insert_with(|| {
                of_path.contains(&id)
                    || limits.get(id).is_some_and(|info| {
                        *info.identity.domain == *domain
                            && path.is_none_or(|path| *info.identity.path == *path)
                    })
            })
        };
        let counters = self.limiter.empty_limits(is_selected, limits, now);
        let number = self.limiter.store.next_number();
        self.limiter.call_waiting();
        Ok(Removed { counters, number })
    }
}

impl OwnedPinned<'_> {
    /// Counters of a request that are in a shared store, including those behind blocks, with their groups.
    pub fn shared_counters(&self, request: &Request<'_>) -> Vec<(u16, Key)> {
        let Some(remote) = self.remote_counters(request) else { return Vec::new() };
        remote.counters().map(|(counter, _)| (counter.group, counter.key)).collect()
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
        let now = Timestamp::from_millis(tests::MIDNIGHT_MILLIS);
        assert_eq!(limiter.pin().reset(&request("user", "a"), now), removed(1));
        assert_eq!(denied(&limiter), ["b", "x"]);
        assert_eq!(limiter.pin().reset_rule("d", Some("user"), now), removed(2));
        assert_eq!(denied(&limiter), ["x"]);
        assert_eq!(limiter.pin().reset_rule("d", None, now), removed(3));
        assert_eq!(denied(&limiter), [""; 0]);
        assert_eq!(limiter.pin().reset_rule("d", Some("none"), now), Err(ResetError::UnknownRule));
        assert_eq!(limiter.pin().reset_rule("e", None, now), Err(ResetError::UnknownDomain));
    }

    /// Counters keep the number of the limit that they were counted under until they are used again.
    #[test]
    fn counters_of_a_former_limit_of_the_rule_are_reset_too() {
        let limiter = tests::limiter(RULES);
        assert!(is_admitted(&limiter, "user", "a"));
        tests::replace_rules(&limiter, &RULES.replace("unit: day", "unit: hour"));
        let now = Timestamp::from_millis(tests::MIDNIGHT_MILLIS);
        let removed = limiter.pin().reset_rule("d", Some("user"), now);
        assert_eq!(removed.map(|removed| removed.counters), Ok(1));
        assert!(is_admitted(&limiter, "user", "a"));
    }
}
