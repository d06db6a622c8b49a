//! The HTTP port of a real server against `docs/openapi.yaml`: every response that the file describes, by its schema.

use crate::support::{Server, rules_file};
use std::{
    path::Path,
    process::{Command, Stdio},
};

const RULES: &str = "
domain: demo
descriptors:
  - key: api_key
    rate_limit: { name: per-key, unit: day, requests_per_unit: 1 }
  - key: week
    rate_limit: { unit: week, requests_per_unit: 5, algorithm: token_bucket }
  - key: reply
    rate_limit: { unit: day, requests_per_unit: 0 }
    on_deny: { body: stop, headers: { x-reason: closed } }
  - key: marked
    shadow_mode: false
    rate_limit: { unit: day, requests_per_unit: 0 }
    on_deny: { mark: { header: x-over, value: yes } }
  - key: queued
    rate_limit: { unit: second, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 2s, max_queue: 5 }
  - key: open
    rate_limit: { unlimited: true }
  - key: in_flight
    rate_limit: { algorithm: concurrency, requests_in_flight: 2 }
  - key: hours
    rate_limit:
      unit: minute
      requests_per_unit: 10
      schedule: [{ days: mon-fri, requests_per_unit: 50 }, { days: sat, unlimited: true }]
      ban: { after: 5, within: 1m, for: 10m }
      when: descriptors[0].hours != 'none'
";

/// Runs a phase of the script, which fails with the response that does not match.
fn validate(port: u16, token: &str, phase: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(root.join("tests/peers/openapi.py")).arg(root.join("docs/openapi.yaml"));
    let output =
        command.args([&*port.to_string(), token, phase]).stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text.lines().count()
}

async fn every_response_matches_its_description() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
    let file = folder.path().join("tokens");
    let mut make = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let token =
        make.args(["token", "test", "--role", "read", "--file"]).arg(&file).output().expect("it runs").stdout;
    let token = String::from_utf8(token).expect("text");
    let bounds = ["--http-max-body-bytes", "1000", "--http-timeout", "500ms", "--drain-delay", "10m"];
    let options =
        ["--response-headers", "draft11,retry-after", "--dynamic-metadata", "--http-listen", "127.0.0.1:0"];
    let console = ["--control", "loopback", "--console"];
    let tokens = ["--http-token-file", file.to_str().expect("UTF-8")];
    let server = Server::with_rules(rules.path(), &[&bounds[..], &options, &console, &tokens].concat());
    assert!(validate(server.admin_port(), token.trim(), "serving") > 20);
    std::fs::write(rules.path(), "domain: demo\nunit: day\n").expect("rules are written");
    server.logged("rules not reloaded");
    assert_eq!(validate(server.admin_port(), token.trim(), "failing"), 1);
    server.signal(rustix::process::Signal::TERM);
    server.logged("draining");
    assert_eq!(validate(server.admin_port(), "", "draining"), 2);
}

async fn the_document_of_the_control_api_is_valid() {
    let program = "import json, sys, openapi_spec_validator as v; v.validate(json.load(open(sys.argv[1])))";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi-control.json");
    let output = Command::new("python3").args(["-c", program]).arg(file).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

crate::tests_with! { PYTHON_OPENAPI:
    every_response_matches_its_description,
    the_document_of_the_control_api_is_valid,
}
