//! Errors of connections and streams (RFC 9113, section 7).

/// The error codes, by their numbers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorCode {
    /// NO_ERROR: a graceful end.
    No = 0,
    /// PROTOCOL_ERROR.
    Protocol = 1,
    /// INTERNAL_ERROR.
    Internal = 2,
    /// FLOW_CONTROL_ERROR: more octets than the window.
    FlowControl = 3,
    /// STREAM_CLOSED.
    StreamClosed = 5,
    /// FRAME_SIZE_ERROR.
    FrameSize = 6,
    /// REFUSED_STREAM: not processed, may be sent again.
    RefusedStream = 7,
    /// CANCEL.
    Cancel = 8,
    /// COMPRESSION_ERROR: the state of HPACK is lost.
    Compression = 9,
    /// ENHANCE_YOUR_CALM: the peer causes excessive work.
    EnhanceYourCalm = 11,
}

const NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// The name of an error code received.
pub fn error_name(code: u32) -> &'static str {
    NAMES.get(code as usize).unwrap_or(&"unknown error code")
}

/// The peer violated the protocol; the connection fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why} ({})", error_name(*code as u32))]
pub struct ConnectionError {
    /// The error code of the GOAWAY.
    pub(crate) code: ErrorCode,
    /// The violation.
    pub(crate) why: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, why: &'static str) -> Self {
        Self { code, why }
    }

    pub(crate) const fn protocol(why: &'static str) -> Self {
        Self::new(ErrorCode::Protocol, why)
    }

    pub(crate) const fn frame_size(why: &'static str) -> Self {
        Self::new(ErrorCode::FrameSize, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_name() {
        for (code, name) in [
            (ErrorCode::No, "NO_ERROR"),
            (ErrorCode::Protocol, "PROTOCOL_ERROR"),
            (ErrorCode::Internal, "INTERNAL_ERROR"),
            (ErrorCode::FlowControl, "FLOW_CONTROL_ERROR"),
            (ErrorCode::StreamClosed, "STREAM_CLOSED"),
            (ErrorCode::FrameSize, "FRAME_SIZE_ERROR"),
            (ErrorCode::RefusedStream, "REFUSED_STREAM"),
            (ErrorCode::Cancel, "CANCEL"),
            (ErrorCode::Compression, "COMPRESSION_ERROR"),
            (ErrorCode::EnhanceYourCalm, "ENHANCE_YOUR_CALM"),
        ] {
            assert_eq!(error_name(code as u32), name);
        }
        assert_eq!(error_name(77), "unknown error code");
    }
}
