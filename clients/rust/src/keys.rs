//! Keys: the entries of a descriptor, read from requests.

use crate::request::Descriptor;
use http::{Extensions, HeaderMap, HeaderValue, Method, Uri};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroUsize,
    sync::Arc,
};

/// The treatment of a request without the value of a key. It has no default: it is a decision about security.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// It is refused with 400 (gRPC: INVALID_ARGUMENT).
    Reject,
    /// It is not limited by this descriptor.
    Allow,
    /// All such requests share one counter, with the empty value.
    Shared,
}

/// The parts of a request that keys read.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo<'r> {
    /// The method.
    pub method: &'r Method,
    /// The URI; of gRPC its path is the full name of the method.
    pub uri: &'r Uri,
    /// The headers; of gRPC the metadata.
    pub headers: &'r HeaderMap,
    /// Values that layers before this one added, such as axum's `ConnectInfo`.
    pub extensions: &'r Extensions,
}

/// Reads the value, or returns the problem for which the request is refused.
type Read = Arc<dyn Fn(RequestInfo<'_>) -> Result<Option<Vec<u8>>, String> + Send + Sync>;

/// One entry of a descriptor, read from requests.
#[derive(Clone)]
pub struct Key {
    entry: String,
    missing: Missing,
    read: Read,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("entry", &self.entry)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// Returns a key with a value that a function reads. An empty value, or only spaces, counts as missing.
    pub fn custom(
        entry: impl Into<String>,
        read: impl Fn(RequestInfo<'_>) -> Option<String> + Send + Sync + 'static,
        missing: Missing,
    ) -> Self {
        let read = move |request: RequestInfo<'_>| Ok(read(request).map(String::into_bytes));
        Self { entry: entry.into(), missing, read: Arc::new(read) }
    }

    /// Returns a key with the same value for each request, such as the name of a route.
    pub fn constant(entry: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        Self::custom(entry, move |_| Some(value.clone()), Missing::Shared)
    }

    /// Returns a key with the value of a header. A request that repeats the header is refused, whatever the values: the application may
    /// read another of them than the key. The value may be any bytes. The header `host` includes the authority of the URI, which requests
    /// over HTTP/2 have instead.
    pub fn header(entry: impl Into<String>, header: &'static str, missing: Missing) -> Self {
        let is_host = header.eq_ignore_ascii_case("host");
        let read = move |request: RequestInfo<'_>| {
            let mut values = request.headers.get_all(header).iter().map(HeaderValue::as_bytes);
            let authority =
                request.uri.authority().filter(|_| is_host).map(|authority| authority.as_str().as_bytes());
            let Some(value) = authority.or_else(|| values.next()) else { return Ok(None) };
            // A request over HTTP/2 may have both, with the same value.
            if values.any(|other| authority != Some(other)) {
                return Err(format!("the request repeats the header {header}"));
            }
            Ok(Some(trimmed(value).to_vec()))
        };
        Self { entry: entry.into(), missing, read: Arc::new(read) }
    }

    /// Returns a key with the client's address; see [`client_address`].
    ///
    /// `peer` reads the address of the other end of the connection from the request's extensions. In axum:
    /// `|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|connect| connect.0)`.
    pub fn client_address(
        entry: impl Into<String>,
        trusted_proxies: usize,
        peer: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
        missing: Missing,
    ) -> Self {
        let read = move |request: RequestInfo<'_>| {
            let forwarded_for = joined(request.headers, "x-forwarded-for");
            let peer = peer(request.extensions).map(|address| address.ip().to_string());
            client_address(peer.as_deref(), &[&forwarded_for], trusted_proxies)
        };
        Self::custom(entry, read, missing)
    }

    /// Returns a key with the client's address behind proxies that append to `Forwarded`; see [`forwarded_address`].
    pub fn forwarded_address(
        entry: impl Into<String>,
        trusted_proxies: NonZeroUsize,
        missing: Missing,
    ) -> Self {
        let read = move |request: RequestInfo<'_>| {
            forwarded_address(&[&joined(request.headers, "forwarded")], trusted_proxies.get())
        };
        Self::custom(entry, read, missing)
    }
}

/// The bytes without white space around them.
fn trimmed(bytes: &[u8]) -> &[u8] {
    str::from_utf8(bytes).map_or_else(|_| bytes.trim_ascii(), |text| text.trim().as_bytes())
}

/// The lines of a header that is a list, as one line. Bytes that are not UTF-8 are replaced, since clients may send any bytes left of what a
/// trusted proxy appends to their line.
fn joined(headers: &HeaderMap, name: &str) -> String {
    let lines = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines.collect::<Vec<_>>().join(",")
}

/// Outcome of reading the keys of a request.
pub(crate) enum Keys {
    Limited(Vec<Descriptor>),
    NotLimited,
    /// The request is refused for a problem.
    Rejected(String),
}

/// Reads the descriptors of a request, each of its keys.
pub(crate) fn read(descriptors: &[Vec<Key>], request: RequestInfo<'_>) -> Keys {
    let mut limited = Vec::with_capacity(descriptors.len());
    for keys in descriptors {
        let mut descriptor = Descriptor::default();
        let mut is_limited = true;
        for key in keys {
            let value = match (key.read)(request) {
                Ok(value) => value.filter(|value| !trimmed(value).is_empty()),
                Err(problem) => return Keys::Rejected(problem),
            };
            match (value, key.missing) {
                (Some(value), _) => descriptor = descriptor.and_bytes(key.entry.as_str(), value),
                (None, Missing::Shared) => descriptor = descriptor.and(key.entry.as_str(), ""),
                // A later key may still refuse the request.
                (None, Missing::Allow) => is_limited = false,
                (None, Missing::Reject) => {
                    return Keys::Rejected(format!("the request has no {}", key.entry));
                }
            }
        }
        if is_limited {
            limited.push(descriptor);
        }
    }
    if limited.is_empty() { Keys::NotLimited } else { Keys::Limited(limited) }
}

/// Returns the client's address for a peer and the `X-Forwarded-For` lines: IPv4, or the /64 network of IPv6.
///
/// `trusted_proxies` is the number of your own proxies that append to the header. With 0 it is not read at all, since any client can write
/// it.
///
/// ```
/// # use tidegate_client::client_address;
/// let forwarded = ["198.51.100.66, 203.0.113.1"];
/// assert_eq!(client_address(Some("10.0.0.1"), &forwarded, 1).as_deref(), Some("203.0.113.1"));
/// assert_eq!(client_address(Some("2001:db8:1:2::9"), &forwarded, 0).as_deref(), Some("2001:db8:1:2::/64"));
/// ```
pub fn client_address(peer: Option<&str>, forwarded_for: &[&str], trusted_proxies: usize) -> Option<String> {
    let Some(from_right) = trusted_proxies.checked_sub(1) else { return normalized(peer?) };
    let written: Vec<&str> = forwarded_for.iter().flat_map(|line| line.split(',')).collect();
    // Each trusted proxy has appended the address it saw; the client wrote everything left of these.
    written.iter().rev().nth(from_right).copied().and_then(normalized)
}

/// Returns the client's address for the `Forwarded` lines (RFC 7239) of this number of proxies.
///
/// ```
/// # use tidegate_client::forwarded_address;
/// let forwarded = ["for=198.51.100.66, for=\"203.0.113.1:80\";proto=https"];
/// assert_eq!(forwarded_address(&forwarded, 1).as_deref(), Some("203.0.113.1"));
/// ```
pub fn forwarded_address(forwarded: &[&str], trusted_proxies: usize) -> Option<String> {
    let joined = forwarded.join(",");
    let element = from_the_right(&joined, trusted_proxies)?;
    let nodes = split(element)?.into_iter().filter_map(|pair| {
        let (name, node) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(node.trim())
    });
    let nodes: Vec<&str> = nodes.collect();
    let [node] = nodes[..] else { return None };
    normalized(node.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"')).unwrap_or(node))
}

/// The element of a list at this position, counted from the right. Quotes are paired from the right too: the elements of trusted proxies
/// are whole, and left of them a client may have left a quote open.
fn from_the_right(list: &str, position: usize) -> Option<&str> {
    let (mut end, mut position, mut is_quoted) = (list.len(), position, false);
    for (index, byte) in list.bytes().enumerate().rev() {
        if byte == b'"' && !(is_quoted && is_escaped(&list[..index])) {
            is_quoted = !is_quoted;
        } else if byte == b',' && !is_quoted {
            position = position.checked_sub(1)?;
            if position == 0 {
                return Some(&list[index + 1..end]);
            }
            end = index;
        }
    }
    (position == 1).then(|| &list[..end])
}

/// Whether a character after this text is escaped, within quotes.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits a text at semicolons outside of quotes; None if a quote is open.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (index, letter) in text.char_indices() {
        if letter == ';' && !is_quoted {
            parts.push(&text[start..index]);
            start = index + 1;
            continue;
        }
        is_quoted ^= letter == '"' && !is_escaped;
        is_escaped = is_quoted && letter == '\\' && !is_escaped;
    }
    parts.push(&text[start..]);
    (!is_quoted).then_some(parts)
}

fn normalized(address: &str) -> Option<String> {
    let text = address.trim();
    let text = match text.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?.0,
        None if text.matches(':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    Some(match text.parse::<IpAddr>().ok()?.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("{}/64", Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    /// Reads a key of the host from a request with this URI and these headers; None if the request is refused.
    fn host(uri: &str, hosts: &[&str]) -> Option<Option<String>> {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        let request = request.body(()).expect("a request");
        let info = RequestInfo {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        };
        let value = (Key::header("host", "host", Missing::Reject).read)(info).ok()?;
        Some(value.map(|value| String::from_utf8(value).expect("UTF-8")))
    }

    #[test]
    fn a_key_of_the_host_reads_it_over_each_version_of_http() {
        let example = Some(Some("app.example:8080".to_owned()));
        assert_eq!(host("/", &["app.example:8080"]), example);
        assert_eq!(host("http://app.example:8080/", &[]), example);
        assert_eq!(host("http://app.example:8080/", &["app.example:8080"]), example);
        assert_eq!(host("http://app.example:8080/", &["other.example"]), None);
        assert_eq!(host("/", &["app.example:8080", "app.example:8080"]), None);
        assert_eq!(host("/", &[]), Some(None));
    }
}
