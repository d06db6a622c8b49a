//! The header block of a request, encoded once: all requests of a connection have the same headers.
//!
//! They are encoded as a stock Envoy does (the path in full each time, the rest by index), so that decoding them costs a
//! server the same.

use crate::http2::hpack;
use std::rc::Rc;

/// `:method: POST` and `:scheme: http` in the static table.
const METHOD_POST: usize = 3;
const SCHEME_HTTP: usize = 6;

/// The header blocks of one connection's requests. Cheap to clone for a new connection, before its first request.
#[derive(Clone)]
pub(crate) struct RequestEncoder {
    blocks: Rc<Blocks>,
    next: Next,
}

struct Blocks {
    /// Adds the fields to the server's dynamic table.
    first: Vec<u8>,
    /// Refers to that table.
    later: Vec<u8>,
    /// Sets the table size to zero; all fields are literals.
    size_update: Vec<u8>,
    /// All fields are literals.
    plain: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Next {
    First,
    Later,
    /// The server reduced its table size: the next block must start with a size update (RFC 7541, section 4.2).
    SizeUpdate,
    Plain,
}

impl RequestEncoder {
    /// Encodes POST requests for `path` with these further fields, starting with `:authority`.
    pub(crate) fn new(path: &str, fields: &[(&str, &str)]) -> Self {
        let (mut first, mut later, mut plain) = (target(path), target(path), target(path));
        for (position, (name, value)) in fields.iter().enumerate() {
            hpack::write_literal(name.as_bytes(), value.as_bytes(), true, &mut first);
            hpack::write_indexed(hpack::NEWEST + fields.len() - 1 - position, &mut later);
            hpack::write_literal(name.as_bytes(), value.as_bytes(), false, &mut plain);
        }
        let mut size_update = Vec::new();
        hpack::write_no_table(&mut size_update);
        size_update.extend_from_slice(&plain);
        Self { blocks: Rc::new(Blocks { first, later, size_update, plain }), next: Next::First }
    }

    /// Applies SETTINGS_HEADER_TABLE_SIZE. A table below the default is not used at all.
    pub(super) fn table_resized(&mut self, size: u32) {
        if (size as usize) < hpack::DEFAULT_TABLE_SIZE && !matches!(self.next, Next::Plain) {
            self.next = Next::SizeUpdate;
        }
    }

    /// The block of the next request. It must be sent: later blocks may refer to the table entries it adds.
    pub(crate) fn next(&mut self) -> &[u8] {
        let (block, next) = match self.next {
            Next::First => (&self.blocks.first, Next::Later),
            Next::Later => (&self.blocks.later, Next::Later),
            Next::SizeUpdate => (&self.blocks.size_update, Next::Plain),
            Next::Plain => (&self.blocks.plain, Next::Plain),
        };
        self.next = next;
        block
    }
}

/// The fields that are not in the dynamic table.
fn target(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    hpack::write_indexed(METHOD_POST, &mut block);
    hpack::write_indexed(SCHEME_HTTP, &mut block);
    hpack::write_literal(b":path", path.as_bytes(), false, &mut block);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::{Decoder, Fields};

    fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Fields::default();
        decoder.decode(block, usize::MAX, &mut fields).expect("a valid block");
        fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn all_encodings_of_the_headers_decode_to_the_same_fields() {
        let fields = [(":authority", "limits.example:8081"), ("te", "trailers"), ("grpc-timeout", "20m")];
        let mut encoder = RequestEncoder::new("/a.path", &fields);
        let mut server = Decoder::new();
        let first = read(&mut server, encoder.next());
        let target = [(":method", "POST"), (":scheme", "http"), (":path", "/a.path")];
        let expected: Vec<(Vec<u8>, Vec<u8>)> =
            target.iter().chain(&fields).map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(first, expected);
        assert!(encoder.next().len() < 20, "later blocks use the table");
        assert_eq!(read(&mut server, encoder.next()), first);

        encoder.table_resized(0);
        assert_eq!(read(&mut server, encoder.next()), first, "with a table size update");
        assert_eq!(read(&mut server, encoder.next()), first, "without the table");
    }
}
