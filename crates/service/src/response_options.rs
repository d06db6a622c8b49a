//! Content of a response besides its code and its statuses: what rules declare for their denials, and what the server is configured to add
//! to every decision.

use super::{
    client_headers::{self, ResponseHeaders, Sent},
    dynamic_metadata,
};
use serde_json::{Map, Value};
use smol_str::SmolStr;
use tidegate_core::limit::{Code, Decision, Denial, Header, Request, ServiceLimit};

/// Additions to every decision. The default adds nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResponseOptions {
    /// The request, and the rules and limits that are over, as metadata for the proxy's logs and filters.
    pub dynamic_metadata: bool,
    /// Quota, available quota and waits, as headers for the client.
    pub headers: ResponseHeaders,
}

/// The additions to one response, independent of the protocol.
#[derive(Clone, PartialEq, Debug)]
pub struct Additions<'d> {
    /// The code of the response. It is OK if the request is denied but let through with a mark.
    pub code: Code,
    /// The body for the client. If it is empty, the proxy makes one.
    pub body: &'d str,
    /// Headers for the client. No two have the same name, unless a rule declares them so.
    pub response_headers: Vec<(SmolStr, String)>,
    /// Headers for the service behind the proxy.
    pub request_headers: Vec<(SmolStr, String)>,
    /// Metadata for the proxy.
    pub dynamic_metadata: Option<Map<String, Value>>,
}

impl<'d> Additions<'d> {
    pub(super) fn new(
        options: Option<(&ResponseOptions, Sent)>,
        request: &Request<'_>,
        decision: &Decision<'d>,
        limits: &[ServiceLimit<'_>],
    ) -> Self {
        let denial = decision.denial();
        let mut additions = Self::of_rules(decision.code, denial.as_ref());
        additions.dynamic_metadata = decision.slot.as_deref().map(dynamic_metadata::of_slot);
        let Some((options, sent)) = options else { return additions };
        // A check does not decide a client's request: as in Limitador, its response has no quota headers.
        let headers = if request.is_check() { &ResponseHeaders::default() } else { &options.headers };
        // A header that a rule declares replaces a header of the same name here.
        let declared = additions.response_headers.len();
        for (name, value) in client_headers::headers(headers, decision, denial.as_ref(), limits, sent) {
            if !additions.response_headers[..declared]
                .iter()
                .any(|(declared, _)| declared.eq_ignore_ascii_case(&name))
            {
                additions.response_headers.push((name, value));
            }
        }
        if options.dynamic_metadata {
            let metadata = dynamic_metadata::of(request, decision, denial.as_ref());
            additions.dynamic_metadata.get_or_insert_default().extend(metadata);
        }
        additions
    }

    /// `on_deny` of the rules.
    fn of_rules(code: Code, denial: Option<&Denial<'d>>) -> Self {
        let (code, body, response_headers, request_headers) = match denial {
            None | Some(Denial::Reply(None)) => (code, "", Vec::new(), Vec::new()),
            Some(Denial::Reply(Some(reply))) => {
                (code, &*reply.body, reply.headers.iter().map(header).collect(), Vec::new())
            }
            Some(Denial::Mark(headers)) => {
                (Code::Ok, "", Vec::new(), headers.iter().copied().map(header).collect())
            }
        };
        Self { code, body, response_headers, request_headers, dynamic_metadata: None }
    }
}

fn header(Header { name, value }: &Header) -> (SmolStr, String) {
    // The value of a declared header is visible ASCII, so that nothing is lost.
    (name.as_str().into(), String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlainHeaders, RetryAfter};
    use http::HeaderName;
    use std::time::Duration;
    use tidegate_core::limit::{CurrentLimit, OnDeny, Reply, Reset, RuleInfo, Status, Timestamp, Unit};

    #[test]
    fn a_declared_header_replaces_the_configured_one_of_its_name() {
        let declared = Header {
            name: HeaderName::from_static("retry-after"),
            value: http::HeaderValue::from_static("120"),
        };
        let reply = Reply { body: "too fast".into(), headers: [declared].into() };
        let rule = RuleInfo {
            path: "k".into(),
            declared_at: "rules.yaml:1:1".into(),
            quota: false,
            queues: false,
            holds_slots: false,
            shown_values: 0,
            metric_labels: Box::default(),
            metadata: None,
            on_deny: Some(Box::new(OnDeny::Reply(reply))),
        };
        let minute = Unit::Minute;
        let limit =
            CurrentLimit { name: "", requests: 1, capacity: 1, window: minute.window(), unit: Some(minute) };
        let reset = Some(Reset::After(Duration::from_secs(7)));
        let code = Code::OverLimit;
        let status = Status { code, limit: Some(limit), reset, rule: Some(&rule), ..Status::NO_LIMIT };
        let decision = Decision::new(code, [status].into_iter().collect());
        let headers = ResponseHeaders {
            plain: vec![PlainHeaders::X],
            retry_after: Some(RetryAfter::Seconds),
            ..ResponseHeaders::default()
        };
        let (window, effective_window) = (minute.window().duration(), Reset::After(Duration::from_secs(7)));
        let limits = [ServiceLimit {
            descriptor: 0,
            limit,
            quota: 1,
            window,
            in_flight: false,
            available: 0,
            effective_window,
            denied_for: None,
            banned_for: None,
            slots: None,
            reserved: None,
        }];
        let sent = Sent::new(Timestamp::default(), 0, 0);
        let options = ResponseOptions { headers, ..ResponseOptions::default() };
        let additions = Additions::new(Some((&options, sent)), &Request::new("d"), &decision, &limits);
        let names: Vec<_> = additions.response_headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
        assert_eq!((additions.response_headers[0].1.as_str(), additions.body), ("120", "too fast"));
    }
}
