//! Timeouts of a connection. Time is an argument of [`Connection::tick`]; between ticks it stands still.
//!
//! Every deadline applies to complete work: a whole request, a whole piece of a response, everything that was waiting to be written. A
//! client that sends or reads byte by byte is active, but does not move a deadline.

use super::{Connection, Opening, Phase, control::ALIVE_PING, stream::Stream, times::PendingWrite};
use crate::{CloseReason, ConnectionError, ErrorCode, Service, StreamRefusal, frame};
use std::time::Duration;

/// The failure of a connection whose client acknowledges no PING.
const UNANSWERED_PING: &str = "client does not answer a PING";

/// Time in which a client that has sent nothing when a drain begins has to send its first bytes.
const SILENT_DRAIN_MAX: Duration = Duration::from_secs(1);

impl<S: Service> Connection<S> {
    /// Moves the time to `now`, counted from the connection's start, and enforces every timeout.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.time.now = now;
        if self.budget.responses() != self.time.responses {
            self.time.request_ended = now;
        }
        self.has_had_request();
        self.budget.tick(now);
        self.incoming.shrink();
        self.watches.tick(now);
        self.time.responses = self.budget.responses();
        for enforce in [
            Self::end_stalled_write,
            Self::end_slow_streams,
            Self::give_up_requests,
            Self::end_without_first_request,
            Self::end_slow_header_block,
            Self::ping_if_silent,
            Self::end_without_delivery,
            Self::drain_if_idle,
            Self::end_at_age_max,
            Self::end_unacknowledged_drain,
        ] {
            if self.is_finished() {
                return;
            }
            enforce(self);
        }
    }

    /// Whether a request has been received in full since the connection's start.
    pub(crate) fn has_had_request(&mut self) -> bool {
        if !self.time.has_request {
            let is_whole = |stream: &Stream<S::FastPath>| stream.has_whole_request();
            self.time.has_request = self.budget.responses() > 0 || self.streams.values().any(is_whole);
        }
        self.time.has_request
    }

    /// Time, from the connection's start, at which the last request ended. None while a request waits for the server and not for its
    /// client.
    pub(crate) fn idle_since(&self) -> Option<Duration> {
        let is_idle = self.streams.values().all(|stream| !stream.waits_for_server());
        is_idle.then_some(self.time.request_ended)
    }

    /// Whether the client has opened the connection, and no end has begun.
    fn is_open(&self) -> bool {
        self.phase == Phase::Open && self.opening == Opening::Complete
    }

    fn is_over(&self, since: Duration, timeout: Duration) -> bool {
        self.time.now.saturating_sub(since) >= timeout
    }

    /// Closes a connection if its client does not read pending bytes, not even the GOAWAY.
    fn end_stalled_write(&mut self) {
        let (bytes, since) = (self.unwritten().len(), self.time.now);
        if bytes == 0 {
            return;
        }
        let since = self.time.pending_write.get_or_insert(PendingWrite { since, bytes }).since;
        if self.is_over(since, self.settings.write_timeout) {
            self.close_now(CloseReason::WriteTimeout, "client does not read its responses");
        }
    }

    /// Resets streams with requests that do not end, or with responses that wait for a window.
    fn end_slow_streams(&mut self) {
        let slow = self.streams.iter().filter(|(_, stream)| {
            !stream.has_whole_request() && self.is_over(stream.opened, self.settings.body_timeout)
                || stream.blocked_since.is_some_and(|since| self.is_over(since, self.settings.write_timeout))
        });
        let slow: Vec<_> = slow.map(|(&id, stream)| (id, stream.has_whole_request())).collect();
        for (id, has_request) in slow {
            let refusal = if has_request { StreamRefusal::WriteTimeout } else { StreamRefusal::BodyTimeout };
            self.events.refused(refusal);
            self.reset(id, ErrorCode::Cancel);
        }
    }

    /// If the connection holds more memory than it may, resets the older half of its incomplete requests.
    fn give_up_requests(&mut self) {
        if !self.share.is_over() {
            return;
        }
        let incomplete = self.streams.iter().filter(|(_, stream)| !stream.has_whole_request());
        let mut incomplete: Vec<u32> = incomplete.map(|(&id, _)| id).collect();
        incomplete.sort_unstable();
        for id in &incomplete[..incomplete.len().div_ceil(2)] {
            self.events.refused(StreamRefusal::Memory);
            self.reset(*id, ErrorCode::EnhanceYourCalm);
        }
    }

    /// Ends a connection on which no request was received in full in time.
    fn end_without_first_request(&mut self) {
        if self.time.has_request || self.time.now < self.settings.first_request_timeout {
            return;
        }
        match self.phase {
            Phase::Open if self.opening != Opening::Complete => {
                self.fail(ConnectionError::protocol("no preface and SETTINGS in time"));
                self.end_reason = Some(CloseReason::FirstRequestTimeout);
            }
            Phase::Open | Phase::Draining => self.go_away(CloseReason::FirstRequestTimeout),
            Phase::GoingAway | Phase::Closing | Phase::Closed => {}
        }
    }

    /// Ends a connection if its client sends a header block without end.
    fn end_slow_header_block(&mut self) {
        let stream = self.partial_block.as_ref().map(|block| block.stream);
        match (stream, self.time.partial_block) {
            (None, _) => self.time.partial_block = None,
            (Some(stream), Some((seen, since))) if stream == seen => {
                if self.is_over(since, self.settings.body_timeout) {
                    self.fail(ConnectionError::protocol("header block not complete in time"));
                    self.end_reason = Some(CloseReason::BodyTimeout);
                }
            }
            (Some(stream), _) => self.time.partial_block = Some((stream, self.time.now)),
        }
    }

    /// Stops waiting for a client that does not acknowledge the GOAWAY. Streams that it opens from now on are ignored. A client that has
    /// sent nothing at all has no request to be waited for, unless its first bytes are under way.
    fn end_unacknowledged_drain(&mut self) {
        if self.phase == Phase::Draining {
            let since = *self.time.drain_started.get_or_insert(self.time.now);
            let is_silent = self.opening == Opening::AwaitingPreface && self.incoming.kept().is_empty();
            let timeout = self.settings.keep_alive_timeout;
            if self.is_over(since, if is_silent { timeout.min(SILENT_DRAIN_MAX) } else { timeout }) {
                self.go_away(CloseReason::KeepAliveTimeout);
            }
        }
    }

    /// Sends a PING to a client that has been silent for long, and closes the connection if it stays silent.
    fn ping_if_silent(&mut self) {
        match self.time.pinged {
            Some(pinged) if self.is_over(pinged, self.settings.keep_alive_timeout) => {
                self.close_now(CloseReason::KeepAliveTimeout, UNANSWERED_PING);
            }
            None if self.is_over(self.time.last_read, self.settings.keep_alive_interval) => {
                frame::write(frame::PING, 0, 0, ALIVE_PING, &mut self.outgoing);
                self.time.pinged = Some(self.time.now);
            }
            _ => {}
        }
    }

    /// Closes a connection if its client does not acknowledge a PING after a response.
    fn end_without_delivery(&mut self) {
        let written = self.removed + self.written as u64;
        let since = self.deliveries.unacknowledged_since(written, self.time.now);
        if since.is_some_and(|since| self.is_over(since, self.settings.keep_alive_timeout)) {
            self.close_now(CloseReason::KeepAliveTimeout, UNANSWERED_PING);
        }
    }

    fn drain_if_idle(&mut self) {
        if self.is_open()
            && self.streams.is_empty()
            && self.is_over(self.time.request_ended, self.settings.idle_timeout)
        {
            self.start_drain(CloseReason::IdleTimeout);
        }
    }

    /// Drains a connection that has reached its maximum age, and closes it once the grace is over. Open calls then fail with a lost
    /// connection, which gRPC reports as UNAVAILABLE.
    fn end_at_age_max(&mut self) {
        let Some(age_max) = self.settings.age_max.filter(|age| self.time.now >= *age) else { return };
        if self.is_over(age_max, self.settings.age_grace) {
            self.go_away(CloseReason::AgeMax);
            self.stop_reading();
        } else if self.is_open() {
            self.start_drain(CloseReason::AgeMax);
        }
    }

    /// Ends the connection as soon as the requests received in full are finished. Incomplete requests are reset. Streams that the client
    /// opens from now on are ignored; it may send them again elsewhere.
    pub(crate) fn go_away(&mut self, reason: CloseReason) {
        if self.phase >= Phase::GoingAway {
            return;
        }
        self.end_reason.get_or_insert(reason);
        self.phase = Phase::GoingAway;
        self.write_preface();
        self.write_goaway(self.last_stream, ErrorCode::No);
        self.reset_discarding();
        let incomplete = self.streams.iter().filter(|(_, stream)| !stream.has_whole_request());
        let incomplete: Vec<u32> = incomplete.map(|(&id, _)| id).collect();
        for id in incomplete {
            self.reset(id, ErrorCode::Cancel);
        }
    }

    fn close_now(&mut self, reason: CloseReason, why: &'static str) {
        self.end_reason = Some(reason);
        self.phase = Phase::Closed;
        self.failure = Some(why);
        self.reset_incomplete();
        self.streams.clear();
    }
}
