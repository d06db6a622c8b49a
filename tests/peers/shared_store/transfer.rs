//! Counters moved from a data directory into a store, and back.

use super::{
    RedisServer,
    slot_servers::{free, release, renew, take},
};
use crate::{
    support::{Client, Server, descriptor, rules_file},
    tests_with,
};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};

tests_with! {
    REDIS:
    counters_moved_into_a_store_and_back_decide_as_before,
    slots_and_reservations_move_into_a_store_and_back,
    counters_that_cannot_be_moved_are_listed_and_the_exit_code_is_1,
    an_import_into_a_store_with_another_secret_changes_nothing,
}

const ALGORITHMS: [(&str, &str); 10] = [
    ("sliding", ""),
    ("precise", ", precision: 7"),
    ("log", ", algorithm: sliding_log"),
    ("clock", ", algorithm: fixed_window"),
    ("first", ", algorithm: fixed_window, aligned: first_hit"),
    ("calendar", ", algorithm: fixed_window, calendar: true, time_zone: Europe/Berlin"),
    ("anchored", ", algorithm: fixed_window, calendar: {year: 04-06 09:00}, time_zone: Europe/London"),
    ("greedy", ", algorithm: token_bucket"),
    ("intervals", ", algorithm: token_bucket, refill: intervals"),
    ("leaky", ", algorithm: leaky_bucket"),
];

/// The longest time by which resets may differ: the duration of the test.
const TOLERANCE: Duration = Duration::from_secs(60);

fn rules() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for (key, keys) in ALGORITHMS {
        rules += &format!("- {{key: {key}, rate_limit: {{unit: year, requests_per_unit: 5{keys}}}}}\n");
    }
    rules
}

fn tidegate(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("it runs");
    println!("tidegate {}: {}", args[..2].join(" "), String::from_utf8_lossy(&output.stderr).trim());
    output
}

fn done(args: &[&str]) -> String {
    let output = tidegate(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Code, remaining hits and seconds until the reset for each algorithm, after this many hits or a peek.
async fn decisions(client: &mut Client, hits: u64) -> Vec<(Code, u32, u64)> {
    let mut all = Vec::new();
    for (key, _) in ALGORITHMS {
        let mut one = descriptor(&[(key, "v")]);
        one.hits_addend = Some(hits);
        let response = client.should_rate_limit("d", vec![one]).await.expect("a decision");
        let status = &response.statuses[0];
        let reset = status.duration_until_reset.map_or(0, |reset| reset.seconds.unsigned_abs());
        all.push((response.overall_code(), status.limit_remaining, reset));
    }
    all
}

#[track_caller]
fn assert_alike(found: &[(Code, u32, u64)], expected: &[(Code, u32, u64)]) {
    for ((key, _), (found, expected)) in ALGORITHMS.iter().zip(found.iter().zip(expected)) {
        assert_eq!((found.0, found.1), (expected.0, expected.1), "{key}");
        assert!(found.2.abs_diff(expected.2) <= TOLERANCE.as_secs(), "{key}: {found:?} for {expected:?}");
    }
}

async fn counters_moved_into_a_store_and_back_decide_as_before() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(&rules()));
    let path = |name: &str| folder.path().join(name);
    let [data, data_back, file, file_back] = ["data", "data_back", "file", "file_back"].map(path);

    let local = Server::with_rules(rules.path(), &["--data", text(&data)]);
    let used = decisions(&mut local.client().await, 3).await;
    let before = decisions(&mut local.client().await, 0).await;
    assert!(used.iter().all(|&(code, remaining, _)| (code, remaining) == (Code::Ok, 2)), "{used:?}");
    assert!(local.terminate().success());

    let store = RedisServer::start();
    let url = store.url();
    done(&["snapshot", "export", text(&data), text(&file)]);
    assert_eq!(done(&["store", "import", &url, text(&file)]), "10 counters imported\n");
    let again: Value =
        serde_json::from_str(&done(&["store", "import", &url, text(&file), "--json"])).expect("JSON");
    assert_eq!((&again["counters"], &again["present"]), (&0.into(), &10.into()), "{again}");
    assert!(done(&["store", "verify", &url]).starts_with("10 counters are good, 0 are not, 0 never expire"));

    let args = ["--counters", &url, "--counters-timeout", "2s", "--on-store-failure", "deny"];
    let shared = Server::with_rules(rules.path(), &args);
    let refused = tidegate(&["store", "export", &url, text(&file_back)]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1 servers use the store; stop them first"));
    let mut client = shared.client().await;
    assert_alike(&decisions(&mut client, 0).await, &before);
    let over = decisions(&mut client, 3).await;
    assert!(over.iter().all(|&(code, ..)| code == Code::OverLimit), "{over:?}");
    let last = decisions(&mut client, 2).await;
    assert!(last.iter().all(|&(code, remaining, _)| (code, remaining) == (Code::Ok, 0)), "{last:?}");
    let spent = decisions(&mut client, 0).await;
    assert!(shared.terminate().success());

    done(&["store", "export", &url, text(&file_back)]);
    // By way of another store, which has no rules either. Logs and buckets used to be lost on this way, with exit code 0.
    let other = RedisServer::start();
    assert_eq!(done(&["store", "import", &other.url(), text(&file_back)]), "10 counters imported\n");
    fs::remove_file(&file_back).expect("it was written");
    done(&["store", "export", &other.url(), text(&file_back)]);
    let imported = done(&["snapshot", "import", text(&file_back), text(&data_back)]);
    assert!(imported.ends_with("10 counters imported\n"), "{imported}");
    let back = Server::with_rules(rules.path(), &["--data", text(&data_back)]);
    assert_alike(&decisions(&mut back.client().await, 0).await, &spent);
}

/// A window that reserves, and requests in flight: from a data directory to a store, another store, and a data directory.
async fn slots_and_reservations_move_into_a_store_and_back() {
    let rules = rules_file(
        "domain: d
descriptors:
  - {key: slots, rate_limit: {algorithm: concurrency, requests_in_flight: 5, max_hold: 1h}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 100, algorithm: sliding_log, reserve: 20}}
  - {key: bucket, rate_limit: {unit: day, requests_per_unit: 100, algorithm: token_bucket, reserve: 20}}
",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let [data, data_back, file, file_back] = ["data", "data_back", "file", "file_back"].map(path);
    let keys = [("slots", 5, 1), ("log", 100, 20), ("bucket", 100, 20)];

    let local = Server::with_rules(rules.path(), &["--data", text(&data)]);
    let mut client = local.client().await;
    for (key, ..) in keys {
        take(&mut client, &[key]).await.expect("a ticket");
    }
    assert!(local.terminate().success());
    let (store, other) = (RedisServer::start(), RedisServer::start());
    done(&["snapshot", "export", text(&data), text(&file)]);
    assert_eq!(done(&["store", "import", &store.url(), text(&file)]), "3 counters imported\n");
    let (url, other_url) = (store.url(), other.url());
    let patient = ["--on-store-failure", "deny", "--counters-timeout", "2s"];
    let shared = Server::with_rules(rules.path(), &[&patient[..], &["--counters", &url]].concat());
    let mut client = shared.client().await;
    let mut tickets = Vec::new();
    for (key, all, each) in keys {
        assert_eq!(free(&mut client, key).await, all - each, "{key}");
        tickets.push(take(&mut client, &[key]).await.expect("a ticket"));
    }
    assert!(shared.terminate().success());
    done(&["store", "export", &store.url(), text(&file_back)]);
    assert_eq!(done(&["store", "import", &other.url(), text(&file_back)]), "3 counters imported\n");
    fs::remove_file(&file_back).expect("it was written");
    // With the tickets of the first store.
    let shared = Server::with_rules(rules.path(), &[&patient[..], &["--counters", &other_url]].concat());
    let mut client = shared.client().await;
    let mut left = Vec::new();
    for ((key, all, each), ticket) in keys.into_iter().zip(&tickets) {
        assert_eq!(free(&mut client, key).await, all - 2 * each, "{key}");
        assert!(renew(&mut client, &[key], ticket).await, "{key}");
        release(&mut client, ticket).await;
        // The actual cost of a reservation is 1.
        left.push(if key == "slots" { all - each } else { all - each - 1 });
        assert_eq!(free(&mut client, key).await, left[left.len() - 1], "{key}");
    }
    assert!(shared.terminate().success());
    done(&["store", "export", &other.url(), text(&file_back)]);
    done(&["snapshot", "import", text(&file_back), text(&data_back)]);
    let back = Server::with_rules(rules.path(), &["--data", text(&data_back)]);
    let mut client = back.client().await;
    for ((key, ..), left) in keys.into_iter().zip(left) {
        assert_eq!(free(&mut client, key).await, left, "{key}");
    }
}

async fn counters_that_cannot_be_moved_are_listed_and_the_exit_code_is_1() {
    let rules = rules_file(
        "domain: d
descriptors:
  - {key: good, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: queue, rate_limit: {unit: day, requests_per_unit: 5, algorithm: leaky_bucket, max_wait: 1s}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 20000, algorithm: sliding_log}}
",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let [data, file, file_back] = ["data", "file", "back"].map(|name| folder.path().join(name));
    let local = Server::with_rules(rules.path(), &["--data", text(&data)]);
    let mut client = local.client().await;
    for (key, hits) in [("good", 1), ("queue", 1), ("log", 10_001)] {
        let taken = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, "v")]) };
        let response = client.should_rate_limit("d", vec![taken]).await.expect("a decision");
        assert_eq!(response.overall_code(), Code::Ok, "{key}");
    }
    assert!(local.terminate().success());
    done(&["snapshot", "export", text(&data), text(&file)]);
    let store = RedisServer::start();
    let imported = tidegate(&["store", "import", &store.url(), text(&file)]);
    let (listed, numbers) =
        (String::from_utf8_lossy(&imported.stderr), String::from_utf8_lossy(&imported.stdout));
    assert_eq!(imported.status.code(), Some(1));
    assert_eq!(numbers, "1 counters imported, 2 of limits that a shared store cannot count\n");
    assert!(listed.contains("not moved: 1 of d: log: a shared log holds at most 10000 hits"), "{listed}");
    assert!(listed.contains("not moved: 1 of d: queue: requests are queued by one process"), "{listed}");

    let damaged = format!("tidegate:{:032x}", 7);
    let _: () = redis::cmd("SET").arg(&damaged).arg("x").query(&mut store.connection()).expect("written");
    let exported = tidegate(&["store", "export", &store.url(), text(&file_back)]);
    assert_eq!(exported.status.code(), Some(1));
    let listed = String::from_utf8_lossy(&exported.stderr);
    assert!(listed.contains("1 counters exported, 1 damaged") && listed.contains(&damaged), "{listed}");
}

async fn an_import_into_a_store_with_another_secret_changes_nothing() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(&rules()));
    let (data, file) = (folder.path().join("data"), folder.path().join("file"));
    let local = Server::with_rules(rules.path(), &["--data", text(&data)]);
    decisions(&mut local.client().await, 1).await;
    assert!(local.terminate().success());
    done(&["snapshot", "export", text(&data), text(&file)]);

    let store = RedisServer::start();
    let url = store.url();
    assert!(Server::with_rules(rules.path(), &["--counters", &url]).terminate().success());
    let refused = tidegate(&["store", "import", &url, text(&file)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a secret of its own"), "{refused:?}");
    let keys = || redis::cmd("KEYS").arg("tidegate:*").query::<Vec<String>>(&mut store.connection());
    assert_eq!(keys().expect("keys"), ["tidegate:layout"]);

    let (whole, cut) = (fs::read_to_string(&file).expect("a file"), folder.path().join("cut"));
    fs::write(&cut, &whole[..whole.len() / 2]).expect("it is written");
    let refused = tidegate(&["store", "import", &url, text(&cut), "--counters-prefix", "other:"]);
    assert_eq!(refused.status.code(), Some(1));
    let keys = || redis::cmd("KEYS").arg("other:*").query::<Vec<String>>(&mut store.connection());
    assert_eq!(keys().expect("keys"), [""; 0], "a truncated file");
}
