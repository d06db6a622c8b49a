//! The pace at which one peer's reports are read, which bounds its part of the time of the thread that divides limits. All streams of a
//! peer share one pace, so that a new stream gains nothing.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tidegate_core::limit::Timestamp;
use tonic::Status;

/// Average time for the work of one report: 50,000 in a second, or 250,000 buckets that are reported every five seconds.
const WORK: Duration = Duration::from_micros(20);

/// Work of other events, in reports: a message, a stream, a bucket that is new on its stream.
const OF_MESSAGE: u32 = 10;
const OF_STREAM: u32 = 100;
const OF_NEW_BUCKET: u32 = 10;

/// Time by which a peer may be ahead of the average before its next message has to wait.
const AHEAD: Duration = Duration::from_secs(1);

/// Time by which a peer may be ahead of the average before its stream is ended: the first reports of all its streams may arrive at once.
const AHEAD_MAX: Duration = Duration::from_secs(10);

/// For each peer that is ahead, the time at which it is back at the average.
#[derive(Clone, Default)]
pub(super) struct Paces(Arc<Mutex<Dues>>);

#[derive(Default)]
struct Dues {
    of_peers: HashMap<Arc<str>, Timestamp>,
    /// Number of peers at which peers that are no longer ahead are removed.
    sweep_at: usize,
}

/// The pace of a peer.
pub(super) struct Pace {
    paces: Paces,
    peer: Arc<str>,
}

impl Paces {
    pub(super) fn of(&self, peer: Arc<str>) -> Pace {
        Pace { paces: self.clone(), peer }
    }
}

impl Pace {
    /// Notes that a stream begins.
    pub(super) fn note_stream(&self, now: Timestamp) {
        self.add(OF_STREAM, now);
    }

    /// Notes that buckets are new on their stream.
    pub(super) fn note_new(&self, buckets: u32, now: Timestamp) {
        self.add(buckets.saturating_mul(OF_NEW_BUCKET), now);
    }

    /// Notes a message with this number of reports. Fails if the peer is so far ahead that its stream has to end.
    pub(super) fn note_message(&self, reports: usize, now: Timestamp) -> Result<(), Status> {
        let reports = u32::try_from(reports).unwrap_or(u32::MAX);
        if self.add(reports.saturating_add(OF_MESSAGE), now) <= AHEAD_MAX {
            return Ok(());
        }
        let peer = &self.peer;
        let message =
            format!("{peer} reports more than 50,000 buckets in a second; report fewer, or less often");
        Err(Status::resource_exhausted(message))
    }

    /// Time until the next message is read.
    pub(super) fn wait(&self, now: Timestamp) -> Duration {
        let due = self.paces.0.lock().of_peers.get(&self.peer).copied().unwrap_or_default();
        due.since(now.saturating_add(AHEAD))
    }

    /// Adds work; returns how far the peer is ahead.
    fn add(&self, work: u32, now: Timestamp) -> Duration {
        let mut dues = self.paces.0.lock();
        if dues.of_peers.len() >= dues.sweep_at {
            dues.of_peers.retain(|_, due| *due > now);
            dues.sweep_at = 2 * dues.of_peers.len() + 64;
        }
        let due = dues.of_peers.entry(Arc::clone(&self.peer)).or_default();
        *due = (*due).max(now).saturating_add(WORK.saturating_mul(work));
        due.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn all_streams_of_a_peer_have_one_pace_and_another_stream_does_not_renew_it() {
        let paces = Paces::default();
        let pace = || paces.of("192.0.2.1".into());
        assert!(pace().note_message(49_990, NOW).is_ok());
        assert_eq!(pace().wait(NOW), Duration::ZERO);
        pace().note_stream(NOW);
        assert_eq!(pace().wait(NOW), WORK * OF_STREAM);
        pace().note_new(5_000, NOW);
        assert_eq!(pace().wait(NOW), WORK * OF_STREAM + Duration::from_secs(1));
        assert_eq!(paces.of("192.0.2.2".into()).wait(NOW), Duration::ZERO);
        // An interval between reports of Envoy.
        assert_eq!(pace().wait(NOW.saturating_add(Duration::from_secs(5))), Duration::ZERO);
        assert!((0..7).all(|_| pace().note_message(49_990, NOW).is_ok()));
        assert!(pace().note_message(49_990, NOW).is_err());
    }

    #[test]
    fn peers_that_are_not_ahead_take_no_memory() {
        let paces = Paces::default();
        for peer in 0..10_000 {
            let now = NOW.saturating_add(Duration::from_millis(peer));
            assert!(paces.of(peer.to_string().into()).note_message(0, now).is_ok());
        }
        assert!(paces.0.lock().of_peers.len() < 200);
    }
}
