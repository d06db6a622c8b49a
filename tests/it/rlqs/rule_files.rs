//! Rule files of quotas: the configuration of Envoy that belongs to a rule file, and the limits that can be divided.

use crate::rules::in_repository;
use proptest::{
    prelude::{Just, ProptestConfig, prop_assert, prop_oneof, proptest},
    strategy::Strategy,
};
use std::process::Command;
use tidegate_core::rules::{LoadOptions, RuleSet, Source};
use tidegate_shared::quota::Terms;

/// The configuration that users copy contains the filter that the command prints.
#[test]
fn the_configuration_in_deploy_has_what_the_command_prints() {
    let rules = in_repository("deploy/envoy/rlqs-rules.yaml");
    let rules = rules.to_str().expect("the crate's path is UTF-8");
    let args = [
        "rlqs",
        "envoy-config",
        "--rules",
        rules,
        "--input",
        "api_key=header:x-api-key",
        "--fallback",
        "deny",
    ];
    let printed = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("it runs");
    assert!(printed.status.success(), "{printed:?}");
    let indented = |line: &str| format!("                  {line}\n");
    let printed: String = String::from_utf8(printed.stdout).expect("UTF-8").lines().map(indented).collect();
    let config = std::fs::read_to_string(in_repository("deploy/envoy/rlqs.yaml")).expect("it is there");
    assert!(config.contains(&printed), "copy this into deploy/envoy/rlqs.yaml:\n{printed}");
}

/// Algorithms, each with a limit of this many requests in a window.
fn limits() -> impl Strategy<Value = String> {
    let algorithm = prop_oneof![
        Just("sliding_window"),
        Just("sliding_log"),
        Just("fixed_window"),
        Just("token_bucket"),
        Just("leaky_bucket"),
        Just("token_bucket, refill: intervals"),
        Just("sliding_window, precision: 6"),
    ];
    (algorithm, 1..3_000_u32, prop_oneof![1..30_u32, 30..2_000_u32]).prop_map(
        |(algorithm, requests, seconds)| {
            format!("rate_limit: {{per: {seconds}s, requests_per_unit: {requests}, algorithm: {algorithm}}}")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn every_limit_that_check_accepts_can_be_divided(limit in limits(), clients in 1..20_u32) {
        let text = format!("domain: d\nrlqs: {{clients: {clients}, min_use: 1%}}\ndescriptors:\n- {{key: k, {limit}}}\n");
        for shared_counters in [false, true] {
            let options = LoadOptions { shared_counters, leases: true, ..LoadOptions::default() };
            let rules = RuleSet::parse(&[Source::file("rules.yaml", text.clone())], &options);
            let terms = if shared_counters { Terms::of_shared } else { Terms::of };
            for (_, limit) in rules.iter().flat_map(RuleSet::rule_limits) {
                prop_assert!(terms(&limit.algorithm).is_ok(), "{:?}", terms(&limit.algorithm));
            }
        }
    }
}
