//! Bounds on the work that a client causes beside its calls.

use crate::{CloseReason, ConnectionError, ErrorCode, Http2Settings, frame, steps};
use std::time::Duration;

/// The counts are reset after this time.
const PERIOD: Duration = Duration::from_secs(10);
/// Control frames allowed for each request: a client may return windows frame by frame.
const CONTROL_FRAMES_PER_REQUEST: u32 = 8;

const CONTROL_FRAMES: &str = "too many control frames";
const HEADER_FIELDS: &str = "too many header fields by index";
const RESETS: &str = "too many RST_STREAM frames";
const MEMORY: &str = "no memory for an incomplete frame";

/// Steps for the frames received and written because of a header block, less one for each byte of the headers of the received frames.
#[derive(Clone, Copy)]
pub(super) struct Exchange(i64);

/// A request with one DATA frame, and a response with three frames.
pub(super) const CALL: Exchange = Exchange::of(5, 2);
/// A request without a body, and a response of one frame that was queued before.
pub(super) const HEADERS_AND_RESPONSE: Exchange = Exchange::of(3, 1);
pub(super) const TRAILERS: Exchange = Exchange::of(1, 1);

impl Exchange {
    const fn of(frames: usize, received: usize) -> Self {
        Self((frames * steps::FRAME) as i64 - (received * frame::HEADER) as i64)
    }
}

/// The reason why a connection with this error ends.
pub(super) fn end_reason(error: &ConnectionError) -> CloseReason {
    match error.why {
        CONTROL_FRAMES => CloseReason::ControlFrames,
        HEADER_FIELDS => CloseReason::HeaderFields,
        RESETS => CloseReason::Resets,
        MEMORY => CloseReason::Memory,
        _ => CloseReason::Protocol,
    }
}

/// The connection holds more of an incomplete frame than the budget of all connections has room for.
pub(super) fn no_memory() -> ConnectionError {
    ConnectionError::new(ErrorCode::EnhanceYourCalm, MEMORY)
}

/// Counts since the last reset.
#[derive(Default)]
pub(super) struct Budget {
    since: Duration,
    control_frames: u32,
    /// Steps (`steps.rs`) of requests, less one for each of their bytes. Negative if they took fewer.
    excess: i64,
    resets: u32,
    requests: u32,
    answers: u32,
}

impl Budget {
    /// Counts a received request that is neither malformed nor refused.
    #[inline]
    pub(super) fn request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Counts a response that was written.
    #[inline]
    pub(super) fn count_response(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Number of responses since the last reset.
    pub(super) fn responses(&self) -> u32 {
        self.answers
    }

    /// Counts a control frame, or another frame without a request.
    pub(super) fn control_frame(&mut self, settings: &Http2Settings) -> Result<(), ConnectionError> {
        self.control_frames = self.control_frames.saturating_add(1);
        let earned = self.requests.saturating_mul(CONTROL_FRAMES_PER_REQUEST);
        if self.control_frames > settings.control_frames_max.saturating_add(earned) {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, CONTROL_FRAMES));
        }
        Ok(())
    }

    /// Counts received bytes of bodies.
    #[inline]
    pub(super) fn body(&mut self, bytes: usize) {
        self.excess -= bytes as i64;
    }

    /// Counts the steps of decoding a header block of `bytes`. A field by index has one or two bytes and takes one step, or several if
    /// requests get copies of it. Honest calls take fewer steps than they have bytes, even with a hundred such fields. Steps in excess are
    /// bounded as control frames are.
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

    /// Counts a DATA frame that a small window cut short. Checked with the next control frame.
    pub(super) fn fragment(&mut self) {
        self.control_frames = self.control_frames.saturating_add(1);
    }

    /// Counts a stream that was reset by the client, or by the server because of an error of the client.
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
