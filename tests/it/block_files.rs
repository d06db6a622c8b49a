//! Files of blocks of a real server.

use crate::{
    control::{Controlled, descriptors},
    support::{Server, eventually},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command, time::Duration};

const RULES: &str = "
domain: shop
descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 1000 } }]
";

fn replace(file: &Path, text: &str) {
    let next = file.with_extension("next");
    fs::write(&next, text).expect("it is written");
    fs::rename(next, file).expect("it is renamed");
}

async fn is_blocked(shop: &Controlled, user: &str) -> bool {
    let peek = json!({ "domain": "shop", "descriptors": descriptors(&[("user", user)]) });
    shop.operate("Peek", peek).await["code"] == "OVER_LIMIT"
}

async fn until_blocked(shop: &Controlled, user: &str) {
    eventually(&format!("{user} is blocked"), async || match is_blocked(shop, user).await {
        true => Ok(()),
        false => Err(shop.server.log()),
    })
    .await;
}

async fn take_effect(watch: &str, request: impl Fn(&Server)) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("blocks.txt");
    replace(&file, "# spam\nuser=mallory\n");
    let path = file.to_str().expect("UTF-8");
    let shop = Controlled::start(RULES, &["--blocks", path, "--rules-watch", watch]);
    assert!(is_blocked(&shop, "mallory").await, "blocks are in force from the start");
    assert!(!is_blocked(&shop, "eve").await);

    replace(&file, "user=eve\n");
    request(&shop.server);
    until_blocked(&shop, "eve").await;
    assert!(!is_blocked(&shop, "mallory").await);

    replace(&file, "user=bob\neve\nuser=\n");
    request(&shop.server);
    shop.server.logged(&format!(r#"{path}:2:1: \"eve\" is not an entry"#));
    shop.server.logged(&format!("{path}:3:6: has no value"));
    assert!(is_blocked(&shop, "eve").await, "the blocks in force stay");
    assert!(!is_blocked(&shop, "bob").await);
}

#[tokio::test]
async fn a_changed_file_of_blocks_takes_effect_and_a_malformed_one_does_not() {
    take_effect("auto", |_| ()).await;
    take_effect("off", |server| server.signal(Signal::HUP)).await;
}

#[tokio::test]
async fn lines_of_files_are_listed_with_their_places_and_cannot_be_deleted_by_the_api() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("blocks.txt");
    replace(&file, "\nuser=mallory\n[shop]\nremote_address=192.0.2.0/24\n");
    let path = file.to_str().expect("UTF-8");
    let shop = Controlled::start(RULES, &["--blocks", path]);
    shop.operate("SetBlock", json!({ "block": { "id": "b", "key": "user", "value": "bob" } })).await;

    let listed = async |request: Value| {
        let response = shop.operate("ListBlocks", request).await;
        assert_eq!(response["total"], 3);
        let ids = response["blocks"].as_array().expect("blocks").iter().map(|block| block["id"].clone());
        ids.collect::<Vec<_>>()
    };
    let [first, second] = [2, 4].map(|line| format!("{path}:{line}"));
    assert_eq!(listed(json!({})).await, [json!("b"), json!(first), json!(second)]);
    assert_eq!(listed(json!({ "pageSize": 1, "pageToken": "1" })).await, [json!(first)]);
    assert_eq!(listed(json!({ "pageSize": 1, "pageToken": "2" })).await, [json!(second)]);

    let (status, error) = shop.call(&shop.operate, "DeleteBlock", &json!({ "id": first })).await;
    assert_eq!((status, &error["code"]), (400, &json!("FAILED_PRECONDITION")), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("delete it there")), "{error}");
    assert!(is_blocked(&shop, "mallory").await);
    let explain = json!({ "domain": "shop", "descriptors": descriptors(&[("user", "mallory")]) });
    assert_eq!(shop.operate("Explain", explain).await["descriptors"][0]["blockId"], json!(first));
}

#[tokio::test]
async fn the_files_of_a_directory_take_effect_together_and_new_ones_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let lists = folder.path().join("blocks");
    fs::create_dir(&lists).expect("a directory");
    replace(&lists.join("spam.txt"), "user=mallory\n");
    replace(&lists.join("abuse.txt"), "user=eve\n");
    let shop = Controlled::start(RULES, &["--blocks", lists.to_str().expect("UTF-8")]);
    assert!(is_blocked(&shop, "mallory").await && is_blocked(&shop, "eve").await);
    let listed = shop.operate("ListBlocks", json!({})).await;
    let ids = listed["blocks"].as_array().expect("blocks").iter().map(|block| block["id"].as_str());
    let mut ids: Vec<_> = ids.flatten().filter_map(|id| id.rsplit('/').next()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["abuse.txt:1", "spam.txt:1"]);

    replace(&lists.join("third.txt"), "user=bob\n");
    until_blocked(&shop, "bob").await;
    assert!(is_blocked(&shop, "eve").await, "the other files stay in force");
    fs::remove_file(lists.join("abuse.txt")).expect("it is removed");
    eventually("the blocks of a file that is gone end", async || match is_blocked(&shop, "eve").await {
        false => Ok(()),
        true => Err(shop.server.log()),
    })
    .await;
}

#[tokio::test]
async fn the_command_lists_all_blocks_of_a_file_beyond_one_page() {
    const BLOCKS: usize = 2_500;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("blocks.txt");
    replace(&file, &(0..BLOCKS).map(|number| format!("user=u{number}\n")).collect::<String>());
    let shop = Controlled::start(RULES, &["--blocks", file.to_str().expect("UTF-8")]);
    let list = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([&["ctl", "--addr", shop.server.address(), "block", "list"], args].concat())
            .env("TIDEGATE_TOKEN", &shop.read)
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let all: Value = serde_json::from_str(&list(&["--json"])).expect("JSON");
    assert_eq!((all["blocks"].as_array().map(Vec::len), &all["total"]), (Some(BLOCKS), &json!(BLOCKS)));
    let table = list(&[]);
    assert!(table.contains("user=u0") && table.contains(&format!("user=u{}", BLOCKS - 1)), "{table}");
}

/// The log records the blocks of the files together with the rules, so that a replay needs no files.
#[tokio::test]
async fn decisions_by_a_file_of_blocks_are_reproduced_from_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, log] = ["blocks.txt", "decisions"].map(|name| folder.path().join(name));
    replace(&file, "user=mallory\n");
    let paths = [&file, &log].map(|path| path.to_str().expect("UTF-8"));
    let shop = Controlled::start(RULES, &["--blocks", paths[0], "--decision-log", paths[1]]);
    let mut client = shop.server.client().await;
    let mut send = async || {
        for user in ["mallory", "eve", "bob"] {
            client.hit("shop", &[("user", user)]).await.expect("a decision");
        }
    };
    send().await;
    replace(&file, "user=eve\n");
    until_blocked(&shop, "eve").await;
    send().await;
    assert!(shop.server.terminate().success());

    let text = fs::read_to_string(&log).expect("the log");
    let changes = text.lines().filter(|line| line.contains(r#""kind":"blocks""#)).count();
    assert_eq!(changes, 2, "the files of the start, and the changed one: {text}");
    let replayed = crate::replay::report(&[paths[1]]);
    let of = &replayed["report"];
    let differences = ["newly_denied", "newly_admitted", "responses_changed"].map(|key| &of[key]);
    assert_eq!((differences, &of["requests"]), ([&json!(0); 3], &json!(6)), "{replayed}");
    let rows = of["rules"].as_array().expect("rows");
    let blocked = rows.iter().find(|row| row["rule"] == "(blocked)").expect("a row of blocks");
    assert!(blocked.to_string().contains('2'), "mallory, then eve: {blocked}");

    // Without the blocks, all of these requests are admitted, so the comparison above can fail.
    let rules = shop.rules.path().to_str().expect("UTF-8");
    let other = crate::replay::report(&["--rules", rules, paths[1]]);
    assert_eq!(other["report"]["newly_admitted"], 2, "{other}");
}

#[test]
fn a_server_does_not_start_with_a_malformed_file_of_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let (blocks, rules) = (folder.path().join("blocks.txt"), folder.path().join("rules.yaml"));
    fs::write(&blocks, "ip=192.0.2.0/33\n").expect("it is written");
    fs::write(&rules, RULES).expect("it is written");
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--rules"])
        .args([rules.as_path(), Path::new("--blocks"), &blocks])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command runs");
    for _ in 0..600 {
        if server.try_wait().expect("a child").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // A server that started is ended here.
    let _ = server.kill();
    let ended = server.wait_with_output().expect("a child");
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("blocks.txt:1:4:") && text.contains("is not a network"), "{text}");
}
