//! A clock that is set between the stop of one server and the start of the next, with a real server.
//!
//! The snapshot is written by a wrong clock; the server that starts with it has the machine's clock.

use crate::support::{Client, Server, rules_file};
use std::{path::Path, process::Command, time::Duration};
use tempfile::{NamedTempFile, TempDir};
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::{
    clock::{Clock, ManualClock, SystemClock},
    limit::{self, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_snapshot::OnBadSnapshot;

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Hits that each limit admits.
const LIMIT: u32 = 5;

/// Every way of counting, with one window.
const ALGORITHMS: [(&str, &str); 8] = [
    ("sliding", "algorithm: sliding_window"),
    ("precise", "algorithm: sliding_window, precision: 8"),
    ("log", "algorithm: sliding_log"),
    ("fixed", "algorithm: fixed_window"),
    ("first_hit", "algorithm: fixed_window, aligned: first_hit"),
    ("tokens", "algorithm: token_bucket"),
    ("intervals", "algorithm: token_bucket, refill: intervals"),
    ("leaky", "algorithm: leaky_bucket, burst: 5"),
];

/// A data directory, and the rules that go with it.
struct DataDir {
    data: TempDir,
    rules: NamedTempFile,
}

fn rules(window: Duration) -> String {
    let rule = |(key, algorithm): &(&str, &str)| {
        let secs = window.as_secs();
        format!("- {{key: {key}, rate_limit: {{per: {secs}s, requests_per_unit: {LIMIT}, {algorithm}}}}}\n")
    };
    format!("domain: d\ndescriptors:\n{}", ALGORITHMS.iter().map(rule).collect::<String>())
}

impl DataDir {
    /// Written by a process with the time `then`. Of each limit, alice has used three hits and bob has used all.
    fn written_at(then: Timestamp, window: Duration) -> Self {
        let (data, text) = (tempfile::tempdir().expect("a folder"), rules(window));
        let source = Source::file("rules.yaml", text.clone());
        let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("good rules");
        let build = |seed| {
            let store = StoreSettings { seed, counters_max: 100, on_full: OnFull::Deny };
            Limiter::new(rules.clone(), store, false)
        };
        let seed = Seed::from_bytes([7; 16]);
        let started = tidegate_snapshot::start(data.path(), OnBadSnapshot::Refuse, seed, build, then, |_| {});
        let mut started = started.unwrap_or_else(|error| panic!("{error}"));
        for (key, _) in ALGORITHMS {
            for (value, hits) in [("alice", 3), ("bob", LIMIT)] {
                let mut request = Request::new("d");
                let entries = [Entry { key, value }].into_iter().collect();
                request.push(Descriptor { entries, hits: Hits::new(None, hits, false), limit: None });
                assert_eq!(started.limiter.pin().decide(&request, then).code, limit::Code::Ok);
            }
        }
        let (store, limits) = (started.limiter.store(), started.limiter.rules());
        started.writer.pass(store, limits.limits(), &ManualClock::new(then)).expect("it is written");
        Self { data, rules: rules_file(&text) }
    }

    fn data(&self) -> &str {
        self.data.path().to_str().expect("temporary paths are UTF-8")
    }

    fn start(&self) -> Server {
        Server::with_rules(self.rules.path(), &["--data", self.data()])
    }
}

/// Response to one more hit: whether it is over limit, the remaining hits, and the reset.
async fn hit(client: &mut Client, key: &str, value: &str) -> (bool, u32, Duration) {
    let answer = client.hit("d", &[(key, value)]).await.expect("the server decides");
    let status = &answer.statuses[0];
    let reset = status.duration_until_reset.as_ref().expect("a limit has a reset");
    let reset = Duration::from_secs(reset.seconds.try_into().expect("a reset is not in the past"));
    (answer.overall_code() == Code::OverLimit, status.limit_remaining, reset)
}

/// Reset of a new key after its limit is used up.
async fn until_free_when_used_up_now(client: &mut Client, key: &str) -> Duration {
    for _ in 0..LIMIT {
        assert!(!hit(client, key, "carol").await.0);
    }
    hit(client, key, "carol").await.2
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

fn ahead(by: Duration) -> Timestamp {
    Timestamp::EPOCH.saturating_add_nanos(now().as_nanos() + by.as_nanos() as u64)
}

fn behind(by: Duration) -> Timestamp {
    Timestamp::from_nanos(now().as_nanos() - by.as_nanos() as u64)
}

/// A window length, at least as long as `at_least`, for which now and `before` are in the same window of the clock, and which does not end
/// soon.
fn window_around_now(at_least: Duration, before: Duration) -> Duration {
    let now_secs = now().as_nanos() / 1_000_000_000;
    let is_around = |secs: &u64| (before.as_secs() + 20..secs - 120).contains(&(now_secs % secs));
    Duration::from_secs((at_least.as_secs()..).find(is_around).expect("one of the next lengths is"))
}

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn age_seconds(data: &Path) -> f64 {
    let data = data.to_str().expect("temporary paths are UTF-8");
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["snapshot", "inspect", data, "--json"])).expect("it is JSON");
    json["age_seconds"].as_f64().expect("a number")
}

// Two threads: the client's connection has to end while this thread waits for the server to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_frees_nothing_and_blocks_no_longer_than_the_window() {
    for offset in [HOUR, YEAR] {
        let window = window_around_now(Duration::from_secs(1_800), Duration::ZERO);
        let data_dir = DataDir::written_at(ahead(offset), window);
        let server = data_dir.start();
        server.logged("the clock was set back");
        let mut client = server.client().await;
        for (key, _) in ALGORITHMS {
            // This is first, since every second in between shortens the other wait.
            let longest = until_free_when_used_up_now(&mut client, key).await;
            let (is_over, _, reset) = hit(&mut client, key, "bob").await;
            assert!(is_over, "{key}, {offset:?}: used hits stay used");
            assert!(reset <= longest, "{key}, {offset:?}: {reset:?} is longer than {longest:?}");
            assert!(longest <= 2 * window, "{key}, {offset:?}");
            let (is_over, remaining, _) = hit(&mut client, key, "alice").await;
            assert_eq!((is_over, remaining), (false, 1), "{key}, {offset:?}");
        }
        drop(client);
        assert!(server.terminate().success());

        // From here on the clock dates all hits correctly.
        let server = data_dir.start();
        assert!(!server.log().iter().any(|line| line.contains("the clock was set back")), "{offset:?}");
        let mut client = server.client().await;
        for (key, _) in ALGORITHMS {
            let (is_over, remaining, _) = hit(&mut client, key, "alice").await;
            assert_eq!((is_over, remaining), (false, 0), "{key}, {offset:?}");
        }
    }
}

#[tokio::test]
async fn a_clock_set_forward_frees_hits_expired_by_it() {
    for offset in [HOUR, YEAR] {
        let data_dir = DataDir::written_at(behind(offset), Duration::from_secs(900));
        let server = data_dir.start();
        let mut client = server.client().await;
        for (key, _) in ALGORITHMS {
            let (is_over, remaining, _) = hit(&mut client, key, "bob").await;
            assert_eq!((is_over, remaining), (false, LIMIT - 1), "{key}, {offset:?}");
        }
    }
}

#[tokio::test]
async fn a_clock_set_forward_keeps_hits_not_expired_by_it() {
    for offset in [HOUR, YEAR] {
        let window = window_around_now(8 * offset, offset);
        let data_dir = DataDir::written_at(behind(offset), window);
        let server = data_dir.start();
        let mut client = server.client().await;
        for (key, _) in ALGORITHMS {
            // An eighth of the window has passed: less than one hit of five takes to drain.
            let (is_over, remaining, _) = hit(&mut client, key, "alice").await;
            assert_eq!((is_over, remaining), (false, 1), "{key}, {offset:?}");
            assert!(hit(&mut client, key, "bob").await.0, "{key}, {offset:?}");
        }
        // The hit counts from the moment at which it was counted.
        let (_, _, reset) = hit(&mut client, "log", "bob").await;
        let expected = window - offset;
        assert!(reset <= expected && reset + Duration::from_secs(60) > expected, "{offset:?}: {reset:?}");
    }
}

#[test]
fn the_age_of_a_snapshot_follows_the_present_clock() {
    let window = Duration::from_secs(900);
    for (then, age, printed_age) in [
        (ahead(YEAR), -(YEAR.as_secs() as f64), "by a clock that was ahead of this one by 11months"),
        (ahead(HOUR), -(HOUR.as_secs() as f64), "by a clock that was ahead of this one by 59m"),
        (behind(HOUR), HOUR.as_secs() as f64, "written 1h "),
        (behind(YEAR), YEAR.as_secs() as f64, "written 11months "),
    ] {
        let data_dir = DataDir::written_at(then, window);
        let reported = age_seconds(data_dir.data.path());
        assert!((reported - age).abs() < 60.0, "{reported} is not about {age}");
        let text = printed(&["snapshot", "inspect", data_dir.data()]);
        assert!(text.contains(printed_age), "{text}");
        assert!(printed(&["snapshot", "verify", data_dir.data()]).contains("good, 16 counters"));
    }
}
