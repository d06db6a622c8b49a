//! The configuration of the filter and of a route: Envoy's `RateLimit` and `RateLimitPerRoute`, as bytes or JSON.
//!
//! Whatever the module cannot do as Envoy's filter does is refused here, with the path of the field: no configuration that loads is decided
//! differently.

mod denial;
mod fraction;
mod local;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use denial::{AddedHeader, Merge};
pub(crate) use fraction::{Fraction, Fractions};
pub(crate) use local::{Local, RuleSource};
pub(crate) use server::{Address, HostPort, Server};

use std::time::Duration;
use tidegate_envoy_abi::is_from_1_39;
use tidegate_envoy_config::{
    Envoy, METADATA_NAMESPACE, Message, Node, Policy, Problems, RATE_LIMIT_FILTER, RATE_LIMIT_PER_ROUTE,
    from_json,
};

/// The timeout of Envoy's filter unless configured otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(20);

/// The configuration of the filter.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) domain: String,
    pub(crate) request_type: RequestType,
    pub(crate) policies: Vec<Policy>,
    /// The share of undecided requests that is denied.
    pub(crate) failure_deny: Fraction,
    /// The longest wait for a decision of a server.
    pub(crate) timeout: Duration,
    pub(crate) error_status: u16,
    pub(crate) denied_status: u16,
    pub(crate) denied_headers: Vec<AddedHeader>,
    /// Whether a denied gRPC call ends with RESOURCE_EXHAUSTED instead of UNAVAILABLE.
    pub(crate) resource_exhausted: bool,
    /// Whether responses have `x-ratelimit-*`, unless an entry of `rate_limits` has its own option.
    pub(crate) x_ratelimit: bool,
    pub(crate) x_envoy_ratelimited: bool,
    pub(crate) retry_after: bool,
    pub(crate) enabled: Fraction,
    pub(crate) enforced: Fraction,
    /// The label of the filter in metrics.
    pub(crate) stat_prefix: String,
    /// The namespace of dynamic metadata that the module writes.
    pub(crate) metadata_namespace: String,
    pub(crate) local: Local,
}

/// The requests to which the filter applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestType {
    Both,
    Internal,
    External,
}

/// The configuration of a route.
#[derive(Debug, PartialEq)]
pub(crate) struct RouteSettings {
    /// Replaces the filter's.
    pub(crate) domain: Option<String>,
    /// Replace the filter's, if there are any.
    pub(crate) policies: Vec<Policy>,
}

/// Reads a configuration of the filter.
pub(crate) fn filter(bytes: &[u8]) -> Result<Settings, String> {
    let problems = Problems::default();
    let (node, local) = tree(bytes, &RATE_LIMIT_FILTER, &problems);
    let local = Local::read(local, variable, &problems);
    let fraction = |name: &str, default: Fraction| match node.node(name) {
        Some(node) => Fraction::read(node, &problems),
        None => default,
    };
    let failure_deny = Fraction::percents(if node.bool("failure_mode_deny") { 100 } else { 0 }, "");
    let settings = Settings {
        domain: node.required("domain", &problems),
        request_type: match node.text("request_type") {
            "" | "both" => RequestType::Both,
            "internal" => RequestType::Internal,
            "external" => RequestType::External,
            other => {
                problems.add("request_type", format!("{other:?} is not internal, external or both"));
                RequestType::Both
            }
        },
        policies: policies(&node, &local, &problems),
        failure_deny: fraction("failure_mode_deny_percent", failure_deny),
        timeout: node.duration("timeout").unwrap_or(TIMEOUT_DEFAULT),
        error_status: denial::status(node.node("status_on_error"), 500, 1),
        denied_status: denial::status(node.node("rate_limited_status"), 429, 400),
        denied_headers: denial::headers(&node, &problems),
        resource_exhausted: node.bool("rate_limited_as_resource_exhausted"),
        x_ratelimit: node.number_of("enable_x_ratelimit_headers") == 1,
        x_envoy_ratelimited: !node.bool("disable_x_envoy_ratelimited_header"),
        retry_after: node.bool("enable_retry_after_header"),
        enabled: fraction("filter_enabled", Fraction::percents(100, "ratelimit.http_filter_enabled")),
        enforced: fraction("filter_enforced", Fraction::percents(100, "ratelimit.http_filter_enforcing")),
        stat_prefix: node.text("stat_prefix").to_owned(),
        metadata_namespace: match node.text("metadata_namespace") {
            "" => METADATA_NAMESPACE,
            own => own,
        }
        .to_owned(),
        local,
    };
    problems.or(settings)
}

/// Reads a configuration of a route.
pub(crate) fn route(bytes: &[u8]) -> Result<RouteSettings, String> {
    let problems = Problems::default();
    let (node, local) = tree(bytes, &RATE_LIMIT_PER_ROUTE, &problems);
    let local = Local::of_route(local, variable, &problems);
    let domain = node.text("domain");
    let settings = RouteSettings {
        domain: (!domain.is_empty()).then(|| domain.to_owned()),
        policies: policies(&node, &local, &problems),
    };
    problems.or(settings)
}

/// A variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn policies(node: &Node, local: &Local, problems: &Problems) -> Vec<Policy> {
    let envoy = Envoy { source_cluster: local.source_cluster.clone(), matches_each_value: is_from_1_39() };
    node.nodes("rate_limits").map(|node| Policy::read(node, &envoy, problems)).collect()
}

/// The fields of a configuration, and those of the module's own object `tidegate`, which only JSON can have.
fn tree(bytes: &[u8], message: &Message, problems: &Problems) -> (Node, Option<serde_json::Value>) {
    // No protobuf message begins with this byte: it would be a group, field 15.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return (wire::from_bytes(bytes, message, String::new(), problems), None);
    }
    match serde_json::from_slice::<serde_json::Map<_, _>>(bytes) {
        Ok(mut json) => {
            let own = json.remove("tidegate").filter(|own| !own.is_null());
            (from_json(&json, message, String::new(), problems), own)
        }
        Err(error) => {
            problems.add("", format!("the configuration is not valid JSON: {error}"));
            (Node::default(), None)
        }
    }
}
