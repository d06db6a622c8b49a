//! Work in the store that goes on after its caller has given up: releases, ends, hits taken back, renewals, and calls whose responses
//! decide what is taken back. It runs on the runtime of its caller. The runtime lasts until all of it is done, or the drain has timed out.

use crate::{FairBound, PeerId};
use tokio::sync::watch;

/// The most counters in [bounded work](Unfinished::begin_bounded) at once. If the store does not respond, such work lasts for up to a
/// minute after its caller has given up and its connection has ended. A piece of work takes 2 kB, and some hundred bytes for each of its
/// counters. A ticket that a client invents may name thousands of counters.
const COUNTERS_MAX: usize = 40_000;

/// Counts the unfinished work.
#[derive(Clone, Debug)]
pub(super) struct Unfinished(watch::Sender<Pieces>);

#[derive(Debug)]
struct Pieces {
    number: usize,
    /// Counters of the bounded work of each peer.
    bound: FairBound,
}

/// A piece of work. It is done when this is dropped.
#[must_use]
pub(super) struct Work {
    unfinished: Unfinished,
    /// Its peer, and the number of its counters. None if the work has no bound.
    bounded: Option<(PeerId, usize)>,
}

impl Default for Unfinished {
    fn default() -> Self {
        Self(watch::Sender::new(Pieces { number: 0, bound: FairBound::new(COUNTERS_MAX) }))
    }
}

impl Unfinished {
    pub(super) fn begin(&self) -> Work {
        self.0.send_modify(|pieces| pieces.number += 1);
        Work { unfinished: self.clone(), bounded: None }
    }

    /// Begins work as [`Self::begin`] does, which a peer caused and which has so many counters. None if there is too much work of the peer,
    /// or in total.
    pub(super) fn begin_bounded(&self, peer: PeerId, counters: usize) -> Option<Work> {
        let begins = self.0.send_if_modified(|pieces| {
            let has_room = pieces.bound.has_room(peer, counters);
            if has_room {
                pieces.number += 1;
                pieces.bound.take(peer, counters);
            }
            has_room
        });
        begins.then(|| Work { unfinished: self.clone(), bounded: Some((peer, counters)) })
    }

    /// Completes when no work is left.
    pub(super) async fn none(&self) {
        // The sender exists, so that this cannot fail.
        let _ = self.0.subscribe().wait_for(|pieces| pieces.number == 0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.unfinished.0.send_modify(|pieces| {
            pieces.number -= 1;
            if let Some((peer, counters)) = self.bounded {
                pieces.bound.give_back(peer, counters);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_callers_that_are_gone_is_bounded_by_its_counters() {
        let (unfinished, [one, other, third]) = (Unfinished::default(), [1, 2, 3].map(PeerId));
        let half = COUNTERS_MAX / 2;
        let mut of_one: Vec<Work> = (0..half).filter_map(|_| unfinished.begin_bounded(one, 1)).collect();
        assert_eq!(of_one.len(), half);
        assert!(unfinished.begin_bounded(one, 1).is_none());
        // A single piece of work may have as many counters.
        let of_other = unfinished.begin_bounded(other, half);
        assert!(of_other.is_some() && unfinished.begin_bounded(third, 1).is_none());
        drop(of_other);
        of_one.pop();
        assert!(
            unfinished.begin_bounded(third, half).is_some() && unfinished.begin_bounded(one, 1).is_some()
        );
    }
}
