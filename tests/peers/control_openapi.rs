//! The control API of a real server against `docs/openapi-control.json`, by requests that schemathesis makes from it.

use crate::support::{Server, rules_file};
use std::{
    path::Path,
    process::{Command, Stdio},
};

crate::tests_with! { SCHEMATHESIS: every_response_of_the_control_api_matches_its_description }

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
  - { key: plan, value: free, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance";

/// The methods except Tail, whose response has no end.
const METHODS: usize = 22;

/// Tokens over which the calls are spread, since each token may make 100 calls a second.
const TOKENS: usize = 12;

async fn every_response_of_the_control_api_matches_its_description() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
    let file = folder.path().join("tokens");
    let token = |number: usize| {
        let mut make = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        make.args(["token", &format!("operator-{number}"), "--role", "operate", "--file"]).arg(&file);
        String::from_utf8(make.output().expect("it runs").stdout).expect("text")
    };
    let tokens: Vec<String> = (0..TOKENS).map(|number| token(number).trim().to_owned()).collect();
    let data = folder.path().join("data");
    let args = ["--http-listen", "127.0.0.1:0", "--control", "loopback", "--http-token-file"];
    let files = [file.to_str().expect("UTF-8"), "--data", data.to_str().expect("UTF-8")];
    let server = Server::with_rules(rules.path(), &[&args[..], &files].concat());
    let mut run = Command::new("schemathesis");
    run.arg("run").arg(root.join("docs/openapi-control.json"));
    run.args(["--url", &format!("http://127.0.0.1:{}", server.admin_port())]);
    run.args(["--exclude-operation-id", "Tail", "--checks", CHECKS, "--phases", "coverage,fuzzing"]);
    run.args(["--max-examples", "20", "--seed", "1", "--generation-database", "none"]);
    run.args(["--request-timeout", "10"]);
    run.args(["--warnings", "off", "--no-color"]).current_dir(folder.path()).stdin(Stdio::null());
    run.env("PYTHONPATH", root.join("tests/peers")).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("SCHEMATHESIS_HOOKS", "schemathesis_hooks").env("TIDEGATE_TOKENS", tokens.join(" "));
    let output = run.output().expect("it runs");
    let text = String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    // Each method succeeded at least once, so that not only refusals were checked.
    assert_eq!(text.matches(" statuses: {").count(), METHODS, "{text}");
}
