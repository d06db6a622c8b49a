//! Failures of a run as a whole.

use crate::{connect::ConnectError, server_cpu::CpuError};
use std::io;
use tidegate_http2::{
    ConnectionError,
    client::{BODY_MAX, WindowTooSmall},
};

/// Time without any response after which the run fails.
pub(crate) const STALL: u64 = 10_000_000_000;

/// A run that failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No connection to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server does not speak HTTP/2.
    #[error("the server violates HTTP/2: {0}")]
    Connection(#[source] ConnectionError),
    /// The server speaks another version of HTTP.
    #[error("the server answers in HTTP/1; give the address of a gRPC server")]
    Http1,
    /// The server has no room for a request.
    #[error(transparent)]
    WindowTooSmall(#[from] WindowTooSmall),
    /// The CPU time of the server cannot be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The client does not send a request of this many bytes.
    #[error("a request of {0} bytes is too large; the maximum is {BODY_MAX}")]
    RequestTooLarge(usize),
    /// The server closed a connection without a response on it. With the error code of its GOAWAY, if there was one.
    #[error("the server closed a new connection without a response{}", because(.0))]
    Closed(Option<&'static str>),
    /// Responses are missing.
    #[error("no response for {} s; {in_flight} requests are in flight", STALL / 1_000_000_000)]
    Stalled {
        /// Number of requests without a response.
        in_flight: usize,
    },
    /// The sockets cannot be polled.
    #[error("waiting for sockets failed: {0}")]
    Poll(#[from] io::Error),
}

fn because(error: &Option<&'static str>) -> String {
    error.map(|code| format!(" ({code})")).unwrap_or_default()
}
