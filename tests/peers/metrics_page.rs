//! The metrics page of a real server, read by Prometheus' own tools: promtool, and the parsers of the Python client.

use crate::support::{Server, http1, rules_file};
use serde_json::Value;
use std::{
    io::Write,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

const RULES: &str = r#"
domain: shop
descriptors:
  - { key: user, rate_limit: { name: "per \"user\" \\ line\nbreak", unit: day, requests_per_unit: 2 } }
  - { key: tenant, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: queue, rate_limit: { unit: second, requests_per_unit: 50, algorithm: leaky_bucket, burst: 1, max_wait: 9s } }
"#;

/// The metrics page of a server that has decided some requests, in the format for this `accept`.
async fn page(accept: &str) -> String {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (folder, log) = (data.path().join("data"), data.path().join("decisions.log"));
    let [folder, log] = [&folder, &log].map(|path| path.to_str().expect("UTF-8"));
    let args = ["--http-listen", "127.0.0.1:0", "--data", folder, "--decision-log", log];
    let server = Server::with_rules(rules_file(RULES).path(), &args);
    let line = server.log().into_iter().find(|line| line.contains("HTTP port listening"));
    let line: Value = serde_json::from_str(&line.expect("it is logged")).expect("JSON");
    let port = line["address"].as_str().and_then(|address| address.rsplit(':').next()?.parse().ok());
    let mut client = server.client().await;
    for (key, value) in [("user", "ann"), ("tenant", "quote\" backslash\\ line\nbreak é"), ("queue", "")] {
        for _ in 0..3 {
            client.hit("shop", &[(key, value)]).await.expect("a response");
        }
    }
    let request = http::Request::get("/metrics").header("accept", accept);
    let response =
        http1::fetch(Ipv4Addr::LOCALHOST, port.expect("a port"), request).await.expect("a response");
    let text = String::from_utf8(response.into_body()).expect("UTF-8");
    assert!(text.contains("backslash"), "{text}");
    text
}

/// Runs a program with this input; returns whether it succeeds, and what it printed.
fn run(command: &mut Command, input: &str) -> (bool, String) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

async fn promtool_finds_no_fault_in_the_metrics() {
    let text = page("text/plain").await;
    let found = run(Command::new("promtool").args(["check", "metrics"]), &text);
    assert_eq!(found, (true, String::new()), "{text}");
    let (accepts, fault) = run(Command::new("promtool").args(["check", "metrics"]), "a{b=} 1\n");
    assert!(!accepts, "a malformed page must not be accepted: {fault}");
}

/// With the Python client.
pub mod python {
    use super::{page, run};
    use std::process::Command;

    /// Parses standard input, checks one value of a label, and prints the number of samples.
    const SCRIPT: &str = "
import importlib, sys
parser = importlib.import_module('prometheus_client.' + sys.argv[1])
families = list(parser.text_string_to_metric_families(sys.stdin.read()))
samples = [sample for family in families for sample in family.samples]
values = 'tenant=quote\" backslash\\\\ line\\nbreak é'
assert any(sample.labels.get('values') == values for sample in samples), samples
kinds = {family.name: family.type for family in families}
assert kinds['tidegate_decision_duration_seconds'] == 'histogram', kinds
print(len(samples))
";

    async fn both_formats_are_read_by_the_python_client() {
        for (accept, parser) in
            [("text/plain", "parser"), ("application/openmetrics-text", "openmetrics.parser")]
        {
            let text = page(accept).await;
            let (accepts, printed) = run(Command::new("python3").args(["-c", SCRIPT, parser]), &text);
            let samples = text.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!((accepts, printed.trim()), (true, &*samples.to_string()), "{accept}: {text}");
        }
    }

    crate::tests_with! { PYTHON_PROMETHEUS: both_formats_are_read_by_the_python_client }
}

crate::tests_with! { PROMETHEUS: promtool_finds_no_fault_in_the_metrics }
