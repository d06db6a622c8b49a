//! Control frames: SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, PRIORITY, GOAWAY.

use super::{Connection, Opening, Phase, send_queues::BlockedBy};
use crate::{
    CloseReason, ConnectionError, ConnectionEvent, ErrorCode, Service,
    flow_control::{DEFAULT_WINDOW, WINDOW_MAX, WindowOverflow},
    frame::{self, Frame, setting},
    steps,
};

/// Payload of the PING after a GOAWAY. Its acknowledgement shows that the client has received the GOAWAY.
const DRAIN_PING: &[u8; 8] = b"draining";
/// Payload of the PING that checks whether the client is alive.
pub(super) const ALIVE_PING: &[u8; 8] = b"alive?  ";

impl<S: Service> Connection<S> {
    /// Writes the server's connection preface (RFC 9113, section 3.4), once.
    pub(super) fn write_preface(&mut self) {
        if std::mem::replace(&mut self.has_preface, true) {
            return;
        }
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, self.settings.streams_max),
            (setting::INITIAL_WINDOW_SIZE, self.settings.stream_window),
            (setting::MAX_HEADER_LIST_SIZE, self.settings.header_bytes_max),
        ];
        frame::write_settings(&settings, &mut self.outgoing);
        let increment = self.settings.connection_window.saturating_sub(DEFAULT_WINDOW);
        if increment > 0 {
            frame::write_window_update(0, increment, &mut self.outgoing);
        }
    }

    /// Starts a graceful shutdown: a GOAWAY with the largest stream id and a PING; once the PING is acknowledged, a GOAWAY with the last
    /// stream processed. Requests that the client sent before it received the first are still processed.
    pub(crate) fn start_drain(&mut self, reason: CloseReason) {
        if self.phase < Phase::Draining {
            self.end_reason = Some(reason);
            self.write_preface();
            self.phase = Phase::Draining;
            self.reset_discarding();
            self.write_goaway(frame::STREAM_MAX, ErrorCode::No);
            frame::write(frame::PING, 0, 0, DRAIN_PING, &mut self.outgoing);
        }
    }

    pub(super) fn on_control(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        self.budget.control_frame(&self.settings)?;
        match frame.kind {
            frame::SETTINGS => self.on_settings(frame),
            frame::PING => self.on_ping(frame),
            frame::WINDOW_UPDATE => self.on_window_update(frame),
            frame::RST_STREAM => self.on_reset(frame),
            frame::PRIORITY => self.on_priority(frame),
            frame::GOAWAY if frame.stream != 0 => Err(ConnectionError::protocol("GOAWAY on a stream")),
            frame::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE from a client")),
            frame::GOAWAY => {
                // A client's GOAWAY only refuses pushes.
                self.events.frame(ConnectionEvent::GoawayReceived);
                Ok(())
            }
            // Unknown frame types must be ignored (RFC 9113, section 4.1).
            _ => Ok(()),
        }
    }

    fn on_settings(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let Some(settings) = frame.settings()? else { return Ok(()) };
        let before = self.initial_window;
        for (name, value) in settings {
            self.on_setting(name, value)?;
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut self.outgoing);
        self.opening = Opening::Complete;
        if self.initial_window > before {
            self.flush_unblocked();
        }
        Ok(())
    }

    fn on_setting(&mut self, name: u16, value: u32) -> Result<(), ConnectionError> {
        steps::add(steps::FIELD);
        match name {
            setting::HEADER_TABLE_SIZE => self.response_encoder.table_resized(value),
            setting::ENABLE_PUSH if value > 1 => {
                return Err(ConnectionError::protocol("ENABLE_PUSH is neither 0 nor 1"));
            }
            setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(WindowOverflow.into()),
            setting::INITIAL_WINDOW_SIZE => self.initial_window = value,
            // Frames written here are not longer than the smallest value allowed.
            setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                return Err(ConnectionError::protocol("MAX_FRAME_SIZE is out of range"));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_ping(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let payload = frame.ping()?;
        if !frame.has(frame::ACK) {
            frame::write(frame::PING, frame::ACK, 0, payload, &mut self.outgoing);
        } else if self.phase == Phase::Draining && payload == DRAIN_PING {
            self.phase = Phase::GoingAway;
            self.write_goaway(self.last_stream, ErrorCode::No);
        } else {
            self.deliveries.on_acknowledged(payload, self.removed, &mut self.outgoing);
        }
        Ok(())
    }

    fn on_window_update(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let (id, increment) = (frame.stream, frame.number()? & WINDOW_MAX);
        if id == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("WINDOW_UPDATE by zero"));
            }
            self.send_window.increase(increment)?;
            self.flush_connection();
            return Ok(());
        }
        self.must_not_be_idle(frame)?;
        if id > self.last_stream || self.closed.was_reset(id) {
            return Ok(());
        }
        if increment == 0 {
            return self.reset_for(id, ErrorCode::Protocol);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return self.on_late_window_update(id, increment);
        };
        let credit = stream.send_window.credit();
        if stream.send_window.increase(increment, self.initial_window).is_err() {
            return self.reset_for(id, ErrorCode::FlowControl);
        }
        if stream.blocked_by == Some(BlockedBy::Stream) {
            self.send_queues.remove_credit(id, credit);
            if stream.send_window.available(self.initial_window) == 0 {
                self.send_queues.push_credit(id, stream.send_window.credit());
            } else {
                stream.blocked_by = None;
                self.flush(id);
            }
        }
        Ok(())
    }

    /// Ignores a WINDOW_UPDATE of a closed stream, unless no window allows it: whether an error of the client is reported must not depend
    /// on when the response was ready.
    fn on_late_window_update(&mut self, id: u32, increment: u32) -> Result<(), ConnectionError> {
        let is_error = increment > WINDOW_MAX - DEFAULT_WINDOW;
        if is_error { self.reset_for(id, ErrorCode::FlowControl) } else { Ok(()) }
    }

    fn on_reset(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        frame.number()?;
        self.must_not_be_idle(frame)?;
        self.events.frame(ConnectionEvent::ResetReceived);
        self.budget.reset(&self.settings)?;
        self.watches.on_reset(frame.stream);
        self.close(frame.stream);
        Ok(())
    }

    /// Checks a PRIORITY frame; priorities are deprecated and not followed.
    fn on_priority(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if frame.stream == 0 {
            return Err(ConnectionError::protocol("PRIORITY on stream 0"));
        }
        if frame.payload.len() != 5 {
            return Err(ConnectionError::frame_size("wrong length of PRIORITY"));
        }
        if frame.depends_on_itself() {
            return Err(ConnectionError::protocol("a stream depends on itself"));
        }
        Ok(())
    }

    fn must_not_be_idle(&self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let is_idle = frame.stream.is_multiple_of(2) || frame.stream > self.last_stream;
        if is_idle && self.phase != Phase::GoingAway {
            return Err(ConnectionError::protocol("frame on an idle stream"));
        }
        Ok(())
    }
}
