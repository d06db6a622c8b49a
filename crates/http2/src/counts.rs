//! Counts of connections, for metrics. The state machine notes the events of a connection in its own memory. They are published once for
//! each read.

use tidegate_counts::{Counts, Label, ThreadIndex, labels};

labels! {
    /// The reason why a connection ended.
    pub enum CloseReason {
        /// The client closed it.
        Client = "client",
        /// It failed: the client has vanished, or a network device in between.
        Io = "io_error",
        /// The client violated HTTP/2.
        Protocol = "protocol_error",
        /// Too many control frames.
        ControlFrames = "control_frames",
        /// Too many reset streams.
        Resets = "resets",
        /// Too many header fields by index.
        HeaderFields = "header_fields",
        /// No whole request in time.
        FirstRequestTimeout = "first_request_timeout",
        /// A header block was not complete in time.
        BodyTimeout = "body_timeout",
        /// The client did not read its responses in time.
        WriteTimeout = "write_timeout",
        /// The client did not respond to a PING.
        KeepAliveTimeout = "keep_alive_timeout",
        /// No request for long.
        IdleTimeout = "idle_timeout",
        /// It reached its maximum age.
        AgeMax = "max_age",
        /// Another connection took its place.
        Evicted = "evicted",
        /// The memory for incomplete requests is used up.
        Memory = "body_memory",
        /// The server stopped.
        Drain = "drain",
    }
}

labels! {
    /// The reason why a request was refused, or its stream reset, before it reached the service.
    pub enum StreamRefusal {
        /// The connection has too many streams.
        Streams = "max_streams",
        /// The headers are too long.
        HeaderBytes = "header_bytes",
        /// The request is malformed (RFC 9113, section 8.1.1).
        Malformed = "malformed_request",
        /// The body was not complete in time.
        BodyTimeout = "body_timeout",
        /// The client did not read the response in time.
        WriteTimeout = "write_timeout",
        /// The memory for incomplete requests is used up.
        Memory = "body_memory",
    }
}

labels! {
    /// An event of connections without a reason.
    pub enum ConnectionEvent {
        /// A connection was accepted.
        Accepted = "accepted",
        /// A client opened a stream.
        StreamOpened = "stream_opened",
        /// A byte of HTTP/2 was read.
        ByteRead = "byte_read",
        /// A byte of HTTP/2 was written.
        ByteWritten = "byte_written",
        /// RST_STREAM was sent.
        ResetSent = "reset_sent",
        /// RST_STREAM was received.
        ResetReceived = "reset_received",
        /// GOAWAY was sent.
        GoawaySent = "goaway_sent",
        /// GOAWAY was received.
        GoawayReceived = "goaway_received",
        /// Number of open streams, which grows and shrinks. Streams that one read completes are not in it.
        StreamOpen = "stream_open",
    }
}

labels! {
    /// The bound that closed a connection when it was accepted.
    pub enum ConnectionRefusal {
        /// The bound on all connections.
        Max = "max_connections",
        /// The bound on connections of a peer.
        PerPeerMax = "max_connections_per_peer",
    }
}

/// Counts of connections.
#[derive(Default, Debug)]
pub struct ConnectionCounts {
    /// Events without a reason.
    pub events: Counts<ConnectionEvent>,
    /// Requests that were refused.
    pub refused: Counts<StreamRefusal>,
    /// Connections that ended.
    pub closed: Counts<CloseReason>,
    /// Connections that were closed when they were accepted.
    pub not_admitted: Counts<ConnectionRefusal>,
}

impl ConnectionCounts {
    /// Connections that are open now.
    pub fn open(&self) -> u64 {
        // Read first: no connection ends before it is accepted.
        let closed = self.closed.total();
        self.events.sum(ConnectionEvent::Accepted).saturating_sub(closed)
    }
}

/// Events of one connection since they were last published.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Events {
    pub(super) bytes_read: usize,
    pub(super) bytes_written: usize,
    pub(super) streams: usize,
    /// Events that most connections never have.
    rare: Rare,
}

#[derive(Clone, Copy, Default, Debug)]
struct Rare {
    has_any: bool,
    events: [u32; ConnectionEvent::ALL.len()],
    refused: [u32; StreamRefusal::ALL.len()],
}

impl Events {
    /// Notes a frame.
    pub(super) fn frame(&mut self, event: ConnectionEvent) {
        self.rare.has_any = true;
        self.rare.events[event.index()] += 1;
    }

    /// Notes a request that is refused.
    pub(super) fn refused(&mut self, refusal: StreamRefusal) {
        self.rare.has_any = true;
        self.rare.refused[refusal.index()] += 1;
    }

    /// The numbers of refused requests.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (StreamRefusal, u32)> {
        let refused = if self.rare.has_any { &self.rare.refused[..] } else { &[] };
        StreamRefusal::ALL.iter().copied().zip(refused.iter().copied()).filter(|(_, count)| *count > 0)
    }
}

/// Publishes the events of one connection; dropped at its end.
pub(super) struct Publisher<'c> {
    counts: Option<&'c ConnectionCounts>,
    streams_open: u64,
    /// The reason why the connection ended. None if it is dropped before its end, because the server stops.
    pub(super) closed: Option<CloseReason>,
}

impl<'c> Publisher<'c> {
    /// Counts a new connection, if anything reads the counts.
    pub(super) fn start(counts: Option<&'c ConnectionCounts>) -> Self {
        if let Some(counts) = counts {
            counts.events.count(ConnectionEvent::Accepted);
        }
        Self { counts, streams_open: 0, closed: None }
    }

    /// Publishes the events, and empties them.
    #[inline]
    pub(super) fn publish(&mut self, events: &mut Events, streams_open: usize) {
        let Some(ConnectionCounts { events: counts, refused, .. }) = self.counts else {
            if events.rare.has_any {
                events.rare = Rare::default();
            }
            return;
        };
        let thread = ThreadIndex::current();
        counts.add_at(thread, ConnectionEvent::ByteRead, events.bytes_read as u64);
        counts.add_at(thread, ConnectionEvent::ByteWritten, events.bytes_written as u64);
        counts.add_at(thread, ConnectionEvent::StreamOpened, events.streams as u64);
        self.publish_open(thread, counts, streams_open as u64);
        if events.rare.has_any {
            for (event, more) in ConnectionEvent::ALL.iter().zip(events.rare.events) {
                counts.add_at(thread, *event, more.into());
            }
            for (refusal, more) in StreamRefusal::ALL.iter().zip(events.rare.refused) {
                refused.add_at(thread, *refusal, more.into());
            }
            events.rare = Rare::default();
        }
        (events.bytes_read, events.bytes_written, events.streams) = (0, 0, 0);
    }

    #[inline]
    fn publish_open(&mut self, thread: ThreadIndex, counts: &Counts<ConnectionEvent>, streams_open: u64) {
        if streams_open != self.streams_open {
            counts.add_at(thread, ConnectionEvent::StreamOpen, streams_open.wrapping_sub(self.streams_open));
            self.streams_open = streams_open;
        }
    }
}

impl Drop for Publisher<'_> {
    fn drop(&mut self) {
        if let Some(ConnectionCounts { events, closed, .. }) = self.counts {
            self.publish_open(ThreadIndex::current(), events, 0);
            closed.count(self.closed.unwrap_or(CloseReason::Drain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_connections_of_two_threads_add_up() {
        let counts = ConnectionCounts::default();
        let sum = |event| counts.events.sum(event);
        let mut publishers = [Publisher::start(Some(&counts)), Publisher::start(Some(&counts))];
        let publish = |(publisher, open): (&mut Publisher<'_>, usize)| {
            let mut events = Events { bytes_read: 10, bytes_written: 7, streams: 2, ..Events::default() };
            events.frame(ConnectionEvent::ResetSent);
            events.refused(StreamRefusal::Malformed);
            publisher.publish(&mut events, open);
            publisher.publish(&mut events, open);
        };
        std::thread::scope(|scope| {
            publishers.iter_mut().zip([3, 1]).for_each(|one| _ = scope.spawn(move || publish(one)));
        });
        let streams = [ConnectionEvent::StreamOpened, ConnectionEvent::StreamOpen].map(sum);
        assert_eq!((counts.open(), streams), (2, [4, 4]));
        let of = [ConnectionEvent::ByteRead, ConnectionEvent::ByteWritten, ConnectionEvent::ResetSent];
        assert_eq!(of.map(sum), [20, 14, 2]);
        assert_eq!(counts.refused.sum(StreamRefusal::Malformed), 2);
        let [mut first, second] = publishers;
        first.closed = Some(CloseReason::IdleTimeout);
        drop((first, second));
        assert_eq!((counts.open(), sum(ConnectionEvent::StreamOpen)), (0, 0));
        assert_eq!(
            [CloseReason::IdleTimeout, CloseReason::Drain].map(|reason| counts.closed.sum(reason)),
            [1, 1]
        );
    }
}
