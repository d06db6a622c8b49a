//! Bearer tokens of the HTTP port, and the command that makes them.

use crate::{
    admin::start,
    support::{Server, eventually, http1, rules_file},
};
use http::Request;
use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Command, Output},
};

const RULES: &str = "{ domain: demo, descriptors: [] }";

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the command runs")
}

/// Makes a token with a line in the file.
fn token(name: &str, file: &Path) -> String {
    let made = run(&["token", name, "--file", file.to_str().expect("UTF-8")]);
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

fn start_with_tokens(file: &Path) -> (Server, u16) {
    start(RULES, &["--http-token-file", file.to_str().expect("UTF-8")])
}

/// The status and the challenge of a request with these credentials.
async fn get(port: u16, path: &str, authorization: Option<&str>) -> (u16, String) {
    let mut request = Request::get(path);
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let response = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
    let challenge =
        response.headers().get("www-authenticate").map(|value| value.to_str().expect("ASCII").to_owned());
    (response.status().as_u16(), challenge.unwrap_or_default())
}

/// Waits until requests with the token have the status.
async fn becomes(port: u16, token: &str, status: u16) {
    let authorization = format!("Bearer {token}");
    eventually(&format!("status {status}"), async || {
        let found = get(port, "/version", Some(&authorization)).await.0;
        if found == status { Ok(()) } else { Err(found) }
    })
    .await;
}

/// Waits until the metrics have the line.
async fn shows(port: u16, token: &str, line: &str) {
    eventually(line, async || {
        let request = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
        let page = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a page");
        String::from_utf8_lossy(page.body()).lines().any(|found| found == line)
    })
    .await;
}

#[tokio::test]
async fn every_route_but_the_probes_needs_a_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let token = token("prometheus", &file);
    assert!(!fs::read_to_string(&file).expect("text").contains(&token), "the file has hashes alone");
    let (_server, port) = start_with_tokens(&file);
    let right = format!("Bearer {token}");
    for path in ["/metrics", "/rules", "/rules/status", "/version"] {
        assert_eq!(get(port, path, None).await, (401, r#"Bearer realm="tidegate""#.into()), "{path}");
        let invalid = (401, r#"Bearer realm="tidegate", error="invalid_token""#.into());
        assert_eq!(get(port, path, Some("Bearer tidegate_0000")).await, invalid, "{path}");
        assert_eq!(get(port, path, Some(&right)).await, (200, String::new()), "{path}");
    }
    for path in ["/livez", "/readyz", "/healthcheck"] {
        assert_eq!(get(port, path, None).await.0, 200, "{path}");
    }
    // Refused before the body is received: no byte of it was sent.
    let request = Request::post("/json").header("content-length", "1000");
    assert_eq!(http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a response").status(), 401);
}

/// Comments may name customers.
#[tokio::test]
async fn the_text_of_the_rules_needs_a_role_and_their_json_has_no_comments() {
    const COMMENTED: &str =
        "# of ACME\ndomain: demo\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n";
    let rules = async |port: u16, accept: &str, authorization: Option<&str>| {
        let mut request = Request::get("/rules").header("accept", accept);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
        (response.status().as_u16(), String::from_utf8(response.into_body()).expect("UTF-8"))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let path = file.to_str().expect("UTF-8");
    let scraper = format!("Bearer {}", token("prometheus", &file));
    let made = run(&["token", "operator", "--role", "read", "--file", path]);
    let reader = format!("Bearer {}", String::from_utf8_lossy(&made.stdout).trim());
    let (_server, port) = start(COMMENTED, &["--http-token-file", path]);
    assert_eq!(rules(port, "application/yaml", None).await.0, 401);
    let (status, text) = rules(port, "application/yaml", Some(&scraper)).await;
    assert_eq!((status, text.contains("needs a token with the role read")), (403, true), "{text}");
    let (status, json) = rules(port, "application/json", Some(&scraper)).await;
    assert_eq!((status, json.contains("\"demo\"")), (200, true), "{json}");
    assert!(!json.contains("ACME"), "{json}");
    let (status, text) = rules(port, "application/yaml", Some(&reader)).await;
    assert_eq!((status, text.contains("# of ACME")), (200, true), "{text}");
}

#[tokio::test]
async fn tokens_are_added_and_revoked_while_the_server_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let first = token("first", &file);
    let (server, port) = start_with_tokens(&file);
    let second = token("second", &file);
    becomes(port, &second, 200).await;
    becomes(port, &first, 200).await;
    let lines = fs::read_to_string(&file).expect("text");
    fs::write(&file, lines.lines().find(|line| line.starts_with("second:")).expect("its line"))
        .expect("written");
    becomes(port, &first, 401).await;
    // With an error, the tokens in force stay.
    let valid = fs::read_to_string(&file).expect("text");
    fs::write(&file, "broken").expect("written");
    server.logged("HTTP tokens not reloaded");
    becomes(port, &second, 200).await;
    shows(port, &second, "tidegate_file_last_reload_successful{file=\"http_tokens\"} 0").await;
    // One line states the end of the fault.
    fs::write(&file, valid).expect("written");
    server.logged("HTTP tokens reloaded");
    shows(port, &second, "tidegate_file_last_reload_successful{file=\"http_tokens\"} 1").await;
}

#[test]
fn a_token_file_with_an_error_ends_the_start_with_its_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = rules_file(RULES);
    for (text, reason) in [
        (Some("name:secret"), "line 1: the text after the colon is not 64 hexadecimal digits"),
        (Some(""), "no token; add a line with `tidegate token NAME`"),
        (None, "No such file"),
    ] {
        let file = folder.path().join("tokens");
        match text {
            Some(text) => fs::write(&file, text).expect("written"),
            None => fs::remove_file(&file).expect("it exists"),
        }
        let serve = ["serve", "--rules", rules.path().to_str().expect("UTF-8"), "--listen", "127.0.0.1:0"];
        let http = ["--http-listen", "127.0.0.1:0", "--http-token-file", file.to_str().expect("UTF-8")];
        let ended = run(&[&serve[..], &http].concat());
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && error.contains(reason), "{error}");
        assert!(error.contains("--http-token-file") && !error.contains("secret"), "{error}");
    }
}

/// The control API of the gRPC port has its callers' roles from the file.
#[test]
fn a_token_file_is_for_the_http_port_or_the_control_api() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
    let file = folder.path().join("tokens");
    fs::write(&file, "").expect("written");
    let error_with = |args: &[&str]| {
        let rules = rules.path().to_str().expect("UTF-8");
        let file = file.to_str().expect("UTF-8");
        let serve = ["serve", "--rules", rules, "--listen", "127.0.0.1:0", "--http-token-file", file];
        String::from_utf8_lossy(&run(&[&serve[..], args].concat()).stderr).into_owned()
    };
    let of_neither = error_with(&[]);
    assert!(of_neither.contains("--http-listen <ADDR>|--control [<REACH>]"), "{of_neither}");
    for uses in [&["--control", "loopback"], &["--http-listen", "127.0.0.1:0"]] {
        assert!(error_with(uses).contains("no token; add a line"), "{uses:?}");
    }
    let of_both = error_with(&["--control", "loopback", "--http-listen", "127.0.0.1:0"]);
    assert!(of_both.contains("no token; add a line"), "{of_both}");
}

#[test]
fn the_token_command_prints_a_token_and_its_line() {
    let made = run(&["token", "ci.1"]);
    let text = String::from_utf8(made.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("token: tidegate_") && lines[1].starts_with("line:  ci.1:"), "{text}");
    let refused = run(&["token", "two words"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1 to 64 of A-Z"), "{refused:?}");
}

/// The command appended blindly: the file was refused by the next start, and by the reload of a running server.
#[test]
fn a_file_to_which_the_token_command_appends_stays_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let path = file.to_str().expect("UTF-8");
    token("one", &file);
    let text = fs::read_to_string(&file).expect("a file");
    let again = run(&["token", "one", "--file", path]);
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        !again.status.success() && error.contains("the name one is in the file already; remove"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).expect("a file"), text);
    fs::write(&file, text.trim_end()).expect("written");
    token("two", &file);
    let both = fs::read_to_string(&file).expect("a file");
    assert!(both.starts_with(&text) && both[text.len()..].starts_with("two:"), "{both}");
    fs::write(&file, "no token").expect("written");
    let damaged = run(&["token", "three", "--file", path]);
    assert!(
        String::from_utf8_lossy(&damaged.stderr).contains("tokens: line 1: write NAME:SHA-256"),
        "{damaged:?}"
    );
}
