//! The control API of a real server: roles, methods, errors.

mod audit;
mod hostile_values;
mod overlays;
mod tls;

use crate::{
    admin::start_from,
    support::{Server, eventually, http1, rules_file},
};
use http::Request;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, path::Path, process::Command, time::Duration};
use tempfile::{NamedTempFile, TempDir};
use tidegate::api::pb::control::{self as pb, control_client::ControlClient, tail_response::Event};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::metadata::{Ascii, MetadataValue};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors:
      - { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: plan, value: free, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";

/// A server with the control API, and a token of each role.
pub struct Controlled {
    pub server: Server,
    pub port: u16,
    pub read: String,
    pub operate: String,
    pub rules: NamedTempFile,
    pub folder: TempDir,
}

pub fn token(file: &Path, name: &str, role: &[&str]) -> String {
    let file = file.to_str().expect("UTF-8");
    let args = [&["token", name, "--file", file], role].concat();
    let made = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the command runs");
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

impl Controlled {
    pub fn start(rules: &str, args: &[&str]) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(rules));
        let tokens = folder.path().join("tokens");
        let read = token(&tokens, "reader", &["--role", "read"]);
        let operate = token(&tokens, "operator", &["--role", "operate"]);
        let tokens = tokens.to_str().expect("UTF-8");
        let args = [&["--control", "loopback", "--http-token-file", tokens], args].concat();
        let (server, port) = start_from(rules.path(), &args);
        Self { server, port, read, operate, rules, folder }
    }

    /// The status and the JSON body of the response to a call.
    pub async fn call(&self, token: &str, method: &str, body: &Value) -> (u16, Value) {
        let mut request = Request::post(format!("/control/v1/{method}"));
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.to_string();
        let request = request.body(&*body).expect("well-formed");
        let response = http1::send(Ipv4Addr::LOCALHOST, self.port, request).await.expect("a response");
        let status = response.status().as_u16();
        (status, serde_json::from_slice(response.body()).expect("JSON"))
    }

    /// The newest line of the audit log with this action. The line of the first rules is written concurrently with the start, and may follow
    /// those of the first calls.
    pub async fn audited(&self, action: &str) -> Value {
        let audit = self.operate("ListAudit", json!({ "limit": 5 })).await;
        let mut entries = audit["entries"].as_array().expect("entries").iter();
        entries.find(|entry| entry["action"] == action).cloned().unwrap_or_else(|| panic!("{audit}"))
    }

    /// The response to an operator's call that succeeds.
    pub async fn operate(&self, method: &str, body: Value) -> Value {
        eventually(method, async || match self.call(&self.operate, method, &body).await {
            (200, response) => Ok(response),
            // The caller has made more calls than the API accepts in a second: a test polls on a fast machine.
            (429, response) => Err(response),
            (status, response) => panic!("{method}: {status} {response}"),
        })
        .await
    }
}

pub fn descriptors(entries: &[(&str, &str)]) -> Value {
    let entries = entries.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    json!([{ "entries": entries.collect::<Vec<_>>() }])
}

#[tokio::test]
async fn every_method_needs_a_role() {
    let shop = Controlled::start(RULES, &[]);
    let tokens = shop.folder.path().join("tokens");
    let plain = token(&tokens, "plain", &[]);
    shop.server.logged("HTTP tokens reloaded");
    let peek = json!({ "domain": "shop", "descriptors": descriptors(&[("user", "a")]) });
    let reset = json!({ "domain": "shop" });
    for (token, method, body, expected) in [
        ("", "Peek", &peek, (401, "UNAUTHENTICATED")),
        ("tidegate_no", "Peek", &peek, (401, "UNAUTHENTICATED")),
        (&plain, "Peek", &peek, (403, "PERMISSION_DENIED")),
        (&shop.read, "Reset", &reset, (403, "PERMISSION_DENIED")),
        (&shop.read, "Nothing", &reset, (404, "NOT_FOUND")),
    ] {
        let (status, error) = shop.call(token, method, body).await;
        assert_eq!((status, error["code"].as_str()), (expected.0, Some(expected.1)), "{method}: {error}");
    }
    assert_eq!(shop.call(&shop.read, "Peek", &peek).await.0, 200);
    assert_eq!(shop.call(&shop.operate, "Reset", &reset).await.0, 200);
    let status = shop.call(&shop.read, "Status", &json!({})).await.1;
    assert_eq!((status["actor"].as_str(), status["role"].as_str()), (Some("token:reader"), Some("READ")));
}

#[tokio::test]
async fn the_control_api_is_off_unless_it_is_enabled() {
    let rules = rules_file(RULES);
    let (server, port) = start_from(rules.path(), &[]);
    let request = Request::post("/control/v1/Status").body("{}").expect("well-formed");
    let response = http1::send(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
    assert_eq!(response.status(), 404);
    drop(server);
}

#[tokio::test]
async fn counters_are_peeked_explained_given_back_and_reset() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    for _ in 0..4 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
    }
    let ann = json!({ "domain": "shop", "descriptors": descriptors(&[("user", "ann")]) });
    let peeked = shop.operate("Peek", ann.clone()).await;
    assert_eq!(
        (peeked["code"].as_str(), &peeked["statuses"][0]["rule"]),
        (Some("OVER_LIMIT"), &json!("user"))
    );

    let explained = shop.operate("Explain", ann.clone()).await;
    let descriptor = &explained["descriptors"][0];
    assert_eq!(descriptor["steps"][0]["matched"], "the key alone");
    assert_eq!(descriptor["counters"][0]["used"], 3);
    assert!(descriptor["declaredAt"].as_str().is_some_and(|at| at.ends_with(".yaml:4:5")), "{descriptor}");

    let listed = shop.operate("ListCounters", ann.clone()).await;
    assert_eq!(listed["descriptors"][0]["counters"][0]["algorithm"], "sliding_window");

    let mut give_back = ann.clone();
    give_back["hits"] = 2.into();
    let given = shop.operate("GiveBack", give_back).await;
    assert_eq!(given["statuses"][0]["remaining"], 2);
    assert_eq!(shop.operate("Reset", ann.clone()).await, json!({ "counters": "1" }));
    assert_eq!(shop.operate("Peek", ann).await["statuses"][0]["remaining"], 3);
}

#[tokio::test]
async fn rules_are_listed_with_their_hits_and_rates_page_by_page() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    shop.operate("ListRules", json!({})).await;
    for _ in 0..5 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
        client.hit("shop", &[("plan", "free")]).await.expect("a response");
    }
    let listed = shop.operate("ListRules", json!({})).await;
    let rules = listed["rules"].as_array().expect("rules");
    let names: Vec<_> = rules.iter().map(|rule| (rule["rule"].as_str(), rule["depth"].as_u64())).collect();
    let expected = [(Some("user"), None), (Some("user → path=/login"), Some(1)), (Some("plan=free"), None)];
    assert_eq!(names, expected);
    assert_eq!(rules[0]["limits"][0]["hits"], json!({ "admitted": "3", "denied": "2" }));
    assert_eq!(rules[2]["limits"][0]["hits"], json!({ "admitted": "1", "shadowDenied": "4" }));
    assert!(rules[0]["limits"][0]["rates"]["admitted"].as_f64().is_some_and(|rate| rate > 0.0), "{listed}");
    let page = shop.operate("ListRules", json!({ "pageSize": 2, "contains": "user" })).await;
    assert_eq!((page["total"].as_u64(), page.get("nextPageToken")), (Some(2), None));
    let page = shop.operate("ListRules", json!({ "pageSize": 2 })).await;
    let next = json!({ "pageToken": page["nextPageToken"] });
    assert_eq!(shop.operate("ListRules", next).await["rules"][0]["rule"], "plan=free");
}

#[tokio::test]
async fn errors_name_the_field_of_the_request() {
    let shop = Controlled::start(RULES, &[]);
    let no_key = json!({ "domain": "shop", "descriptors": [{ "entries": [{ "value": "x" }] }] });
    let unknown = json!({ "domain": "shoe", "descriptors": descriptors(&[("user", "a")]) });
    for (method, body, expected) in [
        ("Peek", no_key, (400, "INVALID_ARGUMENT", "descriptors[0].entries[0].key")),
        ("Explain", json!({ "domain": "shop" }), (400, "INVALID_ARGUMENT", "descriptors")),
        ("Peek", json!({}), (400, "INVALID_ARGUMENT", "domain")),
        ("Peek", unknown, (404, "NOT_FOUND", "")),
        ("Reset", json!({ "domain": "shop", "rule": "none" }), (404, "NOT_FOUND", "")),
        ("ListRules", json!({ "pageToken": "x" }), (400, "INVALID_ARGUMENT", "page_token")),
        ("ListRules", json!({ "pageTokens": "x" }), (400, "INVALID_ARGUMENT", "")),
    ] {
        let (status, error) = shop.call(&shop.operate, method, &body).await;
        let field = error["fields"][0]["field"].as_str().unwrap_or_default();
        assert_eq!((status, error["code"].as_str().unwrap_or_default(), field), expected, "{error}");
    }
}

/// A client of the API over gRPC, with the operator's token.
async fn grpc(
    shop: &Controlled,
) -> (ControlClient<tonic::transport::Channel>, impl Fn() -> MetadataValue<Ascii>) {
    let token = format!("Bearer {}", shop.operate);
    (ControlClient::new(shop.server.channel().await), move || token.parse().expect("ASCII"))
}

/// The walkthrough of docs/control.md.
#[tokio::test]
async fn an_abusive_key_is_found_explained_blocked_and_unblocked() {
    let shop = Controlled::start(RULES, &[]);
    let (mut control, token) = grpc(&shop).await;
    let mut request =
        tonic::Request::new(pb::TailRequest { code: pb::Code::OverLimit.into(), ..Default::default() });
    request.metadata_mut().insert("authorization", token());
    let mut tail = control.tail(request).await.expect("a stream").into_inner();
    let mut client = shop.server.client().await;
    for number in 0..300 {
        client.hit("shop", &[("user", "mallory")]).await.expect("a response");
        if number % 10 == 0 {
            client.hit("shop", &[("user", &format!("user-{number}"))]).await.expect("a response");
        }
    }
    let top = eventually("the keys with most hits", async || {
        let top = shop.operate("TopKeys", json!({})).await;
        if top["keys"][0]["hits"] == "297" { Ok(top) } else { Err(top) }
    })
    .await;
    let mallory = json!({ "entries": [{ "key": "user", "value": "mallory" }] });
    assert_eq!((&top["keys"][0]["descriptor"], &top["keys"][0]["rule"]), (&mallory, &json!("user")));

    let shown = tail.message().await.expect("a stream").expect("a response").event;
    let Some(Event::Decision(decision)) = shown else { panic!("{shown:?}") };
    let entry = &decision.descriptors[0].entries[0];
    assert_eq!((&*decision.domain, &*entry.value, decision.peer.is_empty()), ("shop", "mallory", false));

    let request = json!({ "domain": "shop", "descriptors": [mallory] });
    let explained = shop.operate("Explain", request.clone()).await;
    assert_eq!(
        (&explained["code"], &explained["descriptors"][0]["rule"]),
        (&json!("OVER_LIMIT"), &json!("user"))
    );

    let block = json!({ "block": { "id": "m", "key": "user", "value": "mallory", "reason": "abuse" }, "expiresIn": "600s" });
    shop.operate("SetBlock", block).await;
    let denied = client.hit("shop", &[("user", "mallory")]).await.expect("a response");
    assert_eq!(denied.overall_code, 2);
    let explained = shop.operate("Explain", request.clone()).await;
    let descriptor = &explained["descriptors"][0];
    assert_eq!((&descriptor["blockId"], &descriptor["rule"]), (&json!("m"), &json!("(blocked)")));
    // The block counts nothing.
    let listed = shop.operate("ListCounters", request.clone()).await;
    assert_eq!(
        (&descriptor["counters"], &listed["descriptors"][0]["counters"]),
        (&Value::Null, &Value::Null)
    );

    let entry = shop.audited("SetBlock").await;
    assert_eq!(
        [&entry["actor"], &entry["reason"], &entry["outcome"]],
        [&json!("token:operator"), &json!("abuse"), &json!("OK")]
    );
    shop.operate("DeleteBlock", json!({ "id": "m" })).await;
    let explained = shop.operate("Explain", request).await;
    assert_eq!(explained["descriptors"][0]["rule"], "user");
}

/// A value that the rules redact is not shown to operators either.
#[tokio::test]
async fn values_are_redacted_in_top_keys_and_in_the_audit_log() {
    let rules = RULES.replace("  - key: user\n", "  - key: user\n    log: hash\n");
    let shop = Controlled::start(&rules, &[]);
    let mut client = shop.server.client().await;
    for _ in 0..9 {
        client.hit("shop", &[("user", "secret-ann")]).await.expect("a response");
    }
    let top = shop.operate("TopKeys", json!({})).await;
    assert_eq!((&top["keys"][0]["isRedacted"], &top["keys"][0]["hits"]), (&json!(true), &json!("6")));
    shop.operate("SetBlock", json!({ "block": { "domain": "shop", "key": "user", "value": "secret-ann" } }))
        .await;
    // A block of every domain.
    shop.operate("SetBlock", json!({ "block": { "key": "user", "value": "secret-ann" } })).await;
    shop.operate("SetBlock", json!({ "block": { "key": "user", "cidr": "203.0.113.7/32" } })).await;
    let reset = json!({ "domain": "shop", "descriptors": descriptors(&[("user", "secret-ann")]) });
    shop.operate("Reset", reset).await;
    let audit = shop.operate("ListAudit", json!({})).await;
    let shown = format!("{top}{audit}");
    let is_plain = ["secret-ann", "203.0.113.7"].iter().any(|value| shown.contains(value));
    assert!(!is_plain && audit.to_string().contains("hash:"), "{audit}");
}

#[tokio::test]
async fn the_log_level_is_set_by_operators_and_audited() {
    let shop = Controlled::start(RULES, &[]);
    let set = shop.operate("SetLogLevel", json!({ "level": "debug", "reason": "ticket 5" })).await;
    assert_eq!((&set["level"], &set["former"]), (&json!("debug"), &json!("info")));
    shop.server.logged("log level changed to debug");
    let entry = shop.audited("SetLogLevel").await;
    assert_eq!(entry["reason"], "ticket 5", "{entry}");

    let (status, refused) =
        shop.call(&shop.operate, "SetLogLevel", &json!({ "level": "tidegate=loud" })).await;
    assert_eq!((status, &refused["fields"][0]["field"]), (400, &json!("level")), "{refused}");
    let long = json!({ "level": "x".repeat(2_000) });
    assert_eq!(shop.call(&shop.operate, "SetLogLevel", &long).await.0, 400);
    let (status, _) = shop.call(&shop.read, "SetLogLevel", &json!({ "level": "error" })).await;
    assert_eq!(status, 403);
    let set = shop.operate("SetLogLevel", json!({})).await;
    assert_eq!((&set["level"], &set["former"]), (&json!("info"), &json!("debug")));
}

#[tokio::test]
async fn the_command_shows_what_the_api_returns() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    for _ in 0..5 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
    }
    let ctl = |args: &[&str]| {
        let ctl = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([&["ctl", "--addr", shop.server.address()], args].concat())
            .env("TIDEGATE_TOKEN", &shop.operate)
            .output()
            .expect("the command runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ctl.status.success(), "{args:?}: {}", text(&ctl.stderr));
        text(&ctl.stdout)
    };
    for (args, part) in [
        (&["status"][..], "token:operator (OPERATE)"),
        (&["rules", "--domain", "shop", "login"], "user → path=/login"),
        (&["explain", "shop", "user=ann"], "user: 3 used, 0 remaining of 3 per 1day"),
        (&["peek", "shop", "user=ann"], "OVER_LIMIT"),
        (&["counters", "shop", "user=ann"], "user=ann"),
        (&["top"], "user=ann"),
        (&["give-back", "shop", "user=ann", "--hits", "2"], "3 per 1day"),
        (&["block", "set", "user=bob", "--id", "b", "--for", "10m"], "block b set"),
        (&["explain", "shop", "user=bob"], "block b, set by token:operator, until 2"),
        (&["block", "set", "usr=bob", "--id", "typo"], "warning: no rule has the key usr"),
        (&["block", "delete", "typo"], "block typo deleted"),
        (&["block", "list"], "user=bob"),
        (&["block", "set", "user=10.0.0.0/8", "--id", "net"], "block net set"),
        (&["block", "list"], "user in network 10.0.0.0/8"),
        (&["explain", "shop", "user=10.1.2.3"], "block net, set by token:operator"),
        (&["block", "delete", "net"], "block net deleted"),
        (
            &["override", "set", "shop", "usr=bob", "--denied", "--id", "typo"],
            "warning: no rule has the key usr",
        ),
        (&["override", "delete", "typo"], "override typo deleted"),
        (&["override", "set", "shop", "user=eve", "--limit", "7/minute", "--id", "e"], "override e set"),
        (&["override", "list"], "7 per minute"),
        (
            &["override", "set", "shop", "user=ida", "--limit", "5/30s", "--limit", "9/day", "--id", "i"],
            "override i set",
        ),
        (&["override", "list"], "5 per 30s; 9 per day"),
        (&["override", "delete", "i"], "override i deleted"),
        (&["explain", "shop", "user=eve"], "(override e): limited"),
        (&["override", "delete", "e"], "override e deleted"),
        (&["reset", "shop", "user=ann"], "1 counters reset"),
        (
            &["log-level", "tidegate=debug,warn", "--reason", "why"],
            "log level tidegate=debug,warn, before info",
        ),
        (&["log-level", "warning"], "log level warn, before tidegate=debug,warn"),
        (&["log-level"], "log level info, before warn"),
        (&["audit"], "SetOverride"),
        (&["--json", "peek", "shop", "user=ann"], r#""remaining":3"#),
    ] {
        let shown = ctl(args);
        assert!(shown.contains(part), "{args:?}: {shown}");
    }
}

/// The stream over HTTP: lines of JSON, as they are made.
#[tokio::test]
async fn decisions_are_streamed_as_lines_of_json() {
    let shop = Controlled::start(RULES, &[]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shop.port)).await.expect("connects");
    let body = json!({ "key": "user", "value": "a*" }).to_string();
    let head = format!(
        "POST /control/v1/Tail HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        shop.read,
        body.len(),
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut received = String::new();
    let mut more = async |until: &str| {
        let read = async {
            while !received.contains(until) {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).await.expect("the stream");
                assert!(count > 0, "the stream ended: {received}");
                received += &String::from_utf8_lossy(&bytes[..count]);
            }
            received.clone()
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("in time")
    };
    more("application/x-ndjson").await;
    let mut client = shop.server.client().await;
    client.hit("shop", &[("user", "bob")]).await.expect("a response");
    client.hit("shop", &[("user", "ann")]).await.expect("a response");
    let received = more("\"ann\"").await;
    assert!(received.contains(r#""code":"OK""#) && !received.contains("bob"), "{received}");
    assert!(shop.server.terminate().success(), "an open stream does not hold the stop up");
}

/// Bodies used to be received before the token was checked: 256 bodies of 500 kB took 130 MiB.
#[tokio::test]
async fn a_caller_is_refused_before_its_body_is_received() {
    let shop = Controlled::start(RULES, &[]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shop.port)).await.expect("connects");
    let head = "POST /control/v1/SetBlock HTTP/1.1\r\nhost: test\r\ncontent-length: 400000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut response = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut response)).await;
    read.expect("in time").expect("the server ends the connection");
    assert!(response.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&response));
}

/// A stream used to deliver while it stayed open, also 20 s after its token was revoked.
#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked_and_the_last_token_can_be() {
    let shop = Controlled::start(RULES, &[]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shop.port)).await.expect("connects");
    let head = format!(
        "POST /control/v1/Tail HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        shop.read
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut received = [0; 12];
    stream.read_exact(&mut received).await.expect("a response");
    assert_eq!(&received, b"HTTP/1.1 200");
    std::fs::write(shop.folder.path().join("tokens"), "").expect("written");
    shop.server.logged("the file of HTTP tokens is empty");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    ended.expect("in time").expect("the server ends the stream");
    assert_eq!(shop.call(&shop.operate, "Status", &json!({})).await.0, 401);
}
