//! How a filter reaches its server, and how long it waits.

use super::finding::{Findings, Kind};
use crate::{
    configuration::{Cluster, Configuration, FailureMode},
    part::Part,
};
use std::time::Duration;

/// Checks the settings of a filter that calls a server.
pub(super) fn check(
    configuration: &Configuration<'_>,
    settings: Part<'_>,
    findings: &mut Findings,
    place: &str,
) {
    let service = settings.get("rate_limit_service");
    let grpc = service.and_then(|service| service.get("grpc_service"));
    check_timeout(settings, grpc.and_then(|grpc| grpc.get("timeout")), findings, place);
    let Some(part) = service else {
        let message =
            "this filter has no rate_limit_service; add it with the cluster of Tidegate's gRPC port";
        return findings.add(Kind::ServiceMissing, settings, place, message);
    };
    if part.text("transport_api_version") != "V3" {
        let message = "transport_api_version is not V3: Envoy refuses it, or calls a service of API version 2; write V3";
        findings.add(Kind::ServiceVersion, part, place, message);
    }
    let Some(name) = grpc.and_then(|grpc| grpc.get_in(["envoy_grpc", "cluster_name"])) else { return };
    match configuration.cluster(name.as_text()) {
        Some(cluster) => check_cluster(cluster, findings, place),
        None if configuration.clusters.is_empty() || is_of_mesh(name.as_text()) => {
            let message = format!(
                "the cluster {} is not in the files, so its protocol and health checks are unknown",
                name.as_text()
            );
            findings.add(Kind::ClusterNotShown, name, place, message);
        }
        None => {
            let names: Vec<&str> = configuration.clusters.iter().map(|cluster| cluster.name()).collect();
            let message = format!("there is no cluster {}; clusters: {}", name.as_text(), names.join(", "));
            findings.add(Kind::ClusterMissing, name, place, message);
        }
    }
}

/// Whether Istio has made the cluster of this name: `outbound|8081||ratelimit.default.svc.cluster.local`.
fn is_of_mesh(name: &str) -> bool {
    name.contains('|')
}

/// `of_service` is the timeout of the gRPC service, which Envoy's filters do not read.
fn check_timeout(settings: Part<'_>, of_service: Option<Part<'_>>, findings: &mut Findings, place: &str) {
    let failure = FailureMode::of(settings);
    let outcome = format!("then {failure}");
    // If the filter fails closed, nothing is unlimited.
    let kind = |kind| if failure.refused.is_all() { Kind::TimeoutRefuses } else { kind };
    if let Some(ignored) = of_service {
        let own = match settings.has("timeout") {
            true => "only `timeout` of the filter applies; remove this one".to_owned(),
            false => {
                format!("the filter waits 20 ms, {outcome}; set `timeout` beside `domain`, such as 0.25s")
            }
        };
        let message = format!("Envoy's ratelimit filter does not read the timeout of grpc_service: {own}");
        findings.add(kind(Kind::TimeoutIgnored), ignored, place, message);
    }
    match settings.get("timeout") {
        None => {
            let message = format!(
                "this filter has no timeout: it waits 20 ms, {outcome}; set `timeout`, such as 0.25s"
            );
            findings.add(kind(Kind::TimeoutDefault), settings, place, message);
        }
        Some(part)
            if settings.duration("timeout").is_some_and(|timeout| timeout < Duration::from_millis(1)) =>
        {
            let message = format!(
                "a timeout of {} ends before a server can respond, {outcome}; write such as 0.25s",
                part.as_text()
            );
            findings.add(kind(Kind::TimeoutZero), part, place, message);
        }
        Some(_) => {}
    }
}

fn check_cluster(cluster: Cluster<'_>, findings: &mut Findings, place: &str) {
    let name = cluster.name();
    if !cluster.is_http2() {
        let message = format!(
            "the cluster {name} has no HTTP/2, which gRPC needs, so every call fails; add typed_extension_protocol_options with \
             http2_protocol_options"
        );
        findings.add(Kind::ClusterWithoutHttp2, cluster.part, place, message);
    }
    let endpoints = cluster.endpoints();
    if endpoints == 0 && cluster.part.has("load_assignment") {
        let message = format!("the cluster {name} has no endpoints");
        findings.add(Kind::ClusterWithoutEndpoints, cluster.part, place, message);
    }
    check_breakers(cluster, findings, place);
    if let Some(problem) = cluster.why_unchecked().filter(|_| endpoints > 1) {
        let message = format!(
            "the cluster {name} has {endpoints} endpoints and {problem}: while one of them restarts, its share of the calls fails; add \
             health_checks with grpc_health_check and no_traffic_interval, and start Tidegate with a --drain-delay above their interval \
             (deploy/envoy/two-servers.yaml)"
        );
        findings.add(Kind::ClusterNotChecked, cluster.part, place, message);
    }
}

/// Concurrent calls that a circuit breaker of Envoy admits by default.
const CALLS_AT_ONCE: u64 = 1024;

/// Checks circuit breakers: a call that they refuse fails for the filter, without a message to the server.
fn check_breakers(cluster: Cluster<'_>, findings: &mut Findings, place: &str) {
    let all =
        cluster.part.get("circuit_breakers").into_iter().flat_map(|breakers| breakers.list("thresholds"));
    let of_calls = all.filter(|threshold| ["", "DEFAULT"].contains(&threshold.text("priority")));
    for (threshold, field) in of_calls
        .flat_map(|threshold| ["max_requests", "max_pending_requests"].map(|field| (threshold, field)))
    {
        let Some(calls) = threshold.number(field).filter(|calls| *calls < CALLS_AT_ONCE) else { continue };
        let message = format!(
            "{field} of the cluster {} is {calls}: while so many calls are in progress, Envoy treats further requests as if the server had \
             failed; remove it, or write {CALLS_AT_ONCE} (the default) or more",
            cluster.name()
        );
        findings.add(Kind::ClusterBreaker, threshold.at(field), place, message);
    }
}
