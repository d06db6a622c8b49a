//! A client of the store of shared counters: the latency of a PING, and the store's CPU for batches of decisions. For `cargo xtask perf shared`:
//! `store_probe URL SECONDS` prints `name=number` lines, and with `no_decision` those of a script that decides nothing.

use redis::{Client, aio::MultiplexedConnection, cmd};
use std::{
    cell::Cell,
    env,
    rc::Rc,
    time::{Duration, Instant},
};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_shared::script::{Batch, EncodedRequest, Script};

/// Requests of one batch.
const BATCH: u64 = 16;

/// Counters that the batches use in rotation.
const KEYS: u64 = 10_000;

/// Batches in flight at once, as one worker of a loaded server has.
const IN_FLIGHT: usize = 4;

/// The comparator: reads and writes as many keys in one script, and decides nothing.
const NO_DECISION: &str = "#!lua
local states = redis.call('MGET', unpack(KEYS))
local reply = { '', '', '' }
for i = 2, #KEYS do
  reply[i + 2] = states[i] or ''
  redis.call('PSETEX', KEYS[i], '172800000', 'a state of twenty-six byte')
end
return reply";

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, seconds, rest @ ..] = &arguments[..] else { panic!("store_probe URL SECONDS [no_decision]") };
    let duration = Duration::from_secs(seconds.parse().expect("a whole number of seconds"));
    let script = if rest.is_empty() { Script::Decide.text() } else { NO_DECISION };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let measured = runtime.expect("a runtime").block_on(measure(url, duration, script));
    measured.expect("the store answers");
}

#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
async fn measure(url: &str, duration: Duration, script: &str) -> redis::RedisResult<()> {
    let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < duration {
        let sent = Instant::now();
        let () = cmd("PING").query_async(&mut connection).await?;
        latencies.push(sent.elapsed());
    }
    latencies.sort();
    println!("ping_us={}", latencies[latencies.len() / 2].as_secs_f64() * 1e6);

    let limiter = Rc::new(limiter());
    for (name, in_flight) in [("one_by_one", 1), ("in_flight", IN_FLIGHT)] {
        let digest: String = cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await?;
        let (cpu, (calls, micros)) = (store_cpu(&mut connection).await?, script_time(&mut connection).await?);
        let (began, next) = (Instant::now(), Rc::new(Cell::new(0)));
        let senders = (0..in_flight).map(|_| {
            let (mut connection, digest) = (connection.clone(), digest.clone());
            let (limiter, next) = (Rc::clone(&limiter), Rc::clone(&next));
            async move {
                while began.elapsed() < duration {
                    let first = next.replace(next.get() + BATCH);
                    let _: redis::Value =
                        command(&digest, &limiter, first).query_async(&mut connection).await?;
                }
                redis::RedisResult::Ok(())
            }
        });
        let tasks = tokio::task::LocalSet::new();
        let running: Vec<_> = senders.map(|sender| tasks.spawn_local(sender)).collect();
        tasks.await;
        for sender in running {
            sender.await.expect("no sender panics")?;
        }
        let cpu = store_cpu(&mut connection).await? - cpu;
        let (calls_after, micros_after) = script_time(&mut connection).await?;
        println!("{name}_cpu={}", cpu * 1e6 / next.get() as f64);
        println!("{name}_script={}", (micros_after - micros) / ((calls_after - calls) * BATCH as f64));
    }
    Ok(())
}

/// The call of a script for the batch whose counters begin with this one.
fn command(digest: &str, limiter: &Limiter, first: u64) -> redis::Cmd {
    let batch = batch(limiter, first);
    let mut command = cmd("EVALSHA");
    command.arg(digest).arg(batch.keys.len() + 1).arg("probe:layout");
    for key in &batch.keys {
        let (high, low) = key.halves();
        command.arg(format!("probe:{high:016x}{low:016x}"));
    }
    command.arg("layout of a measurement").arg(&batch.requests);
    // Without a run of the store, no server takes leases.
    command.arg("").arg(&batch.lease_requests);
    batch.limits.iter().for_each(|limit| _ = command.arg(&limit[..]));
    command
}

/// Calls of scripts so far, and the microseconds that they took.
async fn script_time(connection: &mut MultiplexedConnection) -> redis::RedisResult<(f64, f64)> {
    let info: String = cmd("INFO").arg("commandstats").query_async(connection).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap_or("");
    let field = |name: &str| {
        let field = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        field.and_then(|number| number.parse().ok()).unwrap_or(0.0)
    };
    Ok((field("calls"), field("usec")))
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
    let (owned, mut batch) = (limiter.pin_owned(), Batch::default());
    for number in first..first + BATCH {
        let value = (number % KEYS).to_string();
        let mut request = Request::new("d");
        let entry = Entry { key: "k", value: &value };
        let hits = Hits::new(Some(1), 0, false);
        request.push(Descriptor { entries: [entry].into_iter().collect(), limit: None, hits });
        let request = request.checked(&RequestLimits::default()).expect("a good request");
        let remote = owned.remote(&request, Timestamp::EPOCH).expect("the domain is shared");
        batch.push(&EncodedRequest::new(&remote, Timestamp::EPOCH).expect("a small request"));
    }
    batch
}
