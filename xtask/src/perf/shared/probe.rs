//! A client of the store in a process of its own: the latency of a PING, and the store's CPU for batches of decisions.

use super::process::Store;
use crate::{Failure, perf::machine::Machine};
use redis::{Client, aio::MultiplexedConnection, cmd};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use tidegate::{
    limit::{Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    shared::script::{Batch, EncodedRequest, SCRIPT},
    store::{OnFull, Seed, StoreSettings},
};

/// Requests of one batch.
const BATCH: u64 = 16;

/// Counters that the batches use in rotation.
const KEYS: u64 = 10_000;

/// The figures.
pub(super) struct Probe {
    pub(super) ping_micros: f64,
    /// CPU of the store per decision.
    pub(super) batch_micros: f64,
}

impl Probe {
    /// Runs it on the first core, as the server.
    pub(super) fn run(machine: &Machine, store: &Store, seconds: u32) -> Result<Self, Failure> {
        let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
        let mut command = machine.on_core(0, &this);
        command.args(["perf-shared", "--seconds", &seconds.to_string(), "--probe", &store.url()]);
        let output = command.output().map_err(|error| format!("the probe cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.and_then(|number| number.parse::<f64>().ok()).ok_or_else(|| {
                format!("the probe did not print {name}: {}", String::from_utf8_lossy(&output.stderr))
            })
        };
        Ok(Self { ping_micros: number("ping_us")?, batch_micros: number("decision_us")? })
    }
}

/// Measures, and prints the figures as `name=number`.
pub(super) fn run(url: &str, seconds: u32) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
    let duration = Duration::from_secs(u64::from(seconds));
    runtime.block_on(measure(url, duration)).map_err(|error| format!("the store failed: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
async fn measure(url: &str, duration: Duration) -> redis::RedisResult<()> {
    let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < duration {
        let sent = Instant::now();
        let () = cmd("PING").query_async(&mut connection).await?;
        latencies.push(sent.elapsed());
    }
    latencies.sort();
    println!("ping_us={}", latencies[latencies.len() / 2].as_secs_f64() * 1e6);

    let digest: String = cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut connection).await?;
    let limiter = limiter();
    let before = store_cpu(&mut connection).await?;
    let (began, mut decisions) = (Instant::now(), 0);
    while began.elapsed() < duration {
        let batch = batch(&limiter, decisions);
        let mut command = cmd("EVALSHA");
        command.arg(&digest).arg(batch.keys().len() + 1).arg("probe:layout");
        for key in batch.keys() {
            let (high, low) = key.halves();
            command.arg(format!("probe:{high:016x}{low:016x}"));
        }
        command.arg("layout of a measurement").arg(batch.requests());
        // Without a run of the store, no server takes leases.
        command.arg("").arg(batch.lease_requests());
        batch.limits().for_each(|limit| _ = command.arg(limit));
        let _: redis::Value = command.query_async(&mut connection).await?;
        decisions += BATCH;
    }
    let cpu = store_cpu(&mut connection).await? - before;
    println!("decision_us={}", cpu * 1e6 / decisions as f64);
    Ok(())
}

/// CPU time of the store so far, in seconds.
async fn store_cpu(connection: &mut MultiplexedConnection) -> redis::RedisResult<f64> {
    let info: String = cmd("INFO").arg("cpu").query_async(connection).await?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    Ok(field("used_cpu_sys") + field("used_cpu_user"))
}

fn limiter() -> Limiter {
    let rules = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4000000000}}]";
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let rules = RuleSet::parse(&[Source::file("probe.yaml", rules)], &options);
    let rules = rules.unwrap_or_else(|error| panic!("the rules of the probe are valid: {error}"));
    let settings =
        StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 1_000, on_full: OnFull::Deny };
    Limiter::new(rules, settings, false)
}

/// A batch of requests for counters of their own.
fn batch(limiter: &Limiter, first: u64) -> Batch {
    let (held, mut batch) = (limiter.hold(), Batch::default());
    for number in first..first + BATCH {
        let value = (number % KEYS).to_string();
        let mut request = Request::new("d");
        let entry = Entry { key: "k", value: &value };
        let hits = Hits::new(Some(1), 0, false);
        request.push(Descriptor { entries: [entry].into_iter().collect(), limit: None, hits });
        let request = request.checked(&RequestLimits::default()).expect("a good request");
        let remote = held.remote(&request).expect("the domain is shared");
        batch.push(&EncodedRequest::new(&remote, Timestamp::EPOCH).expect("a small request"));
    }
    batch
}
