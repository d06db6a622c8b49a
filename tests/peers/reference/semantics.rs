//! Random rules and requests, decided by both servers.

use super::{
    comparison::{Documented, compare},
    metrics::{compare_with, samples},
    process::ReferenceServer,
    requests,
    rules::{self, Grammar},
};
use crate::{rng::Rng, shared_store::free_port, support::Server, tests_with};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use tempfile::TempDir;

tests_with! {
    REFERENCE, REDIS:
    decisions_are_those_of_the_reference_server,
    decisions_are_those_of_the_reference_server_when_counting_stops_over_the_limit,
    decisions_are_those_of_the_reference_server_in_quota_mode,
    decisions_are_those_of_the_reference_server_in_shadow_mode,
}

/// Rule files of one run, each with its own seed; `TIDEGATE_REFERENCE_SEEDS` sets another number.
const SEEDS: u64 = 20;
/// Requests for each file.
const REQUESTS: u64 = 40;
/// Time within which no window may end.
const RUN_SECS: u64 = 20;

/// Names, seconds and numbers of the units.
const UNITS: [(&str, u64, i32); 7] = [
    ("second", 1, 1),
    ("minute", 60, 2),
    ("hour", 3600, 3),
    ("day", 86_400, 4),
    ("week", 604_800, 7),
    ("month", 2_592_000, 5),
    ("year", 31_536_000, 6),
];

/// Units whose windows do not end soon, and no two of which began at one moment: such units share counters in the reference server.
fn units(now: u64) -> Vec<(&'static str, i32)> {
    let start = |seconds: u64| now - now % seconds;
    let mut starts = Vec::new();
    let mut units = Vec::new();
    // The longest unit is first, since it keeps its start for the longest time.
    for (name, seconds, number) in UNITS.into_iter().rev() {
        let left = seconds - now % seconds;
        if left > RUN_SECS && !starts.contains(&start(seconds)) {
            starts.push(start(seconds));
            units.push((name, number));
        }
    }
    units
}

#[expect(clippy::disallowed_methods, reason = "both servers read the clock of the machine")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Both servers under the same rules and variables.
struct Pair {
    reference: ReferenceServer,
    ours: Server,
    grammar: Grammar,
    files: Vec<Value>,
    units: Vec<i32>,
    /// The port of the reference server's metrics.
    metrics_port: u16,
    _folder: TempDir,
}

/// Variables of both servers in every run.
const VARIABLES: [(&str, &str); 4] = [
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
    ("RESPONSE_DYNAMIC_METADATA", "true"),
    ("USE_PROMETHEUS", "true"),
    ("STATS_FLUSH_INTERVAL", "100ms"),
];

impl Pair {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let metrics_port = free_port();
        let metrics = format!("127.0.0.1:{metrics_port}");
        let variables = [&VARIABLES[..], &[("PROMETHEUS_ADDR", metrics.as_str())], variables].concat();
        let seeds = env::var("TIDEGATE_REFERENCE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("config");
        fs::create_dir(&config).expect("a folder");
        let grammar = grammar().await;
        let units = units(now());
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        let files: Vec<Value> = (0..seeds.unwrap_or(SEEDS))
            .map(|seed| {
                let file = rules::file(&mut Rng::of_seed(seed), &format!("d{seed}"), grammar, &names);
                // The extension does not matter, and JSON is YAML.
                fs::write(config.join(format!("{seed}.conf")), file.to_string()).expect("a file");
                file
            })
            .collect();
        let reference = ReferenceServer::start(&config, &variables).await;
        let args = ["--env", "reference", "--http-listen", "127.0.0.1:0", "--log", "info"];
        let ours = Server::with_variables(&config, &args, &variables);
        Self {
            reference,
            ours,
            grammar,
            files,
            units: units.iter().map(|unit| unit.1).collect(),
            metrics_port,
            _folder: folder,
        }
    }
}

/// The grammar of this version of the reference server.
async fn grammar() -> Grammar {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("config");
    fs::create_dir(&file).expect("a folder");
    let text = "{domain: d, descriptors: [{key: k, metadata: {a: 1}, rate_limit: {unit: year, requests_per_unit: 0}}]}";
    fs::write(file.join("file"), text).expect("a file");
    let server = ReferenceServer::start(Path::new(&file), &[]).await;
    let mut client = server.client().await;
    let request = tidegate::api::pb::service::RateLimitRequest {
        domain: "d".into(),
        descriptors: vec![crate::support::descriptor(&[("k", "v")])],
        hits_addend: 0,
    };
    // A version that does not know the key has no rules.
    let is_new = client.should_rate_limit(request).await.is_ok();
    Grammar { inner_wildcards: is_new, metadata: is_new, metrics_by_value: true }
}

/// Sends the same random requests to both servers, and compares each pair of responses.
async fn compare_decisions(name: &str, variables: &[(&str, &str)]) {
    let pair = Pair::start(variables).await;
    let (mut reference, mut ours) = (pair.reference.client().await, pair.ours.client().await.0);
    let (begin, mut requests, mut documented) = (now(), 0_u32, BTreeMap::<Documented, u32>::new());
    let mut undocumented: Vec<String> = Vec::new();
    'files: for (seed, file) in pair.files.iter().enumerate() {
        let mut rng = Rng::of_seed(1_000_000 + seed as u64);
        for number in 0..REQUESTS {
            // If a window may have ended, differences do not count.
            if now() - begin > RUN_SECS - 2 {
                break 'files;
            }
            let request = requests::request(&mut rng, file, &pair.units);
            let there = reference.should_rate_limit(request.clone()).await.map(tonic::Response::into_inner);
            let here = ours.should_rate_limit(request.clone()).await.map(tonic::Response::into_inner);
            requests += 1;
            match compare(&there, &here, pair.grammar.metadata, rules::has_metrics_by_value(file)) {
                Ok(classes) => classes.into_iter().for_each(|(class, count)| {
                    *documented.entry(class).or_default() += count;
                }),
                Err(difference) => {
                    let request = format!("{request:?}");
                    let request = request.chars().take(2000).collect::<String>();
                    undocumented
                        .push(format!("seed {seed}, request {number}: {difference}\n  {request}\n  {file}"));
                    // Later responses would differ too, as counters do.
                    break;
                }
            }
        }
    }
    let classes: Vec<String> = documented.iter().map(|(class, count)| format!("{class}: {count}")).collect();
    println!(
        "{name}: {} seeds, {requests} requests, differences documented: {{{}}}, undocumented: {}",
        pair.files.len(),
        classes.join(", "),
        undocumented.len()
    );
    let first: Vec<&String> = undocumented.iter().take(5).collect();
    assert!(undocumented.is_empty(), "{first:#?}");
    let ours = samples(pair.ours.admin_port()).await;
    let (series, different) = compare_with(pair.metrics_port, u64::from(requests), &ours).await;
    println!("{name}: {series} series of metrics, different: {}", different.len());
    assert!(different.is_empty(), "{different:#?}");
    assert!(requests > 100 && series > 100);
}

async fn decisions_are_those_of_the_reference_server() {
    compare_decisions("default", &[]).await;
}

async fn decisions_are_those_of_the_reference_server_when_counting_stops_over_the_limit() {
    compare_decisions("stop counting", &[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")]).await;
}

async fn decisions_are_those_of_the_reference_server_in_quota_mode() {
    compare_decisions("quota mode", &[("QUOTA_MODE", "true")]).await;
}

async fn decisions_are_those_of_the_reference_server_in_shadow_mode() {
    compare_decisions("shadow mode", &[("SHADOW_MODE", "true")]).await;
}
