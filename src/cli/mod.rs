//! The command line: one file per command. Arguments in, tables or JSON out.
//!
//! Exit codes: 0 success, 1 failure with the reason on standard error, 2 wrong arguments.

mod audit;
mod bench;
mod call;
mod check;
mod compat_flags;
mod completions;
mod connection_flags;
mod control_flags;
mod ctl;
mod data_dir;
mod decision_log_flags;
mod descriptor;
mod details;
mod explain;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
mod health;
#[cfg(test)]
mod help_tests;
mod http_flags;
mod metrics_flags;
mod progress;
mod reference_env;
mod replay;
mod response_options;
mod rule_files;
mod rule_flags;
mod rule_text;
mod serve;
mod settings;
mod shared_flags;
mod signals;
mod snapshot;
mod store;
pub mod svg;
mod table;
mod target;
mod test_server;
mod tls_flags;
mod token;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;
use std::{fmt, process::ExitCode, time::Duration};

/// Rate limit server for Envoy's rate limit API.
///
/// Try it: `tidegate serve` serves demo rules, `tidegate call demo api_key=alice --repeat 6` sends it requests.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Check(check::Check),
    Explain(explain::Explain),
    Replay(replay::Replay),
    Call(call::Call),
    Health(health::Health),
    Snapshot(snapshot::Snapshot),
    Store(store::Store),
    Bench(bench::Bench),
    Completions(completions::Completions),
    TestServer(test_server::TestServer),
    Token(token::Token),
    Ctl(Box<ctl::Ctl>),
    Audit(audit::Audit),
}

/// A failed command, as a message for users.
#[derive(Debug)]
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses an interval or timeout of at least 10 ms; a shorter one would keep the server busy with its timer alone.
fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(interval) if interval >= Duration::from_millis(10) => Ok(interval),
        Ok(_) => Err("write at least 10ms".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the arguments of the process and runs the command.
pub fn run() -> ExitCode {
    // Ends the process if a shell has called it for a completion.
    CompleteEnv::with_factory(Cli::command).var("TIDEGATE_COMPLETE").bin("tidegate").complete();
    let (command, settings) = match settings::parse() {
        Ok((cli, settings)) => (cli.command, settings),
        Err(failure) => {
            eprintln!("error: {failure}");
            return ExitCode::FAILURE;
        }
    };
    let done = match command {
        Command::Serve(serve) => serve.run(settings.unwrap_or_default()),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Replay(replay) => replay.run(),
        Command::Call(call) => call.run(),
        Command::Health(health) => health.run(),
        Command::Snapshot(snapshot) => snapshot.run(),
        Command::Store(store) => store.run(),
        Command::Bench(bench) => bench.run(),
        Command::Completions(completions) => completions.run(),
        Command::TestServer(test_server) => test_server.run(),
        Command::Token(token) => token.run(),
        Command::Ctl(ctl) => ctl.run(),
        Command::Audit(audit) => audit.run(),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
