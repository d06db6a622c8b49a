//! Bounds on work that a client causes without requesting a decision.

use crate::http2::{CloseReason, ConnectionError, ErrorCode, Http2Settings};
use std::time::Duration;

/// Time after which the counts start at zero.
const PERIOD: Duration = Duration::from_secs(10);
/// Control frames allowed for each request: its client may return windows frame by frame.
const CONTROL_FRAMES_PER_REQUEST: u32 = 8;

/// Bytes by which the list of fields of a usual request is larger than its encoded block.
const USUAL_EXPANSION: usize = 1024;

const CONTROL_FRAMES: &str = "too many control frames";
const HEADER_FIELDS: &str = "too many header fields by index";
const RESETS: &str = "too many RST_STREAM frames";

/// The reason for which a connection with this error ends.
pub(super) fn end_reason(error: &ConnectionError) -> CloseReason {
    match error.why {
        CONTROL_FRAMES => CloseReason::ControlFrames,
        HEADER_FIELDS => CloseReason::HeaderFields,
        RESETS => CloseReason::Resets,
        _ => CloseReason::Protocol,
    }
}

/// Counts since the last renewal.
#[derive(Default)]
pub(super) struct Budget {
    since: Duration,
    control_frames: u32,
    /// Bytes of fields that header blocks made of few bytes.
    expanded_bytes: u64,
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
    pub(super) fn answer(&mut self) {
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

    /// A header block was decoded, with so many bytes of fields that differ from those of the block before. Fields by index
    /// make the list much larger than the block: each KiB beyond that of a usual request, also of several lists together, counts
    /// against the bound of control frames, and requests earn no more of them.
    #[inline]
    pub(super) fn decoded(
        &mut self,
        new_bytes: usize,
        block_bytes: usize,
        settings: &Http2Settings,
    ) -> Result<(), ConnectionError> {
        let excess = new_bytes.saturating_sub(block_bytes + USUAL_EXPANSION);
        self.expanded_bytes = self.expanded_bytes.saturating_add(excess as u64);
        if self.expanded_bytes > 1024 * u64::from(settings.control_frames_max) {
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
