//! `tidegate store`: the content of a shared store.

use super::{Failure, shared_flags::StoreFlags, table};
use crate::shared::store::{Contents, SharedSettings};
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

/// Shows and verifies the counters in a shared store. Reads every key with the prefix, in small steps; changes nothing.
#[derive(Args)]
pub(super) struct Store {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
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
}

#[derive(Args)]
struct At {
    /// The store, as --counters of `serve`.
    #[arg(id = "counters", value_name = "URL", env = "TIDEGATE_COUNTERS", hide_env_values = true)]
    url: String,
    #[command(flatten)]
    flags: StoreFlags,
}

impl At {
    fn read(&self) -> Result<Contents, Failure> {
        let settings: SharedSettings = self.flags.settings(&self.url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(Contents::read(&settings))?)
    }
}

impl Store {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Status { at, json } => {
                show(&at.read()?, json);
                Ok(ExitCode::SUCCESS)
            }
            Action::Verify { at } => {
                let contents = at.read()?;
                let counters: u64 = contents.counters.values().sum();
                table::print_line(format_args!(
                    "{counters} counters are good, {} are not, {} never expire",
                    contents.damaged, contents.without_expiry
                ));
                let is_good = contents.damaged == 0 && contents.without_expiry == 0;
                Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
        }
    }
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
