//! Compares decisions, headers and counters with those of Kuadrant's limitador-server: the same program name, arguments, file of limits and
//! requests, with counters in memory.
//!
//! Files and requests are random, by seed. The test fails at a difference that `docs/migrate.md` does not name.

mod command_line;
mod comparison;
mod limits;
mod process;
mod scenarios;

use crate::{limitador::comparison::Tally, rng::Rng, tests_with};
use command_line::each_flag_and_storage_is_known_and_documented;
use limits::Domain;
use process::{Call, LimitadorServer};
use scenarios::{
    a_changed_file_keeps_the_counters_of_limits_that_stay, an_empty_domain_is_refused_by_both,
    each_scenario_has_the_same_verdicts_counters_and_metrics,
};
use std::{path::Path, process::Command};
use tempfile::TempDir;

tests_with!(
    LIMITADOR:
    each_flag_and_storage_is_known_and_documented,
    random_calls_have_the_answers_of_limitador_server,
    each_scenario_has_the_same_verdicts_counters_and_metrics,
    a_changed_file_keeps_the_counters_of_limits_that_stay,
    an_empty_domain_is_refused_by_both,
);

/// Domains, each with its own limits.
const DOMAINS: u64 = 200;

/// Calls to each domain.
const CALLS: usize = 100;

/// Whether `limitador-server` is at `TIDEGATE_LIMITADOR`, or on the PATH.
pub fn is_here() -> bool {
    crate::peer::runs(Command::new(process::limitador()).arg("--version"))
}

/// Tidegate under the name of the other program.
fn tidegate(folder: &TempDir) -> std::path::PathBuf {
    let program = folder.path().join("limitador-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &program).expect("a link");
    program
}

async fn random_calls_have_the_answers_of_limitador_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = Rng::of_seed(1);
    let domains: Vec<Domain> = (0..DOMAINS).map(|number| Domain::random(&mut rng, number)).collect();
    let file = folder.path().join("limits.yaml");
    let yaml: String = domains.iter().map(Domain::yaml).collect();
    std::fs::write(&file, &yaml).expect("a file");
    let there = LimitadorServer::start(Path::new(&process::limitador()), &file).await;
    let here = LimitadorServer::start(&tidegate(&folder), &file).await;
    let (mut tally, mut differences) = (Tally::default(), Vec::new());
    for domain in &domains {
        for _ in 0..CALLS {
            let call = Call::random(&mut rng, domain);
            let (theirs, ours) = (there.answer(&call).await, here.answer(&call).await);
            if let Err(difference) = tally.compare(&call, &theirs, &ours) {
                let yaml = domain.yaml();
                differences.push(format!("{difference}\n{call:?}\nthere {theirs:?}\nhere {ours:?}\n{yaml}"));
            }
        }
        let (theirs, ours) = (there.pages(&domain.name).await, here.pages(&domain.name).await);
        if let Err(difference) = tally.compare_pages(&theirs, &ours) {
            differences.push(format!("{difference}\n{}", domain.yaml()));
        }
    }
    let shown = differences.iter().take(8).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(
        differences.is_empty(),
        "{} differences, the first of which are:\n{shown}\n{tally}",
        differences.len()
    );
    println!("{tally}");
    tally.assert_that_calls_differ_in_kind();
}
