//! Rules that change while a real server answers.

use crate::support::{Client, Server, descriptor, eventually, http1};
use serde_json::Value;
use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tidegate::api::pb::service::rate_limit_response::Code;

/// A folder with one rule file.
struct Rules {
    folder: TempDir,
}

impl Rules {
    fn new(text: &str) -> Self {
        let rules = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::write(rules.file(), text).expect("it is written");
        rules
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// Replaces the file by rename.
    fn replace(&self, text: &str) {
        let new = self.folder.path().join(".rules.yaml.new");
        fs::write(&new, text).expect("it is written");
        fs::rename(new, self.file()).expect("it is renamed");
    }
}

/// A limit of this many requests a day for each value of `k`.
fn limit(requests: u32) -> String {
    format!(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: {requests}}}\n"
    )
}

fn start(path: &Path, args: &[&str]) -> (Server, u16) {
    let server = Server::with_rules(path, &[&["--http-listen", "127.0.0.1:0"], args].concat());
    let line: Value = serde_json::from_str(&server.logged("HTTP port listening")[0]).expect("JSON");
    let port = line["address"].as_str().and_then(|address| address.rsplit(':').next()?.parse().ok());
    (server, port.expect("an address"))
}

async fn page(port: u16, path: &str) -> String {
    let answer = http1::fetch(Ipv4Addr::LOCALHOST, port, http::Request::get(path)).await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200, "{path}");
    String::from_utf8(answer.into_body()).expect("text")
}

async fn status(port: u16) -> Value {
    serde_json::from_str(&page(port, "/rules/status").await).expect("JSON")
}

/// Waits until the status of the rules is as expected.
async fn until(port: u16, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let status = status(port).await;
        if is_it(&status) { Ok(status) } else { Err(status) }
    })
    .await
}

async fn limit_of(client: &mut Client, value: &str) -> Option<u32> {
    let answer = client.hit("d", &[("k", value)]).await.expect("an answer");
    answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit)
}

#[tokio::test]
async fn an_edited_rule_file_takes_effect_and_counters_keep_what_was_used() {
    let rules = Rules::new(&limit(10));
    for args in [&[][..], &["--rules-watch", "poll"]] {
        rules.replace(&limit(10));
        let (server, port) = start(&rules.file(), args);
        let mut client = server.client().await;
        assert_eq!(limit_of(&mut client, "a").await, Some(10));
        rules.replace(&limit(20));
        until(port, "reloaded", |status| status["generation"] == 2).await;
        let answer = client.hit("d", &[("k", "a")]).await.expect("an answer");
        let limit_and_remaining = answer.statuses.iter().map(|status| {
            (status.current_limit.as_ref().map(|limit| limit.requests_per_unit), status.limit_remaining)
        });
        assert_eq!(limit_and_remaining.collect::<Vec<_>>(), [(Some(20), 18)], "{args:?}");
        // In place, as editors without a temporary file do it.
        fs::write(rules.file(), limit(30)).expect("it is written");
        until(port, "reloaded", |status| status["generation"] == 3).await;
        assert_eq!(limit_of(&mut client, "a").await, Some(30));
        let line = &server.logged("rules reloaded")[0];
        assert!(line.contains(r#""changed":"d: k""#), "{line}");
    }
}

#[tokio::test]
async fn a_bad_file_leaves_the_rules_and_every_error_is_reported() {
    let rules = Rules::new(&limit(10));
    let (server, port) = start(rules.folder.path(), &[]);
    let mut client = server.client().await;
    // A valid change of one file has no effect while the other file is bad.
    fs::write(rules.folder.path().join("b.yaml"), "domain: e\nunit: day\ndescriptors: [{kee: x}]\n").unwrap();
    rules.replace(&limit(20));
    let failed = until(port, "failed", |status| {
        status["last_attempt"]["errors"].as_array().is_some_and(|errors| errors.len() == 3)
    });
    let failed = failed.await;
    assert_eq!((&failed["generation"], &failed["last_attempt"]["result"]), (&1.into(), &"failed".into()));
    assert_eq!(failed["last_attempt"]["errors"][0]["line"], 2, "{failed}");
    assert_eq!(limit_of(&mut client, "a").await, Some(10));
    let metrics = page(port, "/metrics").await;
    assert!(!metrics.contains("tidegate_rules_reloads_total{result=\"failed\"} 0"), "{metrics}");
    assert!(metrics.contains("tidegate_rules_generation 1"), "{metrics}");
    server.logged("b.yaml:2:1: unit: the key is not known here");
    server.logged("b.yaml:3:16: descriptors[0].kee: the key is not known; did you mean `key`?");
    fs::remove_file(rules.folder.path().join("b.yaml")).unwrap();
    until(port, "reloaded", |status| status["generation"] == 2).await;
    assert_eq!(limit_of(&mut client, "a").await, Some(20));
    let in_force: Value = serde_json::from_str(&page(port, "/rules").await).expect("JSON");
    assert_eq!(in_force[0]["rules"][0]["limits"][0]["requests"], 20);
    assert_eq!(in_force[0]["rules"][0]["declared_at"], format!("{}:3:5", rules.file().display()));
}

#[tokio::test]
async fn sighup_reloads_files_that_are_not_watched() {
    let rules = Rules::new(&limit(10));
    let (server, port) = start(&rules.file(), &["--rules-watch", "off"]);
    rules.replace(&limit(20));
    server.signal(rustix::process::Signal::HUP);
    until(port, "reloaded", |status| status["generation"] == 2).await;
    assert_eq!(limit_of(&mut server.client().await, "a").await, Some(20));
}

#[tokio::test]
async fn the_swap_of_a_config_map_reloads_all_of_its_files_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let publish = |generation: &str, requests: u32| {
        let path = folder.path().join(generation);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a.yaml"), limit(requests)).unwrap();
        fs::write(path.join("b.yaml"), limit(requests).replace("domain: d", "domain: e")).unwrap();
        symlink(generation, folder.path().join("..data_tmp")).unwrap();
        fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
    };
    publish("..1", 10);
    for file in ["a.yaml", "b.yaml"] {
        symlink(Path::new("..data").join(file), folder.path().join(file)).unwrap();
    }
    let (server, port) = start(folder.path(), &[]);
    publish("..2", 20);
    fs::remove_dir_all(folder.path().join("..1")).unwrap();
    let loaded = until(port, "reloaded", |status| status["generation"] == 2).await;
    assert_eq!(loaded["reloads"]["failed"], 0);
    let mut client = server.client().await;
    for domain in ["d", "e"] {
        let answer = client.hit(domain, &[("k", "a")]).await.expect("an answer");
        let limit = answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit);
        assert_eq!(limit, Some(20));
    }
    // The watch of the removed directory is gone, which is not a warning.
    publish("..3", 30);
    fs::remove_dir_all(folder.path().join("..2")).unwrap();
    until(port, "reloaded", |status| status["generation"] == 3).await;
    let warnings: Vec<String> = server.log().into_iter().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings, [""; 0]);
}

/// Requests of the first generation.
const FIRST: u32 = 1_000_000;

/// Both rules of the generation have its number in their limits, so that an answer shows the rules under which it was made.
fn generation(number: u32) -> String {
    let requests = FIRST + number;
    let rule = |key: &str| {
        format!(
            "  - key: {key}\n    rate_limit: {{unit: year, algorithm: fixed_window, requests_per_unit: {requests}}}\n"
        )
    };
    format!("domain: d\ndescriptors:\n{}{}", rule("k"), rule("l"))
}

#[derive(Default)]
struct Counts {
    failures: AtomicU64,
    mixtures: AtomicU64,
    /// Whether the rules are being reloaded now.
    is_reloading: AtomicBool,
    end: AtomicBool,
}

/// Latencies of calls in microseconds, in ascending order once all callers' are merged.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn merged(all: impl Iterator<Item = Self>) -> Self {
        let mut merged: Vec<u32> = all.flat_map(|Self(micros)| micros).collect();
        merged.sort_unstable();
        Self(merged)
    }

    fn percentile(&self, percent: f64) -> f64 {
        let index = (self.0.len() as f64 * percent / 100.0) as usize;
        self.0.get(index.min(self.0.len().saturating_sub(1))).map_or(0.0, |&micros| f64::from(micros) / 1e3)
    }
}

/// Calls until the end, and checks every answer: both statuses are of one generation, generations never decrease, and no hit is lost or
/// counted twice. Returns the latencies without and with reloads.
#[expect(clippy::disallowed_methods, reason = "measures the time of real calls")]
async fn call_until_end(mut client: Client, value: &str, counts: &Counts) -> [Latencies; 2] {
    let (mut hits, mut last) = (0, 0);
    let mut latencies = [Latencies::default(), Latencies::default()];
    while !counts.end.load(Ordering::Relaxed) {
        let is_reloading = counts.is_reloading.load(Ordering::Relaxed);
        let began = tokio::time::Instant::now();
        let answer = client
            .should_rate_limit("d", vec![descriptor(&[("k", value)]), descriptor(&[("l", value)])])
            .await;
        latencies[usize::from(is_reloading)].0.push(began.elapsed().as_micros() as u32);
        let Ok(answer) = answer else {
            counts.failures.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        hits += 1;
        let generations: Vec<Option<u32>> = answer
            .statuses
            .iter()
            .map(|status| {
                let generation = status.current_limit.as_ref()?.requests_per_unit.checked_sub(FIRST)?;
                (status.limit_remaining == FIRST + generation - hits).then_some(generation)
            })
            .collect();
        match generations[..] {
            [Some(one), Some(other)] if one == other && one >= last && answer.overall_code() == Code::Ok => {
                last = one;
            }
            _ => _ = counts.mixtures.fetch_add(1, Ordering::Relaxed),
        }
    }
    latencies
}

fn variable(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Reloads may delay calls by this many milliseconds at [`LATER_PERCENTILE`], or double their latency if the machine is so loaded that
/// calls take longer than that without reloads.
const LATER_MILLIS_MAX: f64 = 1.0;

/// The percentile that is compared, unless TIDEGATE_RELOAD_PERCENTILE sets another. Higher percentiles measure the machine if other tests
/// run beside this test; `.ci/run` compares the 99th without them, and `cargo xtask perf` the 99.9th.
const LATER_PERCENTILE: u32 = 50;

/// Ten reloads a second under load, for TIDEGATE_RELOAD_SECONDS, of files with TIDEGATE_RELOAD_RULES additional rules. Between these
/// seconds the same load continues without reloads, for comparison.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_during_reloads_is_right_under_the_rules_before_or_after() {
    let (seconds, more) = (variable("TIDEGATE_RELOAD_SECONDS", 3), variable("TIDEGATE_RELOAD_RULES", 100));
    let more_rules: String = (0..more)
        .map(|number| {
            format!("  - {{key: m, value: '{number}', rate_limit: {{unit: day, requests_per_unit: 1}}}}\n")
        })
        .collect();
    let file = |number: u32| generation(number) + &more_rules;
    let rules = Rules::new(&file(0));
    let (server, port) = start(&rules.file(), &["--threads", "2"]);
    let counts = Arc::new(Counts::default());
    let mut callers = Vec::new();
    for caller in 0..8 {
        let (counts, client) = (Arc::clone(&counts), server.client().await);
        callers.push(tokio::spawn(async move {
            call_until_end(client, &format!("caller {caller}"), &counts).await
        }));
    }
    let mut client = server.client().await;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for second in 0..seconds {
        tokio::time::sleep(Duration::from_millis(300)).await;
        counts.is_reloading.store(true, Ordering::Relaxed);
        ticks.reset();
        for number in second * 10 + 1..=second * 10 + 10 {
            ticks.tick().await;
            rules.replace(&file(number));
            server.signal(rustix::process::Signal::HUP);
            // Reloads of changes in quick succession are combined.
            eventually(&format!("generation {number}"), async || {
                let limit = limit_of(&mut client, "other").await;
                if limit == Some(FIRST + number) { Ok(()) } else { Err(limit) }
            })
            .await;
        }
        counts.is_reloading.store(false, Ordering::Relaxed);
    }
    until(port, "without a failure", |status| status["last_attempt"]["result"] != "failed").await;
    counts.end.store(true, Ordering::Relaxed);
    let (mut quiet, mut reloading) = (Vec::new(), Vec::new());
    for caller in callers {
        let [without, with] = caller.await.expect("no caller panics");
        quiet.push(without);
        reloading.push(with);
    }
    let [quiet, reloading] = [quiet, reloading].map(|all| Latencies::merged(all.into_iter()));
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let reloads = status(port).await["reloads"]["succeeded"].as_u64().expect("a number");
    println!(
        "reload of {} rules: {} calls, {reloads} reloads in {seconds} s, {} failures, {} mixtures; slowest decision {:.1} ms with \
         and {:.1} ms without reloads, p99.9 {:.2} and {:.2} ms, p99 {:.2} and {:.2} ms, p50 {:.2} and {:.2} ms",
        more + 2,
        quiet.0.len() + reloading.0.len(),
        of(&counts.failures),
        of(&counts.mixtures),
        reloading.percentile(100.0),
        quiet.percentile(100.0),
        reloading.percentile(99.9),
        quiet.percentile(99.9),
        reloading.percentile(99.0),
        quiet.percentile(99.0),
        reloading.percentile(50.0),
        quiet.percentile(50.0),
    );
    assert_eq!((of(&counts.failures), of(&counts.mixtures)), (0, 0));
    let percentile = f64::from(variable("TIDEGATE_RELOAD_PERCENTILE", LATER_PERCENTILE));
    let later = reloading.percentile(percentile) - quiet.percentile(percentile);
    let later_max = LATER_MILLIS_MAX.max(quiet.percentile(percentile));
    assert!(later <= later_max, "p{percentile} is {later:.2} ms later with reloads");
    assert!(reloads >= u64::from(seconds) * 10, "{reloads} reloads in {seconds} s");
    assert!(server.terminate().success());
}

/// Snapshots written so far.
async fn snapshots(port: u16) -> f64 {
    const NAME: &str = "tidegate_snapshots_total{result=\"written\"} ";
    let metrics = page(port, "/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(NAME)).expect("there are snapshots");
    line.parse().expect("a number")
}

/// The next start reads the rules of the file as a whole, and the counters of the last snapshot.
#[tokio::test]
async fn a_server_killed_during_a_reload_starts_again() {
    let rules = Rules::new(&generation(0));
    let data = tempfile::tempdir().unwrap();
    let args = ["--data", data.path().to_str().unwrap(), "--snapshot-interval", "20ms"];
    let mut hits = 0;
    for round in 0..5 {
        let (mut server, port) = start(&rules.file(), &args);
        let mut client = server.client().await;
        let answer = client.hit("d", &[("k", "a")]).await.expect("an answer");
        hits += 1;
        let status = &answer.statuses[0];
        let requests = status.current_limit.as_ref().map(|limit| limit.requests_per_unit);
        assert_eq!(requests, Some(FIRST + round * 100 + u32::from(round > 0) * 10));
        assert_eq!(status.limit_remaining, requests.unwrap() - hits, "round {round}");
        let written = snapshots(port).await;
        while snapshots(port).await < written + 2.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for number in 1..=10 {
            rules.replace(&generation((round + 1) * 100 + number));
            server.signal(rustix::process::Signal::HUP);
            tokio::time::sleep(Duration::from_millis(u64::from(round * 7))).await;
        }
        server.signal(rustix::process::Signal::KILL);
        assert!(!server.wait().success());
    }
}

/// `check` warned of these rules, but a server that loaded them was silent.
#[test]
fn a_server_logs_the_warnings_of_check_when_it_loads_rules() {
    let network = "domain: d\ndescriptors:\n  - {key: k, value: 10.0.0.0/8}\n";
    let rules = Rules::new(network);
    let (server, _) = start(&rules.file(), &[]);
    server.logged("write `value_network: 10.0.0.0/8`");
    rules.replace(&network.replace("10.0.0.0/8", "^/api/.*"));
    server.logged("write `value_regex: ^/api/.*`");
}

/// The domain of such a file had no rules, and no message named the file.
#[test]
fn a_server_names_rule_files_that_it_does_not_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, requests: u32| fs::write(folder.path().join(name), limit(requests)).unwrap();
    write("a.yaml", 10);
    write("b.conf", 10);
    let (server, _) = start(folder.path(), &[]);
    server.logged("b.conf: is not read, since it does not end in .yaml or .yml");
    write("a.yaml", 20);
    server.logged("rules reloaded");
    write("c", 10);
    server.logged("/c: is not read, since it does not end in .yaml or .yml");
    let lines = server.log();
    assert_eq!(lines.iter().filter(|line| line.contains("b.conf: is not read")).count(), 1, "{lines:#?}");
}

/// The rules of a ConfigMap as it is in a repository, without a cluster that mounts it.
#[tokio::test]
async fn a_server_serves_the_rules_within_a_config_map_and_reloads_them() {
    let config_map = |requests: u32| {
        let rules = limit(requests).lines().map(|line| format!("    {line}\n")).collect::<String>();
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: rules}}\ndata:\n  rules.yaml: |\n{rules}")
    };
    let rules = Rules::new(&config_map(10));
    let (server, port) = start(&rules.file(), &[]);
    let mut client = server.client().await;
    assert_eq!(limit_of(&mut client, "a").await, Some(10));
    rules.replace(&config_map(20));
    until(port, "reloaded", |status| status["generation"] == 2).await;
    assert_eq!(limit_of(&mut client, "a").await, Some(20));
}
