//! `tidegate snapshot`: the content of a data directory, and moving it to another directory.

use crate::cli::{
    Failure, files,
    output::{progress, table},
};
use clap::Subcommand;
use serde_json::{Value, json};
use std::{
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use tidegate_core::{
    algorithm::Algorithm,
    clock::{Clock, SystemClock},
    rules::LimitInfo,
};
use tidegate_snapshot::{Archive, OpenError};

/// Inspects, verifies, exports and imports the snapshot in the data directory of a stopped server.
///
/// The directory is only read: neither permission to write nor free space is needed, except by import. The snapshot is
/// copied to the directory for temporary files (TMPDIR) to be read.
#[derive(Subcommand)]
pub(in crate::cli) enum Snapshot {
    /// Shows the counters of each limit, and the snapshot's age and size.
    Inspect {
        /// The data directory.
        directory: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Writes the snapshot to a file of JSON lines. The file contains the secret of the keys; only its owner can read it.
    Export {
        /// The data directory.
        directory: PathBuf,
        /// The file, which must not exist; - for standard output.
        file: PathBuf,
    },
    /// Creates a data directory from an exported file.
    Import {
        /// The file; - for standard input.
        file: PathBuf,
        /// The data directory; it must not hold a snapshot.
        directory: PathBuf,
    },
    /// Reads every record of the snapshot and compares it with its checksum. Exit code 0: a server can start with it.
    ///
    /// Bytes of the files that hold no part of the snapshot, such as free space in the database, are not checked.
    Verify {
        /// The data directory.
        directory: PathBuf,
    },
}

impl Snapshot {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Inspect { directory, json } => inspect(&directory, json)?,
            Self::Export { directory, file } => export(&directory, &file)?,
            Self::Import { file, directory } => import(&file, &directory)?,
            Self::Verify { directory } => {
                let used = tally(&mut open(&directory)?)?;
                let counters: u64 = used.iter().map(|tally| tally.counters).sum();
                table::print_line(format_args!("{}: good, {counters} counters", directory.display()));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn open(directory: &Path) -> Result<Archive, Failure> {
    Archive::open(directory)?.ok_or_else(|| Failure(format!("{}: there is no snapshot", directory.display())))
}

/// Counters of one limit.
#[derive(Clone, Copy, Default)]
struct Tally {
    counters: u64,
    expired: u64,
}

/// Reads every counter; by index of the limit.
fn tally(archive: &mut Archive) -> Result<Vec<Tally>, OpenError> {
    let (limits, now) = (archive.limits().to_vec(), SystemClock::new().now());
    let mut tallies = vec![Tally::default(); limits.len()];
    let bar = progress::bar("reading");
    archive.read(
        |read| progress::show(&bar, read),
        |_, limit, state| {
            tallies[limit].counters += 1;
            tallies[limit].expired += u64::from(limits[limit].algorithm.expires(state) <= now);
            Ok::<_, OpenError>(())
        },
    )?;
    bar.finish_and_clear();
    Ok(tallies)
}

fn inspect(directory: &Path, as_json: bool) -> Result<(), Failure> {
    let mut archive = open(directory)?;
    let tallies = tally(&mut archive)?;
    let counters: u64 = tallies.iter().map(|tally| tally.counters).sum();
    let (at, bytes) = (archive.at(), archive.disk_bytes()?);
    let now = SystemClock::new().now();
    // At most one of the two is not zero; the latter if the clock was set back since.
    let (age, ahead) = (now.since(at), at.since(now));
    let limits = archive.limits().iter().zip(&tallies);
    if as_json {
        let text = |info| limit_text(info, archive.limits());
        let limits: Vec<Value> = limits.map(|(info, tally)| to_json(info, text(info), tally)).collect();
        table::print_line(json!({
            "format": tidegate_snapshot::FORMAT,
            "at_nanos": at.as_nanos(),
            "age_seconds": age.as_secs_f64() - ahead.as_secs_f64(),
            "disk_bytes": bytes,
            "counters": counters,
            "limits": limits,
        }));
        return Ok(());
    }
    let mut shown = table::table(["domain", "rule", "limit", "algorithm", "counters", "expired since"]);
    for (info, tally) in limits {
        shown.add_row([
            info.identity.domain.as_ref(),
            info.identity.path.as_ref(),
            &limit_text(info, archive.limits()),
            info.algorithm.name(),
            &tally.counters.to_string(),
            &tally.expired.to_string(),
        ]);
    }
    table::print_line(shown);
    let whole_seconds = |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs()));
    let written = if ahead.is_zero() {
        format!("written {} ago", whole_seconds(age))
    } else {
        format!("written by a clock that was ahead of this one by {}", whole_seconds(ahead))
    };
    let megabytes = bytes as f64 / 1e6;
    let format = tidegate_snapshot::FORMAT;
    table::print_line(format_args!(
        "{counters} counters, {written}, {megabytes:.1} MB on disk, format {format}"
    ));
    Ok(())
}

fn to_json(info: &LimitInfo, limit: String, tally: &Tally) -> Value {
    json!({
        "domain": &*info.identity.domain,
        "rule": &*info.identity.path,
        "limit": limit,
        "algorithm": info.algorithm.name(),
        "counters": tally.counters,
        "expired": tally.expired,
    })
}

/// The limit's numbers, and its tag where another limit of the rule has the same numbers.
fn limit_text(info: &LimitInfo, all: &[LimitInfo]) -> String {
    let text = numbers(&info.algorithm);
    let is_same = |other: &&LimitInfo| {
        let (one, other_one) = (&info.identity, &other.identity);
        (&one.domain, &one.path) == (&other_one.domain, &other_one.path) && numbers(&other.algorithm) == text
    };
    if all.iter().filter(is_same).count() > 1 { format!("{text} #{:x}", info.identity.tag) } else { text }
}

fn numbers(algorithm: &Algorithm) -> String {
    algorithm.numbers(|length| humantime::format_duration(length).to_string())
}

fn export(directory: &Path, file: &Path) -> Result<(), Failure> {
    let mut archive = open(directory)?;
    let mut out = files::create(file)?;
    let bar = progress::bar("exporting");
    let counters = tidegate_snapshot::export(&mut archive, &mut out, |read| progress::show(&bar, read))?;
    bar.finish_and_clear();
    // Standard output may be the export.
    eprintln!("{}: {counters} counters exported", directory.display());
    Ok(())
}

fn import(file: &Path, directory: &Path) -> Result<(), Failure> {
    let bar = progress::bar("importing");
    let (input, length) = files::open(file)?;
    bar.set_length(length);
    let counters = tidegate_snapshot::import(BufReader::new(bar.wrap_read(input)), directory);
    bar.finish_and_clear();
    let counters = counters.map_err(Failure::at(file))?;
    table::print_line(format_args!("{}: {counters} counters imported", directory.display()));
    Ok(())
}
