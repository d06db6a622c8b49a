//! Frames that are about the connection or a stream and carry no request: SETTINGS, PING, WINDOW_UPDATE and their like.

use super::{Connection, Phase};
use crate::http2::{
    ConnectionError, ErrorCode, Service,
    flow_control::{DEFAULT_WINDOW, WINDOW_MAX, WindowOverflow},
    frame::{self, Frame, setting},
};

/// The payload of the PING that asks whether the client knows of the GOAWAY before it.
const DRAIN_PING: &[u8; 8] = b"draining";
/// The payload of the PING that asks whether the client is there.
pub(super) const ALIVE_PING: &[u8; 8] = b"alive?  ";

impl<S: Service> Connection<S> {
    /// What the server says first.
    pub(super) fn greet(&mut self) {
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, self.settings.streams_max),
            (setting::INITIAL_WINDOW_SIZE, self.settings.stream_window),
            (setting::MAX_HEADER_LIST_SIZE, self.settings.header_bytes_max),
        ];
        frame::write_settings(&settings, &mut self.outgoing);
        let raise = self.settings.connection_window.saturating_sub(DEFAULT_WINDOW);
        if raise > 0 {
            frame::write_window_update(0, raise, &mut self.outgoing);
        }
    }

    /// Asks the client to start nothing more. It is told for good once it has answered: what it had sent until then is
    /// still answered.
    pub(in crate::http2) fn start_drain(&mut self) {
        if self.phase < Phase::Draining {
            self.phase = Phase::Draining;
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
            frame::GOAWAY if frame.stream != 0 => Err(ConnectionError::protocol("a GOAWAY is of a stream")),
            frame::PUSH_PROMISE => Err(ConnectionError::protocol("a client pushes")),
            // A GOAWAY of a client says that it will take no pushes, and there are none. Kinds that are yet to be invented
            // are to be ignored.
            _ => Ok(()),
        }
    }

    fn on_settings(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let Some(settings) = frame.settings()? else { return Ok(()) };
        for (name, value) in settings {
            self.on_setting(name, value)?;
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut self.outgoing);
        if self.phase == Phase::AwaitingSettings {
            self.phase = Phase::Open;
        }
        self.flush_all();
        Ok(())
    }

    fn on_setting(&mut self, name: u16, value: u32) -> Result<(), ConnectionError> {
        match name {
            setting::HEADER_TABLE_SIZE => self.answers.table_resized(value),
            setting::ENABLE_PUSH if value > 1 => {
                return Err(ConnectionError::protocol("ENABLE_PUSH is neither 0 nor 1"));
            }
            setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(WindowOverflow.into()),
            setting::INITIAL_WINDOW_SIZE => {
                let by = i64::from(value) - i64::from(self.stream_outbound);
                self.stream_outbound = value;
                for stream in self.streams.values_mut() {
                    stream.send_window.adjust(by)?;
                }
            }
            // No frame of an answer is longer than the least that may be set.
            setting::MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                return Err(ConnectionError::protocol("MAX_FRAME_SIZE is out of its range"));
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
        }
        Ok(())
    }

    fn on_window_update(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let raise = frame.number()? & WINDOW_MAX;
        if frame.stream == 0 {
            if raise == 0 {
                return Err(ConnectionError::protocol("a window is raised by nothing"));
            }
            self.send_window.adjust(raise.into())?;
            self.flush_all();
            return Ok(());
        }
        self.must_not_be_idle(frame)?;
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return Ok(()) };
        if raise == 0 {
            self.reset(frame.stream, ErrorCode::Protocol);
        } else if stream.send_window.adjust(raise.into()).is_err() {
            self.reset(frame.stream, ErrorCode::FlowControl);
        } else {
            self.flush(frame.stream);
        }
        Ok(())
    }

    fn on_reset(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        frame.number()?;
        self.must_not_be_idle(frame)?;
        self.budget.reset(&self.settings)?;
        self.close(frame.stream);
        Ok(())
    }

    /// Priorities are checked, not followed (RFC 9113 has given them up).
    fn on_priority(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if frame.stream == 0 {
            return Err(ConnectionError::protocol("a PRIORITY is of no stream"));
        }
        if frame.payload.len() != 5 {
            return Err(ConnectionError::frame_size("a PRIORITY has a wrong length"));
        }
        if frame.depends_on_itself() {
            return Err(ConnectionError::protocol("a stream depends on itself"));
        }
        Ok(())
    }

    fn must_not_be_idle(&self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let is_idle = frame.stream.is_multiple_of(2) || frame.stream > self.last_stream;
        if is_idle && self.phase != Phase::GoingAway {
            return Err(ConnectionError::protocol("a frame is of a stream that was never opened"));
        }
        Ok(())
    }
}
