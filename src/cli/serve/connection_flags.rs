//! Flags of `serve` that bound one connection, and all of them.

use crate::{
    api::LongLivedBounds,
    cli::arguments::{at_least_one, interval},
    server::{self, ConnectionBounds},
};
use clap::{Args, value_parser};
use std::{num::NonZeroUsize, sync::Arc, time::Duration};
use tidegate_http2::{
    BodyMemory, Http2Settings,
    flow_control::{DEFAULT_WINDOW, WINDOW_MAX},
};

/// The least window that HTTP/2 allows for a connection.
const LEAST_CONNECTION_WINDOW: i64 = DEFAULT_WINDOW as i64;
const MOST: i64 = WINDOW_MAX as i64;

/// The part of all memory that incomplete requests may take.
const MEMORY_SHARE: u64 = 8;
const BODY_MEMORY_MAX: u64 = 1 << 30;

/// Memory for one purpose, unless it is set.
fn memory_by_default() -> usize {
    let memory = server::available_memory().map_or(u64::MAX, |(bytes, _)| bytes);
    (memory / MEMORY_SHARE).min(BODY_MEMORY_MAX) as usize
}

/// Bounds on connections.
#[derive(Args)]
pub(super) struct ConnectionFlags {
    /// Maximum number of connections. Beyond it the idlest connection is closed, or the new connection if none is idle.
    #[arg(long, value_name = "N", default_value_t = at_least_one(10_000))]
    max_connections: NonZeroUsize,
    /// The same for each IPv4 address, IPv6 /64 network, or user on a Unix socket.
    #[arg(long, value_name = "N", default_value_t = at_least_one(1_000))]
    max_connections_per_peer: NonZeroUsize,
    /// Maximum number of concurrent streams per connection; further ones are refused with REFUSED_STREAM.
    #[arg(
        long, value_name = "N", value_parser = value_parser!(u32).range(1..),
        default_value_t = Http2Settings::default().streams_max
    )]
    max_streams: u32,
    /// Maximum number of open streaming calls of each kind (Health/Watch, reflection, Control/Tail, quotas); further ones get
    /// RESOURCE_EXHAUSTED.
    #[arg(long, value_name = "N", default_value_t = LongLivedBounds::default().max)]
    max_streaming_calls: usize,
    /// Maximum number of open streaming calls of each connection, of all kinds.
    #[arg(long, value_name = "N", default_value_t = LongLivedBounds::default().per_connection_max)]
    max_streaming_calls_per_connection: usize,
    /// Maximum number of open streaming calls of each kind for each IPv4 address, IPv6 /64 network, or user on a Unix socket; by default half
    /// of --max-streaming-calls.
    #[arg(long, value_name = "N")]
    max_streaming_calls_per_peer: Option<usize>,
    /// Maximum bytes of a request's header list; a larger list gets HTTP status 431.
    #[arg(long, value_name = "BYTES", default_value_t = Http2Settings::default().header_bytes_max)]
    max_header_bytes: u32,
    /// Initial flow-control window of a stream, in bytes.
    #[arg(
        long, value_name = "BYTES", value_parser = value_parser!(u32).range(1..=MOST),
        default_value_t = Http2Settings::default().stream_window
    )]
    stream_window: u32,
    /// Flow-control window of a connection, in bytes.
    #[arg(
        long, value_name = "BYTES", value_parser = value_parser!(u32).range(LEAST_CONNECTION_WINDOW..=MOST),
        default_value_t = Http2Settings::default().connection_window
    )]
    connection_window: u32,
    /// Memory for requests that are not complete, of all connections together, in bytes; by default an eighth of the memory of the machine or
    /// of the cgroup, at most 1 GiB. A connection may hold an eighth of what is free; a larger request is refused with ENHANCE_YOUR_CALM or
    /// RESOURCE_EXHAUSTED.
    #[arg(long, value_name = "BYTES")]
    max_body_memory: Option<NonZeroUsize>,
    /// Memory for quotas (RLQS): buckets that clients report, and their shares, in bytes; by default an eighth of the memory of the
    /// machine or of the cgroup, at most 1 GiB. One peer may have half of it, also for buckets that outlive its streams; further
    /// buckets get no assignment.
    #[arg(long, value_name = "BYTES")]
    max_quota_memory: Option<NonZeroUsize>,
    /// Close a connection whose first request is not complete after this time.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    first_request_timeout: Duration,
    /// Time without a frame after which a PING is sent.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1m")]
    keep_alive_interval: Duration,
    /// Time to acknowledge the PING, or a GOAWAY, before the connection is closed.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "20s")]
    keep_alive_timeout: Duration,
    /// Time without a request after which a connection is closed with GOAWAY.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1h")]
    idle_timeout: Duration,
    /// Age at which a connection gets GOAWAY, 10 % more or less, so that clients connect again and spread over replicas.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    max_connection_age: Option<Duration>,
    /// Time after that age that calls have to complete before the connection is closed.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "30s")]
    max_connection_age_grace: Duration,
    /// Time from a unary request's headers to the end of its body, after which the stream is reset; of a stream of quotas, to its
    /// first message.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "30s")]
    body_timeout: Duration,
    /// Time that a client may take to read a response message before the stream is reset, or the connection closed.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "20s")]
    write_timeout: Duration,
    /// Maximum number of control frames (such as PING) within 10 s, beyond eight per request; more end the connection.
    #[arg(long, value_name = "N", default_value_t = Http2Settings::default().control_frames_max)]
    max_control_frames: u32,
    /// Maximum number of cancelled requests within 10 s, beyond the number of answered requests; more end the connection.
    #[arg(long, value_name = "N", default_value_t = Http2Settings::default().resets_max)]
    max_resets: u32,
}

impl ConnectionFlags {
    pub(super) fn bounds(&self) -> ConnectionBounds {
        ConnectionBounds {
            max: self.max_connections.get(),
            per_peer_max: self.max_connections_per_peer.get(),
        }
    }

    /// The memory for incomplete requests.
    pub(super) fn body_memory(&self) -> Arc<BodyMemory> {
        BodyMemory::new(self.max_body_memory.map_or_else(memory_by_default, NonZeroUsize::get))
    }

    /// The memory for quotas.
    pub(super) fn quota_memory(&self) -> usize {
        self.max_quota_memory.map_or_else(memory_by_default, NonZeroUsize::get)
    }

    pub(super) fn long_lived_calls(&self) -> LongLivedBounds {
        LongLivedBounds {
            max: self.max_streaming_calls,
            per_connection_max: self.max_streaming_calls_per_connection,
            per_peer_max: self.max_streaming_calls_per_peer.unwrap_or(self.max_streaming_calls.div_ceil(2)),
        }
    }

    pub(super) fn http2(&self) -> Http2Settings {
        Http2Settings {
            streams_max: self.max_streams,
            header_bytes_max: self.max_header_bytes,
            stream_window: self.stream_window,
            connection_window: self.connection_window,
            first_request_timeout: self.first_request_timeout,
            keep_alive_interval: self.keep_alive_interval,
            keep_alive_timeout: self.keep_alive_timeout,
            idle_timeout: self.idle_timeout,
            age_max: self.max_connection_age,
            age_grace: self.max_connection_age_grace,
            body_timeout: self.body_timeout,
            write_timeout: self.write_timeout,
            control_frames_max: self.max_control_frames,
            resets_max: self.max_resets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches as _};

    #[test]
    fn defaults_are_those_of_the_library() {
        let matches = ConnectionFlags::augment_args(Command::new("serve")).get_matches_from(["serve"]);
        let flags = ConnectionFlags::from_arg_matches(&matches).expect("all have defaults");
        assert_eq!(flags.http2(), Http2Settings::default());
        assert_eq!(flags.long_lived_calls(), LongLivedBounds::default());
    }
}
