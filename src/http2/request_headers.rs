//! From a header block to the checked head of a request (RFC 9113, section 8).

use super::{
    Fields, Service,
    hpack::{Decoder, HpackError},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// The fields that make the line of a request. All but the last must be there, and say something.
const PSEUDO_HEADERS: [&[u8]; 4] = [b":method", b":scheme", b":path", b":authority"];
const REQUIRED: usize = 3;

/// What a header block turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestHeaders<Q> {
    Valid {
        /// Whether, and how, it can be answered at once.
        fast_path: Option<Q>,
        content_length: Option<u64>,
    },
    /// Its stream is an error.
    Malformed,
    /// Its list of fields is longer than the server takes.
    TooLarge,
}

/// Reads the header blocks of one connection.
///
/// Clients such as Envoy send the very same block call after call. As long as the compression's table has not changed
/// either, it means the same, and is not read again. Of others, such as those that trace every call, the pseudo-headers
/// at least stay the same, and make a request line without being tried again.
pub(super) struct RequestDecoder<Q> {
    decoder: Decoder,
    list_max: usize,
    /// The fields of the block that was read last.
    fields: Fields,
    last: Option<Last<Q>>,
    /// The pseudo-headers that last made a request line; all empty before.
    routable: [Vec<u8>; PSEUDO_HEADERS.len()],
}

struct Last<Q> {
    block: Vec<u8>,
    /// The table's, before and after the block.
    generation: u64,
    head: RequestHeaders<Q>,
}

impl<Q: Copy> RequestDecoder<Q> {
    pub(super) fn new(list_max: u32) -> Self {
        Self {
            decoder: Decoder::new(),
            list_max: list_max as usize,
            fields: Fields::default(),
            last: None,
            routable: Default::default(),
        }
    }

    /// Reads the block of a request's head.
    #[inline]
    pub(super) fn head<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<RequestHeaders<Q>, HpackError> {
        if let Some(last) = &self.last
            && last.block == block
            && last.generation == self.decoder.generation()
        {
            return Ok(last.head);
        }
        self.read_head(block, service)
    }

    fn read_head<S: Service<FastPath = Q>>(
        &mut self,
        block: &[u8],
        service: &S,
    ) -> Result<RequestHeaders<Q>, HpackError> {
        let before = self.decoder.generation();
        self.read(block)?;
        let head = if self.fields.list_bytes() > self.list_max {
            RequestHeaders::TooLarge
        } else {
            match check(&self.fields) {
                Some(content_length) => {
                    // What could not be routed is not answered at once either: how its bytes came must not tell.
                    let fast_path = service.fast_path(&self.fields).filter(|_| self.is_routable());
                    RequestHeaders::Valid { fast_path, content_length }
                }
                None => RequestHeaders::Malformed,
            }
        };
        if self.decoder.generation() == before {
            let mut buffer = self.last.take().map(|last| last.block).unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(block);
            self.last = Some(Last { block: buffer, generation: before, head });
        }
        Ok(head)
    }

    /// Reads the block of a request's trailers, or one of no interest: the table has to see it. None if it is malformed.
    pub(super) fn trailers(&mut self, block: &[u8]) -> Result<Option<HeaderMap>, HpackError> {
        self.read(block)?;
        if self.fields.list_bytes() > self.list_max
            || self.fields.iter().any(|(name, _)| name.starts_with(b":"))
        {
            return Ok(None);
        }
        Ok(header_map(&self.fields))
    }

    fn read(&mut self, block: &[u8]) -> Result<(), HpackError> {
        // The fields are overwritten: what was last is no longer to be had. No table reaches that generation.
        if let Some(last) = &mut self.last {
            last.generation = u64::MAX;
        }
        self.decoder.decode(block, self.list_max, &mut self.fields)
    }

    /// The request whose good head was read last.
    pub(super) fn request(&self) -> Option<Request<()>> {
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = self.request_line()?;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = header_map(&self.fields)?;
        Some(request)
    }

    /// Whether the good head that was read last makes a request line.
    fn is_routable(&mut self) -> bool {
        // An authority that says nothing is as good as none.
        let said = PSEUDO_HEADERS.map(|name| self.fields.get(name).unwrap_or_default());
        if self.routable == said {
            return true;
        }
        if self.request_line().is_none() {
            return false;
        }
        for (kept, said) in self.routable.iter_mut().zip(said) {
            kept.clear();
            kept.extend_from_slice(said);
        }
        true
    }

    fn request_line(&self) -> Option<(Method, Uri)> {
        Some((Method::from_bytes(self.fields.get(b":method")?).ok()?, self.uri()?))
    }

    fn uri(&self) -> Option<Uri> {
        let path = self.fields.get(b":path")?;
        let Some(authority) = self.fields.get(b":authority").filter(|authority| !authority.is_empty()) else {
            return Uri::try_from(path).ok();
        };
        let builder = Uri::builder().scheme(self.fields.get(b":scheme")?).authority(authority);
        builder.path_and_query(path).build().ok()
    }
}

/// The fields that are no pseudo-headers; none if they are more than a map holds.
fn header_map(fields: &Fields) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with(b":")) {
        map.try_append(HeaderName::from_lowercase(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(map)
}

/// Whether the byte may be in the name of a field: a character of a token that is no capital letter.
fn is_in_names(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Whether the byte may be in the value of a field: no control character but a tab.
fn is_in_values(byte: &u8) -> bool {
    *byte == b'\t' || !byte.is_ascii_control()
}

/// Whether the head of a request is as HTTP/2 has it; if so, its content-length if it has one.
fn check(fields: &Fields) -> Option<Option<u64>> {
    let mut seen = [false; PSEUDO_HEADERS.len()];
    let (mut content_length, mut pseudo_ended) = (None, false);
    for (name, value) in fields.iter() {
        if name.starts_with(b":") {
            let which = PSEUDO_HEADERS.iter().position(|pseudo| *pseudo == name)?;
            let is_empty = which < REQUIRED && value.is_empty();
            if pseudo_ended || is_empty || std::mem::replace(&mut seen[which], true) {
                return None;
            }
            continue;
        }
        pseudo_ended = true;
        if name.is_empty() || !name.iter().all(is_in_names) || !value.iter().all(is_in_values) {
            return None;
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return None;
            }
            b"te" if value != b"trailers" => return None,
            b"content-length" => {
                let length = str::from_utf8(value).ok()?.parse().ok()?;
                if content_length.replace(length).is_some_and(|other| other != length) {
                    return None;
                }
            }
            _ => {}
        }
    }
    let is_complete = seen[..REQUIRED].iter().all(|seen| *seen);
    is_complete.then_some(content_length)
}
