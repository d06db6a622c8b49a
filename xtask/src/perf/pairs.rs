//! Open loops with and without work beside them: short periods of both alternate on one server, and bars compare their lower quartiles,
//! so that what other guests of the machine do affects both alike, or is left out. Periods in which the hypervisor took time are
//! measured again.
//!
//! Control: a tonic server has the same periods afterwards, and no work. Its ratios show how far the figures of both differ on this
//! machine if the server does nothing else. Clients of the work share the server's core. So those of half handshakes run in all periods,
//! and connect to another port where the server has no such work; pages scraped beside tonic are sent from its core, as it would.

use super::{
    beside::allow_open_files,
    load::measure_period,
    machine::Machine,
    results::Results,
    scenario::{Beside, Pair},
    server::{Binaries, Running, Server},
};
use crate::Failure;
use std::{thread::sleep, time::Duration};

/// The servers that have the periods.
pub(super) const SERVERS: &[Server] = &[Server::Tidegate, Server::Tonic];

/// Pairs in one round.
const PAIRS: u32 = 6;

/// Share of a period that the hypervisor took from the machine, beyond which the period is measured again: it delays calls whatever the
/// server does.
const STOLEN_SHARE: f64 = 0.0075;
/// Periods of a server that are measured again in one round.
const REPEATS_MAX: u32 = 48;

/// Time after a period for what it leaves behind: connections that are closed, rules that are built and dropped. At least this
/// long, and until the server does nothing.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Measures all pairs of one round.
pub(super) fn measure(
    pair: &Pair,
    round: u32,
    is_quick: bool,
    machine: &Machine,
    binaries: &Binaries,
    results: &mut Results,
) -> Result<(), Failure> {
    allow_open_files()?;
    let scenario = &pair.scenario;
    let pairs = if is_quick { 1 } else { PAIRS };
    for &server in SERVERS {
        let running = Running::start(server, scenario, machine, binaries)?;
        let duration = format!("{}s", pair.seconds);
        let period = ["--duration", &duration, "--warm-up", "200ms"];
        let measure = |beside| measure_period(&running, scenario, beside, &period, machine, binaries);
        // Not counted: for a while after a start or a long pause, latencies are higher.
        measure(Beside::Nothing)?;
        let mut repeats = if is_quick { 0 } else { REPEATS_MAX };
        for number in 0..pairs {
            let with =
                if server == Server::Tidegate { scenario.beside } else { scenario.beside.of_control() };
            let mut periods = [(pair.without, scenario.beside.of_clients()), (scenario.name, with)];
            // Each is the first as often as the other.
            if number % 2 == 1 {
                periods.reverse();
            }
            for (name, beside) in periods {
                let run = loop {
                    sleep(PAUSE);
                    running.wait_until_idle(machine)?;
                    let run = measure(beside)?;
                    let again = run.stolen > STOLEN_SHARE * f64::from(pair.seconds) && repeats > 0;
                    let (server, verdict) = (server.name(), if again { ", again" } else { "" });
                    eprintln!(
                        "  {name:<28} {server:<8} {}, stolen {:.0} ms{verdict}",
                        run.summary(),
                        run.stolen * 1e3
                    );
                    if !again {
                        break run;
                    }
                    repeats -= 1;
                };
                results.add(round, name, server.name(), &run.figures());
            }
        }
    }
    Ok(())
}
