//! Quotas at scale: 10,000 streams that each report 100 buckets every five seconds. CPU time that the thread that divides limits takes for
//! a report, and memory for each bucket of a stream.
//!
//! Prints `name=number` lines. Streams report one after the other, at the times of a clock that is moved; what they are sent is read, and
//! its receipt confirmed, as the server does. Each sharing of buckets runs in a process of its own, so that its memory is its own.

mod load;
mod sharing;

use load::Load;
use sharing::{SHARINGS, Sharing};
use std::{env, process::Command, sync::Arc, thread, time::Duration};
use tidegate_core::{
    clock::ManualClock,
    limit::Timestamp,
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_service::{QuotaFigures, QuotaStart, Quotas};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Reports of each stream before the measurement, and in it.
const WARM_UP: u64 = 3;
const MEASURED: u64 = 2;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name] = &*arguments {
        let sharing = SHARINGS.iter().find(|sharing| sharing.name == name);
        return measure(sharing.expect("the argument is the name of a sharing"));
    }
    let this = env::current_exe().expect("the path of this program is known");
    for sharing in &SHARINGS {
        let status = Command::new(&this).arg(sharing.name).status();
        assert!(status.is_ok_and(|status| status.success()), "{} cannot be measured", sharing.name);
    }
}

fn measure(sharing: &Sharing) {
    let limiter = Arc::new(limiter(sharing));
    let clock = Arc::new(ManualClock::new(START));
    let quotas = Quotas::default();
    let divider = {
        let (quotas, limiter, clock) = (quotas.clone(), Arc::clone(&limiter), Arc::clone(&clock));
        thread::Builder::new()
            .name("divider".to_owned())
            .spawn(move || quotas.run(&limiter, &*clock, &Arc::default(), QuotaStart::unrecorded(usize::MAX)))
    };
    let divider = divider.expect("a thread can be started");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
    let tasks = tokio::task::LocalSet::new();
    let before = resident_bytes();
    let load = Load::new(sharing, &quotas, &clock);
    tasks.block_on(&runtime, load.rounds(WARM_UP));
    let began = (cpu_nanos(), taken_in(&quotas, WARM_UP));
    tasks.block_on(&runtime, load.rounds(MEASURED));
    let figures = taken_in(&quotas, WARM_UP + MEASURED);
    let nanos = cpu_nanos() - began.0;
    let memory = resident_bytes() - before;

    let reports = sharing::STREAMS * MEASURED;
    assert_eq!(figures.refused + figures.refused_counters, 0, "none is refused");
    let name = sharing.name;
    println!("quotas_{name}_report_micros={:.1}", nanos as f64 / 1e3 / reports as f64);
    println!("quotas_{name}_bytes={:.1}", memory as f64 / (sharing::STREAMS * sharing::BUCKETS) as f64);
    let each = |count: u64| count as f64 / reports as f64;
    let (now, then) = (figures.counts, began.1.counts);
    println!("quotas_{name}_divisions={:.2}", each(now.divisions - then.divisions));
    println!(
        "quotas_{name}_assignments={:.2}",
        each(now.assigned + now.denied - then.assigned - then.denied)
    );
    quotas.stop();
    divider.join().expect("the thread ends");
}

/// The figures, once the thread has taken in so many reports of all streams.
fn taken_in(quotas: &Quotas, rounds: u64) -> QuotaFigures {
    let of = |figures: &QuotaFigures| figures.reports == rounds * sharing::STREAMS * sharing::BUCKETS;
    let figures = (0..10_000).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        Some(quotas.figures()).filter(of)
    });
    figures.expect("all reports are taken in within seconds")
}

fn limiter(sharing: &Sharing) -> Limiter {
    let source = Source::file("quotas.yaml", sharing.rules());
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("the rules are good");
    let store =
        StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 2_000_000, on_full: OnFull::Deny };
    Limiter::new(rules, store, false)
}

/// Time for which the thread of the divider has run.
fn cpu_nanos() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has the threads of a process");
    let mut folders = tasks.map(|task| task.expect("threads can be listed").path());
    let is_divider = |folder: &std::path::PathBuf| {
        std::fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == "divider")
    };
    let folder = folders.find(is_divider).expect("the thread runs");
    let times = std::fs::read_to_string(folder.join("schedstat")).expect("Linux has times of threads");
    times.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds are first")
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has the memory of a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has resident memory");
    let kib: u64 = line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number");
    kib * 1_024
}
