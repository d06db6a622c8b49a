//! Counts of requests that the HTTP port refuses before they reach their route.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why the HTTP port refused a request, or closed a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpRefusal {
    /// 401: no valid token.
    Unauthorized,
    /// 404: no such path.
    NotFound,
    /// 405: the path has other methods.
    Method,
    /// 431: the head is too long.
    HeaderBytes,
    /// 400: the head is malformed.
    MalformedHead,
    /// The head was not complete in time.
    HeaderTimeout,
    /// 413: the body is too long.
    BodyBytes,
    /// 400: the body is malformed.
    MalformedBody,
    /// 408: the body was not complete in time.
    BodyTimeout,
    /// The client did not read the response in time.
    WriteTimeout,
    /// The connection was closed when it was accepted: all others are busy.
    Connections,
    /// 403, 415, 421: a web page of another origin may have sent it.
    Origin,
    /// 503: the memory for incomplete requests is used up.
    BodyMemory,
}

impl HttpRefusal {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Unauthorized,
        Self::NotFound,
        Self::Method,
        Self::HeaderBytes,
        Self::MalformedHead,
        Self::HeaderTimeout,
        Self::BodyBytes,
        Self::MalformedBody,
        Self::BodyTimeout,
        Self::WriteTimeout,
        Self::Connections,
        Self::Origin,
        Self::BodyMemory,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::Method => "method",
            Self::HeaderBytes => "header_bytes",
            Self::MalformedHead => "malformed_head",
            Self::HeaderTimeout => "header_timeout",
            Self::BodyBytes => "body_bytes",
            Self::MalformedBody => "malformed_body",
            Self::BodyTimeout => "body_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::Connections => "max_connections",
            Self::Origin => "origin",
            Self::BodyMemory => "body_memory",
        }
    }
}

/// Counts by reason. One thread serves the port, so threads do not contend.
#[derive(Default)]
pub struct HttpRefusals([AtomicU64; HttpRefusal::ALL.len()]);

impl HttpRefusals {
    /// Counts a refused request.
    pub fn count(&self, refusal: HttpRefusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were refused for this reason.
    pub fn sum(&self, refusal: HttpRefusal) -> u64 {
        self.0[refusal as usize].load(Ordering::Relaxed)
    }
}
