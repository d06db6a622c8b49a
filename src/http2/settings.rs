//! Bounds of a connection.

use std::time::Duration;

/// Bounds of a connection. The defaults fit Envoy, which opens one connection per worker thread, with many streams, and
/// keeps it.
///
/// Together they bound the memory that a client can make its connection hold:
/// - per request under way, of which there are `streams_max`: its headers (`header_bytes_max`), up to 16 KiB of a body that
///   may be answered on the fast path, and a response that waits for the client's flow-control windows;
/// - `connection_window` bytes of all other bodies that are received and not yet read. Bytes that were read are held by the
///   service: the gRPC router keeps one message per request, within its own bound;
/// - one incomplete header block, one incomplete frame, and 256 KiB of responses that the client does not read, beyond
///   those of a single read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Http2Settings {
    /// Concurrent streams (MAX_CONCURRENT_STREAMS); further ones are refused with REFUSED_STREAM, which is safe to retry.
    pub streams_max: u32,
    /// Bytes of one request's header list (MAX_HEADER_LIST_SIZE); a request with more gets HTTP status 431.
    pub header_bytes_max: u32,
    /// Flow-control window of each stream (INITIAL_WINDOW_SIZE). Bytes buffered for the fast path count as read.
    pub stream_window: u32,
    /// Flow-control window of the connection.
    pub connection_window: u32,
    /// Time from the connection's start to the end of its first whole request; preface and SETTINGS included.
    pub first_request_timeout: Duration,
    /// Silence of the client before it gets a PING.
    pub keep_alive_interval: Duration,
    /// Time to answer a PING, or to acknowledge a GOAWAY, before the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Time without a request before the connection is drained.
    pub idle_timeout: Duration,
    /// Time from a request's HEADERS to its END_STREAM, and from HEADERS to END_HEADERS. A stream on which the response
    /// starts before the request ends is bidirectional, and exempt.
    pub body_timeout: Duration,
    /// Time to take a whole piece of a response: of its stream's windows, else the stream is reset; of everything that
    /// waits for the socket, else the connection is closed.
    pub write_timeout: Duration,
    /// Control frames (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA and the like) within ten seconds, beyond eight
    /// per request; a connection with more ends with ENHANCE_YOUR_CALM.
    pub control_frames_max: u32,
    /// Streams reset by the client within ten seconds, beyond as many as had a response; a connection with more ends with
    /// ENHANCE_YOUR_CALM.
    pub resets_max: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self {
            streams_max: 1024,
            header_bytes_max: 16 * 1024,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            first_request_timeout: Duration::from_secs(10),
            keep_alive_interval: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(3600),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(20),
            control_frames_max: 10_000,
            resets_max: 10_000,
        }
    }
}

impl Http2Settings {
    /// Interval between a connection's ticks: the precision of every timeout.
    pub(super) fn tick(&self) -> Duration {
        let shortest = [
            self.first_request_timeout,
            self.keep_alive_interval,
            self.keep_alive_timeout,
            self.idle_timeout,
            self.body_timeout,
            self.write_timeout,
        ]
        .into_iter()
        .min()
        .unwrap_or(Duration::MAX);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
}
