//! Decodes and checks the header block of a request (RFC 9113, section 8.3).
//!
//! `:authority` may be any field value and is dropped: nothing here depends on it, and clients send what no URI holds
//! (Envoy its cluster name, `outbound|8081||limits.example`; gRPC libraries the path of a Unix socket).

use super::{
    Fields, Service,
    hpack::{Decoder, HpackError},
    request_fields::{check_fields, is_field_name, is_field_value},
    steps,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, uri::PathAndQuery};

/// The pseudo-headers that make the target of a routed request.
const TARGET: [&[u8]; 2] = [b":method", b":path"];

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
    /// Bytes of the field section, as SETTINGS_MAX_HEADER_LIST_SIZE counts them, that had to be decoded because they differ
    /// from the block before.
    pub(super) decoded_bytes: usize,
}

/// Decodes the header blocks of one connection.
///
/// Clients such as Envoy send the same block with every request. While the dynamic table has not changed either, it has
/// the same meaning and is not decoded again. Clients that trace every request repeat all of a block but one value, which is
/// then decoded if the service reads it. Where more varies, the fields that a client repeats are neither decoded nor checked
/// again, and only the values that changed are.
pub(super) struct RequestDecoder<Q> {
    decoder: Decoder,
    list_max: usize,
    /// Fields of the last block.
    fields: Fields,
    last: Option<Last<Q>>,
    /// The kind of request that the fields make; none if they do not make one.
    checked: Option<RequestHeaders<Q>>,
    /// The last target found valid; empty before the first.
    valid_target: [Vec<u8>; TARGET.len()],
}

struct Last<Q> {
    block: Vec<u8>,
    /// Generation of the dynamic table, before and after the block.
    generation: u64,
    headers: RequestHeaders<Q>,
}

impl<Q: Copy> RequestDecoder<Q> {
    pub(super) fn new(list_max: u32) -> Self {
        Self {
            decoder: Decoder::new(),
            list_max: list_max as usize,
            fields: Fields::default(),
            last: None,
            checked: None,
            valid_target: Default::default(),
        }
    }

    /// Decodes the header block of a new request. `rest` are the bytes received after its frame.
    #[inline]
    pub(super) fn decode<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        rest: &[u8],
        service: &S,
    ) -> Result<Decoded<Q>, HpackError> {
        if let Some(last) = &self.last
            && last.block == block
            && last.generation == self.decoder.generation()
        {
            return Ok(Decoded { headers: last.headers, decoded_bytes: 0 });
        }
        match self.decode_repeated(block, rest, service)? {
            Some(decoded) => Ok(decoded),
            None => self.decode_new(block, service),
        }
    }

    /// Decodes a block that is the last one but for one value.
    #[inline]
    fn decode_repeated<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        rest: &[u8],
        service: &S,
    ) -> Result<Option<Decoded<Q>>, HpackError> {
        let Some(RequestHeaders::Valid { fast_path: Some(fast_path), content_length }) = self.checked else {
            return Ok(None);
        };
        let Some((name, decoded_bytes)) = self.decoder.decode_repeated(block, rest, &self.fields)? else {
            return Ok(None);
        };
        let headers = match service.fast_path_after(fast_path, name, || self.decoder.repeated_value()) {
            Some(fast_path) => RequestHeaders::Valid { fast_path: Some(fast_path), content_length },
            None => {
                self.decoder.complete(&mut self.fields);
                self.check(service)
            }
        };
        self.checked = Some(headers);
        Ok(Some(Decoded { headers, decoded_bytes }))
    }

    fn decode_new<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<Decoded<Q>, HpackError> {
        let before = self.decoder.generation();
        let checked = self.checked.take();
        self.decode_fields(block)?;
        let headers = match checked.and_then(|checked| self.check_changes(checked, service)) {
            Some(headers) => {
                self.decoder.expect_repeated(block, &self.fields);
                headers
            }
            None => self.check(service),
        };
        self.checked = Some(headers);
        if self.decoder.generation() == before {
            let mut buffer = self.last.take().map(|last| last.block).unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(block);
            self.last = Some(Last { block: buffer, generation: before, headers });
        }
        Ok(Decoded { headers, decoded_bytes: self.fields.new_bytes() })
    }

    /// Checks the values that changed, if that is sufficient: nothing else did, and none of them matters beyond itself.
    fn check_changes<S: Service<FastPath = Q>>(
        &self,
        checked: RequestHeaders<Q>,
        service: &S,
    ) -> Option<RequestHeaders<Q>> {
        let RequestHeaders::Valid { fast_path: Some(mut fast_path), content_length } = checked else {
            return None;
        };
        for (name, value) in self.fields.changed_values()? {
            steps::add(steps::of_bytes(name.len() + value.len()));
            if name.starts_with(b":") || matches!(name, b"te" | b"content-length") || !is_field_value(value) {
                return None;
            }
            fast_path = service.fast_path_after(fast_path, name, || value)?;
        }
        Some(RequestHeaders::Valid { fast_path: Some(fast_path), content_length })
    }

    fn check<S: Service<FastPath = Q>>(&mut self, service: &S) -> RequestHeaders<Q> {
        if self.fields.list_bytes() > self.list_max {
            return RequestHeaders::TooLarge;
        }
        match check_fields(&self.fields) {
            // A request that cannot be routed is refused on the fast path too: how its frames were cut must not matter.
            Some(content_length) if self.has_valid_target() => {
                RequestHeaders::Valid { fast_path: service.fast_path(&self.fields), content_length }
            }
            _ => RequestHeaders::Malformed,
        }
    }

    /// Decodes a block of trailers, or one to be discarded, which may still change the dynamic table. None if malformed.
    pub(super) fn trailers(&mut self, block: &[u8]) -> Result<Option<HeaderMap>, HpackError> {
        self.checked = None;
        self.decode_fields(block)?;
        let is_valid = |(name, value): (&[u8], &[u8])| is_field_name(name) && is_field_value(value);
        if self.fields.list_bytes() > self.list_max || !self.fields.iter().all(is_valid) {
            return Ok(None);
        }
        Ok(header_map(&self.fields))
    }

    /// Bytes of the field section decoded last that differ from the one before.
    pub(super) fn decoded_bytes(&self) -> usize {
        self.fields.new_bytes()
    }

    fn decode_fields(&mut self, block: &[u8]) -> Result<(), HpackError> {
        // The fields are overwritten and no longer those of the last block. No table reaches this generation.
        if let Some(last) = &mut self.last {
            last.generation = u64::MAX;
        }
        self.decoder.decode(block, self.list_max, &mut self.fields)
    }

    /// The request with the headers that were decoded last; none if they are more than a map can hold.
    pub(super) fn request(&mut self) -> Option<Request<()>> {
        self.decoder.complete(&mut self.fields);
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = self.target()?;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = header_map(&self.fields)?;
        Some(request)
    }

    fn has_valid_target(&mut self) -> bool {
        let target = TARGET.map(|name| self.fields.get(name).unwrap_or_default());
        if self.valid_target == target {
            return true;
        }
        if self.target().is_none() {
            return false;
        }
        for (valid, new) in self.valid_target.iter_mut().zip(target) {
            valid.clear();
            valid.extend_from_slice(new);
        }
        true
    }

    /// Method and path. The path is absolute, or `*` (RFC 9113, section 8.3.1).
    fn target(&self) -> Option<(Method, Uri)> {
        let path = self.fields.get(b":path").filter(|path| path.starts_with(b"/") || *path == b"*")?;
        let path = PathAndQuery::try_from(path).ok()?;
        Some((Method::from_bytes(self.fields.get(b":method")?).ok()?, Uri::from(path)))
    }
}

/// The regular fields; none if they are more than a map holds.
fn header_map(fields: &Fields) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with(b":")) {
        map.try_append(HeaderName::from_lowercase(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::{fuzz_bridge::Echo, hpack::write_literal};

    const REQUEST: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/fast"), (":authority", "limits.example")];

    fn decode(fields: &[(&str, &str)]) -> (RequestHeaders<()>, Option<Request<()>>) {
        let mut block = Vec::new();
        for (name, value) in fields {
            write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
        }
        let mut decoder = RequestDecoder::new(16 * 1024);
        let decoded = decoder.decode(&block, &[], &Echo).expect("a readable block");
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

    /// Envoy sends the cluster's name, and gRPC libraries an encoded path of the Unix socket. A request with an authority
    /// that no URI allows was reset, so that with such a cluster name every call of Envoy failed.
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

    /// A field that varies must be checked as if its block was the first.
    #[test]
    fn a_value_that_varies_is_checked() {
        let mut decoder = RequestDecoder::new(16 * 1024);
        let mut decode = |fields: &[(&str, &str)]| {
            let mut block = Vec::new();
            for (name, value) in fields {
                write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
            }
            decoder.decode(&block, &[], &Echo).expect("a readable block").headers
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
