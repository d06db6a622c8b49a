//! Moments of a connection's life.

use std::time::Duration;

/// Moments of a connection's life, counted from its start. Each is the time of the last tick before it.
#[derive(Default)]
pub(super) struct Times {
    pub(super) now: Duration,
    /// Time at which bytes were last received.
    pub(super) last_read: Duration,
    /// Time at which a request last ended.
    pub(super) request_ended: Duration,
    /// The budget's count of responses at the last tick.
    pub(super) responses: u32,
    /// Whether a request has been received whole.
    pub(super) has_request: bool,
    /// Time at which a PING was sent to check that the client is alive; none once bytes have been received since.
    pub(super) pinged: Option<Duration>,
    /// The bytes that have a deadline for writing.
    pub(super) pending_write: Option<PendingWrite>,
    /// Time of the first GOAWAY.
    pub(super) drain_started: Option<Duration>,
    /// The stream of an incomplete header block, and when it was first seen.
    pub(super) partial_block: Option<(u32, Duration)>,
}

/// Bytes that were waiting to be written at some tick, without bytes added later.
pub(super) struct PendingWrite {
    pub(super) since: Duration,
    /// Number of them still to be written.
    pub(super) bytes: usize,
}

impl Times {
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Records that bytes were received.
    #[inline]
    pub(super) fn on_read(&mut self) {
        self.last_read = self.now;
        self.pinged = None;
    }

    /// Records that the first `count` of the waiting bytes were written.
    #[inline]
    pub(super) fn on_write(&mut self, count: usize) {
        if let Some(pending) = &mut self.pending_write {
            pending.bytes = pending.bytes.saturating_sub(count);
            if pending.bytes == 0 {
                self.pending_write = None;
            }
        }
    }

    pub(super) fn request_ended(&mut self) {
        self.request_ended = self.now;
    }
}
