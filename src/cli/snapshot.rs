//! `tidegate snapshot`: what a data directory holds, and taking it elsewhere.

use super::{Failure, progress, table};
use crate::{
    clock::{Clock, SystemClock},
    rules::LimitInfo,
    snapshot::{self, Archive, OpenError},
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Looks into the data directory of a server that is stopped, and moves what it keeps.
#[derive(Args)]
pub(super) struct Snapshot {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Shows the counters of each limit, and the snapshot's age and size.
    Inspect {
        /// The data directory.
        directory: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Writes the snapshot to a file of JSON lines, which holds the secret of the keys: keep it as one.
    Export {
        /// The data directory.
        directory: PathBuf,
        /// The file; it must not exist.
        file: PathBuf,
    },
    /// Makes a data directory of an exported file.
    Import {
        /// The file.
        file: PathBuf,
        /// The data directory; it must not hold a snapshot.
        directory: PathBuf,
    },
    /// Reads the snapshot to its last byte. Exit code 0: a server can start with it.
    Verify {
        /// The data directory.
        directory: PathBuf,
    },
}

impl Snapshot {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Inspect { directory, json } => inspect(&directory, json)?,
            Action::Export { directory, file } => export(&directory, &file)?,
            Action::Import { file, directory } => import(&file, &directory)?,
            Action::Verify { directory } => {
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

/// What is counted under one limit.
#[derive(Clone, Copy, Default)]
struct Tally {
    counters: u64,
    expired: u64,
}

/// Reads everything; by place of the limit.
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
    // At most one of the two is not zero. The latter, if the clock was set back since.
    let (age, ahead) = (now.since(at), at.since(now));
    let limits = archive.limits().iter().zip(&tallies);
    if as_json {
        let limits: Vec<Value> = limits.map(|(info, tally)| to_json(info, tally)).collect();
        table::print_line(json!({
            "format": snapshot::FORMAT,
            "at_nanos": at.as_nanos(),
            "age_seconds": age.as_secs_f64() - ahead.as_secs_f64(),
            "disk_bytes": bytes,
            "counters": counters,
            "limits": limits,
        }));
        return Ok(());
    }
    let mut shown = table::table(["domain", "rule", "algorithm", "counters", "expired since"]);
    for (info, tally) in limits {
        shown.add_row([
            info.identity.domain.as_ref(),
            info.identity.path.as_ref(),
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
    let format = snapshot::FORMAT;
    table::print_line(format_args!(
        "{counters} counters, {written}, {megabytes:.1} MB on disk, format {format}"
    ));
    Ok(())
}

fn to_json(info: &LimitInfo, tally: &Tally) -> Value {
    json!({
        "domain": &*info.identity.domain,
        "rule": &*info.identity.path,
        "algorithm": info.algorithm.name(),
        "counters": tally.counters,
        "expired": tally.expired,
    })
}

fn export(directory: &Path, file: &Path) -> Result<(), Failure> {
    let mut archive = open(directory)?;
    let out = File::create_new(file).map_err(|error| Failure(format!("{}: {error}", file.display())))?;
    let bar = progress::bar("exporting");
    let counters =
        snapshot::export(&mut archive, &mut BufWriter::new(out), |read| progress::show(&bar, read))?;
    bar.finish_and_clear();
    table::print_line(format_args!("{}: {counters} counters", file.display()));
    Ok(())
}

fn import(file: &Path, directory: &Path) -> Result<(), Failure> {
    let about = |error: &dyn std::fmt::Display| Failure(format!("{}: {error}", file.display()));
    let input = File::open(file).map_err(|error| about(&error))?;
    let bytes = input.metadata().map_err(|error| about(&error))?.len();
    let bar = progress::bar("importing");
    bar.set_length(bytes);
    let counters = snapshot::import(BufReader::new(bar.wrap_read(input)), directory);
    bar.finish_and_clear();
    let counters = counters.map_err(|error| about(&error))?;
    table::print_line(format_args!("{}: {counters} counters", directory.display()));
    Ok(())
}
