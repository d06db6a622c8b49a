//! The header block of a request, encoded once: all requests of a connection have the same headers.
//!
//! The headers are encoded as a default Envoy does (the path in full each time, the rest by index), so that a server decodes them at the
//! same cost.

use crate::hpack;
use std::rc::Rc;

/// `:method: POST` and `:scheme: http` in the static table.
const METHOD_POST: usize = 3;
const SCHEME_HTTP: usize = 6;

/// The header blocks of one connection's requests. Cheap to clone for a new connection, before its first request.
#[derive(Clone)]
pub struct RequestEncoder {
    blocks: Rc<Blocks>,
    next: Next,
    traced: Option<Traced>,
}

struct Blocks {
    /// Adds the fields to the server's dynamic table.
    first: Vec<u8>,
    /// Refers to the entries of that table.
    later: Vec<u8>,
    /// Sets the table size to zero; all fields are literals.
    size_update: Vec<u8>,
    /// All fields are literals.
    plain: Vec<u8>,
    /// The fields that are not in the dynamic table.
    target: Vec<u8>,
    /// Number of the other fields.
    indexed: usize,
    /// Size of these in the dynamic table.
    table_bytes: usize,
}

/// A `traceparent` that differs in each request and is not sampled. As in Envoy, it is added to the dynamic table.
#[derive(Clone, Default)]
struct Traced {
    requests: u64,
    /// Number of its entries in the table.
    added: usize,
    block: Vec<u8>,
}

const TRACEPARENT: &str = "traceparent";
/// Size of an entry in the table; the value has 55 bytes.
const TRACEPARENT_BYTES: usize = TRACEPARENT.len() + 55 + hpack::ENTRY_OVERHEAD;

impl Traced {
    /// The next block. `untraced` is the block without a trace.
    fn block(&mut self, blocks: &Blocks, next: Next, untraced: &[u8]) -> &[u8] {
        self.requests += 1;
        // Digits that vary as random numbers do: their codes have different lengths.
        let trace_id = u128::from(self.requests).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let value = format!("00-{trace_id:032x}-{:016x}-00", (trace_id >> 64) as u64);
        self.block.clear();
        match next {
            Next::Later
                if blocks.table_bytes + (self.added + 1) * TRACEPARENT_BYTES <= hpack::DEFAULT_TABLE_SIZE =>
            {
                self.block.extend_from_slice(&blocks.target);
                let oldest = hpack::NEWEST + self.added + blocks.indexed - 1;
                (0..blocks.indexed)
                    .for_each(|position| hpack::write_indexed(oldest - position, &mut self.block));
                hpack::write_literal_of(hpack::NEWEST, value.as_bytes(), &mut self.block);
                self.added += 1;
            }
            Next::First | Next::Later => {
                if self.added > 0 {
                    // Clears a full table. Envoy adds evicted fields again one by one.
                    hpack::write_no_table(&mut self.block);
                    hpack::write_table_size(hpack::DEFAULT_TABLE_SIZE, &mut self.block);
                }
                self.block.extend_from_slice(&blocks.first);
                hpack::write_literal(TRACEPARENT.as_bytes(), value.as_bytes(), true, &mut self.block);
                self.added = 1;
            }
            Next::SizeUpdate | Next::Plain => {
                self.block.extend_from_slice(untraced);
                hpack::write_literal(TRACEPARENT.as_bytes(), value.as_bytes(), false, &mut self.block);
            }
        }
        &self.block
    }
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
    pub fn new(path: &str, fields: &[(&str, &str)]) -> Self {
        let (mut first, mut later, mut plain) = (target(path), target(path), target(path));
        for (position, (name, value)) in fields.iter().enumerate() {
            hpack::write_literal(name.as_bytes(), value.as_bytes(), true, &mut first);
            hpack::write_indexed(hpack::NEWEST + fields.len() - 1 - position, &mut later);
            hpack::write_literal(name.as_bytes(), value.as_bytes(), false, &mut plain);
        }
        let mut size_update = Vec::new();
        hpack::write_no_table(&mut size_update);
        size_update.extend_from_slice(&plain);
        let table_bytes =
            fields.iter().map(|(name, value)| name.len() + value.len() + hpack::ENTRY_OVERHEAD).sum();
        let (target, indexed) = (target(path), fields.len());
        let blocks = Blocks { first, later, size_update, plain, target, indexed, table_bytes };
        Self { blocks: Rc::new(blocks), next: Next::First, traced: None }
    }

    /// Adds a `traceparent` to each request. It differs in each, and is not sampled.
    pub fn traced(self) -> Self {
        Self { traced: Some(Traced::default()), ..self }
    }

    /// Applies SETTINGS_HEADER_TABLE_SIZE. A table below the default is not used at all.
    pub(super) fn table_resized(&mut self, size: u32) {
        if (size as usize) < hpack::DEFAULT_TABLE_SIZE && !matches!(self.next, Next::Plain) {
            self.next = Next::SizeUpdate;
        }
    }

    /// The block of the next request. It must be sent: later blocks may refer to the table entries it adds.
    pub fn next_block(&mut self) -> &[u8] {
        let (block, next) = match self.next {
            Next::First => (&self.blocks.first, Next::Later),
            Next::Later => (&self.blocks.later, Next::Later),
            Next::SizeUpdate => (&self.blocks.size_update, Next::Plain),
            Next::Plain => (&self.blocks.plain, Next::Plain),
        };
        let current = std::mem::replace(&mut self.next, next);
        match &mut self.traced {
            None => block,
            Some(traced) => traced.block(&self.blocks, current, block),
        }
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
    use crate::{FieldNames, hpack::Decoder};

    fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        decoder.decode(block, usize::MAX).expect("a valid block");
        decoder.fields().all().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn all_encodings_of_the_headers_decode_to_the_same_fields() {
        let fields = [(":authority", "limits.example:8081"), ("te", "trailers"), ("grpc-timeout", "20m")];
        let mut encoder = RequestEncoder::new("/a.path", &fields);
        let mut server = Decoder::new(FieldNames::none());
        let first = read(&mut server, encoder.next_block());
        let target = [(":method", "POST"), (":scheme", "http"), (":path", "/a.path")];
        let expected: Vec<(Vec<u8>, Vec<u8>)> =
            target.iter().chain(&fields).map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(first, expected);
        assert!(encoder.next_block().len() < 20, "later blocks use the table");
        assert_eq!(read(&mut server, encoder.next_block()), first);

        encoder.table_resized(0);
        assert_eq!(read(&mut server, encoder.next_block()), first, "with a table size update");
        assert_eq!(read(&mut server, encoder.next_block()), first, "without the table");
    }

    #[test]
    fn traced_requests_differ_in_their_traceparent_alone() {
        let mut encoder =
            RequestEncoder::new("/a.path", &[("te", "trailers"), ("grpc-timeout", "20m")]).traced();
        let mut server = Decoder::new(FieldNames::none());
        let mut seen = std::collections::HashSet::new();
        for request in 0..200 {
            if request == 150 {
                encoder.table_resized(0);
            }
            server.decode(encoder.next_block(), usize::MAX).expect("a valid block");
            let (names, values): (Vec<_>, Vec<_>) = server.fields().all().unzip();
            assert_eq!(
                names,
                [&b":method"[..], b":scheme", b":path", b"te", b"grpc-timeout", b"traceparent"]
            );
            assert_eq!(values[4], b"20m");
            let value = values[5].to_vec();
            assert!(value.len() == 55 && value.ends_with(b"-00") && seen.insert(value), "request {request}");
        }
    }
}
