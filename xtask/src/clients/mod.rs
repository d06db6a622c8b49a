//! `cargo xtask clients`: the client libraries against the server.

mod bench;
mod faults;
mod languages;
mod process;
mod vectors;

use super::{Failure, threads};
use clap::Args;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use languages::{GROUPS, Language, languages};
use process::{Place, build_server, succeeds};
use std::{
    env, fs, io,
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
    /// Then plant faults into copies of the clients' sources, and check that the conformance cases find each of them.
    #[arg(long)]
    faults: bool,
    /// Languages to test; by default all.
    #[arg(value_name = "LANGUAGE", value_parser = ["python", "go", "node", "java", "rust"])]
    only: Vec<String>,
}

/// Results of one language: tests that passed and all tests, by group.
type Counts = [(usize, usize); GROUPS.len()];

/// The cells of a language in all tables, and what failed.
type Outcome = Result<(Vec<String>, Vec<String>), Failure>;

/// Runs one language.
type Run = fn(&Language, &Place<'_>) -> Outcome;

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
        let (headers, run): (Vec<Vec<&str>>, Run) = match (self.bench, self.faults) {
            (true, _) => (vec![bench::HEADER.to_vec()], bench::run),
            (_, true) => (vec![GROUPS.to_vec(), faults::names()], test_and_plant_faults),
            _ => (vec![GROUPS.to_vec()], test),
        };
        let place = Place { repository: &repository, server: &server };
        self.each_language(&headers, languages(&repository)?, |language| run(language, &place))
    }

    /// Runs languages: twice as many at once as there are cores, since they wait for half of their time, unless they are measured.
    /// Prints a table for each of the headers.
    fn each_language(
        &self,
        headers: &[Vec<&str>],
        mut languages: Vec<Language>,
        run: impl Fn(&Language) -> Outcome + Sync,
    ) -> Result<ExitCode, Failure> {
        languages.retain(|language| self.only.is_empty() || self.only.contains(&language.toolchain));
        let outcomes =
            threads::map(if self.bench { 1 } else { 2 * threads::cores() }, &languages, |language| {
                language.probes.iter().all(|probe| succeeds(probe)).then(|| run(language))
            });
        let required = env::var("TIDEGATE_REQUIRE").unwrap_or_default();
        let mut tables: Vec<(Table, usize)> = Vec::new();
        for header in headers {
            let mut table = Table::new();
            if self.bench {
                table.load_style(ASCII_MARKDOWN);
            }
            table.set_header(["client"].iter().chain(header));
            tables.push((table, header.len()));
        }
        let mut failed = Vec::new();
        for (Language { name, toolchain, .. }, outcome) in languages.iter().zip(outcomes) {
            let cells = match outcome {
                None => {
                    if required.split(',').any(|required| required == toolchain) {
                        failed.push(format!("{name}: {toolchain} is not installed"));
                    }
                    vec!["skipped: no toolchain".to_owned()]
                }
                Some(Ok((cells, failures))) => {
                    failed.extend(failures.into_iter().map(|failure| format!("{name}: {failure}")));
                    cells
                }
                Some(Err(failure)) => {
                    failed.push(format!("{name}: {failure}"));
                    vec!["failed".to_owned()]
                }
            };
            let mut cells = cells.into_iter();
            for (table, columns) in &mut tables {
                table.add_row([name.clone()].into_iter().chain(cells.by_ref().take(*columns)));
            }
        }
        for (table, _) in tables {
            println!("{table}");
        }
        if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failed.join("\n")) }
    }
}

/// Prepares and tests one language.
fn test(language: &Language, place: &Place<'_>) -> Outcome {
    let folder = place.repository.join("clients").join(language.folder);
    place.prepare(&language.install, &folder)?;
    place.prepare(&language.check, &folder)?;
    let transcript = place.repository.join("target/client-readme").join(language.folder);
    let in_transcript = |error: io::Error| format!("{}: {error}", transcript.display());
    fs::create_dir_all(transcript.parent().unwrap_or(&folder)).map_err(in_transcript)?;
    fs::write(&transcript, "").map_err(in_transcript)?;
    let variable = ("TIDEGATE_README_TRANSCRIPT", &*transcript);
    let (text, has_succeeded) = place.output(&language.test, &folder, Stdio::inherit(), variable)?;
    if !has_succeeded {
        eprintln!("{text}");
    }
    // The test of the built package writes the program of the client's README and its output.
    let readme = fs::read_to_string(&transcript).map_err(in_transcript)?;
    if !readme.is_empty() {
        println!("--- {}: the README in an empty project\n{}", language.name, readme.trim_end());
    }
    let counts = count(&text);
    let cells = counts.map(|(passed, all)| format!("{passed} of {all}"));
    let is_complete = counts.iter().all(|(_, all)| *all > 0);
    let failures = if has_succeeded && is_complete { vec![] } else { vec!["tests failed".to_owned()] };
    Ok((cells.to_vec(), failures))
}

/// Tests one language and, if its tests pass, plants the faults that they have to find.
fn test_and_plant_faults(language: &Language, place: &Place<'_>) -> Outcome {
    let (mut cells, mut failures) = test(language, place)?;
    if failures.is_empty() {
        let (of_faults, not_found) = faults::run(language, place)?;
        cells.extend(of_faults);
        failures = not_found;
    }
    Ok((cells, failures))
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
