//! `tidegate envoy check` and `tidegate envoy explain`: output, exit codes, and the configurations of `deploy/`.

use crate::support::rules_file;
use serde_json::Value;
use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

fn run(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let command = command.arg("envoy").args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // A command that does not read its input may have ended.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Each configuration of `deploy/envoy` and of Compose with its rules.
const DEPLOYED: &[(&str, &[&str])] = &[
    (
        "deploy/envoy/rules.yaml",
        &["deploy/envoy/http.yaml", "deploy/envoy/sidecar-unix-socket.yaml", "deploy/envoy/two-servers.yaml"],
    ),
    ("deploy/envoy/concurrency-rules.yaml", &["deploy/envoy/concurrency.yaml"]),
    ("deploy/envoy/reserve-rules.yaml", &["deploy/envoy/reserve.yaml"]),
    ("deploy/envoy/budgets-rules.yaml", &["deploy/envoy/budgets.yaml"]),
    ("deploy/envoy/silent-drop-rules.yaml", &["deploy/envoy/silent-drop.yaml"]),
    ("deploy/envoy/tcp-rules.yaml", &["deploy/envoy/tcp.yaml"]),
    ("deploy/compose/rules", &["deploy/compose/envoy.yaml"]),
    ("examples/demo.yaml", &["deploy/envoy/quickstart.yaml"]),
    ("deploy/envoy/rules.yaml", &["deploy/envoy/module.yaml", "deploy/envoy/http.yaml"]),
];

#[test]
fn the_configurations_of_deploy_leave_nothing_unlimited() {
    for (rules, configs) in DEPLOYED {
        let output = run(&[&["check", "--json", "--rules", rules], *configs].concat(), "");
        let checked: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        let findings: Vec<&Value> =
            checked["findings"].as_array().unwrap().iter().filter(|one| one["severity"] != "note").collect();
        assert!(findings.is_empty() && output.status.success(), "{configs:?}: {findings:#?}");
        assert!(!checked["descriptors"].as_array().unwrap().is_empty(), "{configs:?}");
    }
    // A new configuration has to be added to the list.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = format!("deploy/envoy/{}", entry.unwrap().file_name().to_string_lossy());
        // Configurations of the quota service have a filter of their own.
        let is_other = name.contains("rlqs");
        let is_listed = DEPLOYED.iter().any(|(rules, configs)| *rules == name || configs.contains(&&*name));
        assert!(is_other || is_listed, "{name}");
    }
}

/// The configuration with a mistake, from standard input.
#[test]
fn what_is_unlimited_is_shown_with_its_place_and_the_remedy() {
    let config = include_str!("../../deploy/envoy/quickstart.yaml").replace("domain: demo", "domain: demos");
    let output = run(&["check", "--rules", "examples/demo.yaml", "-"], &config);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("NONE"), "{shown}");
    let expected = "<stdin>:29:31: unlimited (domain-without-rules): the rules have no domain \"demos\", so nothing limits its requests; \"demo\" may be meant";
    assert!(shown.contains(expected), "{shown}");
    // Nothing reaches the rule: the output has the actions that would send its descriptor, as YAML to paste.
    let config = include_str!("../../deploy/envoy/quickstart.yaml")
        .replace("descriptor_key: api_key", "descriptor_key: key");
    let shown = text(&run(&["check", "--rules", "examples/demo.yaml", "-"], &config).stdout);
    let yaml = "    rate_limits:\n    - actions:\n      - request_headers:\n          descriptor_key: api_key\n          header_name: api-key\n";
    assert!(shown.contains(yaml), "{shown}");
}

#[test]
fn a_config_dump_is_read_like_the_configuration_that_it_is_of() {
    let yaml = include_str!("../../deploy/envoy/quickstart.yaml");
    let checked = |output: Output| -> Vec<String> {
        let checked: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        checked["descriptors"].as_array().unwrap().iter().map(|one| one["descriptor"].to_string()).collect()
    };
    let args = ["check", "--json", "--rules", "examples/demo.yaml", "-"];
    let plain = checked(run(&args, yaml));
    let indented =
        |by: usize| yaml.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>();
    let config_map = format!(
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  script.lua: |\n    a = {{\n  envoy.yaml: |\n{}",
        indented(4)
    );
    let dump = format!(
        "configs:\n- \"@type\": type.googleapis.com/envoy.admin.v3.BootstrapConfigDump\n  bootstrap:\n{}- \"@type\": \
         type.googleapis.com/envoy.admin.v3.ListenersConfigDump\n  static_listeners:\n{}",
        indented(4),
        indented(4).replace("static_resources:", "listener:")
    );
    for other in [config_map, format!("kind: Deployment\n---\n{yaml}"), dump] {
        assert_eq!(checked(run(&args, &other)), plain, "{other}");
    }
    // Fields and parts that the commands do not need are ignored.
    let many: String = (0..10_000).map(|number| format!("- {{name: route-{number}, match: {{prefix: /{number}}}, route: {{cluster: application}}, unknown: {{a: [1, 2, 3]}}, filler: '{}'}}\n", "x".repeat(130))).collect();
    let long = format!(
        "{yaml}---\nname: other\nvirtual_hosts:\n- name: all\n  domains: ['*']\n  routes:\n{}",
        many.lines().map(|line| format!("  {line}\n")).collect::<String>()
    );
    assert_eq!(checked(run(&args, &long)), plain);
}

#[test]
fn files_without_a_configuration_are_an_error_with_the_remedy() {
    let output = run(&["check", "--rules", "examples/demo.yaml", "-"], "kind: Deployment\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("config_dump"), "{}", text(&output.stderr));
    let output = run(&["check", "--rules", "examples/demo.yaml", "-"], "a: [\n");
    assert!(text(&output.stderr).contains("<stdin>:1:4: this is not YAML"), "{}", text(&output.stderr));
}

#[test]
fn a_request_is_explained_from_its_route_to_the_response() {
    let args =
        ["explain", "--rules", "deploy/envoy/rules.yaml", "deploy/envoy/http.yaml", "--listener", "edge"];
    let request =
        |request: &'static str, more: &[&'static str]| [&args[..], &["--request", request], more].concat();
    let output = run(&request("GET http://127.0.0.1/api/?q=1", &["-H", "X-API-Key: partner"]), "");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    for expected in [
        "virtual host  everything  (deploy/envoy/http.yaml:",
        "route         /api/  (deploy/envoy/http.yaml:58:27)",
        "target        cluster application",
        "of the route: api_key=partner",
        "left out    deploy/envoy/http.yaml:125:27 of the virtual host: the route has rate_limits of its own",
        "partner: 1000 per minute",
        "over a limit: 429",
        "without a decision in time: admitted without a limit",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    let output = run(&request("GET http://127.0.0.1/api/", &["--json"]), "");
    let explained: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!((output.status.code(), &explained["limited"]), (Some(1), &Value::Bool(false)));
    let reason = explained["listeners"][0]["filters"][0]["applied"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("no header x-api-key"), "{reason}");
    // The address that connects is the address of the client.
    let output = run(&request("GET http://127.0.0.1/", &["--from", "192.0.2.7"]), "");
    assert!(text(&output.stdout).contains("remote_address=192.0.2.7"), "{}", text(&output.stdout));
    let output = run(&[&args[..4], &["--listener", "none", "--request", "GET http://a/"]].concat(), "");
    let error = text(&output.stderr);
    assert!(
        error.contains("there is no listener none; listeners: edge, edge_fail_closed, application"),
        "{error}"
    );
}

/// The exit code is 0 if a limit can deny the request.
#[test]
fn a_request_that_a_filter_does_not_limit_is_not_explained_as_limited() {
    let config = include_str!("../../deploy/envoy/quickstart.yaml");
    let actions = "actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }]";
    let with = |settings: &str, hits: &str| {
        let own = config.replace("timeout: 0.25s ", &format!("timeout: 0.25s\n{:22}{settings} ", ""));
        own.replace(actions, &format!("{{ {actions}{hits} }}"))
    };
    let request = "GET http://127.0.0.1/";
    let args = ["explain", "--rules", "examples/demo.yaml", "-", "--request", request, "-H", "x-api-key: a"];
    let cost = ", hits_addend: { format: '%REQ(x-cost)%' }";
    let of_percent =
        |name: &str, numerator: u32| format!("{name}: {{ default_value: {{ numerator: {numerator} }} }}");
    for (settings, hits, code, expected) in [
        ("", "", 0, "over a limit: 429"),
        ("", ", hits_addend: { number: 0 }", 0, "api_key=a, 0 hits: a peek, which charges nothing"),
        ("", ", hits_addend: { is_negative_hits: true, number: 2 }", 1, "api_key=a, gives 2 hits back"),
        ("", cost, 1, "no descriptor, since the request has no number from 0 to 1000000000 in %REQ(x-cost)%"),
        (
            "",
            ", limit: { rate_limit: { requests_per_unit: 5000, unit: MINUTE } }",
            0,
            "the request's own limit, instead of the rules\n    5000 per minute",
        ),
        (&*of_percent("filter_enabled", 0), "", 1, "the filter is enabled for 0 of 100 requests"),
        (&*of_percent("filter_enforced", 0), "", 1, "denials are enforced for 0 of 100 requests"),
        (&*of_percent("failure_mode_deny_percent", 100), "", 0, "without a decision in time: 500"),
        (
            &*of_percent("failure_mode_deny_percent", 30),
            "",
            0,
            "without a decision in time: 500, or admitted without a limit (failure_mode_deny_percent is 30 of 100)",
        ),
    ] {
        let output = run(&args, &with(settings, hits));
        let shown = text(&output.stdout);
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{shown}");
    }
}

/// As with `filter_enforced` 0: the response is that within the limits.
#[test]
fn a_limit_in_shadow_mode_is_not_explained_as_one_that_denies() {
    let config = include_str!("../../deploy/envoy/quickstart.yaml");
    let rules = rules_file(
        "domain: demo\ndescriptors:\n- { key: api_key, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }",
    );
    let rules = rules.path().to_str().unwrap();
    let request = ["--request", "GET http://127.0.0.1/", "-H", "x-api-key: a"];
    let args = [&["explain", "--rules", rules, "-"], &request[..]].concat();
    let output = run(&args, config);
    let shown = text(&output.stdout);
    assert!(shown.contains("shadow_mode: denies nothing") && !shown.contains("over a limit"), "{shown}");
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let output = run(&[&args[..], &["--json"]].concat(), config);
    let explained: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    let filter = &explained["listeners"][0]["filters"][0];
    assert_eq!((&explained["limited"], &filter["over_limit_status"]), (&Value::Bool(false), &Value::Null));
}

/// The condition of a limit is in the table, which does not show the descriptor as limited.
#[test]
fn a_limit_with_a_condition_is_shown_as_unknown() {
    let config = include_str!("../../deploy/envoy/quickstart.yaml");
    let rules = rules_file(
        "domain: demo\ndescriptors:\n- { key: api_key, rate_limit: { unit: minute, requests_per_unit: 2, when: size(descriptors) > 1 } }",
    );
    let rules = rules.path().to_str().unwrap();
    let shown = text(&run(&["check", "--rules", rules, "-"], config).stdout);
    assert!(shown.contains("unknown: 2 per minute when size(descriptors) > 1 (api_key)"), "{shown}");
    let json = text(&run(&["check", "--json", "--rules", rules, "-"], config).stdout);
    let checked: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(checked["descriptors"][0]["state"], "unknown");
}

/// Each command has two examples, and each example runs.
#[test]
fn the_examples_of_help_are_commands_that_exist() {
    for command in ["check", "explain"] {
        let help = text(&run(&[command, "--help"], "").stdout);
        let examples: Vec<&str> = help
            .lines()
            .filter(|line| {
                line.trim_start().starts_with("tidegate envoy") || line.contains("| tidegate envoy")
            })
            .collect();
        assert_eq!(examples.len(), 2, "{help}");
    }
}
