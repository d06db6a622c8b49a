//! What time does to a connection.

use super::{Connection, Phase, control::ALIVE_PING};
use crate::http2::{ConnectionError, ErrorCode, Service, frame};
use std::time::Duration;

/// When what happened last, as of the tick before it. All since the connection was made.
#[derive(Default)]
pub(super) struct Times {
    now: Duration,
    heard: Duration,
    /// When the last request ended.
    request_ended: Duration,
    /// When the client was asked whether it is there; none if it has been heard since.
    pinged: Option<Duration>,
    /// Since when nothing could be written of what there is to write.
    stuck: Option<Duration>,
}

impl Times {
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Something came.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.heard = self.now;
        self.pinged = None;
    }

    /// Something was written.
    #[inline]
    pub(super) fn wrote(&mut self) {
        self.stuck = None;
    }

    pub(super) fn request_ended(&mut self) {
        self.request_ended = self.now;
    }
}

impl<S: Service> Connection<S> {
    /// It is so long ago that the connection was made.
    pub(in crate::http2) fn tick(&mut self, now: Duration) {
        self.time.now = now;
        if self.budget.has_answered() {
            self.time.request_ended = now;
        }
        self.budget.tick(now);
        if self.is_finished() {
            return;
        }
        self.end_if_stuck();
        self.end_slow_streams();
        self.ask_if_alive();
        let since = |then: Duration| now.saturating_sub(then);
        if self.phase <= Phase::AwaitingSettings && now >= self.settings.body_timeout {
            self.fail(ConnectionError::protocol("it did not speak in time"));
        } else if self.phase == Phase::Open
            && self.streams.is_empty()
            && since(self.time.request_ended) >= self.settings.idle_timeout
        {
            self.start_drain();
        }
    }

    /// A client that reads nothing of what it is answered, not even the end of the connection.
    fn end_if_stuck(&mut self) {
        if self.unwritten().is_empty() {
            return;
        }
        let stuck = *self.time.stuck.get_or_insert(self.time.now);
        if self.time.now.saturating_sub(stuck) >= self.settings.write_timeout {
            self.die("it does not read its answers");
        }
    }

    /// Requests whose bodies do not end, and answers that their windows hold up.
    fn end_slow_streams(&mut self) {
        let (now, settings) = (self.time.now, &self.settings);
        let is_slow = |since: Duration, timeout: Duration| now.saturating_sub(since) >= timeout;
        let slow = self.streams.iter().filter(|(_, stream)| {
            !stream.request_has_ended() && is_slow(stream.opened, settings.body_timeout)
                || stream.blocked_since.is_some_and(|since| is_slow(since, settings.write_timeout))
        });
        let slow: Vec<u32> = slow.map(|(&id, _)| id).collect();
        for id in slow {
            self.reset(id, ErrorCode::Cancel);
        }
    }

    /// A client that has been silent for long is asked, and given up if it stays silent.
    fn ask_if_alive(&mut self) {
        let now = self.time.now;
        match self.time.pinged {
            Some(pinged) if now.saturating_sub(pinged) >= self.settings.keep_alive_timeout => {
                self.die("it does not answer a PING");
            }
            None if now.saturating_sub(self.time.heard) >= self.settings.keep_alive_interval => {
                frame::write(frame::PING, 0, 0, ALIVE_PING, &mut self.outgoing);
                self.time.pinged = Some(now);
            }
            _ => {}
        }
    }

    fn die(&mut self, why: &'static str) {
        self.phase = Phase::Closed;
        self.failure = Some(why);
        self.streams.clear();
    }
}
