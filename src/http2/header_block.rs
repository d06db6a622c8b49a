//! A header block that no single frame holds: HEADERS, then CONTINUATION until its end.

use super::{
    ConnectionError, ErrorCode,
    frame::{self, Frame},
};

/// As much of a header block as has come.
pub(crate) struct PartialHeaderBlock {
    pub(crate) stream: u32,
    pub(crate) bytes: Vec<u8>,
    /// Whether nothing follows the block.
    pub(crate) ends_stream: bool,
}

impl PartialHeaderBlock {
    /// What HEADERS start, of which `content` is not all.
    pub(crate) fn start(headers: &Frame<'_>, content: &[u8]) -> Self {
        let ends_stream = headers.has(frame::END_STREAM);
        Self { stream: headers.stream, bytes: content.to_vec(), ends_stream }
    }

    /// Adds a CONTINUATION to what is open, which may grow to `bytes_max`; the block, if that is its end.
    pub(crate) fn extend(
        open: &mut Option<Self>,
        continuation: &Frame<'_>,
        bytes_max: usize,
    ) -> Result<Option<Self>, ConnectionError> {
        let Some(block) = open.as_mut().filter(|block| block.stream == continuation.stream) else {
            return Err(ConnectionError::protocol("a CONTINUATION continues nothing"));
        };
        block.bytes.extend_from_slice(continuation.payload);
        if block.bytes.len() > bytes_max {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, "a header block does not end"));
        }
        Ok(open.take_if(|_| continuation.has(frame::END_HEADERS)))
    }
}
