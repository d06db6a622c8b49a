//! Counts of connections, for metrics: each worker thread counts its own connections, and readers add up.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The client closed it.
    Client,
    /// It failed: the client is gone, or a network device between.
    Io,
    /// The client violated HTTP/2.
    Protocol,
    /// Too many control frames.
    ControlFrames,
    /// Too many reset streams.
    Resets,
    /// Too many header fields by index.
    HeaderFields,
    /// No whole request in time.
    FirstRequestTimeout,
    /// A header block was not complete in time.
    BodyTimeout,
    /// The client did not read its responses in time.
    WriteTimeout,
    /// The client did not respond to a PING.
    KeepAliveTimeout,
    /// No request for long.
    IdleTimeout,
    /// It reached its maximum age.
    AgeMax,
    /// Another connection took its place.
    Evicted,
    /// The memory for incomplete requests is used up.
    Memory,
    /// The server stopped.
    Drain,
}

impl CloseReason {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Client,
        Self::Io,
        Self::Protocol,
        Self::ControlFrames,
        Self::Resets,
        Self::HeaderFields,
        Self::FirstRequestTimeout,
        Self::BodyTimeout,
        Self::WriteTimeout,
        Self::KeepAliveTimeout,
        Self::IdleTimeout,
        Self::AgeMax,
        Self::Evicted,
        Self::Memory,
        Self::Drain,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Io => "io_error",
            Self::Protocol => "protocol_error",
            Self::ControlFrames => "control_frames",
            Self::Resets => "resets",
            Self::HeaderFields => "header_fields",
            Self::FirstRequestTimeout => "first_request_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::KeepAliveTimeout => "keep_alive_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::AgeMax => "max_age",
            Self::Evicted => "evicted",
            Self::Memory => "body_memory",
            Self::Drain => "drain",
        }
    }
}

/// The reason why a request was refused, or its stream reset, before it reached the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamRefusal {
    /// The connection has too many streams.
    Streams,
    /// The headers are too long.
    HeaderBytes,
    /// The request is malformed (RFC 9113, section 8.1.1).
    Malformed,
    /// The body was not complete in time.
    BodyTimeout,
    /// The client did not read the response in time.
    WriteTimeout,
    /// The memory for incomplete requests is used up.
    Memory,
}

impl StreamRefusal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Streams,
        Self::HeaderBytes,
        Self::Malformed,
        Self::BodyTimeout,
        Self::WriteTimeout,
        Self::Memory,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Streams => "max_streams",
            Self::HeaderBytes => "header_bytes",
            Self::Malformed => "malformed_request",
            Self::BodyTimeout => "body_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::Memory => "body_memory",
        }
    }
}

/// Events of one connection since they were last published.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Events {
    pub(super) bytes_read: usize,
    pub(super) bytes_written: usize,
    pub(super) streams: usize,
    /// Those that most connections never have.
    rare: Rare,
}

#[derive(Clone, Copy, Default, Debug)]
struct Rare {
    has_any: bool,
    resets_sent: u32,
    resets_received: u32,
    goaways_sent: u32,
    goaways_received: u32,
    refused: [u32; StreamRefusal::ALL.len()],
}

impl Events {
    pub(super) fn reset_sent(&mut self) {
        self.rare().resets_sent += 1;
    }

    pub(super) fn reset_received(&mut self) {
        self.rare().resets_received += 1;
    }

    pub(super) fn goaway_sent(&mut self) {
        self.rare().goaways_sent += 1;
    }

    pub(super) fn goaway_received(&mut self) {
        self.rare().goaways_received += 1;
    }

    pub(super) fn refused(&mut self, refusal: StreamRefusal) {
        self.rare().refused[refusal as usize] += 1;
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.has_any = true;
        &mut self.rare
    }
}

/// Counts of the connections of one worker. Its thread alone may serve connections with them.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct WorkerCounts {
    opened: AtomicU64,
    /// Grows by the streams that are opened and shrinks by those that are closed.
    streams_open: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    streams: AtomicU64,
    resets_sent: AtomicU64,
    resets_received: AtomicU64,
    goaways_sent: AtomicU64,
    goaways_received: AtomicU64,
    refused: [AtomicU64; StreamRefusal::ALL.len()],
    closed: [AtomicU64; CloseReason::ALL.len()],
}

/// Adds without an atomic addition: no other thread writes.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Sums over workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionTotals {
    /// Connections accepted.
    pub opened: u64,
    /// Connections that ended, by [`CloseReason`].
    pub closed: [u64; CloseReason::ALL.len()],
    /// Streams opened by clients.
    pub streams: u64,
    /// Streams that are open now, besides those that one read completes.
    pub streams_open: u64,
    /// Bytes of HTTP/2 read.
    pub bytes_read: u64,
    /// Bytes of HTTP/2 written.
    pub bytes_written: u64,
    /// RST_STREAM frames sent.
    pub resets_sent: u64,
    /// RST_STREAM frames received.
    pub resets_received: u64,
    /// GOAWAY frames sent.
    pub goaways_sent: u64,
    /// GOAWAY frames received.
    pub goaways_received: u64,
    /// Requests refused, by [`StreamRefusal`].
    pub refused: [u64; StreamRefusal::ALL.len()],
}

impl ConnectionTotals {
    /// The sums over these workers.
    pub fn of<'w>(workers: impl IntoIterator<Item = &'w WorkerCounts>) -> Self {
        workers.into_iter().fold(Self::default(), |mut sum, worker| {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            sum.opened += read(&worker.opened);
            sum.streams += read(&worker.streams);
            sum.streams_open += read(&worker.streams_open);
            sum.bytes_read += read(&worker.bytes_read);
            sum.bytes_written += read(&worker.bytes_written);
            sum.resets_sent += read(&worker.resets_sent);
            sum.resets_received += read(&worker.resets_received);
            sum.goaways_sent += read(&worker.goaways_sent);
            sum.goaways_received += read(&worker.goaways_received);
            sum.refused.iter_mut().zip(&worker.refused).for_each(|(sum, count)| *sum += read(count));
            sum.closed.iter_mut().zip(&worker.closed).for_each(|(sum, count)| *sum += read(count));
            sum
        })
    }

    /// Connections that are open now.
    pub fn open(&self) -> u64 {
        // The two are read one after the other.
        self.opened.saturating_sub(self.closed.iter().sum())
    }
}

/// Publishes the events of one connection; dropped at its end.
pub(super) struct Publisher<'w> {
    counts: Option<&'w WorkerCounts>,
    streams_open: u64,
    /// None if the connection is dropped before its end: the server stops.
    pub(super) closed: Option<CloseReason>,
}

impl<'w> Publisher<'w> {
    /// Counts a new connection, where anything reads the counts.
    pub(super) fn start(counts: Option<&'w WorkerCounts>) -> Self {
        if let Some(counts) = counts {
            add(&counts.opened, 1);
        }
        Self { counts, streams_open: 0, closed: None }
    }

    /// Publishes the events, which are empty afterwards.
    #[inline]
    pub(super) fn publish(&mut self, events: &mut Events, streams_open: usize) {
        let Some(counts) = self.counts else { return };
        add(&counts.bytes_read, events.bytes_read as u64);
        add(&counts.bytes_written, events.bytes_written as u64);
        add(&counts.streams, events.streams as u64);
        self.publish_open(counts, streams_open as u64);
        if events.rare.has_any {
            let Rare { resets_sent, resets_received, goaways_sent, goaways_received, .. } = events.rare;
            add(&counts.resets_sent, resets_sent.into());
            add(&counts.resets_received, resets_received.into());
            add(&counts.goaways_sent, goaways_sent.into());
            add(&counts.goaways_received, goaways_received.into());
            for (count, more) in counts.refused.iter().zip(events.rare.refused) {
                add(count, more.into());
            }
        }
        *events = Events::default();
    }

    #[inline]
    fn publish_open(&mut self, counts: &WorkerCounts, streams_open: u64) {
        if streams_open != self.streams_open {
            add(&counts.streams_open, streams_open.wrapping_sub(self.streams_open));
            self.streams_open = streams_open;
        }
    }
}

impl Drop for Publisher<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.counts {
            self.publish_open(counts, 0);
            add(&counts.closed[self.closed.unwrap_or(CloseReason::Drain) as usize], 1);
        }
    }
}

/// Connections that were closed when they were accepted, for want of room.
#[derive(Default, Debug)]
pub struct RefusedConnections {
    /// Beyond the bound of all connections.
    pub max: AtomicU64,
    /// Beyond the bound of the peer's.
    pub per_peer_max: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_of_two_workers_publish_adds_up() {
        let workers = [WorkerCounts::default(), WorkerCounts::default()];
        let mut publishers = workers.each_ref().map(|counts| Publisher::start(Some(counts)));
        for (publisher, open) in publishers.iter_mut().zip([3, 1]) {
            let mut events = Events { bytes_read: 10, bytes_written: 7, streams: 2, ..Events::default() };
            events.reset_sent();
            events.refused(StreamRefusal::Malformed);
            publisher.publish(&mut events, open);
            publisher.publish(&mut events, open);
        }
        let totals = ConnectionTotals::of(&workers);
        assert_eq!((totals.open(), totals.streams_open, totals.streams), (2, 4, 4));
        assert_eq!((totals.bytes_read, totals.bytes_written, totals.resets_sent), (20, 14, 2));
        assert_eq!(totals.refused[StreamRefusal::Malformed as usize], 2);
        let [mut first, second] = publishers;
        first.closed = Some(CloseReason::IdleTimeout);
        drop((first, second));
        let totals = ConnectionTotals::of(&workers);
        assert_eq!((totals.open(), totals.streams_open), (0, 0));
        assert_eq!(totals.closed[CloseReason::IdleTimeout as usize], 1);
        assert_eq!(totals.closed[CloseReason::Drain as usize], 1);
    }
}
