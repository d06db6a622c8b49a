//! Metrics of connections and streams, and of refused requests.

use super::{
    page::{Page, write_counts},
    sink::Kind,
};
use std::fmt;
use tidegate_http2::{ConnectionCounts, ConnectionEvent};
use tidegate_service::Meters;

impl Page<'_> {
    pub(super) fn connections(&mut self, counts: &ConnectionCounts) -> fmt::Result {
        let sum = |event| counts.events.sum(event);
        self.gauge("connections", "Open connections of the gRPC port", counts.open())?;
        let accepted = sum(ConnectionEvent::Accepted);
        self.counter("connections_accepted", "Connections of the gRPC port", accepted)?;
        let help = "Connections of the gRPC port that ended, by reason";
        self.counters_by("connections_closed", help, "reason", &counts.closed)?;
        let help = "Connections closed when they were accepted, by the bound that was reached";
        self.counters_by("connections_refused", help, "reason", &counts.not_admitted)?;
        let help = "Open streams, without those that one read completes";
        self.gauge("streams", help, sum(ConnectionEvent::StreamOpen))?;
        self.counter("streams_opened", "Streams opened by clients", sum(ConnectionEvent::StreamOpened))?;
        self.counter("received_bytes", "Bytes of HTTP/2 received", sum(ConnectionEvent::ByteRead))?;
        self.counter("sent_bytes", "Bytes of HTTP/2 sent", sum(ConnectionEvent::ByteWritten))?;
        let by_direction = |sent, received| [("sent", sum(sent)), ("received", sum(received))];
        let resets = by_direction(ConnectionEvent::ResetSent, ConnectionEvent::ResetReceived);
        self.counters_of("stream_resets", "RST_STREAM frames, by direction", "direction", &resets)?;
        let goaways = by_direction(ConnectionEvent::GoawaySent, ConnectionEvent::GoawayReceived);
        self.counters_of("goaways", "GOAWAY frames, by direction", "direction", &goaways)
    }

    pub(super) fn refused_requests(
        &mut self,
        meters: &Meters,
        connections: &ConnectionCounts,
    ) -> fmt::Result {
        let help = "Requests refused without a decision, by reason";
        self.samples("requests_refused", help, Kind::Counter, &mut |samples| {
            write_counts(samples, "reason", &meters.refusals)?;
            write_counts(samples, "reason", &connections.refused)
        })?;
        let help = "Requests refused by the HTTP port, by reason";
        self.counters_by("http_requests_refused", help, "reason", &meters.http_refusals)
    }
}
