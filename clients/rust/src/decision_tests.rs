//! The header cases of `clients/conformance`.

use super::*;
use serde_json::Value;

fn time(time: &Value) -> Option<Duration> {
    let [millis, nanos] = time.as_array()?.as_slice() else { panic!("{time} is no time") };
    Some(Duration::from_millis(millis.as_u64()?) + Duration::from_nanos(nanos.as_u64()?))
}

fn limit(limit: &Value) -> Option<Limit> {
    let units = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
    let requests = u32::try_from(limit["requests"].as_u64()?).expect("32 bits");
    let unit = units.into_iter().find(|unit| limit["unit"] == unit.name());
    Some(Limit { requests, unit, name: limit["name"].as_str().unwrap_or_default().to_owned() })
}

fn decision(case: &Value) -> Decision {
    let status = |status: &Value| Status {
        over_limit: status["over_limit"] == true,
        limit: limit(&status["limit"]),
        remaining: u32::try_from(status["remaining"].as_u64().expect("a number")).expect("32 bits"),
        reset_after: time(&status["reset_after"]),
    };
    let reasons = [Reason::Decided, Reason::DeniedLocally, Reason::FailedOpen, Reason::FailedClosed];
    let reason = reasons.into_iter().find(|reason| case["reason"] == reason.as_str()).expect("a reason");
    let statuses = case["statuses"].as_array().expect("a list").iter().map(status).collect();
    let mut decision = Decision::new(case["allowed"] == true, reason, statuses);
    for header in case["response_headers"].as_array().expect("a list") {
        let text = |index: usize| header[index].as_str().expect("a text").to_owned();
        decision.response_headers.push((text(0), text(1)));
    }
    decision
}

fn expected(headers: &mut HeaderMap, case: &Value) {
    for (name, value) in case.as_object().expect("an object") {
        insert(headers, name, value.as_str().expect("a text"));
    }
}

#[test]
fn headers() {
    let text = include_str!("../../conformance/cases/headers.json");
    let file: Value = serde_json::from_str(text).expect("JSON");
    for case in file["cases"].as_array().expect("cases") {
        let (name, decision, fields) = (&case["name"], decision(&case["decision"]), &case["fields"]);
        assert_eq!(decision.limit.map(u64::from), fields["limit"].as_u64(), "{name}");
        assert_eq!(decision.remaining.map(u64::from), fields["remaining"].as_u64(), "{name}");
        assert_eq!(decision.reset_after, time(&fields["reset_after"]), "{name}");
        assert_eq!(decision.retry_after, time(&fields["retry_after"]), "{name}");
        assert_eq!(decision.rule, fields["rule"].as_str().expect("a text"), "{name}");
        let mut headers = HeaderMap::new();
        expected(&mut headers, &case["headers"]);
        assert_eq!(decision.headers(), headers, "{name}");
        expected(&mut headers, &case["legacy"]);
        assert_eq!(decision.legacy_headers(), headers, "{name}");
    }
}
