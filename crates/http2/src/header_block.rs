//! A header block in several frames: HEADERS, then CONTINUATION until END_HEADERS.

use super::{
    ConnectionError, ErrorCode,
    frame::{self, Frame},
};

/// The part of a header block that has been received.
pub struct PartialHeaderBlock {
    pub(crate) stream: u32,
    pub(crate) bytes: Vec<u8>,
    /// Whether the HEADERS frame had END_STREAM.
    pub(crate) ends_stream: bool,
}

impl PartialHeaderBlock {
    /// Starts with the content of HEADERS without END_HEADERS.
    pub(crate) fn start(headers: &Frame<'_>, content: &[u8]) -> Self {
        let ends_stream = headers.has(frame::END_STREAM);
        Self { stream: headers.stream, bytes: content.to_vec(), ends_stream }
    }

    /// Adds a CONTINUATION to a block of at most `bytes_max`. Returns the block if it is complete.
    pub(crate) fn extend(
        open: &mut Option<Self>,
        continuation: &Frame<'_>,
        bytes_max: usize,
    ) -> Result<Option<Self>, ConnectionError> {
        let Some(block) = open.as_mut().filter(|block| block.stream == continuation.stream) else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        block.bytes.extend_from_slice(continuation.payload);
        if block.bytes.len() > bytes_max {
            return Err(ConnectionError::new(ErrorCode::EnhanceYourCalm, "header block too long"));
        }
        Ok(open.take_if(|_| continuation.has(frame::END_HEADERS)))
    }
}
