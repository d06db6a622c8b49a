//! Overrides and blocks that operators set.

use super::{Controlled, RULES, descriptors};
use crate::support::{eventually, rules_file};
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Command};

#[tokio::test]
async fn overrides_and_blocks_survive_a_restart_and_the_audit_log_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data_flag = ["--data", data.to_str().expect("UTF-8")];
    let shop = Controlled::start(RULES, &data_flag);
    let of = json!({ "id": "vip", "domain": "shop", "entries": [{ "key": "user", "value": "v*" }],
        "limit": { "requests": 100, "unit": "hour" } });
    shop.operate("SetOverride", json!({ "override": of })).await;
    let block = json!({ "id": "net", "key": "remote_address", "cidr": "192.0.2.0/24" });
    shop.operate("SetBlock", json!({ "block": block })).await;
    let short = json!({ "id": "short", "key": "user", "value": "x" });
    shop.operate("SetBlock", json!({ "block": short, "expiresIn": "0.1s" })).await;
    assert!(shop.server.terminate().success());

    let shop = Controlled::start(RULES, &data_flag);
    let peek = |entries: &[(&str, &str)]| json!({ "domain": "shop", "descriptors": descriptors(entries) });
    let vip = shop.operate("Peek", peek(&[("user", "vera")])).await;
    assert_eq!(
        (&vip["statuses"][0]["rule"], &vip["statuses"][0]["remaining"]),
        (&json!("(override vip)"), &json!(100))
    );
    let blocked = shop.operate("Peek", peek(&[("remote_address", "192.0.2.7")])).await;
    assert_eq!((&blocked["code"], &blocked["statuses"][0]["never"]), (&json!("OVER_LIMIT"), &json!(true)));
    assert_eq!(shop.operate("ListBlocks", json!({})).await["total"], 1);
    shop.operate("DeleteOverride", json!({ "id": "vip" })).await;
    assert_eq!(shop.operate("Peek", peek(&[("user", "vera")])).await["statuses"][0]["remaining"], 3);
    let (status, _) = shop.call(&shop.read, "DeleteBlock", &json!({ "id": "net" })).await;
    assert_eq!(status, 403);
    // The line of a denied call is written concurrently with the call, and that of the first rules with the start.
    let denied = eventually("the line of the denied call", async || {
        let newest = shop.operate("ListAudit", json!({ "limit": 5 })).await;
        let mut entries = newest["entries"].as_array().expect("entries").iter();
        entries.find(|entry| entry["outcome"] == "PERMISSION_DENIED").cloned().ok_or(newest)
    });
    assert_eq!(denied.await["actor"], "token:reader");

    let log = data.join("audit.jsonl");
    let verify = || {
        let verify =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["audit", "verify"]).arg(&log).output();
        let verified = verify.expect("the command runs");
        (verified.status.success(), String::from_utf8_lossy(&verified.stderr).into_owned())
    };
    assert_eq!(verify(), (true, String::new()));
    let text = std::fs::read_to_string(&log).expect("the log");
    std::fs::write(&log, text.replacen("token:operator", "token:nobody", 1)).expect("written");
    assert!(verify().1.contains("has another hash"), "{:?}", verify());
}

/// A network as a value was a text, which no address equals: the block was listed as in force, and blocked nothing.
#[tokio::test]
async fn a_value_that_is_a_network_blocks_the_network() {
    let shop = Controlled::start(RULES, &[]);
    for (key, value) in
        [("user", "10.0.0.0/8"), ("remote_address", "2001:db8::/32"), ("address", "192.0.2.7")]
    {
        let set = shop.operate("SetBlock", json!({ "block": { "key": key, "value": value } })).await;
        assert_eq!((&set["block"]["cidr"], set["block"].get("value")), (&json!(value), None), "{set}");
    }
    let listed = shop.operate("ListBlocks", json!({})).await;
    let networks =
        listed["blocks"].as_array().expect("blocks").iter().filter(|block| block["cidr"].is_string());
    assert_eq!(networks.count(), 3, "{listed}");
    for (key, value, code) in [
        ("user", "10.1.2.3", "OVER_LIMIT"),
        // As Envoy sends masked addresses.
        ("user", "10.0.0.0/8", "OVER_LIMIT"),
        ("user", "11.1.2.3", "OK"),
        ("remote_address", "2001:db8::1", "OVER_LIMIT"),
        ("remote_address", "10.1.2.3", "OK"),
        ("address", "::ffff:192.0.2.7", "OVER_LIMIT"),
    ] {
        let request = json!({ "domain": "shop", "descriptors": descriptors(&[(key, value)]) });
        let peek = shop.operate("Peek", request).await;
        assert_eq!(peek["code"], code, "{key}={value}");
    }
    for (key, value, parts) in [
        ("usr", "10.0.0.0/8", &["no rule has the key usr: ", "not to the addresses"][..]),
        ("user", "2001:DB8:0::1", &["Envoy writes it as 2001:db8::1"]),
        ("user", "2001:db8::1", &[]),
    ] {
        let of = json!({ "domain": "shop", "entries": [{ "key": key, "value": value }], "denied": true });
        let set = shop.operate("SetOverride", json!({ "override": of })).await;
        let warnings: Vec<&str> =
            set["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(warnings.len(), parts.len(), "{warnings:?}");
        assert!(warnings.iter().zip(parts).all(|(warning, part)| warning.contains(part)), "{warnings:?}");
    }
}

#[tokio::test]
async fn overrides_and_blocks_that_are_wrong_are_refused_by_field() {
    let divided = rules_file(
        "domain: divided\nrlqs: {}\ndescriptors:\n- key: user\n  \
         rate_limit: { unit: second, requests_per_unit: 200, algorithm: token_bucket }\n",
    );
    let shop = Controlled::start(RULES, &["--rules", divided.path().to_str().expect("UTF-8")]);
    let entries = json!([{ "key": "user", "value": "a" }]);
    let of = |more: Value| {
        let mut of = json!({ "domain": "shop", "entries": entries });
        of.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "override": of })
    };
    for (method, body, field) in [
        ("SetOverride", json!({}), "override"),
        ("SetOverride", of(json!({})), "override"),
        ("SetOverride", of(json!({ "denied": true, "unlimited": true })), "override"),
        (
            "SetOverride",
            of(json!({ "limit": { "requests": 1, "unit": "fortnight" } })),
            "override.limit.unit",
        ),
        // Envoys would deny everything.
        (
            "SetOverride",
            of(json!({ "domain": "divided", "limit": { "requests": 1, "unit": "hour" } })),
            "override",
        ),
        ("SetOverride", of(json!({ "denied": true, "entries": [] })), "override.entries"),
        ("SetOverride", of(json!({ "denied": true, "id": "a b" })), "override.id"),
        ("SetOverride", of(json!({ "denied": true, "expires": "2001-01-01T00:00:00Z" })), "override.expires"),
        ("SetBlock", json!({ "block": { "key": "user" } }), "block.value"),
        ("SetBlock", json!({ "block": { "key": "ip", "cidr": "192.0.2.0/40" } }), "block.cidr"),
        ("SetBlock", json!({ "block": { "key": "ip", "value": "192.0.2.0/40" } }), "block.value"),
        ("SetBlock", json!({ "block": { "value": "x" } }), "block.key"),
        ("Tail", json!({ "sample": 2 }), "sample"),
        ("TopKeys", json!({ "window": 7 }), "window"),
    ] {
        let (status, error) = shop.call(&shop.operate, method, &body).await;
        assert_eq!((status, &error["fields"][0]["field"]), (400, &json!(field)), "{body}: {error}");
    }
    let (status, _) = shop.call(&shop.operate, "DeleteBlock", &json!({ "id": "none" })).await;
    assert_eq!(status, 404);
    // Envoys can enforce this one, until the rules change.
    let limit = json!({ "requests": 150, "unit": "second" });
    shop.operate("SetOverride", of(json!({ "domain": "divided", "id": "o", "limit": limit }))).await;
    let many = "domain: divided\nrlqs: { clients: 50 }\ndescriptors:\n- key: user\n  \
                rate_limit: { unit: second, requests_per_unit: 20000, algorithm: token_bucket }\n";
    std::fs::write(divided.path(), many).expect("rules are written");
    shop.server.logged("the rule (override o) of the domain divided is divided by `rlqs`, and clients");
    let body = json!({ "domain": "divided", "descriptors": descriptors(&[("user", "a")]) });
    let (_, explained) = shop.call(&shop.read, "Explain", &body).await;
    let outcome = explained["descriptors"][0]["outcome"].as_str().unwrap_or_default();
    assert!(outcome.contains("; over RLQS, Envoy denies all of these requests"), "{explained}");
}

/// A server used to start without the file's blocks, and overwrote the file with the next block.
#[tokio::test]
async fn a_damaged_file_of_blocks_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data_flag = ["--data", data.to_str().expect("UTF-8")];
    let shop = Controlled::start(RULES, &data_flag);
    shop.operate("SetBlock", json!({ "block": { "id": "b", "key": "user", "value": "x" } })).await;
    assert!(shop.server.terminate().success());
    let file = data.join("overrides.json");
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&file)), (0o700, 0o600));
    let generations =
        std::fs::read_dir(&data).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut generations = generations.filter(|path| path.is_dir());
    assert_eq!(
        generations.next().map(|path| mode(&path)),
        Some(0o700),
        "also in a directory that others can read"
    );

    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, &text[..text.len() / 2]).expect("written");
    let tokens = shop.folder.path().join("tokens");
    let tokens = tokens.to_str().expect("UTF-8");
    let listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--http-token-file", tokens];
    let args = [&["serve", "--control", "loopback"], &listen[..], &["--rules"]].concat();
    let mut serve = Command::new("timeout");
    serve.args(["20", env!("CARGO_BIN_EXE_tidegate")]).args(args).arg(shop.rules.path()).args(data_flag);
    let refused = serve.output().expect("the command runs");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && error.contains("overrides.json"), "{refused:?}");
    assert_eq!(
        std::fs::read_to_string(&file).expect("the file").len(),
        text.len() / 2,
        "it is not overwritten"
    );
}

/// A start hung, without a line in the log.
#[test]
fn a_pipe_in_the_place_of_a_file_ends_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let pipe_path = pipe.to_str().expect("UTF-8");
    for (flag, further) in [
        ("--rules", &[][..]),
        ("--config", &[]),
        ("--blocks", &[]),
        ("--http-token-file", &[]),
        ("--audit-log", &[]),
        ("--tls-cert", &["--tls-key", pipe_path]),
        ("--counters-ca", &["--counters", "rediss://127.0.0.1:1"]),
        ("--decision-log", &[]),
        ("--decision-log-salt-file", &["--decision-log", "-"]),
    ] {
        let mut serve = Command::new("timeout");
        serve.args([
            "20",
            env!("CARGO_BIN_EXE_tidegate"),
            "serve",
            "--listen",
            &socket,
            "--control",
            "loopback",
        ]);
        let refused = serve.arg(flag).arg(&pipe).args(further).output().expect("the command runs");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        let names_it = error.contains("not a regular file") || error.contains("is a pipe");
        assert!(refused.status.code() == Some(1) && names_it, "{flag}: {error}");
    }
}

/// `explain` named neither the reason nor the author of a block; an override took units alone.
#[tokio::test]
async fn explain_names_the_reason_the_author_and_the_expiry_of_blocks_and_overrides() {
    let shop = Controlled::start(RULES, &[]);
    let entry = json!([{ "key": "user", "value": "ann" }]);
    let limit = json!({ "requests": 5, "unit": "30s", "algorithm": "token_bucket", "burst": 9 });
    let of = json!({ "id": "o", "domain": "shop", "entries": entry, "limit": limit, "reason": "trial" });
    let set = shop.operate("SetOverride", json!({ "override": of, "expiresIn": "60s" })).await;
    assert_eq!(set["override"]["limit"], limit);
    let explain = || {
        shop.operate("Explain", json!({ "domain": "shop", "descriptors": descriptors(&[("user", "ann")]) }))
    };
    let explained = explain().await["descriptors"][0].clone();
    let of = &explained["override"];
    assert_eq!((&of["reason"], &of["actor"]), (&json!("trial"), &json!("token:operator")), "{explained}");
    assert!(of["expires"].is_string(), "{explained}");
    assert_eq!(explained["counters"][0]["window"], "30s");

    let block = json!({ "id": "b", "key": "user", "value": "ann", "reason": "flood" });
    let set = shop.operate("SetBlock", json!({ "block": block })).await;
    assert_eq!(set.get("warnings"), None, "{set}");
    let explained = explain().await["descriptors"][0].clone();
    let (block, of) = (&explained["block"], explained.get("override"));
    assert_eq!((&block["reason"], &block["actor"], of), (&json!("flood"), &json!("token:operator"), None));
    let block = json!({ "id": "c", "key": "usr", "value": "ann" });
    let set = shop.operate("SetBlock", json!({ "block": block })).await;
    assert!(set["warnings"][0].as_str().is_some_and(|warning| warning.contains("usr")), "{set}");
}

/// A client refused responses above 4 MiB, so that many overrides could not be listed.
#[tokio::test]
async fn the_command_lists_overrides_of_any_length() {
    let shop = Controlled::start(RULES, &["--max-text-bytes", "3000000", "--http-max-body-bytes", "4000000"]);
    for (id, letter) in [("first", "a"), ("last", "b")] {
        let entries = json!([{ "key": "user", "value": letter.repeat(2_500_000) }]);
        let of = json!({ "id": id, "domain": "shop", "entries": entries, "unlimited": true });
        shop.operate("SetOverride", json!({ "override": of })).await;
    }
    let args = ["ctl", "--addr", shop.server.address(), "--token", &shop.read, "override", "list"];
    let listed = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the command runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
}
