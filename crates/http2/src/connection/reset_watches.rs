//! Calls for which the service is notified if the client resets them, even after their response is written.
//!
//! If a client resets a stream while the response is on its way, it may never read the response. On this side the stream is already closed
//! when RST_STREAM arrives: the reset is passed on for some seconds after the response. If a connection ends before a response is written,
//! that counts as a reset.

use crate::OnReset;
use hashbrown::HashMap;
use std::{collections::VecDeque, time::Duration};

/// Time after the response for which a reset is passed on.
const WATCHED: Duration = Duration::from_secs(5);

/// The most calls that are watched at once on one connection. Beyond that, the oldest are dropped.
const WATCHED_MAX: usize = 4_096;

/// The hooks of watched calls, by stream.
#[derive(Default)]
pub(super) struct ResetWatches {
    hooks: HashMap<u32, OnReset, foldhash::fast::RandomState>,
    /// Streams in the order in which they were added. Some may be reset already.
    added: VecDeque<Watched>,
}

/// A watched stream.
struct Watched {
    stream: u32,
    added: Duration,
    /// Number of bytes of the connection up to the end of the response, or of its first part.
    end: u64,
}

impl ResetWatches {
    /// Watches a stream from now on. Its response ends after `end` bytes of the connection.
    pub(super) fn add(&mut self, stream: u32, hook: OnReset, now: Duration, end: u64) {
        if self.added.len() >= WATCHED_MAX {
            self.drop_oldest();
        }
        self.hooks.insert(stream, hook);
        self.added.push_back(Watched { stream, added: now, end });
    }

    /// Runs the hooks of responses that are not in the first `written` bytes of a connection that has ended.
    pub(super) fn on_end(&mut self, written: u64) {
        while let Some(watched) = self.added.pop_back().filter(|watched| watched.end > written) {
            self.on_reset(watched.stream);
        }
    }

    /// Runs the hook of a stream that the client reset, if it is watched.
    #[inline]
    pub(super) fn on_reset(&mut self, stream: u32) {
        if !self.hooks.is_empty()
            && let Some(hook) = self.hooks.remove(&stream)
        {
            hook.run();
        }
    }

    /// Ends watches whose time is over.
    pub(super) fn tick(&mut self, now: Duration) {
        while self.added.front().is_some_and(|watched| now.saturating_sub(watched.added) > WATCHED) {
            self.drop_oldest();
        }
        if self.added.is_empty() && self.added.capacity() > 0 {
            *self = Self::default();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(watched) = self.added.pop_front() {
            self.hooks.remove(&watched.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    #[test]
    fn a_hook_runs_once_and_only_while_its_stream_is_watched() {
        let (mut watches, runs) = (ResetWatches::default(), Arc::new(AtomicU32::new(0)));
        let hook = || {
            let runs = Arc::clone(&runs);
            OnReset::new(move || _ = runs.fetch_add(1, Ordering::Relaxed))
        };
        let count = || runs.load(Ordering::Relaxed);
        watches.add(1, hook(), Duration::ZERO, 0);
        watches.add(3, hook(), Duration::from_secs(1), 0);
        watches.on_reset(5);
        assert_eq!(count(), 0);
        watches.on_reset(1);
        watches.on_reset(1);
        assert_eq!(count(), 1);
        watches.tick(Duration::from_secs(6));
        watches.on_reset(3);
        assert_eq!(count(), 2);
        watches.add(7, hook(), Duration::from_secs(6), 0);
        watches.tick(Duration::from_millis(11_001));
        watches.on_reset(7);
        assert_eq!(count(), 2, "it is too late");
        assert!(watches.added.capacity() == 0 && watches.hooks.is_empty());
    }

    #[test]
    fn the_end_of_a_connection_runs_the_hooks_of_responses_that_are_not_all_written() {
        let (mut watches, runs) = (ResetWatches::default(), Arc::new(AtomicU32::new(0)));
        for (stream, end) in [(1, 100), (3, 200), (5, 300), (7, 400)] {
            let runs = Arc::clone(&runs);
            let hook = OnReset::new(move || _ = runs.fetch_add(stream, Ordering::Relaxed));
            watches.add(stream, hook, Duration::ZERO, end);
        }
        watches.on_reset(7);
        watches.on_end(250);
        assert_eq!(runs.load(Ordering::Relaxed), 7 + 5);
    }

    #[test]
    fn so_many_streams_are_watched_and_no_more() {
        let mut watches = ResetWatches::default();
        for stream in 0..2 * WATCHED_MAX as u32 {
            watches.add(stream, OnReset::new(|| {}), Duration::ZERO, 0);
        }
        assert_eq!((watches.hooks.len(), watches.added.len()), (WATCHED_MAX, WATCHED_MAX));
        assert!(watches.hooks.contains_key(&(2 * WATCHED_MAX as u32 - 1)));
    }
}
