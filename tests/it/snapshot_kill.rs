//! The kill test: a server under load is killed with SIGKILL at random moments and started again, many times. `TIDEGATE_KILLS` sets the
//! number of kills; the default is 20.
//!
//! After every restart each counter has at least the hits admitted before the last finished snapshot began, and at most the
//! hits requested: nothing older than the last interval is lost, and nothing is counted that was not requested.

use crate::support::{Client, Server, descriptor, rules_file};
use rustix::process::Signal;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::clock::{Clock, SystemClock};

/// Windows so long that no window ends during the test.
const RULES: &str = "
domain: kill
descriptors:
  - key: ample
    rate_limit: { per: 3660d, requests_per_unit: 1000000, algorithm: fixed_window }
  - key: tight
    rate_limit: { per: 3660d, requests_per_unit: 60, algorithm: fixed_window }
";
const TIGHT: u64 = 60;
const AMPLE: u64 = 1_000_000;
const KEYS: usize = 40;
const INTERVAL: &str = "50ms";
/// The server's clock and the test's are set by the same wall clock, at different moments.
const CLOCKS_APART_NANOS: u64 = 5_000_000;

/// A key: one of two kinds, and a number.
type Key = (&'static str, usize);

/// The outcome of one hit.
struct Hit {
    key: Key,
    /// Time of the response, and whether the hit was admitted; none without a response.
    answered: Option<(u64, bool)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_at_most_the_last_interval() {
    let kills: u32 =
        std::env::var("TIDEGATE_KILLS").map_or(20, |text| text.parse().expect("a number of kills"));
    let (data, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    let directory = data.path().to_str().unwrap();
    let arguments = [
        "--data",
        directory,
        "--snapshot-interval",
        INTERVAL,
        "--log",
        "tidegate=debug,info",
        "--threads",
        "1",
    ];
    let clock = Arc::new(SystemClock::new());
    let (mut random, mut snapshots, mut forgotten) = (0x9e37_79b9_u64, 0, 0);
    let mut before: HashMap<Key, u64> = HashMap::new();
    // Admitted hits, and forgotten hits, over all kills.
    let mut admitted: HashMap<Key, (u64, u64)> = HashMap::new();
    for kill in 0..kills {
        let mut server = Server::with_rules(rules.path(), &arguments);
        let load = load(&server, &clock, &mut random).await;
        tokio::time::sleep(Duration::from_millis(80 + next(&mut random) % 400)).await;
        server.signal(Signal::KILL);
        server.wait();
        let hits = load.finish().await;
        // The snapshot has begun and is committed: hits answered before are kept.
        let began = server.read_log(last_snapshot_began);
        snapshots += began.iter().count();

        let server = Server::with_rules(rules.path(), &arguments);
        let after = used(&server).await;
        assert!(server.terminate().success());
        for key in keys() {
            let of_key = || hits.iter().filter(|hit| hit.key == key);
            let admissions = || of_key().filter_map(|hit| hit.answered.filter(|answered| answered.1));
            let at_first = before.get(&key).copied().unwrap_or(0);
            let certain =
                admissions().filter(|(at, _)| began.is_some_and(|b| at + CLOCKS_APART_NANOS < b)).count();
            let most = at_first
                + (admissions().count() + of_key().filter(|hit| hit.answered.is_none()).count()) as u64;
            let kept = after[&key];
            assert!(
                at_first + certain as u64 <= kept,
                "kill {kill}: {key:?} kept {kept} of {at_first} + {certain}"
            );
            assert!(kept <= most, "kill {kill}: {key:?} counts {kept}, at most {most} were requested");
            let lost = (at_first + admissions().count() as u64).saturating_sub(kept);
            forgotten += lost;
            let sums = admitted.entry(key).or_default();
            sums.0 += admissions().count() as u64;
            sums.1 += lost;
        }
        before = after;
    }
    for (key, (admitted, lost)) in &admitted {
        let bound = if key.0 == "tight" { TIGHT } else { AMPLE } + lost;
        assert!(*admitted <= bound, "{key:?} was admitted {admitted} times, at most {bound} is right");
    }
    let hits: u64 = admitted.values().map(|(admitted, _)| admitted).sum();
    println!(
        "{kills} kills, {} keys checked after each, {hits} admissions, {forgotten} forgotten within the last interval; \
         over-admissions beyond the bound: 0, lost intervals: 0, finished snapshots seen: {snapshots}",
        2 * KEYS
    );
    assert!(snapshots > 0, "no snapshot was ever finished: the test shows nothing");
}

fn keys() -> impl Iterator<Item = Key> {
    ["ample", "tight"].into_iter().flat_map(|kind| (0..KEYS).map(move |number| (kind, number)))
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *random >> 33
}

/// Clients that send requests until the server has ended.
struct Load {
    hits: Arc<Mutex<Vec<Hit>>>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

async fn load(server: &Server, clock: &Arc<SystemClock>, random: &mut u64) -> Load {
    let hits = Arc::new(Mutex::new(Vec::new()));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (mut client, mut seed) = (server.client().await, next(random));
        let (clock, hits) = (Arc::clone(clock), Arc::clone(&hits));
        clients.push(tokio::spawn(async move {
            while send_hits(&mut client, &mut seed, &*clock, &hits).await {}
        }));
    }
    Load { hits, clients }
}

impl Load {
    async fn finish(self) -> Vec<Hit> {
        for client in self.clients {
            client.await.expect("the client ends with the server");
        }
        std::mem::take(&mut *self.hits.lock().expect("no client panics"))
    }
}

/// Sends one hit; false when the server has ended.
async fn send_hits(client: &mut Client, random: &mut u64, clock: &dyn Clock, hits: &Mutex<Vec<Hit>>) -> bool {
    let number = next(random) as usize;
    let key: Key = (if number.is_multiple_of(8) { "tight" } else { "ample" }, number / 8 % KEYS);
    let value = key.1.to_string();
    let answer = client.hit("kill", &[(key.0, &value)]).await;
    let is_there = answer.is_ok();
    let answered = answer.ok().map(|answer| (clock.now().as_nanos(), answer.overall_code() == Code::Ok));
    hits.lock().expect("no client panics").push(Hit { key, answered });
    is_there
}

/// Start of the last snapshot that is known to be committed, in nanoseconds since the Unix epoch.
pub fn last_snapshot_began(log: &[String]) -> Option<u64> {
    const MESSAGE: &str = "snapshot written";
    // From the end, since a log of minutes takes seconds to parse.
    let lines = log.iter().rev().filter(|line| line.contains(MESSAGE));
    let lines = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter(|line| line["message"] == MESSAGE).find_map(|line| line["began_nanos"].as_u64())
}

/// Hits in each counter, by peeking.
async fn used(server: &Server) -> HashMap<Key, u64> {
    let mut client = server.client().await;
    let peek = |key: Key| {
        let value = key.1.to_string();
        let mut descriptor = descriptor(&[(key.0, &value)]);
        descriptor.hits_addend = Some(0);
        descriptor
    };
    let answer =
        client.should_rate_limit("kill", keys().map(peek).collect()).await.expect("the server is there");
    let limit = |key: Key| if key.0 == "tight" { TIGHT } else { AMPLE };
    keys()
        .zip(answer.statuses)
        .map(|(key, status)| (key, limit(key) - u64::from(status.limit_remaining)))
        .collect()
}
