//! The bounds of a connection.

use std::time::Duration;

/// The bounds of a connection. The defaults fit Envoy, which opens one connection a worker thread with many streams each,
/// and keeps it.
///
/// What a client can make its connection hold is bounded by them together:
/// - of each of `streams_max` requests under way: its headers, `header_bytes_max` of them; of a body that may yet be
///   answered at once, 16 KiB; and an answer that waits for the client's windows;
/// - `connection_window` bytes of all other bodies, which nobody has read yet. What was read is held by whoever answers
///   the request: the gRPC router keeps one message a request, within its own bound;
/// - one header block that goes on from frame to frame, one frame that is not whole, and 256 KiB of answers that the
///   client does not read, beyond what a single read asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Http2Settings {
    /// Requests under way at once; more are refused unseen, so that the client may send them again.
    pub streams_max: u32,
    /// Bytes of one request's headers; a request with more is answered with HTTP status 431.
    pub header_bytes_max: u32,
    /// Bytes of one request's body that may be under way before they are read. What is collected of a call that may yet be
    /// answered at once counts as read.
    pub stream_window: u32,
    /// The same for all of a connection's requests together.
    pub connection_window: u32,
    /// How long a connection may be silent before it is pinged.
    pub keep_alive_interval: Duration,
    /// How long it may take to answer the ping before it is closed.
    pub keep_alive_timeout: Duration,
    /// How long a connection may be without a request before it is asked to end.
    pub idle_timeout: Duration,
    /// How long a request may take from its head to the end of its body.
    pub body_timeout: Duration,
    /// How long a client may leave an answer unread before it loses it: the stream, if only its window is shut; the
    /// connection, if nothing at all can be written to it.
    pub write_timeout: Duration,
    /// Frames that ask for nothing (PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA and the like) that may come
    /// within ten seconds, beyond eight for each request; a connection with more is ended.
    pub control_frames_max: u32,
    /// Requests that may be cancelled within ten seconds, beyond as many as were answered; a connection with more is ended.
    pub resets_max: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self {
            streams_max: 1024,
            header_bytes_max: 16 * 1024,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
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
    /// How often a connection looks at the time: every timeout is kept to within this.
    pub(super) fn tick(&self) -> Duration {
        let shortest = [
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
