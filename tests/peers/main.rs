//! Tests against real peers: Envoy, h2spec, a file system that fills up, clients in other languages.
//!
//! A test without its peer is reported as ignored, with the peer's name. With `TIDEGATE_REQUIRE=envoy,h2spec` it fails instead, and
//! `.ci/run` requires all peers. The runner is libtest-mimic, since the built-in runner cannot decide at run time that a test is ignored;
//! its arguments are the same as for every other test target.

#![allow(clippy::unwrap_used, reason = "tests, which clippy does not see without the built-in runner")]

mod access_logs;
mod authority;
mod chroot;
mod completion;
mod compose;
mod console;
mod control_openapi;
mod control_plane;
mod dashboard;
mod envoy;
mod envoy_config;
mod envoy_gateway;
mod envoy_process;
mod full_disk;
mod h2spec;
mod handbook;
mod kubernetes;
#[path = "../it/leases/node.rs"]
#[allow(dead_code, reason = "tests/it uses the rest")]
mod lease_node;
mod limitador;
mod metrics_page;
mod openapi;
mod otlp_metrics;
mod peer;
mod prometheus;
mod reference;
#[path = "../sim/rng.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod rng;
mod shared_store;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this target uses a part of it, tests/it the rest")]
mod support;
mod systemd;
mod tls;
mod traces;

use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let trials = [
        // The tests that wait longest begin first: the others use the machine meanwhile.
        envoy::quota_store::tests,
        envoy::quotas::tests,
        envoy::one_limit::tests,
        envoy::concurrency::tests,
        access_logs::envoy::tests,
        access_logs::nginx::tests,
        access_logs::apache::tests,
        authority::envoy::tests,
        authority::python::tests,
        chroot::tests,
        chroot::seccomp::tests,
        compose::tests,
        completion::tests,
        completion::zsh::tests,
        completion::fish::tests,
        console::tests,
        console::failures::tests,
        console::operations::tests,
        console::pictures::tests,
        console::rule_keys::tests,
        console::what_if::tests,
        console::figures::tests,
        console::load::tests,
        console::shared::tests,
        console::shares::tests,
        console::unlimited::tests,
        console::accessibility::tests,
        control_openapi::tests,
        control_plane::tests,
        envoy::tests,
        envoy::any_values::tests,
        envoy::recipes::tests,
        envoy::reserve::tests,
        envoy::denials::tests,
        envoy::queueing::tests,
        envoy::rlqs_filters::tests,
        envoy::two_servers::tests,
        envoy_gateway::tests,
        envoy_gateway::deployment::tests,
        envoy_gateway::in_flight::tests,
        full_disk::tests,
        h2spec::tests,
        handbook::tests,
        kubernetes::tests,
        limitador::tests,
        metrics_page::tests,
        metrics_page::python::tests,
        openapi::tests,
        otlp_metrics::tests,
        traces::tests,
        traces::receiver::tests,
        prometheus::tests,
        prometheus::store::tests,
        reference::tests,
        shared_store::arithmetic::tests,
        shared_store::cluster::tests,
        shared_store::cluster_faults::tests,
        shared_store::connections::tests,
        shared_store::envoy::tests,
        shared_store::envoy_slots::tests,
        shared_store::faults::tests,
        shared_store::give_backs::tests,
        shared_store::joining::tests,
        shared_store::lease_faults::tests,
        shared_store::lease_servers::tests,
        shared_store::lease_waits::tests,
        shared_store::leases::tests,
        shared_store::limits_file::tests,
        shared_store::local_rules::tests,
        shared_store::operators::tests,
        shared_store::quota_script::tests,
        shared_store::reference_env::tests,
        shared_store::renewal_policies::tests,
        shared_store::reserve_script::tests,
        shared_store::reserve_servers::tests,
        shared_store::resets::tests,
        shared_store::slot_script::tests,
        shared_store::kept_denials::tests,
        shared_store::received_ends::tests,
        shared_store::slot_servers::tests,
        shared_store::slot_waits::tests,
        shared_store::transfer::tests,
        shared_store::undo::tests,
        systemd::tests,
        tls::envoy::tests,
        tls::grpc_go::tests,
        tls::grpcurl::tests,
        tls::openssl::tests,
        tls::python::tests,
    ]
    .into_iter()
    .flat_map(|tests| tests());
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
