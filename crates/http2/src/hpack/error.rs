//! Errors of header blocks.

use crate::{ConnectionError, ErrorCode};

/// A header block that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    Truncated,
    Integer,
    Huffman,
    Index,
    TableSize,
    LateResize,
    ListTooLarge,
}

impl From<HpackError> for ConnectionError {
    fn from(error: HpackError) -> Self {
        let code = match error {
            HpackError::ListTooLarge => ErrorCode::EnhanceYourCalm,
            _ => ErrorCode::Compression,
        };
        let why = match error {
            HpackError::Truncated => "header block ends within a field",
            HpackError::Integer => "integer out of range in a header block",
            HpackError::Huffman => "invalid Huffman code in a header block",
            HpackError::Index => "header block refers to an entry that is in no table",
            HpackError::TableSize => "header block sets the table size above SETTINGS_HEADER_TABLE_SIZE",
            HpackError::LateResize => "table size update after the first field of a header block",
            HpackError::ListTooLarge => "header block far above SETTINGS_MAX_HEADER_LIST_SIZE",
        };
        Self::new(code, why)
    }
}
