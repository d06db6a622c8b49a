//! Denials: the descriptors that make the verdict, and how the `on_deny` of several rules combine.

use super::{Code, Decision, Header, OnDeny, Reply, Status};
use smallvec::SmallVec;

/// The response to a denied request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial<'r> {
    /// It is denied, with this reply if a rule has one.
    Reply(Option<&'r Reply>),
    /// It is admitted with these headers; at least one, and no two the same.
    Mark(SmallVec<[&'r Header; 1]>),
}

impl<'r> Decision<'r> {
    /// The descriptors that made the verdict: those that are over, but quota descriptors only if all of them are over. None if the request
    /// is admitted.
    pub fn denying(&self) -> impl Iterator<Item = &Status<'r>> {
        let is_quota = |status: &Status<'_>| status.rule.is_some_and(|rule| rule.quota);
        let is_over = |status: &Status<'_>| status.code == Code::OverLimit;
        let is_denied = self.code == Code::OverLimit;
        let quotas_deny = self.statuses.iter().all(|status| is_over(status) || !is_quota(status));
        self.statuses
            .iter()
            .filter(move |&status| is_denied && is_over(status) && (quotas_deny || !is_quota(status)))
    }

    /// The denying descriptors whose resets the request has to wait for: of the quotas only the first to reset.
    pub fn awaited(&self) -> impl Iterator<Item = &Status<'r>> {
        let is_quota = |status: &Status<'_>| status.rule.is_some_and(|rule| rule.quota);
        let quotas = self.denying().filter(move |status| is_quota(status));
        // An unknown reset is later than any.
        let first = quotas.min_by_key(|status| (status.reset.is_none(), status.reset));
        self.denying().filter(move |&status| {
            !is_quota(status) || first.is_some_and(|first| std::ptr::eq(first, status))
        })
    }

    /// Content of the denial; none if the request is admitted. It is marked only if every descriptor that denies has a rule
    /// with a mark: one plain denial is enough to deny. Of several bodies the first is sent.
    pub fn denial(&self) -> Option<Denial<'r>> {
        if self.code == Code::Ok {
            return None;
        }
        let (mut marks, mut is_marked, mut reply) = (SmallVec::new(), true, None);
        for status in self.denying() {
            match status.rule.and_then(|rule| rule.on_deny.as_deref()) {
                Some(OnDeny::Mark(header)) if marks.contains(&header) => {}
                Some(OnDeny::Mark(header)) => marks.push(header),
                Some(OnDeny::Reply(own)) => {
                    is_marked = false;
                    reply = reply.or(Some(own));
                }
                None => is_marked = false,
            }
        }
        Some(if is_marked { Denial::Mark(marks) } else { Denial::Reply(reply) })
    }

    /// Whether a rule that denies has an `on_deny`.
    #[inline]
    pub fn has_on_deny(&self) -> bool {
        let has_own = |status: &Status<'_>| status.rule.is_some_and(|rule| rule.on_deny.is_some());
        self.code == Code::OverLimit && self.statuses.iter().any(has_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::RuleInfo;
    use http::{HeaderName, HeaderValue};

    /// A rule that marks (`mark=a`), replies (`reply=a`), or just denies (anything else); `quota` makes it a quota rule.
    fn rule(text: &str) -> RuleInfo {
        let (what, own) = text.split_once('=').unwrap_or_default();
        let value = HeaderValue::from_str(own).expect("tests write ASCII");
        let header = Header { name: HeaderName::from_static("x-mark"), value };
        let on_deny = match what {
            "mark" => Some(OnDeny::Mark(header)),
            "reply" => Some(OnDeny::Reply(Reply { body: own.into(), headers: Box::default() })),
            _ => None,
        };
        let (path, declared_at) = ("k".into(), "rules.yaml:1:1".into());
        let quota = text.starts_with("quota");
        RuleInfo {
            path,
            declared_at,
            quota,
            queues: false,
            holds_slots: false,
            shown_values: 0,
            metric_labels: Box::default(),
            metadata: None,
            on_deny: on_deny.map(Box::new),
        }
    }

    /// Content of a denial of these descriptors: a rule that is over, or `ok` and a rule that is not.
    fn denial(descriptors: &[&str]) -> String {
        let rules: Vec<_> = descriptors.iter().map(|text| rule(text.trim_start_matches("ok "))).collect();
        let status = |(text, rule)| Status {
            code: if str::starts_with(text, "ok") { Code::Ok } else { Code::OverLimit },
            rule: Some(rule),
            ..Status::NO_LIMIT
        };
        let statuses = descriptors.iter().copied().zip(&rules).map(status).collect();
        match (Decision::new(Code::OverLimit, statuses)).denial() {
            None => "admitted".to_owned(),
            Some(Denial::Reply(reply)) => format!("denied {}", reply.map_or("", |reply| &reply.body)),
            Some(Denial::Mark(headers)) => {
                let values: Vec<_> = headers.iter().map(|header| header.to_string()).collect();
                values.join(", ")
            }
        }
    }

    #[test]
    fn a_request_is_marked_only_if_all_that_deny_mark() {
        assert_eq!(denial(&["mark=a"]), "x-mark: a");
        assert_eq!(denial(&["mark=a", "mark=b", "mark=a"]), "x-mark: a, x-mark: b");
        assert_eq!(denial(&["mark=a", "ok plain"]), "x-mark: a");
        assert_eq!(denial(&["mark=a", "plain"]), "denied ");
        assert_eq!(denial(&["mark=a", "reply=no"]), "denied no");
    }

    #[test]
    fn the_first_of_several_replies_is_given() {
        assert_eq!(denial(&["ok reply=a", "plain", "reply=b", "reply=c"]), "denied b");
    }

    #[test]
    fn a_quota_descriptor_counts_only_if_quotas_deny() {
        assert_eq!(denial(&["mark=a", "quota", "ok quota"]), "x-mark: a");
        assert_eq!(denial(&["mark=a", "quota", "quota"]), "denied ");
        assert_eq!(denial(&["quota", "quota"]), "denied ");
    }

    #[test]
    fn a_limit_that_the_request_brought_denies_plainly() {
        let (marks, over) = (rule("mark=a"), Status { code: Code::OverLimit, ..Status::NO_LIMIT });
        let statuses = [Status { rule: Some(&marks), ..over }, over].into_iter().collect();
        let decision = Decision::new(Code::OverLimit, statuses);
        assert_eq!(decision.denial(), Some(Denial::Reply(None)));
        assert_eq!(Decision { code: Code::Ok, ..decision }.denial(), None, "under global shadow");
    }

    #[test]
    fn an_on_deny_is_shown_in_one_line() {
        assert_eq!(rule("mark=a").on_deny.unwrap().to_string(), "mark x-mark: a");
        assert_eq!(rule("reply=no").on_deny.unwrap().to_string(), "reply with a body of 2 bytes");
    }
}
