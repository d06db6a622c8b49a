//! Ten Envoys and one server: the limits of every algorithm under load that moves among the Envoys, and with Envoys and the server killed.

use crate::{
    client::{Connection, Request},
    leased::{Application, elapsed, envoy, rules, settings},
    process::{Binary, Envoy, Server},
};
use serde_json::{Value as Json, json};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use tidegate_core::clock::since_boot;

const ENVOYS: usize = 10;
const LIMIT: usize = 1_000;
/// Requests for each limit that are decided.
const DEMAND: usize = 1_700;
/// The time for which two Envoys have most of the load.
const SHARE: Duration = Duration::from_millis(150);

/// Per hour, so that only a bucket frees hits again during the test.
const ALGORITHMS: [(&str, &str); 6] = [
    ("sliding_window", r#"{"algorithm": "sliding_window"}"#),
    ("sub_windows", r#"{"algorithm": "sliding_window", "precision": 60}"#),
    ("sliding_log", r#"{"algorithm": "sliding_log"}"#),
    ("fixed_window", r#"{"algorithm": "fixed_window", "aligned": "first_hit"}"#),
    ("token_bucket", r#"{"algorithm": "token_bucket"}"#),
    ("leaky_bucket", r#"{"algorithm": "leaky_bucket", "burst": 1000}"#),
];

/// The load of one run, which ends when each limit has had its demand.
struct Load<'w> {
    edges: &'w [String],
    run: &'w str,
    begun: u64,
    sent: [AtomicUsize; ALGORITHMS.len()],
    /// Requests without a decision in time, which the server may have charged.
    undecided: [AtomicUsize; ALGORITHMS.len()],
}

impl Load<'_> {
    /// Sends requests by one Envoy, until it is killed or the load ends.
    fn send(&self, own: usize) {
        let mut connection = Connection::open(&self.edges[own]).unwrap();
        // Each Envoy begins with another limit, and some Envoys are busy.
        for turn in own.. {
            let busy = (elapsed(self.begun).as_millis() / SHARE.as_millis()) as usize * 3;
            if (own + ENVOYS - busy % ENVOYS) % ENVOYS > 1 {
                thread::sleep(Duration::from_millis(3));
            }
            let algorithm = turn % ALGORITHMS.len();
            if self.sent[algorithm].fetch_add(1, Ordering::Relaxed) >= DEMAND {
                if self.is_over() {
                    return;
                }
                continue;
            }
            let path = format!("/{}-{}", ALGORITHMS[algorithm].0, self.run);
            let Ok(response) = connection.send(&Request::get(&path)) else { return };
            assert!([200, 429, 500].contains(&response.status), "{response:?}");
            // The server is away, or late on a busy machine.
            if response.status == 500 {
                self.undecided[algorithm].fetch_add(1, Ordering::Relaxed);
                self.sent[algorithm].fetch_sub(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.sent.iter().all(|sent| sent.load(Ordering::Relaxed) >= DEMAND)
    }

    fn progress(&self) -> usize {
        self.sent.iter().map(|sent| sent.load(Ordering::Relaxed).min(DEMAND)).sum()
    }
}

/// Applies a load; calls `disturb` after one third and after two thirds of it. Returns the time it took, and the number of undecided requests for
/// each limit.
fn run(edges: &[String], run: &str, mut disturb: impl FnMut(usize)) -> (Duration, [usize; ALGORITHMS.len()]) {
    let load =
        Load { edges, run, begun: since_boot(), sent: Default::default(), undecided: Default::default() };
    thread::scope(|scope| {
        for own in 0..edges.len() {
            let load = &load;
            scope.spawn(move || load.send(own));
        }
        for third in 1..=2 {
            while load.progress() < third * DEMAND * ALGORITHMS.len() / 3 {
                thread::sleep(Duration::from_millis(1));
            }
            disturb(third);
        }
    });
    (elapsed(load.begun), load.undecided.map(AtomicUsize::into_inner))
}

/// Admitted requests of each limit, as the application counts them.
fn admitted(application: &Application, run: &str) -> [usize; ALGORITHMS.len()] {
    ALGORITHMS.map(|(name, _)| application.count(&format!("/{name}-{run}")))
}

pub fn fleet(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let descriptors: Vec<Json> = ["calm", "killed", "lost"]
        .iter()
        .flat_map(|run| {
            ALGORITHMS.map(|(name, settings)| {
                let mut limit: Json = serde_json::from_str(settings).unwrap();
                limit["unit"] = "hour".into();
                limit["requests_per_unit"] = LIMIT.into();
                json!({"key": "path", "value": format!("/{name}-{run}"), "rate_limit": limit})
            })
        })
        .collect();
    let rules = rules(&folder, &descriptors.into());
    let (mut server, application) = (Server::granting(&rules), Application::start());
    let mut settings = settings(&server.socket());
    settings["failure_mode_deny"] = true.into();
    let mut envoys: Vec<Envoy> = (0..ENVOYS).map(|_| envoy(binary, &settings, application.port)).collect();
    let edges: Vec<String> = envoys.iter().map(|envoy| envoy.listener("edge")).collect();
    let begun = since_boot();
    // Hits that a bucket frees.
    let freed = |time: Duration| 1 + LIMIT * time.as_secs() as usize / 3_600 + 1;

    let check = |run: &str, (time, undecided): (Duration, [usize; ALGORITHMS.len()]), least, most| {
        let admitted = admitted(&application, run);
        println!("{run}: {admitted:?} of {LIMIT} admitted, {undecided:?} not decided, in {time:.1?}");
        for ((admitted, undecided), (name, _)) in admitted.into_iter().zip(undecided).zip(ALGORITHMS) {
            assert!(admitted <= most + freed(elapsed(begun)), "{name}: {admitted} admitted");
            assert!(admitted + undecided >= least, "{name}: {admitted} admitted");
        }
    };

    // An idle machine admits 99 of 100. If a thread waits for the processor until its lease has ended, after 200 ms, its credits are lost.
    check("calm", run(&edges, "calm", |_| {}), LIMIT * 8 / 10, LIMIT);
    // The credits of a killed Envoy are lost too.
    let killed = run(&edges, "killed", |third| envoys[ENVOYS - third].kill());
    check("killed", killed, LIMIT * 7 / 10, LIMIT);
    // A server without a snapshot begins with empty counters, plus what Envoys report.
    let lost = run(&edges[..ENVOYS - 2], "lost", |third| {
        server.kill();
        thread::sleep(Duration::from_millis(20) * third as u32);
        server.start_again(&rules);
    });
    check("lost", lost, LIMIT / 2, 3 * LIMIT);
}
