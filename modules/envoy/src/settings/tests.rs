//! Configurations: both forms, and what is refused.

use super::{Local, filter, route, wire::from_bytes};
use crate::protobuf::Writer;
use serde_json::{Value as Json, json};
use tidegate_envoy_config::{Field, Kind, Message, Node, Problems, RATE_LIMIT_FILTER, Value, from_json};

/// The errors of a configuration with these entries.
fn errors(rate_limits: Json) -> String {
    errors_of(json!({"domain": "d", "rate_limits": rate_limits}))
}

fn errors_of(mut settings: Json) -> String {
    settings["tidegate"] = json!({"rules": "domain: d"});
    filter(settings.to_string().as_bytes()).err().unwrap_or_default()
}

fn entry(action: Json) -> Json {
    json!([{"actions": [action]}])
}

#[test]
fn what_a_module_cannot_do_is_refused_with_the_path_of_the_field() {
    let cases = [
        (
            entry(json!({"extension": {"name": "expr"}})),
            "rate_limits[0].actions[0].extension: needs Envoy's own code",
        ),
        (
            entry(json!({"source_cluster": {}})),
            "rate_limits[0].actions[0].source_cluster: is the cluster of Envoy's node",
        ),
        (
            entry(
                json!({"metadata": {"descriptor_key": "k", "metadata_key": {"key": "n", "path": [{"key": "a"}, {"key": "b"}]}}}),
            ),
            "rate_limits[0].actions[0].metadata.metadata_key.path: is not one key",
        ),
        (
            json!([{"actions": [{"remote_address": {}}], "limit": {"dynamic_metadata": {}}}]),
            "rate_limits[0].limit.dynamic_metadata: is a struct in metadata",
        ),
        (
            json!([{"actions": [{"remote_address": {}}], "hits_addend": {"format": "%CEL(1)%"}}]),
            "rate_limits[0].hits_addend.format: \"%CEL(1)%\" can only be evaluated by Envoy",
        ),
        (
            entry(json!({"header_value_match": {"descriptor_value": "v", "headers": [
                {"name": "a", "string_match": {"safe_regex": {"regex": "[a&&b]"}}},
            ]}})),
            "rate_limits[0].actions[0].header_value_match.headers[0].string_match.safe_regex.regex: \"[a&&b]\" has an operation on sets",
        ),
        (
            json!([{"actions": [{"remote_address": {}}], "stage": 1}]),
            "rate_limits[0].stage: is not supported here by Envoy",
        ),
        (
            json!([{"actions": [{"remote_address": {}}], "new_field": 1}]),
            "rate_limits[0].new_field: is not a field",
        ),
        (
            json!([{"actions": [{"remote_address": {}, "destination_cluster": {}}]}]),
            "is not exactly one action",
        ),
    ];
    for (rate_limits, expected) in cases {
        let errors = errors(rate_limits);
        assert!(errors.contains(expected), "{errors:?} does not contain {expected:?}");
    }
    let formatted = json!([{"header": {"key": "x", "value": "%REQ(a)%"}}]);
    let errors = errors_of(json!({"domain": "d", "response_headers_to_add": formatted}));
    assert!(errors.starts_with("response_headers_to_add[0].header.value: "), "{errors}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let errors = errors_of(json!({"request_type": "some", "timeout": "1s", "failureModeDeny": 3}));
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), 3, "{errors}");
    assert!(errors.contains("domain: is empty"), "{errors}");
}

#[test]
fn a_configuration_without_rules_names_the_remedies() {
    let errors = filter(br#"{"domain": "d"}"#).unwrap_err();
    assert!(errors.contains("TIDEGATE_RULES"), "{errors}");
}

#[test]
fn an_empty_variable_is_not_set() {
    let problems = Problems::default();
    let empty = |_: &str| Some(String::new());
    let own = Some(json!({"rules": "domain: d"}));
    assert_eq!(Local::of_route(None, empty, &problems), Local::default());
    let local = Local::read(own, empty, &problems);
    assert_eq!(
        (local.source_cluster, local.counters_max, local.dynamic_metadata, local.server),
        (None, None, false, None)
    );
    assert_eq!(problems.or(()), Ok(()));
    let problems = Problems::default();
    Local::read(None, empty, &problems);
    assert!(problems.or(()).unwrap_err().starts_with("there are no rules: "));
    let problems = Problems::default();
    let edge = |name: &str| (name == "TIDEGATE_SOURCE_CLUSTER").then(|| "edge".to_owned());
    assert_eq!(Local::of_route(None, edge, &problems).source_cluster.as_deref(), Some("edge"));
}

#[test]
fn a_maximum_of_no_counters_is_refused() {
    let zero = |_: &str| Some("0".to_owned());
    let problems = Problems::default();
    Local::read(Some(json!({"rules": "domain: d"})), zero, &problems);
    let error = problems.or(()).unwrap_err();
    assert!(error.contains("the variable TIDEGATE_MAX_COUNTERS is not a whole number from 1"), "{error}");
    let error =
        filter(br#"{"domain": "d", "tidegate": {"rules": "domain: d", "max_counters": 0}}"#).unwrap_err();
    assert!(error.starts_with("tidegate: invalid value: integer `0`, expected a nonzero"), "{error}");
}

#[test]
fn an_empty_list_of_rule_files_is_refused() {
    let error = filter(br#"{"domain": "d", "tidegate": {"rules_files": []}}"#).unwrap_err();
    assert!(error.starts_with("tidegate.rules_files: is empty"), "{error}");
}

#[test]
fn a_server_is_read_and_what_is_wrong_with_it_is_named() {
    let read =
        |server: Json| filter(json!({"domain": "d", "tidegate": {"server": server}}).to_string().as_bytes());
    let tls = json!({"ca": "/ca.pem", "cert": "/cert.pem", "key": "/key.pem"});
    let settings = read(json!({"address": "[::1]:8081", "tls": tls, "token_file": "/token"})).unwrap();
    let server = settings.local.server.unwrap();
    assert_eq!(server.address.to_string(), "[::1]:8081");
    assert!(server.tls.is_some_and(|tls| tls.server_name.is_none()));
    let several = read(json!({"address": "a:1, [::1]:2"})).unwrap().local.server.unwrap();
    assert_eq!(several.address.to_string(), "a:1,[::1]:2");
    let cases = [
        (json!({}), "tidegate.server: missing field `address`"),
        (json!({"address": "a:1", "port": 2}), "tidegate.server: unknown field `port`"),
        (
            json!({"address": "localhost"}),
            "tidegate.server.address: \"localhost\" is not host:port, several of these with commas between, or unix:/path",
        ),
        (json!({"address": "a:1,b"}), "tidegate.server.address: \"a:1,b\" is not"),
        (json!({"address": "unix:socket"}), "tidegate.server.address: \"unix:socket\" is not"),
        (json!({"address": "::1:8081"}), "tidegate.server.address: \"::1:8081\" is not"),
        (json!({"address": "a:1", "tls": {}}), "tidegate.server.tls.ca: is not set"),
        (
            json!({"address": "a:1", "tls": {"ca": "c", "key": "k"}}),
            "tidegate.server.tls.cert: a certificate needs",
        ),
        (json!({"address": "unix:/s", "tls": {"ca": "c"}}), "tidegate.server.tls.ca: does not apply"),
        (
            json!({"address": "a:1", "tls": {"ca": "c", "server_name": "a b"}}),
            "tidegate.server.tls.server_name: \"a b\" is not a name",
        ),
    ];
    for (server, expected) in cases {
        let error = read(server).unwrap_err();
        assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
    }
    let both = json!({"domain": "d", "tidegate": {"server": {"address": "a:1"}, "rules": "domain: d"}});
    let error = filter(both.to_string().as_bytes()).unwrap_err();
    assert!(error.starts_with("tidegate: has more than one of"), "{error}");
    let error =
        route(json!({"tidegate": {"server": {"address": "a:1"}}}).to_string().as_bytes()).unwrap_err();
    assert!(error.starts_with("tidegate: of a route"), "{error}");
}

#[test]
fn a_timeout_is_that_of_envoys_filter() {
    let timeout = |timeout: Json| {
        let settings = json!({"domain": "d", "timeout": timeout, "tidegate": {"rules": "domain: d"}});
        filter(settings.to_string().as_bytes()).map(|settings| settings.timeout.as_micros())
    };
    assert_eq!(timeout(Json::Null), Ok(20_000));
    assert_eq!(timeout(json!("0.0505s")), Ok(50_500));
    assert_eq!(timeout(json!("3s")), Ok(3_000_000));
    for wrong in ["1", "-1s", "1.0000000001s", "s1", "1m"] {
        let error = timeout(json!(wrong)).unwrap_err();
        assert!(error.starts_with("timeout: ") && error.contains("is not a duration"), "{error}");
    }
}

#[test]
fn an_empty_message_is_a_configuration_of_a_route() {
    assert!(route(b"").unwrap().policies.is_empty());
    assert_eq!(route(b"\x22\x01d").unwrap().domain.as_deref(), Some("d"));
}

/// A configuration that has every kind of field.
fn complete() -> Json {
    json!({
        "domain": "d", "stage": 0, "timeout": "1.05s", "request_type": "both", "failure_mode_deny": true,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03", "rate_limited_status": {"code": "Forbidden"},
        "response_headers_to_add": [{"header": {"key": "a", "value": "b"}, "append": false, "append_action": "ADD_IF_ABSENT"}],
        "filter_enabled": {"default_value": {"numerator": 5, "denominator": "MILLION"}, "runtime_key": "k"},
        "rate_limits": [
            {"actions": [
                {"destination_cluster": {}},
                {"request_headers": {"header_name": "X-A", "descriptor_key": "a", "skip_if_absent": true}},
                {"masked_remote_address": {"v4_prefix_mask_len": 0, "v6_prefix_mask_len": 64}},
                {"header_value_match": {"descriptor_value": "v", "expect_match": false, "headers": [
                    {"name": "a", "range_match": {"start": -10, "end": 9}},
                    {"name": "b", "string_match": {"contains": "c", "ignore_case": true}},
                    {"name": "c", "present_match": false},
                ]}},
            ], "hits_addend": {"number": 0}, "limit": {"rate_limit": {"requests_per_unit": 300, "unit": "DAY"}}},
            {"actions": [{"generic_key": {"descriptor_value": "é"}}], "apply_on_stream_done": true, "x_ratelimit_option": "OFF"},
        ],
    })
}

#[test]
fn bytes_and_json_are_read_alike() {
    let problems = Problems::default();
    let json = complete();
    let by_json = from_json(json.as_object().unwrap(), &RATE_LIMIT_FILTER, String::new(), &problems);
    let bytes = encoded(&by_json, &RATE_LIMIT_FILTER);
    let by_bytes = from_bytes(&bytes, &RATE_LIMIT_FILTER, String::new(), &problems);
    assert_eq!(problems.or(()), Ok(()));
    assert_eq!(format!("{by_json:?}").len(), format!("{by_bytes:?}").len());
    for name in by_json.names() {
        assert_eq!(by_json.get(name), by_bytes.get(name), "{name}");
    }
}

/// A newer Envoy may have added it with a meaning that this module would ignore.
#[test]
fn a_field_that_this_module_does_not_know_is_refused() {
    let problems = Problems::default();
    let domain_and_field_100 = b"\x0a\x01d\xa0\x06\x01";
    from_bytes(domain_and_field_100, &RATE_LIMIT_FILTER, String::new(), &problems);
    let error = problems.or(()).unwrap_err();
    assert!(error.contains("field 100 is not known to this module"), "{error}");
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let problems = Problems::default();
    let json = complete();
    let node = from_json(json.as_object().unwrap(), &RATE_LIMIT_FILTER, String::new(), &problems);
    let bytes = encoded(&node, &RATE_LIMIT_FILTER);
    for end in 0..bytes.len() {
        let _ = filter(&bytes[..end]);
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[end] ^= flip;
            let _ = filter(&damaged);
        }
    }
}

/// A message as protobuf writes it.
fn encoded(node: &Node, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in node.names() {
        let field = message.0.iter().find(|field| field.name == name).unwrap();
        match node.get(name).unwrap() {
            Value::List(list) => list.iter().for_each(|value| encode(field, field.kind, value, &mut bytes)),
            value => encode(field, field.kind, value, &mut bytes),
        }
    }
    bytes
}

fn encode(field: &Field, kind: Kind, value: &Value, bytes: &mut Vec<u8>) {
    let varint = |mut number: u64, bytes: &mut Vec<u8>| {
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    };
    let delimited = |of: &[u8], bytes: &mut Vec<u8>| {
        varint(u64::from(field.number) << 3 | 2, bytes);
        varint(of.len() as u64, bytes);
        bytes.extend_from_slice(of);
    };
    let number = match value {
        Value::Bool(value) => u64::from(*value),
        Value::Unsigned(value) => *value,
        Value::Signed(value) => value.cast_unsigned(),
        Value::Enum(value) => u64::from(*value),
        Value::Text(text) => return delimited(text.as_bytes(), bytes),
        Value::Duration(duration) => {
            let mut message = Writer::default();
            message.number(1, duration.as_secs());
            message.number(2, duration.subsec_nanos().into());
            return delimited(&message.into_bytes(), bytes);
        }
        Value::Node(node) => {
            let Kind::Message(message) = kind else { panic!("{node:?} is no message") };
            return delimited(&encoded(node, message), bytes);
        }
        Value::List(_) | Value::Opaque => panic!("{value:?}"),
    };
    if matches!(kind, Kind::Wrapped(_)) {
        let mut wrapped = Vec::new();
        if number != 0 {
            wrapped.push(1 << 3);
            varint(number, &mut wrapped);
        }
        return delimited(&wrapped, bytes);
    }
    varint(u64::from(field.number) << 3, bytes);
    varint(number, bytes);
}
