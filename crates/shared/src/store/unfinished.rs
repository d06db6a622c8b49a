//! Work in the store that goes on when its caller is gone: releases, ends, hits taken back, calls whose responses decide what is taken
//! back. It runs on the runtime of its caller, which lasts until all of it is done, or the drain has timed out.

use tokio::sync::watch;

/// Pieces of work at once, beyond which no [bounded one](Unfinished::begin_bounded) begins: a store that does not respond has each of them last for up to a
/// minute, after its caller, and its connection, are gone. Some kilobytes each.
const PIECES_MAX: usize = 20_000;

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

    /// As [`Self::begin`]; none if there is too much work already.
    pub(super) fn begin_bounded(&self) -> Option<Work> {
        let begins = self.0.send_if_modified(|pieces| {
            let has_room = *pieces < PIECES_MAX;
            *pieces += usize::from(has_room);
            has_room
        });
        begins.then(|| Work(self.clone()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_callers_that_are_gone_is_bounded() {
        let unfinished = Unfinished::default();
        let mut pieces: Vec<Work> = (0..PIECES_MAX).filter_map(|_| unfinished.begin_bounded()).collect();
        assert_eq!(pieces.len(), PIECES_MAX);
        assert!(unfinished.begin_bounded().is_none());
        pieces.pop();
        assert!(unfinished.begin_bounded().is_some());
    }
}
