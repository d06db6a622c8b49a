//! Cases of headers: decisions as values.

use crate::{list, number, text, time};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::time::Duration;
use tidegate_client::{Decision, Limit, Mode, Reason, Status, Unit};

pub fn limit(limit: &Value) -> Option<Limit> {
    let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
    let requests = u32::try_from(limit["requests"].as_u64()?).expect("32 bits");
    let unit = units.into_iter().find(|unit| limit["unit"] == unit.name());
    let of_unit = unit.map(|unit| Duration::from_secs(unit.seconds().into()));
    let window = limit.get("window").map_or(of_unit, time);
    Some(Limit { requests, unit, name: limit["name"].as_str().unwrap_or_default().to_owned(), window })
}

fn decision(case: &Value) -> Decision {
    let status = |status: &Value| Status {
        over_limit: status["over_limit"] == true,
        limit: limit(&status["limit"]),
        remaining: u32::try_from(number(&status["remaining"])).expect("32 bits"),
        reset_after: time(&status["reset_after"]),
        mode: match status["mode"].as_str().unwrap_or_default() {
            "quota" => Some(Mode::Quota),
            "queued" => Some(Mode::Queued),
            _ => None,
        },
    };
    let reasons = [Reason::Decided, Reason::DeniedLocally, Reason::FailedOpen, Reason::FailedClosed];
    let reason = reasons.into_iter().find(|reason| case["reason"] == reason.as_str()).expect("a reason");
    let statuses = list(&case["statuses"]).iter().map(status).collect();
    let mut decision = Decision::new(case["allowed"] == true, reason, statuses);
    let header = |header: &Value| (text(&header[0]).to_owned(), text(&header[1]).to_owned());
    decision.response_headers = list(&case["response_headers"]).iter().map(header).collect();
    decision
}

fn insert_all(headers: &mut HeaderMap, case: &Value) {
    for (name, value) in case.as_object().expect("an object") {
        let name = HeaderName::try_from(name).expect("a name");
        headers.insert(name, HeaderValue::from_str(text(value)).expect("a value"));
    }
}

pub fn check(case: &Value) {
    let (decision, fields) = (decision(&case["decision"]), &case["fields"]);
    assert_eq!(decision.limit.map(u64::from), fields["limit"].as_u64());
    assert_eq!(decision.remaining.map(u64::from), fields["remaining"].as_u64());
    assert_eq!(decision.reset_after, time(&fields["reset_after"]));
    assert_eq!(decision.retry_after, time(&fields["retry_after"]));
    assert_eq!(decision.rule, text(&fields["rule"]));
    let mut headers = HeaderMap::new();
    insert_all(&mut headers, &case["headers"]);
    assert_eq!(decision.headers(), headers);
    insert_all(&mut headers, &case["legacy"]);
    assert_eq!(decision.legacy_headers(), headers);
}
