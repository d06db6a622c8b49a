//! Flags of `serve` for the data directory, and restoring from it.

use crate::cli::{
    Failure,
    arguments::{Choice, choice, interval},
    output::progress,
};
use crate::server::Start;
use clap::Args;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter, store::Seed};
use tidegate_snapshot::{OnBadSnapshot, RestoreFigures, Restored, Writer};

/// The data directory and its snapshots.
#[derive(Args)]
pub(super) struct DataDir {
    /// Data directory, in which counters survive restarts; created if missing. By default counters are kept in memory only.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Time from the start of one snapshot to the start of the next. A crash loses at most the hits of this time and of one
    /// snapshot's duration.
    #[arg(long, default_value = "10s", value_parser = interval)]
    pub(super) snapshot_interval: Duration,
    /// Longest time of a single write to the data directory; beyond it the snapshot fails, and a stop does not wait longer.
    #[arg(long, default_value = "10s", value_parser = interval)]
    snapshot_timeout: Duration,
    /// Action on a snapshot that is damaged or of a newer format.
    #[arg(long, default_value = "refuse", value_parser = choice(ON_BAD))]
    on_bad_snapshot: OnBadSnapshot,
}

/// Action on a bad snapshot.
const ON_BAD: [Choice<OnBadSnapshot>; 2] = [
    ("refuse", "Refuse to start", OnBadSnapshot::Refuse),
    ("discard", "Move it to DIR/bad-… and start without counters", OnBadSnapshot::Discard),
];

impl DataDir {
    /// The directory, if there is one.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The counters to start with, in the limiter that `build` makes, given the secret of the keys: none without a
    /// directory, else those that were kept there.
    pub(super) fn start(
        &self,
        build: impl FnMut(Seed) -> Limiter + Send + 'static,
        clock: &Arc<dyn Clock>,
    ) -> Result<Start<Failure>, Failure> {
        let seed =
            Seed::random().map_err(|error| Failure(format!("no random seed for the keys: {error}")))?;
        let Some(directory) = self.data.clone() else {
            tracing::info!("no --data: counters are kept in memory only, and forgotten at the end");
            return Ok(Start::Fresh(Box::new({ build }(seed))));
        };
        let (clock, on_bad, timeout) = (Arc::clone(clock), self.on_bad_snapshot, self.snapshot_timeout);
        Ok(Start::Restored(Box::new(move || {
            let (limiter, writer) = restore(&directory, on_bad, seed, build, &*clock)?;
            Ok((limiter, writer.with_timeout(timeout)))
        })))
    }
}

fn restore(
    directory: &Path,
    on_bad: OnBadSnapshot,
    seed: Seed,
    build: impl FnMut(Seed) -> Limiter,
    clock: &dyn Clock,
) -> Result<(Limiter, Writer), Failure> {
    let bar = progress::bar("restoring");
    let began = clock.now();
    let started =
        tidegate_snapshot::start(directory, on_bad, seed, build, began, |read| progress::show(&bar, read))?;
    bar.finish_and_clear();
    let Restored { counters, expired, from_the_future, at } = started.restored;
    if from_the_future {
        tracing::warn!(
            "the clock was set back since the last snapshot: what was used then counts as used now"
        );
    }
    let age = at.map(|at| began.since(at));
    let took = clock.now().since(began);
    tracing::info!(directory = %directory.display(), counters, expired, age = ?age.unwrap_or_default(), ?took, "restored");
    let writer = started.writer.with_restore(RestoreFigures { counters, took, age });
    Ok((started.limiter, writer))
}
