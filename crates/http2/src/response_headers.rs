//! Encodes the header blocks of responses, and frames them.
//!
//! The two fields of every fast-path response are in the client's dynamic table. All other fields are rare and written as literals, so that
//! the table has no other state.

use super::{
    frame::{self, write_header},
    hpack::{self, write_indexed, write_literal},
};
use http::HeaderMap;

/// `:status: 200` in the static table.
const STATUS_200: usize = 8;
const CONTENT_TYPE: (&[u8], &[u8]) = (b"content-type", b"application/grpc");
const GRPC_STATUS_OK: (&[u8], &[u8]) = (b"grpc-status", b"0");

/// Encodes header blocks, in the order in which they are sent.
pub(super) struct ResponseEncoder {
    table: Table,
    /// The header block of a fast-path response.
    fast_path_headers: Vec<u8>,
    /// The header block of its trailers.
    fast_path_trailers: Vec<u8>,
}

/// State of the client's dynamic table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Empty,
    ContentType,
    /// `content-type` and `grpc-status`; the latter is the newest entry.
    Both,
    /// The client reduced the size below the default: the next block must start with a size update.
    SizeUpdate,
    Unused,
}

impl ResponseEncoder {
    pub(super) fn new() -> Self {
        let mut headers =
            Self { table: Table::Empty, fast_path_headers: Vec::new(), fast_path_trailers: Vec::new() };
        headers.set(Table::Empty);
        headers
    }

    /// Applies SETTINGS_HEADER_TABLE_SIZE. If the table is below the default it is not used at all, which takes one size update (RFC 7541,
    /// section 4.2).
    pub(super) fn table_resized(&mut self, size: u32) {
        if (size as usize) < hpack::DEFAULT_TABLE_SIZE
            && !matches!(self.table, Table::SizeUpdate | Table::Unused)
        {
            self.set(Table::SizeUpdate);
        }
    }

    /// Encodes the blocks that fit the state of the table.
    fn set(&mut self, table: Table) {
        self.table = table;
        let indexed = matches!(table, Table::Empty | Table::ContentType);
        let field = |(name, value): (&[u8], &[u8]), entry: Option<usize>, block: &mut Vec<u8>| match entry {
            Some(index) => write_indexed(index, block),
            None => write_literal(name, value, indexed, block),
        };
        let (content_type, status) = match table {
            Table::Empty | Table::SizeUpdate | Table::Unused => (None, None),
            Table::ContentType => (Some(hpack::NEWEST), None),
            Table::Both => (Some(hpack::NEWEST + 1), Some(hpack::NEWEST)),
        };
        for block in [&mut self.fast_path_headers, &mut self.fast_path_trailers] {
            block.clear();
            // Either may be the next block: the table may change between the headers and the trailers of a response.
            if table == Table::SizeUpdate {
                hpack::write_no_table(block);
            }
        }
        write_indexed(STATUS_200, &mut self.fast_path_headers);
        field(CONTENT_TYPE, content_type, &mut self.fast_path_headers);
        field(GRPC_STATUS_OK, status, &mut self.fast_path_trailers);
    }

    /// Appends the HEADERS before the body of a fast-path response.
    #[inline]
    pub(super) fn write_fast_path_headers(&mut self, stream: u32, out: &mut Vec<u8>) {
        frame::write(frame::HEADERS, frame::END_HEADERS, stream, &self.fast_path_headers, out);
        match self.table {
            Table::Both | Table::ContentType | Table::Unused => {}
            Table::Empty => self.set(Table::ContentType),
            Table::SizeUpdate => self.set(Table::Unused),
        }
    }

    /// Appends the HEADERS after the body of a fast-path response.
    #[inline]
    pub(super) fn write_fast_path_trailers(&mut self, stream: u32, out: &mut Vec<u8>) {
        const FLAGS: u8 = frame::END_HEADERS | frame::END_STREAM;
        frame::write(frame::HEADERS, FLAGS, stream, &self.fast_path_trailers, out);
        match self.table {
            Table::Both | Table::Empty | Table::Unused => {}
            Table::ContentType => self.set(Table::Both),
            Table::SizeUpdate => self.set(Table::Unused),
        }
    }

    /// Appends the HEADERS before the body of any other response.
    pub(super) fn write_head(
        &mut self,
        stream: u32,
        status: u16,
        headers: &HeaderMap,
        is_end: bool,
        out: &mut Vec<u8>,
    ) {
        let mut block = self.block();
        write_literal(b":status", status.to_string().as_bytes(), false, &mut block);
        write_fields(headers, &mut block);
        write_block(stream, &block, is_end, out);
    }

    /// Appends the HEADERS after the body of any other response.
    pub(super) fn write_trailers(&mut self, stream: u32, trailers: &HeaderMap, out: &mut Vec<u8>) {
        let mut block = self.block();
        write_fields(trailers, &mut block);
        write_block(stream, &block, true, out);
    }

    /// A new block, with a size update if one is due.
    fn block(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if self.table == Table::SizeUpdate {
            hpack::write_no_table(&mut block);
            self.set(Table::Unused);
        }
        block
    }
}

fn write_fields(fields: &HeaderMap, block: &mut Vec<u8>) {
    for (name, value) in fields {
        write_literal(name.as_str().as_bytes(), value.as_bytes(), false, block);
    }
}

/// Appends a block as HEADERS, and CONTINUATION if it is longer than a frame.
fn write_block(stream: u32, block: &[u8], is_end: bool, out: &mut Vec<u8>) {
    let (first, rest) = block.split_at(block.len().min(frame::PAYLOAD_MAX));
    let mut flags = if is_end { frame::END_STREAM } else { 0 };
    if rest.is_empty() {
        flags |= frame::END_HEADERS;
    }
    frame::write(frame::HEADERS, flags, stream, first, out);
    let mut pieces = rest.chunks(frame::PAYLOAD_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { frame::END_HEADERS } else { 0 };
        frame::write(frame::CONTINUATION, flags, stream, piece, out);
    }
}

/// Appends the header of a DATA frame; [`end_data`] sets its length. Returns the start of its payload.
#[inline]
pub(super) fn start_data(stream: u32, out: &mut Vec<u8>) -> usize {
    write_header(0, frame::DATA, 0, stream, out);
    out.len()
}

/// Ends the DATA frame with the payload from `start`.
#[inline]
pub(super) fn end_data(start: usize, out: &mut [u8]) {
    let [_, length @ ..] = ((out.len() - start) as u32).to_be_bytes();
    out[start - frame::HEADER..][..length.len()].copy_from_slice(&length);
}
