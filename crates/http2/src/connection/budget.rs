//! Bounds on work that a client causes without requesting a decision.

use crate::{CloseReason, ConnectionError, ErrorCode, Http2Settings, frame, steps};
use std::time::Duration;

/// Time after which the counts start at zero.
const PERIOD: Duration = Duration::from_secs(10);
/// Control frames allowed for each request: its client may return windows frame by frame.
const CONTROL_FRAMES_PER_REQUEST: u32 = 8;

const CONTROL_FRAMES: &str = "too many control frames";
const HEADER_FIELDS: &str = "too many header fields by index";
const RESETS: &str = "too many RST_STREAM frames";
const MEMORY: &str = "no memory for an incomplete frame";

/// Steps for the frames received and written because of a header block, without one for each byte of the headers of those received.
#[derive(Clone, Copy)]
pub(super) struct Exchange(i64);

/// A request with one DATA frame, and a response with three frames.
pub(super) const CALL: Exchange = Exchange::of(5, 2);
/// A request without a body, and a response of one frame, which is queued before.
pub(super) const HEADERS_AND_RESPONSE: Exchange = Exchange::of(3, 1);
pub(super) const TRAILERS: Exchange = Exchange::of(1, 1);

impl Exchange {
    const fn of(frames: usize, received: usize) -> Self {
        Self((frames * steps::FRAME) as i64 - (received * frame::HEADER) as i64)
    }
}

/// The reason for which a connection with this error ends.
pub(super) fn end_reason(error: &ConnectionError) -> CloseReason {
    match error.why {
        CONTROL_FRAMES => CloseReason::ControlFrames,
        HEADER_FIELDS => CloseReason::HeaderFields,
        RESETS => CloseReason::Resets,
        MEMORY => CloseReason::Memory,
        _ => CloseReason::Protocol,
    }
}

/// The connection keeps more of an incomplete frame than the budget of all connections has room for.
pub(super) fn no_memory() -> ConnectionError {
    ConnectionError::new(ErrorCode::EnhanceYourCalm, MEMORY)
}

/// Counts since the last renewal.
#[derive(Default)]
pub(super) struct Budget {
    since: Duration,
    control_frames: u32,
    /// Steps (`steps.rs`) that requests took beyond one for each byte of them. Negative while they took fewer.
    excess: i64,
    resets: u32,
    requests: u32,
    answers: u32,
}

impl Budget {
    /// A request that is neither malformed nor refused was received.
    #[inline]
    pub(super) fn request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// The response to a request was written.
    #[inline]
    pub(super) fn count_response(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Number of responses since it was renewed.
    pub(super) fn responses(&self) -> u32 {
        self.answers
    }

    /// A control frame, or another frame without a request, was received.
    pub(super) fn control_frame(&mut self, settings: &Http2Settings) -> Result<(), ConnectionError> {
        self.control_frames = self.control_frames.saturating_add(1);
        let earned = self.requests.saturating_mul(CONTROL_FRAMES_PER_REQUEST);
        if self.control_frames > settings.control_frames_max.saturating_add(earned) {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, CONTROL_FRAMES));
        }
        Ok(())
    }

    /// So many bytes of bodies were received.
    #[inline]
    pub(super) fn body(&mut self, bytes: usize) {
        self.excess -= bytes as i64;
    }

    /// A header block of so many bytes was decoded in so many steps. A field by index is a byte or two, and takes one step, or some
    /// where requests are given copies of it. Honest calls take fewer than one step for each byte, also those with a hundred such
    /// fields. What exceeds it counts against the bound of control frames.
    #[inline]
    pub(super) fn headers(
        &mut self,
        exchange: Exchange,
        steps: usize,
        bytes: usize,
        settings: &Http2Settings,
    ) -> Result<(), ConnectionError> {
        self.excess += exchange.0 + (steps + steps::of_bytes(bytes)) as i64 - bytes as i64;
        if self.excess > i64::from(settings.control_frames_max) {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, HEADER_FIELDS));
        }
        Ok(())
    }

    /// A DATA frame was cut short by a small window. Checked with the next control frame.
    pub(super) fn fragment(&mut self) {
        self.control_frames = self.control_frames.saturating_add(1);
    }

    /// A stream was reset by the client, or by the server because of an error of the client.
    pub(super) fn reset(&mut self, settings: &Http2Settings) -> Result<(), ConnectionError> {
        self.resets = self.resets.saturating_add(1);
        if self.resets > settings.resets_max.saturating_add(self.answers) {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, RESETS));
        }
        Ok(())
    }

    /// Moves the time to `now`.
    pub(super) fn tick(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= PERIOD {
            *self = Self { since: now, ..Self::default() };
        }
    }
}
