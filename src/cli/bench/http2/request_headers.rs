//! The header block of a call, made once: every call has the same headers.
//!
//! They are what a stock Envoy sends, coded as it does (the path in full each time, the rest by index), so that a
//! server has the same work with them.

use crate::http2::hpack;
use std::{rc::Rc, time::Duration};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// `:method: POST` and `:scheme: http` in the static table.
const METHOD_POST: usize = 3;
const SCHEME_HTTP: usize = 6;

/// The header blocks of one connection's calls. Cheap to clone for a new connection, before its first call.
#[derive(Clone)]
pub(crate) struct RequestHeaders {
    blocks: Rc<Blocks>,
    next: Next,
}

struct Blocks {
    /// Puts the fields into the server's table.
    first: Vec<u8>,
    /// Refers to that table.
    later: Vec<u8>,
    /// Gives up the table, then says everything in full.
    give_up_table: Vec<u8>,
    /// Says everything in full.
    plain: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Next {
    First,
    Later,
    /// The server made its table smaller: the next block must say that the client follows.
    GiveUpTable,
    Plain,
}

impl RequestHeaders {
    /// Headers of calls to the server named `authority`; without a `timeout` none is sent.
    pub(crate) fn new(authority: &str, timeout: Option<Duration>) -> Self {
        let timeout_ms = timeout.map(|timeout| timeout.as_millis().to_string());
        let grpc_timeout = timeout_ms.as_ref().map(|ms| format!("{ms}m"));
        let mut fields = vec![
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("x-envoy-internal", "true"),
            ("x-forwarded-for", "127.0.0.1"),
        ];
        fields.extend(grpc_timeout.as_deref().map(|timeout| ("grpc-timeout", timeout)));
        fields.extend(timeout_ms.as_deref().map(|ms| ("x-envoy-expected-rq-timeout-ms", ms)));

        let (mut first, mut later, mut plain) = (target(), target(), target());
        for (position, (name, value)) in fields.iter().enumerate() {
            hpack::write_literal(name.as_bytes(), value.as_bytes(), true, &mut first);
            hpack::write_indexed(hpack::NEWEST + fields.len() - 1 - position, &mut later);
            hpack::write_literal(name.as_bytes(), value.as_bytes(), false, &mut plain);
        }
        let mut give_up_table = Vec::new();
        hpack::write_no_table(&mut give_up_table);
        give_up_table.extend_from_slice(&plain);
        Self { blocks: Rc::new(Blocks { first, later, give_up_table, plain }), next: Next::First }
    }

    /// The server's table holds `size` bytes from now on. A table below the default is not used at all.
    pub(super) fn table_resized(&mut self, size: u32) {
        if (size as usize) < hpack::DEFAULT_TABLE_SIZE && !matches!(self.next, Next::Plain) {
            self.next = Next::GiveUpTable;
        }
    }

    /// The block of the next call, which must be sent: each may rest on those before it.
    pub(super) fn next(&mut self) -> &[u8] {
        let (block, next) = match self.next {
            Next::First => (&self.blocks.first, Next::Later),
            Next::Later => (&self.blocks.later, Next::Later),
            Next::GiveUpTable => (&self.blocks.give_up_table, Next::Plain),
            Next::Plain => (&self.blocks.plain, Next::Plain),
        };
        self.next = next;
        block
    }
}

/// The fields that no table holds.
fn target() -> Vec<u8> {
    let mut block = Vec::new();
    hpack::write_indexed(METHOD_POST, &mut block);
    hpack::write_indexed(SCHEME_HTTP, &mut block);
    hpack::write_literal(b":path", PATH.as_bytes(), false, &mut block);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::{Decoder, Fields};

    fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Fields::default();
        decoder.decode(block, usize::MAX, &mut fields).expect("a block that the server can read");
        fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn every_call_has_the_same_headers_in_whatever_way_they_are_coded() {
        let mut headers = RequestHeaders::new("limits.example:8081", Some(Duration::from_millis(20)));
        let mut server = Decoder::new();
        let first = read(&mut server, headers.next());
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", PATH),
            (":authority", "limits.example:8081"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", "20m"),
        ] {
            assert!(first.contains(&(name.into(), value.into())), "{name}: {value}");
        }
        assert!(headers.next().len() < 60, "the second call is short");
        assert_eq!(read(&mut server, headers.next()), first);

        headers.table_resized(0);
        assert_eq!(read(&mut server, headers.next()), first, "the table is given up");
        assert_eq!(read(&mut server, headers.next()), first, "and not used again");
    }

    #[test]
    fn without_a_timeout_none_is_sent() {
        let fields = read(&mut Decoder::new(), RequestHeaders::new("a", None).next());
        assert!(!fields.iter().any(|(name, _)| name.ends_with(b"timeout") || name.ends_with(b"-ms")));
    }
}
