//! `cargo xtask clients`: the client libraries against the server.

mod bench;
mod faults;
mod languages;
mod process;
mod readme;
mod vectors;

use super::Failure;
use clap::Args;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use languages::{GROUPS, Language, languages};
use process::{Place, build_server, succeeds};
use std::{
    env, fs,
    path::Path,
    process::{ExitCode, Stdio},
};

/// Tests the client libraries in `clients/` against a server built from this tree.
///
/// A language whose toolchain is missing is skipped, unless TIDEGATE_REQUIRE lists it: python, go, node, java, rust.
#[derive(Args)]
pub(super) struct Clients {
    /// Convert tests/vectors to the clients' conformance cases, and do nothing else.
    #[arg(long)]
    write_vectors: bool,
    /// Measure each client beside the bare gRPC stub of its language, against a release build (TIDEGATE_BIN: that server).
    #[arg(long, conflicts_with = "faults")]
    bench: bool,
    /// Plant faults into copies of the clients' sources, and check that the conformance cases find each of them.
    #[arg(long)]
    faults: bool,
    /// Languages to test (python, go, node, java, rust); by default all.
    #[arg(value_name = "LANGUAGE")]
    only: Vec<String>,
}

/// Results of one language: tests that passed and all tests, by group.
type Counts = [(usize, usize); GROUPS.len()];

/// Runs one language, and returns its row of the table and what failed.
type Run = fn(&Language, &Place<'_>) -> Result<(Vec<String>, Vec<String>), Failure>;

impl Clients {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let repository = fs::canonicalize(&repository).map_err(|error| error.to_string())?;
        if self.write_vectors {
            let path = repository.join(vectors::CONVERTED);
            fs::write(&path, vectors::convert(&repository)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let server = match env::var_os("TIDEGATE_BIN") {
            Some(path) if self.bench => path.into(),
            _ => build_server(&repository, self.bench)?,
        };
        let (header, run): (Vec<&str>, Run) = match (self.bench, self.faults) {
            (true, _) => (bench::HEADER.to_vec(), bench::run),
            (_, true) => (faults::header(), faults::run),
            _ => ([&["client"], &GROUPS[..]].concat(), test),
        };
        let place = Place { repository: &repository, server: &server };
        self.each_language(&header, languages(&repository)?, |language| run(language, &place))
    }

    fn each_language(
        &self,
        header: &[&str],
        languages: Vec<Language>,
        run: impl Fn(&Language) -> Result<(Vec<String>, Vec<String>), Failure>,
    ) -> Result<ExitCode, Failure> {
        let required = env::var("TIDEGATE_REQUIRE").unwrap_or_default();
        let mut table = Table::new();
        table.set_header(header);
        let mut failed = Vec::new();
        for language in &languages {
            if !self.only.is_empty() && !self.only.contains(&language.toolchain) {
                continue;
            }
            if !language.probes.iter().all(|probe| succeeds(probe)) {
                if required.split(',').any(|name| name == language.toolchain) {
                    failed.push(format!("{}: {} is not installed", language.name, language.toolchain));
                }
                table.add_row([&*language.name, "skipped: no toolchain"]);
                continue;
            }
            match run(language) {
                Ok((cells, failures)) => {
                    table.add_row([language.name.clone()].into_iter().chain(cells));
                    failed
                        .extend(failures.into_iter().map(|failure| format!("{}: {failure}", language.name)));
                }
                Err(failure) => {
                    table.add_row([&*language.name, "failed"]);
                    failed.push(format!("{}: {failure}", language.name));
                }
            }
        }
        if self.bench {
            table.load_style(ASCII_MARKDOWN);
        }
        println!("{table}");
        if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failed.join("\n")) }
    }
}

/// Prepares and tests one language.
fn test(language: &Language, place: &Place<'_>) -> Result<(Vec<String>, Vec<String>), Failure> {
    let folder = place.repository.join("clients").join(language.folder);
    place.prepare(&language.install, &folder)?;
    place.prepare(&language.check, &folder)?;
    let readme = readme::Transcript::new(place.repository, language)?;
    let (text, has_succeeded) = place.output(&language.test, &folder, Stdio::inherit(), readme.variable())?;
    if !has_succeeded {
        eprintln!("{text}");
    }
    print!("{}", readme.read()?);
    let counts = count(&text);
    let cells = counts.map(|(passed, all)| format!("{passed} of {all}"));
    let is_complete = counts.iter().all(|(_, all)| *all > 0);
    let failures = if has_succeeded && is_complete { vec![] } else { vec!["tests failed".to_owned()] };
    Ok((cells.to_vec(), failures))
}

/// Counts the tests of a run.
fn count(text: &str) -> Counts {
    let mut counts = Counts::default();
    for (name, has_passed) in text.lines().filter_map(languages::outcome) {
        let (passed, all) = &mut counts[languages::group(name)];
        *passed += usize::from(has_passed);
        *all += 1;
    }
    counts
}
