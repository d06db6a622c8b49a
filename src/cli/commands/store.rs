//! `tidegate store`: the content of a shared store, and moving it to or from a data directory.

use crate::cli::{
    Failure,
    arguments::store_flags::StoreFlags,
    files,
    output::{progress, table},
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    future::Future,
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tidegate_core::rules::{LimitIdentity, LimitInfo};
use tidegate_shared::store::{Contents, Moved, SharedSettings, Transfer, TransferError};
use tidegate_snapshot::{Portable, PortableWriter};

/// Shows, verifies, exports and imports the counters in a shared store.
///
/// Reads every key with the prefix, in small steps. Only import changes the store.
#[derive(Subcommand)]
pub(in crate::cli) enum Store {
    /// Shows the servers that share the store, and its counters by algorithm.
    Status {
        #[command(flatten)]
        at: At,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Reads the state of every counter. Exit code 0: all are of this version's layout.
    Verify {
        #[command(flatten)]
        at: At,
    },
    /// Writes the counters to a file of JSON lines, which `tidegate snapshot import` or `tidegate store import` reads. The servers must be
    /// stopped. The file contains the secret of the keys; only its owner can read it. Exit code 1: a counter that is listed cannot be
    /// read.
    Export {
        #[command(flatten)]
        at: At,
        /// The file, which must not exist; - for standard output.
        file: PathBuf,
        /// Print the numbers of counters as one JSON object, on standard error.
        #[arg(long)]
        json: bool,
    },
    /// Writes the counters of a file, which `tidegate snapshot export` or `tidegate store export` has written, to a store that no
    /// server has used with this prefix. Exit code 1: counters of limits that are listed cannot be shared, and all others are moved.
    Import {
        #[command(flatten)]
        at: At,
        /// The file; - for standard input.
        file: PathBuf,
        /// Print the numbers of counters as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(in crate::cli) struct At {
    /// The store, as --counters of `serve`.
    #[arg(id = "counters", value_name = "URL", env = "TIDEGATE_COUNTERS", hide_env_values = true)]
    url: String,
    #[command(flatten)]
    flags: StoreFlags,
}

impl At {
    fn read(&self) -> Result<Contents, Failure> {
        let settings = self.settings()?;
        run(async { Ok(Contents::read(&settings).await?) })
    }

    fn settings(&self) -> Result<SharedSettings, Failure> {
        self.flags.settings(&self.url)
    }
}

fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tidegate_threads::runtime()?.block_on(work)
}

impl Store {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Status { at, json } => {
                show(&at.read()?, json);
                Ok(ExitCode::SUCCESS)
            }
            Self::Verify { at } => {
                let contents = at.read()?;
                let counters: u64 = contents.counters.values().sum();
                table::print_line(format_args!(
                    "{counters} counters are good, {} are not, {} never expire",
                    contents.damaged, contents.without_expiry
                ));
                let is_good = contents.damaged == 0 && contents.without_expiry == 0;
                Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Self::Export { at, file, json } => {
                let moved = run(export(&at.settings()?, &file))?;
                // Standard output may be the export.
                eprintln!("{}", moved_text(&moved, "exported", json));
                Ok(exit_code(&moved))
            }
            Self::Import { at, file, json } => {
                let moved = run(import(&at.settings()?, &file))?;
                table::print_line(moved_text(&moved, "imported", json));
                Ok(exit_code(&moved))
            }
        }
    }
}

async fn export(settings: &SharedSettings, file: &Path) -> Result<Moved, Failure> {
    let mut store = Transfer::open(settings).await?;
    let seed = store.seed.clone().ok_or(TransferError::Nothing)?;
    let mut out = PortableWriter::new(files::create(file)?, &seed, store.now)?;
    let bar = progress::bar("exporting");
    bar.set_length(store.keys);
    let moved = store
        .export(|key, algorithm, state| {
            bar.inc(1);
            // The store does not have the rules of its counters: a server finds them by their keys.
            let identity = LimitIdentity { domain: "".into(), path: "(shared store)".into(), tag: 0 };
            out.add(key, LimitInfo { identity, algorithm }, state).map_err(Failure::from)
        })
        .await?;
    out.finish()?;
    bar.finish_and_clear();
    Ok(moved)
}

async fn import(settings: &SharedSettings, file: &Path) -> Result<Moved, Failure> {
    let (input, _) = files::open(file)?;
    // Read as a whole before anything is written: a truncated file changes nothing.
    let counters = Portable::read(BufReader::new(input)).map_err(Failure::at(file))?;
    let mut store = Transfer::open(settings).await?;
    let bar = progress::bar("importing");
    bar.set_length(counters.len() as u64);
    let moved = store.import(counters.seed(), counters.counters(), |read| bar.set_position(read)).await?;
    bar.finish_and_clear();
    Ok(moved)
}

/// Lists the counters that cannot be moved; 1 if there are any.
fn exit_code(moved: &Moved) -> ExitCode {
    for (what, counters) in &moved.left_out {
        eprintln!("not moved: {counters} of {what}");
    }
    if moved.not_shareable + moved.damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn moved_text(moved: &Moved, action: &str, as_json: bool) -> String {
    let Moved { counters, expired, present, not_shareable, damaged, left_out: _ } = moved;
    if as_json {
        let numbers = json!({
            "counters": counters, "expired": expired, "present": present, "not_shareable": not_shareable, "damaged": damaged,
        });
        return numbers.to_string();
    }
    let left_out = [
        (expired, "expired"),
        (present, "present in the store already"),
        (not_shareable, "of limits that a shared store cannot count"),
        (damaged, "damaged"),
    ];
    let left_out = left_out.iter().filter(|(number, _)| **number > 0);
    let left_out: String = left_out.map(|(number, reason)| format!(", {number} {reason}")).collect();
    format!("{counters} counters {action}{left_out}")
}

fn show(contents: &Contents, json: bool) {
    let Contents { version, nodes, layout, servers, memory_bytes, counters, damaged, .. } = contents;
    if json {
        table::print_line(json!({
            "version": version, "nodes": nodes, "layout": layout, "servers": servers, "memory_bytes": memory_bytes, "counters": counters,
            "damaged": damaged,
        }));
        return;
    }
    table::print_line(format_args!(
        "version {version}, {nodes} nodes, {memory_bytes} bytes used, {servers} servers share it"
    ));
    let mut shown = table::table(["algorithm", "counters"]);
    for (algorithm, count) in counters {
        shown.add_row([(*algorithm).to_owned(), count.to_string()]);
    }
    if *damaged > 0 {
        shown.add_row(["(not readable)".to_owned(), damaged.to_string()]);
    }
    table::print_line(shown);
}
