//! The commands, one file or folder each.

mod audit;
mod bench;
mod call;
mod check;
mod completions;
mod ctl;
mod envoy;
mod explain;
mod health;
mod replay;
mod rlqs;
mod snapshot;
mod store;
mod target;
mod ticket;
mod token;

use crate::cli::{
    Failure,
    serve::{self, settings::EffectiveSettings},
};
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(super) enum Command {
    Serve(Box<serve::Serve>),
    Check(check::Check),
    Explain(explain::Explain),
    #[command(subcommand)]
    Envoy(envoy::Envoy),
    Replay(replay::Replay),
    #[command(subcommand)]
    Rlqs(rlqs::Rlqs),
    Call(call::Call),
    Health(health::Health),
    #[command(subcommand)]
    Snapshot(snapshot::Snapshot),
    #[command(subcommand)]
    Store(store::Store),
    Bench(bench::Bench),
    Completions(completions::Completions),
    Token(token::Token),
    Ctl(Box<ctl::Ctl>),
    #[command(subcommand)]
    Audit(audit::Audit),
}

impl Command {
    /// Runs it; the settings are those of `serve`, and `program` has all commands.
    pub(super) fn run(
        self,
        settings: EffectiveSettings,
        program: clap::Command,
    ) -> Result<ExitCode, Failure> {
        match self {
            Self::Serve(serve) => serve.run(settings),
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
            Self::Envoy(envoy) => envoy.run(),
            Self::Replay(replay) => replay.run(),
            Self::Rlqs(rlqs) => rlqs.run(),
            Self::Call(call) => call.run(),
            Self::Health(health) => health.run(),
            Self::Snapshot(snapshot) => snapshot.run(),
            Self::Store(store) => store.run(),
            Self::Bench(bench) => bench.run(),
            Self::Completions(completions) => completions.run(program),
            Self::Token(token) => token.run(),
            Self::Ctl(ctl) => ctl.run(),
            Self::Audit(audit) => audit.run(),
        }
    }
}
