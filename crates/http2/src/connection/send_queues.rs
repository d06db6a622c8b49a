//! Streams whose frames wait for a window, in queues by the kind of window. Every operation is O(1) or O(log n), so that a client cannot
//! cause a scan of all streams by small changes of windows.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
};

/// The reason why a stream's queued frames cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockedBy {
    /// The connection's window, or too many bytes that the client has not read.
    Connection,
    /// The stream's own window.
    Stream,
}

/// The most closed streams that are kept beside as many as there are open streams.
const CLOSED_KEPT: usize = 64;

/// Streams with queued frames.
#[derive(Default)]
pub(super) struct SendQueues {
    /// Streams that the connection blocks, first blocked first. May contain closed streams, but not many more than there are open streams.
    by_connection: VecDeque<u32>,
    /// Streams that their own windows block, by credit. A larger initial window unblocks the streams at the end.
    by_stream: BTreeSet<(i64, Reverse<u32>)>,
}

impl SendQueues {
    /// Adds a stream that the connection blocks.
    pub(super) fn push(&mut self, stream: u32) {
        self.by_connection.push_back(stream);
    }

    /// Puts back a stream that the connection still blocks.
    pub(super) fn push_first(&mut self, stream: u32) {
        self.by_connection.push_front(stream);
    }

    /// Takes the stream that the connection has blocked longest.
    pub(super) fn pop(&mut self) -> Option<u32> {
        self.by_connection.pop_front()
    }

    #[cfg(test)]
    pub(super) fn blocked_by_connection(&self) -> usize {
        self.by_connection.len()
    }

    /// Removes closed streams that the connection blocked, if they are more than half of its queue. `is_open` holds for the `open` streams.
    /// At least as many streams are removed as stay: O(1) for each stream that was added.
    pub(super) fn remove_closed(&mut self, open: usize, is_open: impl Fn(u32) -> bool) {
        if self.by_connection.len() > 2 * open + CLOSED_KEPT {
            self.by_connection.retain(|&stream| is_open(stream));
            self.by_connection.shrink_to_fit();
        }
    }

    /// Adds a stream that its own window blocks.
    pub(super) fn push_credit(&mut self, stream: u32, credit: i64) {
        self.by_stream.insert((credit, Reverse(stream)));
    }

    /// Removes a stream that its own window blocks.
    pub(super) fn remove_credit(&mut self, stream: u32, credit: i64) {
        self.by_stream.remove(&(credit, Reverse(stream)));
    }

    /// Takes a stream that its own window no longer blocks with this initial window.
    pub(super) fn pop_unblocked(&mut self, initial_window: u32) -> Option<u32> {
        let (credit, _) = self.by_stream.last()?;
        if credit + i64::from(initial_window) <= 0 {
            return None;
        }
        self.by_stream.pop_last().map(|(_, Reverse(stream))| stream)
    }
}
