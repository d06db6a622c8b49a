//! Decodes and checks the header block of a request (RFC 9113, section 8.3).
//!
//! `:authority` may be any field value and is dropped. Nothing here depends on it, and clients send values that are not valid in a URI:
//! Envoy its cluster name (`outbound|8081||limits.example`), gRPC libraries the path of a Unix socket.

use super::{
    Service,
    hpack::{Decoder, FieldNames, HpackError, Pseudo},
    steps,
};
use http::{HeaderMap, Method, Request, Uri};

/// Steps for each field that the service reads: it is checked, and may be copied to a request.
const READ_STEPS: usize = 3 * steps::FIELD;

/// Result of decoding the header block of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestHeaders<Q> {
    Valid {
        /// The service's state for the fast path, if the request may take it.
        fast_path: Option<Q>,
        content_length: Option<u64>,
    },
    /// A malformed request (RFC 9113, section 8.1.1): a stream error.
    Malformed,
    /// The field section is larger than SETTINGS_MAX_HEADER_LIST_SIZE.
    TooLarge,
}

/// A decoded header block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Decoded<Q> {
    pub(super) headers: RequestHeaders<Q>,
    /// The most steps that it takes, without those in proportion to its bytes.
    pub(super) steps: usize,
}

/// Decodes the header blocks of one connection.
///
/// Clients such as Envoy send the same block with every request. If the dynamic table has not changed either, the block has the same
/// meaning and is not decoded again. Clients that trace every request repeat a block except for one value, which is decoded only if the
/// service reads it.
pub(super) struct RequestDecoder<Q> {
    decoder: Decoder,
    names: &'static FieldNames,
    list_max: usize,
    last: Option<Last<Q>>,
    /// The kind of request that the last decoded fields form; none if they form no request.
    checked: Option<RequestHeaders<Q>>,
    /// Number of the last decoded fields that the service reads, and the steps for them.
    read: usize,
    read_steps: usize,
}

struct Last<Q> {
    block: Vec<u8>,
    /// Generation of the dynamic table, before and after the block.
    generation: u64,
    headers: RequestHeaders<Q>,
}

impl<Q: Copy> RequestDecoder<Q> {
    pub(super) fn new(list_max: u32, names: &'static FieldNames) -> Self {
        Self {
            decoder: Decoder::new(names),
            names,
            list_max: list_max as usize,
            last: None,
            checked: None,
            read: 0,
            read_steps: 0,
        }
    }

    /// Decodes the header block of a new request.
    #[inline]
    pub(super) fn decode<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<Decoded<Q>, HpackError> {
        if let Some(last) = &self.last
            && last.generation == self.decoder.generation()
            && last.block == block
        {
            steps::add(steps::of_bytes(block.len()));
            return Ok(Decoded { headers: last.headers, steps: self.read_steps });
        }
        match self.decode_repeated(block, service)? {
            Some(headers) => Ok(Decoded { headers, steps: self.read_steps }),
            None => self.decode_new(block, service),
        }
    }

    /// Decodes a block that repeats the last block except for one value.
    #[inline]
    fn decode_repeated<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<Option<RequestHeaders<Q>>, HpackError> {
        let Some(RequestHeaders::Valid { fast_path: Some(fast_path), content_length }) = self.checked else {
            return Ok(None);
        };
        let Some(repeated) = self.decoder.decode_repeated(block)? else { return Ok(None) };
        let Some(number) = repeated.read else { return Ok(self.checked) };
        let name = self.names.name(number).as_str().as_bytes();
        let decoder = &self.decoder;
        let after = service.fast_path_after(fast_path, name, || decoder.repeated_value());
        let headers = match after {
            Some(fast_path) => RequestHeaders::Valid { fast_path: Some(fast_path), content_length },
            None => {
                self.decoder.complete();
                self.check(service)
            }
        };
        self.checked = Some(headers);
        Ok(Some(headers))
    }

    fn decode_new<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<Decoded<Q>, HpackError> {
        let before = self.decoder.generation();
        self.decode_fields(block)?;
        let headers = self.check(service);
        self.checked = Some(headers);
        if self.decoder.generation() == before {
            let mut buffer = self.last.take().map(|last| last.block).unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(block);
            steps::add(steps::of_bytes(block.len()));
            self.last = Some(Last { block: buffer, generation: before, headers });
        } else if let RequestHeaders::Valid { fast_path: Some(_), .. } = headers {
            self.decoder.expect_repeated(block);
        }
        Ok(Decoded { headers, steps: self.decoded_steps() })
    }

    /// [`Decoded::steps`] of the last block that was decoded in full.
    pub(super) fn decoded_steps(&self) -> usize {
        steps::FIELD * self.decoder.fields().count() + self.read_steps
    }

    fn check<S: Service<FastPath = Q>>(&self, service: &S) -> RequestHeaders<Q> {
        let fields = self.decoder.fields();
        if fields.list_bytes() > self.list_max {
            return RequestHeaders::TooLarge;
        }
        // A request that cannot be routed is refused on the fast path too: it must not matter how its frames were cut.
        let Some(content_length) = fields.valid_request() else { return RequestHeaders::Malformed };
        let fast_path = match fields.has_read_twice() {
            // Only off the fast path is it decided which of several values counts.
            true => None,
            false => {
                steps::add(self.read * steps::FIELD);
                service.fast_path(fields)
            }
        };
        RequestHeaders::Valid { fast_path, content_length }
    }

    /// Decodes a block of trailers, or a block to discard, which may still change the dynamic table. None if malformed.
    pub(super) fn trailers(&mut self, block: &[u8]) -> Result<Option<HeaderMap>, HpackError> {
        self.checked = None;
        self.decode_fields(block)?;
        let fields = self.decoder.fields();
        if fields.list_bytes() > self.list_max || !fields.are_trailers() {
            return Ok(None);
        }
        Ok(self.header_map())
    }

    fn decode_fields(&mut self, block: &[u8]) -> Result<(), HpackError> {
        // The fields of the last block are overwritten. No table reaches this generation.
        if let Some(last) = &mut self.last {
            last.generation = u64::MAX;
        }
        self.decoder.decode(block, self.list_max)?;
        self.read = self.decoder.fields().read_len();
        self.read_steps = READ_STEPS * self.read;
        Ok(())
    }

    /// The request whose headers were decoded last, with the headers that the service reads. None if a map cannot hold them.
    pub(super) fn request(&mut self) -> Option<Request<()>> {
        self.decoder.complete();
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(self.decoder.fields().pseudo(Pseudo::Method)?).ok()?;
        *request.uri_mut() = Uri::from(self.decoder.path()?);
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.header_map()?;
        Some(request)
    }

    /// The regular fields that the service reads. None if a map cannot hold them.
    fn header_map(&mut self) -> Option<HeaderMap> {
        let mut map = HeaderMap::with_capacity(self.read);
        for nth in 0..self.read {
            let (number, position) = self.decoder.fields().read(nth)?;
            let name = self.names.name(number);
            // The name is hashed, and compared.
            steps::add(steps::FIELD + 2 * steps::of_bytes(name.as_str().len()));
            map.try_append(name.clone(), self.decoder.header_value(position)?).ok()?;
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fuzz_bridge::Echo, hpack::write_literal};

    const REQUEST: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/fast"), (":authority", "limits.example")];

    fn decode(fields: &[(&str, &str)]) -> (RequestHeaders<()>, Option<Request<()>>) {
        let mut block = Vec::new();
        for (name, value) in fields {
            write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
        }
        let mut decoder = RequestDecoder::new(16 * 1024, Echo::field_names());
        let decoded = decoder.decode(&block, &Echo).expect("a readable block");
        (decoded.headers, decoder.request())
    }

    /// Decodes a request with one field replaced or added.
    fn with(field: (&'static str, &'static str)) -> RequestHeaders<()> {
        let mut fields: Vec<_> = REQUEST.iter().copied().filter(|(name, _)| *name != field.0).collect();
        let at = if field.0.starts_with(':') { 0 } else { fields.len() };
        fields.insert(at, field);
        decode(&fields).0
    }

    const VALID: RequestHeaders<()> = RequestHeaders::Valid { fast_path: Some(()), content_length: None };

    /// Envoy sends the cluster's name, and gRPC libraries an encoded path of the Unix socket. A request whose authority is not valid in a
    /// URI was reset: with such a cluster name, every call of Envoy failed.
    #[test]
    fn any_field_value_is_an_authority() {
        for authority in [
            "limits.example:8081",
            "outbound|8081||tidegate.ns.svc.cluster.local",
            "%2Frun%2Ftidegate.sock",
            "/run/tidegate.sock",
            "a b",
            "user@host",
            "h\u{f6}st",
            "[::1",
            "",
        ] {
            assert_eq!(with((":authority", authority)), VALID, "{authority:?}");
        }
        for authority in ["a\0b", "a\r\nb", " a", "a "] {
            assert_eq!(with((":authority", authority)), RequestHeaders::Malformed, "{authority:?}");
        }
    }

    #[test]
    fn a_routed_request_has_the_path_and_no_authority() {
        let mut fields = REQUEST.to_vec();
        fields[2] = (":path", "/a.Service/Method?query");
        fields[3] = (":authority", "outbound|8081||limits.example");
        let (_, request) = decode(&fields);
        assert_eq!(request.expect("a routable request").uri(), "/a.Service/Method?query");
    }

    /// A field that varies must be checked as in a first block.
    #[test]
    fn a_value_that_varies_is_checked() {
        let mut decoder = RequestDecoder::new(16 * 1024, Echo::field_names());
        let mut decode = |fields: &[(&str, &str)]| {
            let mut block = Vec::new();
            for (name, value) in fields {
                write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
            }
            decoder.decode(&block, &Echo).expect("a readable block").headers
        };
        let routed = RequestHeaders::Valid { fast_path: None, content_length: None };
        let length = |length| RequestHeaders::Valid { fast_path: Some(()), content_length: Some(length) };
        for (first, then, expected) in [
            (("traceparent", "aa"), ("traceparent", "bb"), VALID),
            (("traceparent", "aa"), ("traceparent", " b"), RequestHeaders::Malformed),
            (("traceparent", "aa"), ("traceparent", "b\n"), RequestHeaders::Malformed),
            (("te", "trailers"), ("te", "trailerz"), RequestHeaders::Malformed),
            (("content-length", "11"), ("content-length", "22"), length(22)),
            ((":path", "/fast"), (":path", "/slow"), routed),
            ((":path", "/fast"), (":path", "xfast"), RequestHeaders::Malformed),
            ((":authority", "aa"), (":authority", "b "), RequestHeaders::Malformed),
        ] {
            for (changed, expected) in [(then, expected), (first, expected)] {
                let fields: Vec<_> = REQUEST.into_iter().filter(|(name, _)| *name != first.0).collect();
                let with = |field: (&'static str, &'static str)| {
                    let at = if field.0.starts_with(':') { 0 } else { fields.len() };
                    let mut fields = fields.clone();
                    fields.insert(at, field);
                    fields
                };
                let valid = decode(&with(first));
                assert!(matches!(valid, RequestHeaders::Valid { fast_path: Some(()), .. }), "{first:?}");
                let again = decode(&with(changed));
                assert_eq!(
                    again,
                    if changed == first { valid } else { expected },
                    "{first:?} and then {changed:?}"
                );
            }
        }
    }

    #[test]
    fn a_content_length_is_digits_only() {
        let length = |length| RequestHeaders::Valid { fast_path: Some(()), content_length: Some(length) };
        assert_eq!(with(("content-length", "17")), length(17));
        for value in ["+17", "-17", "17 ", "1_7", "", "0x11", "99999999999999999999999"] {
            assert_eq!(with(("content-length", value)), RequestHeaders::Malformed, "{value:?}");
        }
    }

    #[test]
    fn field_values_have_no_blanks_at_their_ends() {
        assert_eq!(with(("x", "a b\tc")), VALID);
        assert_eq!(with(("x", "")), VALID);
        for value in [" a", "a ", "\ta", "a\t", " ", "a\u{7f}b", "a\nb"] {
            assert_eq!(with(("x", value)), RequestHeaders::Malformed, "{value:?}");
        }
    }

    #[test]
    fn a_path_is_absolute() {
        for path in ["fast", "http://a/fast", "", "/a b"] {
            assert_eq!(with((":path", path)), RequestHeaders::Malformed, "{path:?}");
        }
    }
}
