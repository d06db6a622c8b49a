//! `on_deny`: the response to requests that a rule denies.

use http::{HeaderName, HeaderValue};
use std::fmt;

/// A header for the proxy to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name, in small letters.
    pub name: HeaderName,
    /// Its value: visible ASCII, never empty.
    pub value: HeaderValue,
}

/// The `on_deny` of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OnDeny {
    /// Deny with a body and headers of the rule.
    Reply(Reply),
    /// Admit the request, uncharged, with this header: the upstream drops, delays or tags it.
    Mark(Header),
}

/// The body and headers of a denial. At least one of the two is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The body of the proxy's response; empty to leave it to the proxy.
    pub body: Box<str>,
    /// Headers of the proxy's response.
    pub headers: Box<[Header]>,
}

/// `x-abuse: yes`.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, String::from_utf8_lossy(self.value.as_bytes()))
    }
}

/// `mark x-abuse: yes`, or `reply with a body of 20 bytes, content-type: text/html`.
impl fmt::Display for OnDeny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reply { body, headers } = match self {
            Self::Mark(header) => return write!(f, "mark {header}"),
            Self::Reply(reply) => reply,
        };
        let body = (!body.is_empty()).then(|| format!("a body of {} bytes", body.len()));
        let parts: Vec<String> = body.into_iter().chain(headers.iter().map(Header::to_string)).collect();
        write!(f, "reply with {}", parts.join(", "))
    }
}
