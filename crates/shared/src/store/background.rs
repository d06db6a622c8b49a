//! Commands that go on without their callers: hits that are taken back, releases of slots and ends of reservations.

use super::{batches::Links, failure::Failure, shared_store::SharedStore, unfinished::Work};
use crate::{PeerId, script::Command};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, task::JoinHandle};

/// Pauses between attempts: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The number of attempts of a command that may be repeated: about a minute.
pub(super) const ATTEMPTS: u32 = 64;

/// A command in progress. It has failed if this is dropped before the store has run it, for example with its runtime.
struct InProgress<F: FnOnce(&SharedStore, Option<u64>)> {
    store: Arc<SharedStore>,
    counted: Option<u64>,
    done: Option<F>,
    work: Option<Work>,
}

impl<F: FnOnce(&SharedStore, Option<u64>)> Drop for InProgress<F> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(&self.store, self.counted);
        }
    }
}

impl SharedStore {
    /// Sends a command for a peer until the store has run it, or has a damaged counter of it. The first attempt is sent at once, before calls that are made later. At the
    /// end, `done` gets the number that the command counted. It gets none if all attempts fail, if there is too much such work, or without
    /// a runtime.
    pub(super) fn in_background(
        self: &Arc<Self>,
        (group, peer): (u16, PeerId),
        command: Command,
        attempts: u32,
        done: impl FnOnce(&Self, Option<u64>) + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let work = self.unfinished.begin_bounded(peer, command.counters.len());
        let progress = InProgress { store: Arc::clone(self), counted: None, done: Some(done), work };
        progress.work.as_ref()?;
        let runtime = Handle::try_current().ok()?;
        let (store, command) = (Arc::clone(self), Arc::new(command));
        let send = move || Links::command(&store, group, Arc::clone(&command));
        let mut response = send();
        Some(runtime.spawn(async move {
            let (mut progress, mut pause) = (progress, PAUSE.0);
            for left in (0..attempts).rev() {
                // A link that has ended sends no response.
                let result = response.await.unwrap_or(Err(Failure::Failed));
                progress.counted = result.ok();
                // The script fails again on a damaged counter.
                if progress.counted.is_some() || left == 0 || result == Err(Failure::Damaged) {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                response = send();
            }
        }))
    }
}
