//! How much a client may ask of the connection that leads to nothing.

use crate::http2::{ConnectionError, ErrorCode, Http2Settings};
use std::time::Duration;

/// How long a budget lasts before it is renewed.
const PERIOD: Duration = Duration::from_secs(10);
/// Control frames that each request brings along: its client may well give back windows frame by frame.
const CONTROL_FRAMES_PER_REQUEST: u32 = 8;

/// What the client has done since the budget was renewed.
#[derive(Default)]
pub(super) struct Budget {
    since: Duration,
    control_frames: u32,
    resets: u32,
    requests: u32,
    answers: u32,
}

impl Budget {
    /// The client opened a stream.
    #[inline]
    pub(super) fn request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// A request was answered.
    #[inline]
    pub(super) fn answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Number of responses since it was renewed.
    pub(super) fn responses(&self) -> u32 {
        self.answers
    }

    /// A frame came that asks for nothing.
    pub(super) fn control_frame(&mut self, settings: &Http2Settings) -> Result<(), ConnectionError> {
        self.control_frames = self.control_frames.saturating_add(1);
        let earned = self.requests.saturating_mul(CONTROL_FRAMES_PER_REQUEST);
        if self.control_frames > settings.control_frames_max.saturating_add(earned) {
            return Err(ConnectionError::new(
                ErrorCode::EnhanceYourCalm,
                "it floods with frames that ask for nothing",
            ));
        }
        Ok(())
    }

    /// The client cancelled a request.
    pub(super) fn reset(&mut self, settings: &Http2Settings) -> Result<(), ConnectionError> {
        self.resets = self.resets.saturating_add(1);
        if self.resets > settings.resets_max.saturating_add(self.answers) {
            return Err(ConnectionError::new(
                ErrorCode::EnhanceYourCalm,
                "it cancels too much of what it asks",
            ));
        }
        Ok(())
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= PERIOD {
            *self = Self { since: now, ..Self::default() };
        }
    }
}
