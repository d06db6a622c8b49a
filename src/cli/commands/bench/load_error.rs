//! Failures of a run as a whole.

use super::{connect::ConnectError, server_cpu::CpuError};
use std::io;
use tidegate_http2::{
    ConnectionError,
    client::{BODY_MAX, WindowTooSmall},
};

/// Time without any response after which the run fails.
pub(super) const STALL: u64 = 10_000_000_000;

/// A run that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the server violates HTTP/2: {source}{remedy}")]
    Connection { source: ConnectionError, remedy: &'static str },
    #[error("the server answers in HTTP/1; give the address of a gRPC server")]
    Http1,
    #[error(transparent)]
    WindowTooSmall(#[from] WindowTooSmall),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("a request of {0} bytes is too large; the maximum is {BODY_MAX}")]
    RequestTooLarge(usize),
    #[error("the server closed a new connection without a response{}{remedy}", because(.code))]
    Closed { code: Option<&'static str>, remedy: &'static str },
    #[error("no response for {} s; {in_flight} requests are in flight", STALL / 1_000_000_000)]
    Stalled { in_flight: usize },
    #[error("waiting for sockets failed: {0}")]
    Poll(#[from] io::Error),
}

fn because(error: &Option<&'static str>) -> String {
    error.map(|code| format!(" ({code})")).unwrap_or_default()
}
