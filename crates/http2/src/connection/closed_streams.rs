//! State of closed streams, within fixed bounds.

use hashbrown::HashSet;
use std::collections::VecDeque;

/// The most streams reset by the server that are remembered. On an older stream, a late frame is an error again.
const RESET_MAX: usize = 1024;
/// The most ranges of skipped stream ids that are remembered. Most clients number their streams without gaps.
const SKIPPED_MAX: usize = 16;

/// Closed streams on which frames mean something else than on streams that ended normally.
#[derive(Default)]
pub(super) struct ClosedStreams {
    /// Streams reset by the server, oldest first. The client may have sent frames before it received the reset.
    resets: VecDeque<u32>,
    reset: HashSet<u32, foldhash::fast::RandomState>,
    /// Ranges of ids that were never opened and are below an opened id.
    skipped: VecDeque<(u32, u32)>,
}

impl ClosedStreams {
    /// Remembers a stream that the server resets.
    pub(super) fn on_reset(&mut self, stream: u32) {
        if !self.reset.insert(stream) {
            return;
        }
        self.resets.push_back(stream);
        if self.resets.len() > RESET_MAX
            && let Some(oldest) = self.resets.pop_front()
        {
            self.reset.remove(&oldest);
        }
    }

    /// Whether the server has reset this stream lately: frames on it are discarded (RFC 9113, section 5.1).
    pub(super) fn was_reset(&self, stream: u32) -> bool {
        self.reset.contains(&stream)
    }

    /// Remembers the ids between two streams, the second of which was opened right after the first.
    #[inline]
    pub(super) fn on_open(&mut self, previous: u32, stream: u32) {
        let first = if previous == 0 { 1 } else { previous + 2 };
        if stream > first {
            self.on_skip(first, stream - 2);
        }
    }

    #[cold]
    fn on_skip(&mut self, first: u32, last: u32) {
        if self.skipped.len() == SKIPPED_MAX {
            self.skipped.pop_front();
        }
        self.skipped.push_back((first, last));
    }

    /// Whether this stream was skipped: opening it now is a different error (RFC 9113, section 5.1.1).
    pub(super) fn was_skipped(&self, stream: u32) -> bool {
        self.skipped.iter().any(|&(first, last)| (first..=last).contains(&stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_resets_are_remembered() {
        let mut closed = ClosedStreams::default();
        let streams = (0..RESET_MAX as u32 + 1).map(|n| 2 * n + 1);
        streams.clone().for_each(|stream| closed.on_reset(stream));
        closed.on_reset(3);
        assert!(!closed.was_reset(1));
        assert!(streams.skip(1).all(|stream| closed.was_reset(stream)));
        assert_eq!((closed.resets.len(), closed.reset.len()), (RESET_MAX, RESET_MAX));
    }

    #[test]
    fn skipped_ids_are_those_between_two_opened_streams() {
        let mut closed = ClosedStreams::default();
        for (previous, stream) in [(0, 1), (1, 3), (3, 9), (9, 11)] {
            closed.on_open(previous, stream);
        }
        let skipped: Vec<u32> = (1..=11).step_by(2).filter(|&stream| closed.was_skipped(stream)).collect();
        assert_eq!(skipped, [5, 7]);
        let mut closed = ClosedStreams::default();
        closed.on_open(0, 5);
        assert!(closed.was_skipped(1) && closed.was_skipped(3) && !closed.was_skipped(5));
    }
}
