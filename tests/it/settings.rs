//! Where the server's settings come from, how they are checked, and how they are shown.

use crate::support::{Server, http1, rules_file};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    os::unix::ffi::OsStrExt as _,
    process::{Command, Output},
};

const RULES: &str =
    "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: 2}\n";

/// Runs `tidegate serve --check` with these variables.
fn check(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--check"]).args(args).env_clear().envs(variables.iter().copied());
    command.output().expect("it runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn accepted(args: &[&str], variables: &[(&str, &str)]) -> String {
    let checked = check(args, variables);
    assert_eq!(checked.status.code(), Some(0), "{args:?} {variables:?}: {}", errors(&checked));
    errors(&checked)
}

#[track_caller]
fn refused(args: &[&str], variables: &[(&str, &str)]) -> String {
    let checked = check(args, variables);
    assert!(matches!(checked.status.code(), Some(1 | 2)), "{args:?} {variables:?}: {}", errors(&checked));
    errors(&checked)
}

/// Some passwords used to appear in errors, and one in a line of the log.
#[test]
fn no_error_and_no_line_of_the_log_shows_a_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("t.yaml");
    fs::write(&config, "xds-header: 'authorization: PW'\n").expect("written");
    let config = config.to_str().expect("UTF-8");
    for (args, variables) in [
        (&["--counters", "u:PW@host:6379"][..], &[][..]),
        (&["--counters", "redis://u:PW@host:port"], &[]),
        (&["--xds-header", "authorization: PW"], &[]),
        (&["--xds-header", "authorization: Basic PW=="], &[]),
        (&["--xds-header", "a=b,authorization: PW"], &[]),
        (&["--config", config], &[]),
        (&["--rules", "xds://u:PW@host:1?node=n"], &[]),
        (&["--config", "http://u:PW@host/t.yaml"], &[]),
        (&["--rules", "http://u:PW@host/rules.yaml"], &[]),
        (&["--blocks", "http://u:PW@host/blocks"], &[]),
        (&["--data", "s3://u:PW@host/data"], &[]),
        (&["--decision-log", "tcp://u:PW@host/path"], &[]),
        (&["--statsd", "u:PW@host:8125"], &[]),
        (&["--log", "none"], &[("TIDEGATE_DECISION_LOG", "tcp://u:PW@host:1")]),
        (&["--log", "none"], &[("TIDEGATE_XDS_HEADER", "authorization: PW")]),
        (&["--env", "reference"], &[("REDIS_URL", "http://u:PW@host:1")]),
        (&["--env", "reference"], &[("REDIS_URL", "u:PW@host:1"), ("REDIS_TYPE", "sentinel")]),
    ] {
        let error = refused(args, variables);
        assert!(!error.contains("PW"), "{args:?} {variables:?}: {error}");
    }
    let rules = rules_file(RULES);
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:PW@127.0.0.1:1");
    let server = Server::with_variables(rules.path(), &[], &[collector]);
    server.logged("exporting traces");
    server.logged("pushing metrics by OTLP");
    assert!(!server.log().iter().any(|line| line.contains("PW")), "{:#?}", server.log());
}

/// A server with such a bound used to start, and refused every request.
#[test]
fn bounds_of_zero_are_refused() {
    for bound in [
        "connections",
        "connections-per-peer",
        "streams",
        "descriptors",
        "entries",
        "text-bytes",
        "message-bytes",
    ] {
        let error = refused(&[&format!("--max-{bound}"), "0"], &[]);
        assert!(error.contains("at least 1") || error.contains("is not in 1..="), "{bound}: {error}");
    }
}

/// Compose's `${X:-}` makes an empty variable, which was refused or silenced the log.
#[test]
fn an_empty_variable_counts_as_unset() {
    let names =
        ["THREADS", "LOG", "CONTROL", "GLOBAL_SHADOW", "RULES", "LISTEN", "COUNTERS", "DATA", "CONFIG"];
    for name in names.map(|name| format!("TIDEGATE_{name}")) {
        let log = accepted(&["--threads=1"], &[(&name, "")]);
        assert!(log.contains("no --rules"), "{name}: the log is not silent: {log}");
    }
}

#[test]
fn switches_in_variables_accept_the_usual_spellings() {
    for (value, is_on) in
        [("1", true), ("yes", true), ("True", true), ("on", true), ("0", false), ("No", false)]
    {
        let log = accepted(&["--compat=reference"], &[("TIDEGATE_QUOTA_MODE", value)]);
        assert_eq!(log.contains("quota-mode=true"), is_on, "{value}: {log}");
    }
    assert!(refused(&[], &[("TIDEGATE_GLOBAL_SHADOW", "maybe")]).contains("'maybe'"));
}

#[test]
fn settings_without_an_effect_are_refused_or_reported() {
    let sample = refused(&["--decision-log-sample=0.1"], &[]);
    assert!(sample.contains("--decision-log <TARGET>"), "{sample}");
    let control = refused(&["--control"], &[]);
    assert!(control.contains("--http-token-file") && control.contains("--listen unix:"), "{control}");
    accepted(&["--control", "--listen=unix:/tmp/t.sock"], &[]);
    let unknown = accepted(&[], &[("TIDEGATE_MAX_COUNTER", "5"), ("TIDEGATE_SERVICE_HOST", "10.0.0.1")]);
    assert!(
        unknown.contains("TIDEGATE_MAX_COUNTER has no effect: did you mean TIDEGATE_MAX_COUNTERS?"),
        "{unknown}"
    );
    assert!(!unknown.contains("TIDEGATE_SERVICE_HOST"), "{unknown}");
}

#[test]
fn a_check_finds_all_errors_of_settings_rules_certificates_and_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("rules.yaml"), "domain: d\ndescriptors: [{kee: k}]\n").expect("written");
    fs::write(path("tokens"), "no token\n").expect("written");
    fs::write(path("cert.pem"), "no certificate\n").expect("written");
    let config = format!(
        "rules: {}\nwait-for-rules: true\nhttp-listen: 127.0.0.1:0\nhttp-token-file: {}\ntls-cert: {}\ntls-key: {}\n",
        path("rules.yaml"),
        path("tokens"),
        path("cert.pem"),
        path("key.pem")
    );
    fs::write(path("tidegate.yaml"), config).expect("written");
    let log = refused(&["--config", &path("tidegate.yaml")], &[]);
    for expected in ["rules.yaml:2:16: descriptors[0].kee", "--http-token-file", "TLS of the grpc port"] {
        assert!(log.contains(expected), "{expected:?} is not in {log}");
    }
    fs::write(path("rules.yaml"), RULES).expect("written");
    let good = accepted(&["--rules", &path("rules.yaml")], &[]);
    assert!(!good.contains("ERROR"), "{good}");
    assert!(!refused(&["--config", &path("absent.yaml")], &[]).is_empty());
}

/// The server started by its defaults, without a word.
#[test]
fn settings_of_a_file_and_of_variables_apply_beside_a_path_that_is_not_utf_8() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("t.yaml");
    fs::write(&config, "max-queued: 7\n").expect("written");
    let data = folder.path().join(OsStr::from_bytes(b"d\xff"));
    let check = |config: &OsStr, variables: &[(&str, &OsStr)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--check", "--config"]).arg(config).arg("--data").arg(&data);
        let checked = command.env_clear().envs(variables.iter().copied()).output().expect("it runs");
        (checked.status.success(), errors(&checked))
    };
    let tracing = [
        ("TIDEGATE_ENV", OsStr::new("reference")),
        ("TIDEGATE_LOG", OsStr::new("info")),
        ("TRACING_ENABLED", OsStr::new("true")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", OsStr::new("http://127.0.0.1:1")),
    ];
    for variables in [&[][..], &tracing] {
        let (_, log) = check(config.as_os_str(), variables);
        assert!(log.contains("max-queued=7"), "{log}");
        assert!(log.contains("/d\u{fffd}") && !log.contains("invalid UTF-8"), "{log}");
    }
    assert!(check(config.as_os_str(), &[]).0);
    let (is_valid, log) = check(OsStr::from_bytes(b"/absent\xff"), &[]);
    assert!(!is_valid && log.contains("--config /absent\u{fffd}: "), "{log}");
    assert!(!folder.path().join("d\u{fffd}").exists());
}

/// A check accepted settings with which a server does not start.
#[test]
fn a_check_refuses_what_keeps_the_server_from_starting() {
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let sampler = refused(&[], &[collector, ("OTEL_TRACES_SAMPLER", "parentbased_ratio")]);
    assert!(sampler.contains("OTEL_TRACES_SAMPLER=parentbased_ratio: "), "{sampler}");
    let propagators = refused(&[], &[("OTEL_PROPAGATORS", "jaeger")]);
    assert!(propagators.contains("OTEL_PROPAGATORS: `jaeger`"), "{propagators}");
    let with_tls = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1");
    let files = refused(&[], &[with_tls, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/absent.pem")]);
    assert!(files.contains("cannot export traces to https://127.0.0.1:1: /absent.pem"), "{files}");
    assert!(files.contains("cannot start a push of metrics: /absent.pem"), "{files}");
    let store = ["--counters", "redis://127.0.0.1:1", "--lease", "auto"];
    let conflict =
        refused(&[&["--compat=reference", "--stop-counting-over-limit"], &store[..]].concat(), &[]);
    assert!(conflict.contains("is not possible with leases"), "{conflict}");
    accepted(&[], &[collector, ("OTEL_PROPAGATORS", "b3")]);
}

/// A check printed the first error alone.
#[test]
fn a_check_prints_the_errors_of_every_part() {
    let rules = rules_file("domain: d\ndescriptors: [{kee: k}]\n");
    let path = rules.path().to_str().expect("UTF-8");
    let args =
        ["--response-headers=x,x-unix", "--reference-metrics", "--quota-mode", "--control", "--rules", path];
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
    let log = refused(&args, &[collector, ("OTEL_PROPAGATORS", "jaeger")]);
    for expected in [
        "descriptors[0].kee",
        "--response-headers has x and x-unix",
        "--reference-metrics needs",
        "--control: no caller has a role",
        "--quota-mode and --stop",
        "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317: ",
        "OTEL_PROPAGATORS: `jaeger`",
    ] {
        assert_eq!(log.matches(expected).count(), 1, "{expected:?} in {log}");
    }
}

#[tokio::test]
async fn the_settings_in_effect_are_logged_first_and_served_without_secrets() {
    let rules = rules_file(RULES);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("tidegate.yaml");
    fs::write(&config, "max-queued: 7\nhttp-listen: 127.0.0.1:0\n").expect("written");
    let config = config.to_str().expect("UTF-8");
    let server = Server::with_rules(rules.path(), &["--config", config, "--xds-header", "x-key=word"]);
    let log = server.log();
    let first: Value = serde_json::from_str(&log[0]).expect("JSON");
    assert_eq!(
        (&first["message"], &first["version"]),
        (&"tidegate".into(), &env!("CARGO_PKG_VERSION").into())
    );
    let of_file: Value = serde_json::from_str(&server.logged(r#""from":"file""#)[0]).expect("JSON");
    assert_eq!(
        (&of_file["settings"], &of_file["file"]),
        (&"max-queued=7 http-listen=127.0.0.1:0".into(), &config.into())
    );
    let request = http::Request::get("/config");
    let response = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), request).await.expect("a response");
    let text = String::from_utf8(response.into_body()).expect("UTF-8");
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(shown["settings"]["max-queued"], serde_json::json!({ "value": "7", "from": "file" }));
    assert_eq!(shown["settings"]["drain-timeout"]["from"], "default");
    assert_eq!(shown["settings"]["xds-header"]["value"], serde_json::json!(["x-key=…"]));
    assert!(!text.contains("word") && !log.join("\n").contains("word"), "{text}");
}

#[test]
fn the_health_command_is_a_probe() {
    let health = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("health").args(args).env_clear().envs(variables.iter().copied());
        command.output().expect("it runs")
    };
    let server = Server::start(&[]);
    let (_, port) = server.address().rsplit_once(':').expect("a port");
    let serving = health(&["--addr", server.address()], &[]);
    assert_eq!(
        (serving.status.code(), &serving.stdout[..]),
        (Some(0), &b"SERVING\n"[..]),
        "{}",
        errors(&serving)
    );
    let listen = format!("0.0.0.0:{port}");
    assert_eq!(health(&[], &[("TIDEGATE_LISTEN", &listen)]).status.code(), Some(0), "the image's variable");
    let address = server.address().to_owned();
    assert!(server.terminate().success());
    let gone = health(&["--addr", &address], &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(errors(&gone).contains("cannot connect"), "{}", errors(&gone));
}
