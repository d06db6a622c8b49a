//! The control API of a real server: roles, methods, errors.

use crate::{
    admin::start_from,
    support::{Server, http1, rules_file},
};
use http::Request;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, path::Path, process::Command};
use tempfile::{NamedTempFile, TempDir};

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
    _rules: NamedTempFile,
    pub folder: TempDir,
}

fn token(file: &Path, name: &str, role: &[&str]) -> String {
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
        Self { server, port, read, operate, _rules: rules, folder }
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

    /// The response to an operator's call that succeeds.
    pub async fn operate(&self, method: &str, body: Value) -> Value {
        let (status, response) = self.call(&self.operate, method, &body).await;
        assert_eq!(status, 200, "{method}: {response}");
        response
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
