//! The filters that `tidegate rlqs envoy-config` prints, each loaded by a real Envoy.

use crate::{envoy_process::envoy_binary, support::rules_file};
use std::{fs, path::Path, process::Command};

crate::tests_with! { ENVOY: envoy_accepts_every_filter_that_is_printed }

/// Rules, and the inputs of their keys.
const RULES: [(&str, &[&str]); 7] = [
    (
        "descriptors: [{key: api_key, rate_limit: {unit: second, requests_per_unit: 200}}]",
        &["api_key=header:x-api-key"],
    ),
    // Values in every form.
    (
        r#"descriptors:
- {key: plan, value: "free 'of' charge: 1 # ü", rate_limit: {unit: second, requests_per_unit: 200}}
- {key: plan, values: [trial, Guest], value_ignore_case: true, rate_limit: {unit: second, requests_per_unit: 200}}
- {key: path, value: /pay/*, rate_limit: {unit: day, requests_per_unit: 1000}}
- {key: path, value: "*.png", rate_limit: {unit: second, requests_per_unit: 200}}
- {key: path, value: "/a/*/b.(c)/*d", rate_limit: {unit: second, requests_per_unit: 200}}
- {key: path, value_regex: "^/v[0-9]+/(export|import)\\d{2,}/", rate_limit: {unit: second, requests_per_unit: 200}}
- {key: method, values: [POST, PUT], rate_limit: {unit: second, requests_per_unit: 200}}
"#,
        &[],
    ),
    // Addresses.
    (
        r#"descriptors:
- {key: client, value_network: 198.51.100.0/24, rate_limit: {unit: second, requests_per_unit: 200}}
- {key: remote_address, value_network: [10.0.0.0/8, "2001:db8::/32"], rate_limit: {unit: second, requests_per_unit: 200}}
- {key: remote_address, value: 192.0.2.1, rate_limit: {unit: second, requests_per_unit: 200}}
- {key: remote_address, rate_limit: {unit: second, requests_per_unit: 20}}
"#,
        &["client=source_ip"],
    ),
    // Nested networks, each before the network that contains it.
    (
        r#"descriptors:
- key: tenant
  rate_limit: {unit: second, requests_per_unit: 200}
  descriptors:
  - key: path
    value: /login
    rate_limit: {unit: second, requests_per_unit: 20}
    descriptors: [{key: method, value: POST, rate_limit: {unit: minute, requests_per_unit: 100}}]
"#,
        &[],
    ),
    // One bucket for all requests, alone and after other buckets.
    (
        "descriptors: [{key: generic_key, value: all, rate_limit: {unit: second, requests_per_unit: 200}}]",
        &[],
    ),
    (
        r#"descriptors:
- {key: host, value: shop.example, rate_limit: {unit: second, requests_per_unit: 200}}
- {key: all, value: requests, rate_limit: {unlimited: true}}
"#,
        &["all=constant"],
    ),
    // Responses to denials.
    (
        r#"descriptors:
- key: api_key
  rate_limit: {unit: second, requests_per_unit: 200}
  on_deny: {body: "{\"error\": \"slow down\"}\n", headers: {content-type: application/json, x-reason: "a: 'b' \"c\""}}
"#,
        &[],
    ),
];

/// The filter for these rules, as the command prints it.
pub(super) fn printed(rules: &Path, inputs: &[&str], fallback: &str) -> String {
    let mut print = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    print.args(["rlqs", "envoy-config", "--fallback", fallback, "--rules"]).arg(rules);
    inputs.iter().for_each(|input| _ = print.args(["--input", input]));
    let output = print.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "every rule has a bucket");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The configuration in deploy/ with another filter.
pub(super) fn config(filter: &str) -> String {
    let deployed = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/envoy/rlqs.yaml");
    let deployed = fs::read_to_string(deployed).expect("it is there");
    let indent = " ".repeat(18);
    let starts = |line: &str, name: &str| line.starts_with(&format!("{indent}- name: {name}"));
    let before: String =
        deployed.lines().take_while(|line| !starts(line, "")).map(|line| format!("{line}\n")).collect();
    let is_after = |line: &&str| !starts(line, "envoy.filters.http.router");
    let after: String = deployed.lines().skip_while(is_after).map(|line| format!("{line}\n")).collect();
    assert!(before.ends_with("http_filters:\n") && after.contains("clusters:"), "{before}{after}");
    let filter: String = filter.lines().map(|line| format!("{indent}{line}\n")).collect();
    before + &filter + &after
}

async fn envoy_accepts_every_filter_that_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("envoy.yaml");
    let envoy = envoy_binary().expect("the peer is here");
    let validate = |filter: &str| {
        fs::write(&path, config(filter)).expect("written");
        let mut validate = Command::new(envoy);
        validate.args(["--mode", "validate", "--log-level", "error", "--config-path"]).arg(&path);
        validate.output().expect("it runs")
    };
    for (rules, inputs) in RULES {
        let file = rules_file(&format!("domain: shop\nrlqs: {{ clients: 2, min_use: 1% }}\n{rules}"));
        for fallback in ["allow", "deny"] {
            let filter = printed(file.path(), inputs, fallback);
            let output = validate(&filter);
            assert!(output.status.success(), "{output:?}\n{filter}");
        }
    }
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/rlqs-rules.yaml");
    let filter = printed(&deployed, &["api_key=header:x-api-key"], "deny");
    assert!(validate(&filter).status.success());
    // Envoy refuses this filter, so the test can fail.
    assert!(!validate(&filter.replace("domain: shop", "domaine: shop")).status.success());
}
