//! The shapes of rules that gateways make of their policies, one for each kind of policy: each loads as a resource of a control
//! plane, and limits the requests derived from it to exactly its numbers.
//!
//! A line is the path to a rate limit: `KEY` for each value of a request, `KEY=VALUE` for one value, and `@TEXT` for a key with the same
//! text as its value, as gateways name routes and matches; then the number of requests, and flags.

use crate::{
    support::{Client, descriptor},
    xds::{ControlPlane, start},
};
use tidegate::api::pb::{
    common::RateLimitDescriptor as Sent,
    rules::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy},
    service::{RateLimitRequest, rate_limit_response::Code},
};

/// Envoy Gateway: the kind of policy, the domain (a listener, or a shared policy), and the rules.
const SHAPES: &[(&str, &str, &[&str])] = &[
    ("no match", "listener/all", &["@route @rule-0-match--1 : 2"]),
    ("one header", "listener/header", &["@route @rule-0-match-0 : 2"]),
    ("two headers", "listener/headers", &["@route @rule-0-match-0 @rule-0-match-1 : 2"]),
    (
        "query parameters",
        "listener/query",
        &["@route @default/policy/rule/0 @rule-0-match-0 @rule-0-match-1 : 2"],
    ),
    ("methods", "listener/method", &["@route @rule-0-method : 2", "@route @rule-1-method : 3"]),
    ("paths", "listener/path", &["@route @rule-0-path : 2", "@route @rule-1-path : 3"]),
    ("each value of a header", "listener/distinct", &["@route rule-0-match-0 : 2"]),
    (
        "each value of a header, with other numbers for some",
        "listener/overrides",
        &[
            "@route rule-0-match-0 : 2",
            "@route rule-0-match-0=client-a : 3",
            "@route rule-0-match-0=client-b : 4",
        ],
    ),
    (
        "the same below a method and a path",
        "listener/overrides-method-path",
        &[
            "@route rule-0-match-0 @rule-0-method @rule-0-path : 2",
            "@route rule-0-match-0=client-a @rule-0-method @rule-0-path : 3",
        ],
    ),
    ("a network", "listener/cidr", &["@route masked_remote_address=192.0.2.0/24 : 2"]),
    ("IPv6 networks", "listener/cidr6", &["@route masked_remote_address=2001:db8::/32 : 2"]),
    (
        "each address of a network, with another number for one",
        "listener/addresses",
        &[
            "@route masked_remote_address=192.0.2.0/24 remote_address : 2",
            "@route masked_remote_address=192.0.2.0/24 remote_address=192.0.2.7 : 3",
        ],
    ),
    (
        "one network on two routes",
        "listener/same-cidr",
        &[
            "@first-route @rule-0-match--1 masked_remote_address=192.0.2.1/32 : 2",
            "@second-route @rule-0-match--1 masked_remote_address=192.0.2.1/32 : 3",
        ],
    ),
    ("all but a network", "listener/inverted", &["@route @masked_remote_address_not_match : 2"]),
    (
        "headers and a network",
        "listener/header-cidr",
        &["@route @rule-0-match-0 @rule-0-match-1 masked_remote_address=0.0.0.0/0 : 2"],
    ),
    (
        "every kind of match",
        "listener/everything",
        &["@route @rule-0-match-0 @rule-0-match-1 @rule-0-match-2 @rule-0-method @rule-0-path \
             masked_remote_address=0.0.0.0/0 : 2"],
    ),
    (
        "several rules",
        "listener/rules",
        &["@route @rule-0-match-0 : 2", "@route rule-1-match-0 : 3", "@route @rule-2-match--1 : 4"],
    ),
    (
        "several routes",
        "listener/routes",
        &["@httproute/default/a/rule/0/match/0/* : 2", "@grpcroute/default/b/rule/1 @rule-0-match-0 : 3"],
    ),
    ("a listener of its own", "other-listener", &["@route @rule-0-match-0 : 2"]),
    (
        "a policy that routes share",
        "default/policy-1",
        &["@default/policy-1/rule/0 rule-0-match-0 : 2", "@default/policy-1/rule/2 @rule-1-match-0 : 3"],
    ),
    (
        "another, with other numbers for some",
        "default/policy-2",
        &[
            "@default/policy-2/rule/0 rule-0-match-0 : 2",
            "@default/policy-2/rule/0 rule-0-match-0=client-a : 3",
        ],
    ),
    ("a rule with a name", "default/policy-3", &["@default/policy-3/rule/by-user rule-match-0 : 2"]),
    ("shadow mode", "listener/shadow", &["@route @rule-0-match-0 : 2 shadow"]),
    ("detailed metrics", "listener/detailed", &["@route rule-0-match-0 : 2 detailed"]),
    ("months", "listener/month", &["@route @rule-0-match-0 : 2 month"]),
    ("years", "listener/year", &["@route @rule-0-match-0 : 2 year"]),
];

/// Envoy AI Gateway: backends, models with rules for clients, and a quota for all other models.
const QUOTA_DOMAIN: &str = "ai-gateway-quota";
const QUOTAS: &[&str] = &[
    "backend_name=default/openai model_name_override=small : 100 quota",
    "backend_name=default/openai model_name_override=large @rule-0-x-team|red-match-0 @rule-0-x-user|ann-match-1 : 20 quota",
    "backend_name=default/openai model_name_override=large rule-1-x-user-match-0 : 30 quota",
    "backend_name=default/openai model_name_override=large @rule-2-match-0 : 40 quota shadow",
    "backend_name=default/openai model_name_override=large @rule-3-match--1 : 50 quota",
    "backend_name=default/openai model_name_override : 60 quota",
    "backend_name=default/other model_name_override=small : 70 quota",
];

/// A rate limit that a line describes.
struct GatewayLimit<'l> {
    /// Keys and values; an empty value stands for each value.
    path: Vec<(&'l str, &'l str)>,
    requests: u32,
    flags: Vec<&'l str>,
}

impl<'l> GatewayLimit<'l> {
    fn new(text: &'l str) -> Self {
        let (path, limit) = text.split_once(" : ").expect("a path and a limit");
        let part = |part: &'l str| match part.strip_prefix('@') {
            Some(text) => (text, text),
            None => part.split_once('=').unwrap_or((part, "")),
        };
        let mut limit = limit.split(' ');
        let requests = limit.next().and_then(|number| number.parse().ok()).expect("a number");
        Self { path: path.split(' ').map(part).collect(), requests, flags: limit.collect() }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The descriptor of a request that reaches the limit.
    fn sent(&self) -> Sent {
        let entries: Vec<(&str, &str)> = self
            .path
            .iter()
            .map(|(key, value)| (*key, if value.is_empty() { "any" } else { *value }))
            .collect();
        descriptor(&entries)
    }

    fn add_to(&self, descriptors: &mut Vec<RateLimitDescriptor>, depth: usize) {
        let Some((key, value)) = self.path.get(depth) else { return };
        // Envoy Gateway sets the mode of a rule on every level.
        let is_set = |flag| self.has(flag);
        let position = descriptors.iter().position(|known| known.key == *key && known.value == *value);
        let index = position.unwrap_or_else(|| {
            descriptors.push(RateLimitDescriptor {
                key: (*key).into(),
                value: (*value).into(),
                shadow_mode: is_set("shadow") && !is_set("quota"),
                ..RateLimitDescriptor::default()
            });
            descriptors.len() - 1
        });
        let found = &mut descriptors[index];
        self.add_to(&mut found.descriptors, depth + 1);
        if depth + 1 == self.path.len() {
            let unit = [("month", 5), ("year", 6)]
                .iter()
                .find(|(flag, _)| is_set(flag))
                .map_or(3, |(_, unit)| *unit);
            let requests_per_unit = self.requests;
            found.rate_limit =
                Some(RateLimitPolicy { requests_per_unit, unit, ..RateLimitPolicy::default() });
            found.shadow_mode = is_set("shadow");
            found.detailed_metric = is_set("detailed");
            found.quota_mode = is_set("quota");
        }
    }
}

fn config(domain: &str, lines: &[&str]) -> RateLimitConfig {
    let mut descriptors = Vec::new();
    lines.iter().for_each(|line| GatewayLimit::new(line).add_to(&mut descriptors, 0));
    RateLimitConfig { name: domain.into(), domain: domain.into(), descriptors }
}

/// The code of a request with one descriptor and this many hits; `None` leaves the number out.
async fn hit(client: &mut Client, domain: &str, descriptors: &[Sent], hits: Option<u64>) -> Code {
    let descriptors = descriptors.iter().cloned().map(|sent| Sent { hits_addend: hits, ..sent }).collect();
    let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 };
    client.0.should_rate_limit(request).await.expect("a decision").into_inner().overall_code()
}

#[tokio::test]
async fn each_shape_of_envoy_gateway_limits_the_requests_derived_from_it() {
    let configs: Vec<RateLimitConfig> =
        SHAPES.iter().map(|(_, domain, lines)| config(domain, lines)).collect();
    let plane = ControlPlane::new(configs);
    let (port, _serving) = plane.serve(0);
    for compat in [&["--test-clock"][..], &["--test-clock", "--compat", "reference"]] {
        let server = start(port, compat);
        let mut client = server.client().await;
        for (kind, domain, lines) in SHAPES {
            for line in lines.iter().map(|line| GatewayLimit::new(line)) {
                for number in 1..=line.requests + 1 {
                    let is_over = number > line.requests && !line.has("shadow");
                    let expected = if is_over { Code::OverLimit } else { Code::Ok };
                    let code = hit(&mut client, domain, &[line.sent()], None).await;
                    assert_eq!(code, expected, "{kind}: {:?}, request {number}", line.path);
                }
            }
        }
    }
    println!("{} shapes", SHAPES.len());
}

/// The number of tokens is known when the response has ended: a check comes before it, and a charge after it.
#[tokio::test]
async fn quotas_of_envoy_ai_gateway_are_charged_by_tokens() {
    let plane = ControlPlane::new(vec![config(QUOTA_DOMAIN, QUOTAS)]);
    let (port, _serving) = plane.serve(0);
    let server = start(port, &["--test-clock", "--compat", "reference"]);
    let mut client = server.client().await;
    let mut check =
        async |descriptors: &[Sent], hits| hit(&mut client, QUOTA_DOMAIN, descriptors, hits).await;
    for line in QUOTAS.iter().map(|line| GatewayLimit::new(line)) {
        let sent = [line.sent()];
        let limit = u64::from(line.requests);
        assert_eq!(check(&sent, Some(0)).await, Code::Ok, "{:?}", line.path);
        assert_eq!(check(&sent, Some(limit - 1)).await, Code::Ok, "{:?}", line.path);
        assert_eq!(check(&sent, Some(0)).await, Code::Ok, "{:?}", line.path);
        // The cost of the response that crosses the limit.
        check(&sent, Some(7)).await;
        let expected = if line.has("shadow") { Code::Ok } else { Code::OverLimit };
        assert_eq!(check(&sent, Some(0)).await, expected, "{:?}", line.path);
    }
    // Denied only if every quota of the request is used up.
    let of = |line: usize| GatewayLimit::new(QUOTAS[line]).sent();
    assert_eq!(check(&[of(0), of(6)], Some(0)).await, Code::OverLimit);
    let unused = descriptor(&[("backend_name", "default/openai"), ("model_name_override", "new")]);
    assert_eq!(check(&[of(0), unused], Some(0)).await, Code::Ok);
}
