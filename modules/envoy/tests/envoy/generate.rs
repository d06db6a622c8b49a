//! Random configurations and requests, from small vocabularies, so that they meet.

use crate::{client::Request, config::service, process::Binary, rng::Rng};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// The entries that actions make, for rules of their own: the name in the headers shows which descriptor was made.
const ENTRIES: &[(&str, &[&str])] = &[
    ("generic_key", &["a", "b"]),
    ("g", &["a"]),
    ("h", &["1", "2", "1,2", "GET", "Ä"]),
    ("q", &["1", "a b", "a+b", "%41", "A/", "é", "<", "\n"]),
    ("remote_address", &["10.1.2.3", "127.0.0.1", "2001:db8::1", "::ffff:10.1.2.3"]),
    (
        "masked_remote_address",
        &["10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32", "10.1.2.3/32", "2001:db8:0:1::/64", "0.0.0.0/0"],
    ),
    ("remote_address_match", &["v"]),
    ("header_match", &["v"]),
    ("query_match", &["v"]),
    ("m", &["1", "text", "default", "of-the-route", "of-the-cluster"]),
    ("destination_cluster", &["application"]),
    ("source_cluster", &["node-cluster"]),
    (DONE, &["a", "1"]),
];

/// The key of descriptors that are charged when a stream has ended. Their limits are never reached, since a proxy may charge them late.
pub const DONE: &str = "done";

/// Rules for descriptors of up to two entries: one for each value above, and one for any other value. Each has its own name.
pub fn rules() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    let mut count = 0;
    let mut rule = |rules: &mut String, indent: &str, key: &str, value: Option<&str>| {
        count += 1;
        // Most are never exceeded, so that most requests are admitted.
        let requests = match key {
            DONE => 1_000_000_000,
            _ if count % 3 == 0 => 3,
            _ => 100_000,
        };
        let value = value.map_or(String::new(), |value| format!(", value: {}", json!(value)));
        let _ = write!(
            rules,
            "{indent}- {{ key: {key}{value}, rate_limit: {{ unit: year, requests_per_unit: {requests}, name: n{count} }}",
        );
        *rules += match count % 12 {
            3 => ", on_deny: { body: \"{}\", headers: { content-type: application/json, x-own: '0' } }",
            6 => ", on_deny: { mark: { header: x-marked, value: slow } }",
            9 => ", on_deny: { headers: { x-own: '0', retry-after: '7' } }",
            _ => "",
        };
    };
    let values = |of: &'static [&'static str]| of.iter().copied().map(Some).chain([None]);
    for (first, of_first) in ENTRIES {
        for value in values(of_first) {
            rule(&mut rules, "  ", first, value);
            rules += ", descriptors: [\n";
            for (second, of_second) in ENTRIES {
                for value in values(of_second) {
                    rule(&mut rules, "      ", second, value);
                    rules += " },\n";
                }
            }
            rules += "  ] }\n";
        }
    }
    rules.replace("      - {", "      {")
}

/// Makes configurations that an Envoy accepts.
pub struct Generator<'b> {
    pub rng: Rng,
    pub binary: &'b Binary,
}

impl Generator<'_> {
    pub fn half(&mut self) -> bool {
        self.rng.once_in(2)
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        self.rng.pick(of)
    }

    /// Sets a field in half of all cases.
    pub fn maybe(&mut self, message: &mut Json, field: &str, of: &[Json]) {
        if self.half() {
            message[field] = self.one(of);
        }
    }

    /// Settings of the filter.
    pub fn settings(&mut self) -> Json {
        let mut settings = json!({"domain": "d", "rate_limit_service": service(), "timeout": "5s"});
        // Of the filter; most routes have their own.
        settings["rate_limits"] = json!([self.policy()]);
        self.maybe(&mut settings, "enable_x_ratelimit_headers", &["OFF".into(), "DRAFT_VERSION_03".into()]);
        settings["failure_mode_deny"] = self.half().into();
        self.maybe(&mut settings, "disable_x_envoy_ratelimited_header", &[true.into()]);
        self.maybe(&mut settings, "rate_limited_as_resource_exhausted", &[true.into()]);
        let status = |code: u16| json!({"code": code});
        self.maybe(
            &mut settings,
            "rate_limited_status",
            &[status(403), status(301), status(503), status(429)],
        );
        self.maybe(&mut settings, "status_on_error", &[status(200), status(503), status(404)]);
        self.maybe(&mut settings, "request_type", &["internal".into(), "external".into(), "both".into()]);
        if self.rng.once_in(4) {
            let none = json!({"default_value": {"numerator": 0}});
            let all = json!({"default_value": {"numerator": 10000, "denominator": "TEN_THOUSAND"}, "runtime_key": "some.key"});
            self.maybe(&mut settings, "filter_enabled", &[none.clone(), all.clone()]);
            self.maybe(&mut settings, "filter_enforced", &[none.clone(), all.clone()]);
            self.maybe(&mut settings, "failure_mode_deny_percent", &[none, all]);
        }
        let header = |key: &str, value: &str, action: &str| json!({"header": {"key": key, "value": value}, "append_action": action});
        let headers = [
            header("x-own", "1%%", "APPEND_IF_EXISTS_OR_ADD"),
            header("x-own", "2", "ADD_IF_ABSENT"),
            header("x-own", "3", "OVERWRITE_IF_EXISTS_OR_ADD"),
            header("X-Envoy-Ratelimited", "4", "OVERWRITE_IF_EXISTS"),
            header("x-ratelimit-limit", "5", "OVERWRITE_IF_EXISTS"),
            header("x-empty", "", "APPEND_IF_EXISTS_OR_ADD"),
            json!({"header": {"key": "x-kept", "value": ""}, "keep_empty_value": true}),
        ];
        if self.half() {
            let count = self.rng.between(1, 4);
            settings["response_headers_to_add"] = (0..count).map(|_| self.one(&headers)).collect();
        }
        if self.binary.is_from(40) {
            self.maybe(&mut settings, "enable_retry_after_header", &[true.into()]);
        }
        settings
    }

    /// Settings of a route.
    pub fn per_route(&mut self) -> Json {
        let count = self.rng.below(4);
        let mut policies: Vec<_> = (0..count).map(|_| self.policy()).collect();
        if self.rng.once_in(4) {
            policies.push(self.policy_at_end());
        }
        let mut settings = json!({"rate_limits": policies});
        if self.rng.once_in(10) {
            settings["domain"] = self.one(&["d", "other"]).into();
        }
        settings
    }

    fn policy(&mut self) -> Json {
        let count = if self.rng.once_in(12) { 3 } else { self.rng.between(1, 2) };
        let mut policy = json!({"actions": (0..count).map(|_| self.action()).collect::<Vec<_>>()});
        if self.rng.once_in(3) {
            let hits = [
                json!({"number": 0}),
                json!({"number": 2}),
                json!({"format": "%DYNAMIC_METADATA(test:number)%"}),
                json!({"format": "%DYNAMIC_METADATA(test:text)%"}),
                json!({"format": "%REQ(x-cost)%"}),
                json!({"format": "%REQ(x-none?X-Cost):1%"}),
            ];
            policy["hits_addend"] = self.one(&hits);
            if self.binary.is_from(40) && self.rng.once_in(3) {
                policy["hits_addend"]["is_negative_hits"] = true.into();
            }
        }
        if self.binary.is_from(40) {
            if self.rng.once_in(4) {
                policy["x_ratelimit_option"] = self.one(&["UNSPECIFIED", "OFF", "DRAFT_VERSION_03"]).into();
            }
            if self.rng.once_in(6) {
                let units = ["HOUR", "DAY", "MONTH", "YEAR"];
                let unit = self.one(&units);
                policy["limit"] =
                    json!({"rate_limit": {"requests_per_unit": self.rng.between(0, 4), "unit": unit}});
            }
        }
        policy
    }

    /// An entry that is applied when the stream has ended.
    fn policy_at_end(&mut self) -> Json {
        let constant =
            json!({"generic_key": {"descriptor_key": DONE, "descriptor_value": self.one(&["a", "b"])}});
        let header = json!({"request_headers": {"header_name": "x-a", "descriptor_key": DONE}});
        let mut policy = json!({"actions": [self.one(&[constant, header])], "apply_on_stream_done": true});
        let mut hits = vec![json!({"number": 3}), json!({"format": "%REQ(x-cost)%"})];
        hits.push(json!({"format": "%DYNAMIC_METADATA(test:number)%"}));
        if self.binary.is_from(40) {
            hits.push(json!({"format": "%RESP(x-cost)%"}));
        }
        self.maybe(&mut policy, "hits_addend", &hits);
        policy
    }

    pub fn action(&mut self) -> Json {
        let kinds = if self.binary.is_from(40) { 11 } else { 10 };
        match self.rng.below(kinds) {
            0 => {
                let mut key = json!({"descriptor_value": self.one(&["a", "b"])});
                self.maybe(&mut key, "descriptor_key", &["g".into()]);
                json!({"generic_key": key})
            }
            1 | 2 => json!({"request_headers": {
                "header_name": self.one(&["x-a", "X-B", "x-a", ":method", "x-none", "x-meta-text"]),
                "descriptor_key": self.one(&["h", "m"]),
                "skip_if_absent": self.half(),
            }}),
            3 => json!({"query_parameters": {
                "query_parameter_name": self.one(&["q", "r", "q%20", "q/"]),
                "descriptor_key": "q",
                "skip_if_absent": self.half(),
            }}),
            4 => json!({"remote_address": {}}),
            5 => {
                let mut lengths = json!({});
                self.maybe(&mut lengths, "v4_prefix_mask_len", &[8.into(), 24.into(), 0.into()]);
                self.maybe(&mut lengths, "v6_prefix_mask_len", &[32.into(), 64.into(), 0.into()]);
                json!({"masked_remote_address": lengths})
            }
            6 => {
                let count = self.rng.below(3) + 1;
                let mut own = json!({"descriptor_value": "v"});
                own["headers"] = (0..count).map(|_| self.header_matcher()).collect();
                self.maybe(&mut own, "expect_match", &[true.into(), false.into()]);
                self.maybe(&mut own, "descriptor_key", &["g".into(), "h".into()]);
                json!({"header_value_match": own})
            }
            7 => {
                let mut own = json!({"descriptor_value": "v"});
                own["query_parameters"] = json!([self.query_matcher()]);
                self.maybe(&mut own, "expect_match", &[true.into(), false.into()]);
                self.maybe(&mut own, "descriptor_key", &["g".into(), "q".into()]);
                json!({"query_parameter_value_match": own})
            }
            8 => self.metadata(),
            9 => self.one(&[json!({"destination_cluster": {}}), json!({"source_cluster": {}})]),
            _ => {
                let range =
                    |prefix: &str, length: u32| json!({"address_prefix": prefix, "prefix_len": length});
                let ranges = [
                    range("10.0.0.0", 8),
                    range("2001:db8::", 32),
                    range("10.1.2.3", 32),
                    range("0.0.0.0", 0),
                ];
                let mut matcher = json!({"ranges": [self.one(&ranges), self.one(&ranges)]});
                self.maybe(&mut matcher, "invert_match", &[true.into()]);
                let mut own = json!({"descriptor_value": "v", "address_matcher": matcher});
                self.maybe(&mut own, "descriptor_key", &["g".into()]);
                json!({"remote_address_match": own})
            }
        }
    }

    fn metadata(&mut self) -> Json {
        let mut sources =
            vec![("DYNAMIC", "text"), ("DYNAMIC", "none"), ("DYNAMIC", "number"), ("ROUTE_ENTRY", "route")];
        if self.binary.is_from(40) {
            sources.push(("CLUSTER_ENTRY", "cluster"));
        }
        let (source, key) = self.one(&sources);
        let mut own = json!({
            "descriptor_key": "m",
            "source": source,
            "metadata_key": {"key": "test", "path": [{"key": key}]},
            "skip_if_absent": self.half(),
        });
        self.maybe(&mut own, "default_value", &["default".into()]);
        json!({"metadata": own})
    }

    fn text_matcher(&mut self) -> Json {
        let kinds = ["exact", "prefix", "suffix", "contains"];
        if self.rng.once_in(3) {
            let regexes =
                ["1", "[12]", ".*", "1.2", "[^2]+", "(?i)a", "\\d+", "a|b", "é", "1?", "[[:alpha:]]+", "a b"];
            return json!({"safe_regex": {"regex": self.one(&regexes)}});
        }
        let kind = self.one(&kinds);
        let mut own = json!({kind: self.one(&["1", "2", "A", "a", "é", ",", "a b"])});
        self.maybe(&mut own, "ignore_case", &[true.into()]);
        own
    }

    pub fn header_matcher(&mut self) -> Json {
        let mut own = json!({"name": self.one(&["x-a", "X-b", "x-none", ":method", ":path"])});
        match self.rng.below(7) {
            3 => {
                // As older configurations have them.
                let kinds = ["exact_match", "prefix_match", "suffix_match", "contains_match"];
                own[self.one(&kinds)] = self.one(&["1", "A", "é", ",", "a b"]).into();
            }
            4 if self.binary.is_from(39) => {
                own["safe_regex_match"] = json!({"regex": self.one(&["1", ".*", "[^2]+", "é"])})
            }
            0 => own["present_match"] = self.half().into(),
            1 => own["range_match"] = json!({"start": -1, "end": 2}),
            2 => {}
            _ => own["string_match"] = self.text_matcher(),
        }
        self.maybe(&mut own, "invert_match", &[true.into()]);
        self.maybe(&mut own, "treat_missing_header_as_empty", &[true.into()]);
        own
    }

    pub fn query_matcher(&mut self) -> Json {
        let mut own = json!({"name": self.one(&["q", "r"])});
        match self.rng.below(4) {
            0 => own["present_match"] = self.half().into(),
            1 => {}
            _ => own["string_match"] = self.text_matcher(),
        }
        own
    }

    /// A request below a prefix.
    pub fn request(&mut self, prefix: &str) -> Request {
        let mut path = prefix.to_owned();
        let queries = [
            "",
            "",
            "?",
            "?q=1",
            "?q=",
            "?q",
            "?q=a%20b",
            "?q=a+b",
            "?q=%2541",
            "?q=%41%2f",
            "?r=1&q=2",
            "?q=1&q=2",
            "?&q=1&",
            "?q=%4",
            "?q=%zz",
            "?q%20=1",
            "?q/=1",
            "?q%2f=A",
            "?=1",
            "?q=1#q=2",
            "?q==1",
            "?r=a?q=1",
            "?q=%C3%A9",
            "?q=%00",
        ];
        path += self.one(&queries);
        let mut request = Request::get(&path);
        if self.rng.once_in(16) {
            // Bytes that no URI has.
            let mut raw = vec!["?q=é".as_bytes(), "?é=1&q=1".as_bytes(), b"?q=\x7f", b"?q=\x01"];
            if self.binary.is_from(40) {
                raw.extend([&b"?q=\xe9"[..], b"?\xff=\xff&q=1"]);
            }
            request.path = [prefix.as_bytes(), self.one(&raw)].concat();
        }
        if self.rng.once_in(6) {
            request.method = self.one(&["HEAD", "POST", "OPTIONS", "PURGE"]).to_owned();
        }
        let mut values: Vec<&[u8]> =
            vec![b"1", b"1", b"2", b"", b" 1 ", b"-1", b"A", b"a b", "é".as_bytes(), b"1,2", "Ä".as_bytes()];
        if self.binary.is_from(40) {
            // Regular expressions of earlier versions match UTF-8, those of the module bytes.
            values.extend([&b"\xe9"[..], b"\xff\xfe", b"1\xa0", "1\u{a0}".as_bytes()]);
        }
        if self.rng.once_in(16) {
            // Envoy refuses some of these before any filter sees them.
            values = vec![b"\t1", b"1\t2", b"\x011", b"\x7f", b"1\x00", &[b'1'; 3_000]];
        }
        for name in ["x-a", "x-a", "x-b", "x-meta-text"] {
            if self.half() {
                request.headers.push((name.to_owned(), self.one(&values).to_vec()));
            }
        }
        let mut add = |name: &str, of: &[&str]| {
            if self.half() {
                request.headers.push((name.to_owned(), self.one(of).as_bytes().to_vec()));
            }
        };
        let clients = [
            "10.1.2.3",
            "10.1.9.9",
            "192.0.2.7",
            "2001:db8::1",
            "2001:db8:0:1::5",
            "::ffff:10.1.2.3",
            "nobody",
        ];
        add("x-forwarded-for", &clients);
        add("x-meta-number", &["1", "2.7", "0", "-1", "x"]);
        add("x-cost", &["3", "1.5", "abc", "-1", "2000000000", "0", " 2 ", "1e1", "inf", ""]);
        add("x-upstream-limit", &["1"]);
        if self.rng.once_in(6) {
            request.headers.push(("x-cost".to_owned(), b"2".to_vec()));
        }
        if self.rng.once_in(8) {
            let grpc = self.one(&[
                "application/grpc",
                "application/grpc+proto",
                "application/grpc-web",
                "Application/gRPC",
            ]);
            request.headers.push(("content-type".to_owned(), grpc.into()));
        }
        if self.rng.once_in(8) {
            request.headers.push(("x-envoy-internal".to_owned(), b"true".to_vec()));
        }
        request
    }
}
