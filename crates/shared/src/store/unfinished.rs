//! Work in the store that goes on when its caller is gone: releases, ends, hits taken back, calls whose responses decide what is taken
//! back. It runs on the runtime of its caller, which lasts until all of it is done, or the drain has timed out.

use tokio::sync::watch;

/// Counts the work that is not done.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfinished(watch::Sender<usize>);

/// A piece of work that is not done until this is dropped.
#[must_use]
pub(super) struct Work(Unfinished);

impl Unfinished {
    pub(super) fn begin(&self) -> Work {
        self.0.send_modify(|pieces| *pieces += 1);
        Work(self.clone())
    }

    /// Completes when no work is left.
    pub(super) async fn none(&self) {
        // The sender is here.
        let _ = self.0.subscribe().wait_for(|pieces| *pieces == 0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.0.send_modify(|pieces| *pieces -= 1);
    }
}
