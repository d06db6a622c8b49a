//! The flags of `serve` that bound what one connection, and all of them, can make the server do.

use super::interval;
use crate::http2::{
    Http2Settings,
    flow_control::{DEFAULT_WINDOW, WINDOW_MAX},
};
use clap::{Args, value_parser};
use std::time::Duration;

/// The least window that HTTP/2 lets a server have for a connection.
const LEAST_CONNECTION_WINDOW: i64 = DEFAULT_WINDOW as i64;
const MOST: i64 = WINDOW_MAX as i64;

/// The bounds of connections.
#[derive(Args)]
#[command(next_help_heading = "Connections")]
pub(super) struct ConnectionBounds {
    /// Connections at once; further ones are closed as they come.
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", value_name = "N", default_value_t = 10_000)]
    max_connections: usize,
    /// Requests under way at once on one connection; further ones are refused, and may be sent again.
    #[arg(long, env = "TIDEGATE_MAX_STREAMS", value_name = "N", default_value_t = Http2Settings::default().streams_max)]
    max_streams: u32,
    /// Bytes of one request's headers; one with more is answered with HTTP status 431.
    #[arg(long, env = "TIDEGATE_MAX_HEADER_BYTES", value_name = "BYTES", default_value_t = Http2Settings::default().header_bytes_max)]
    max_header_bytes: u32,
    /// Bytes of one request's body that may be under way before they are read.
    #[arg(
        long, env = "TIDEGATE_STREAM_WINDOW", value_name = "BYTES",
        value_parser = value_parser!(u32).range(1..=MOST), default_value_t = Http2Settings::default().stream_window
    )]
    stream_window: u32,
    /// The same for all of a connection's requests together.
    #[arg(
        long, env = "TIDEGATE_CONNECTION_WINDOW", value_name = "BYTES",
        value_parser = value_parser!(u32).range(LEAST_CONNECTION_WINDOW..=MOST),
        default_value_t = Http2Settings::default().connection_window
    )]
    connection_window: u32,
    /// How long a connection may be silent before it is pinged.
    #[arg(long, env = "TIDEGATE_KEEP_ALIVE_INTERVAL", value_name = "TIME", value_parser = interval, default_value = "1m")]
    keep_alive_interval: Duration,
    /// How long it may take to answer the ping before it is closed.
    #[arg(long, env = "TIDEGATE_KEEP_ALIVE_TIMEOUT", value_name = "TIME", value_parser = interval, default_value = "20s")]
    keep_alive_timeout: Duration,
    /// How long a connection may be without a request before it is asked to end.
    #[arg(long, env = "TIDEGATE_IDLE_TIMEOUT", value_name = "TIME", value_parser = interval, default_value = "1h")]
    idle_timeout: Duration,
    /// How long a request may take from its head to the end of its body, and a connection to its first word.
    #[arg(long, env = "TIDEGATE_BODY_TIMEOUT", value_name = "TIME", value_parser = interval, default_value = "30s")]
    body_timeout: Duration,
    /// How long a client may leave an answer unread before it loses it.
    #[arg(long, env = "TIDEGATE_WRITE_TIMEOUT", value_name = "TIME", value_parser = interval, default_value = "20s")]
    write_timeout: Duration,
    /// Frames that ask for nothing (such as PING) within ten seconds, beyond eight a request; more end the connection.
    #[arg(long, env = "TIDEGATE_MAX_CONTROL_FRAMES", value_name = "N", default_value_t = Http2Settings::default().control_frames_max)]
    max_control_frames: u32,
    /// Requests cancelled within ten seconds, beyond as many as were answered; more end the connection.
    #[arg(long, env = "TIDEGATE_MAX_RESETS", value_name = "N", default_value_t = Http2Settings::default().resets_max)]
    max_resets: u32,
}

impl ConnectionBounds {
    pub(super) fn connections_max(&self) -> usize {
        self.max_connections
    }

    pub(super) fn of_each(&self) -> Http2Settings {
        Http2Settings {
            streams_max: self.max_streams,
            header_bytes_max: self.max_header_bytes,
            stream_window: self.stream_window,
            connection_window: self.connection_window,
            keep_alive_interval: self.keep_alive_interval,
            keep_alive_timeout: self.keep_alive_timeout,
            idle_timeout: self.idle_timeout,
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
    fn what_is_not_said_is_as_the_library_has_it() {
        let matches = ConnectionBounds::augment_args(Command::new("serve")).get_matches_from(["serve"]);
        let bounds = ConnectionBounds::from_arg_matches(&matches).expect("all have defaults");
        assert_eq!(bounds.of_each(), Http2Settings::default());
    }
}
