//! Metrics of connections and streams, and of refused requests.

use super::page::{Page, write_counts};
use std::fmt;
use tidegate_http2::{ConnectionCounts, ConnectionEvent};
use tidegate_service::Meters;

impl Page<'_> {
    pub(super) fn connections(&mut self, counts: &ConnectionCounts) -> fmt::Result {
        let sum = |event| counts.events.sum(event);
        self.value("connections", counts.open())?;
        let accepted = sum(ConnectionEvent::Accepted);
        self.value("connections_accepted", accepted)?;
        self.counts_by("connections_closed", "reason", &counts.closed)?;
        self.counts_by("connections_refused", "reason", &counts.not_admitted)?;
        self.value("streams", sum(ConnectionEvent::StreamOpen))?;
        self.value("streams_opened", sum(ConnectionEvent::StreamOpened))?;
        self.value("received_bytes", sum(ConnectionEvent::ByteRead))?;
        self.value("sent_bytes", sum(ConnectionEvent::ByteWritten))?;
        let by_direction = |sent, received| [("sent", sum(sent)), ("received", sum(received))];
        let resets = by_direction(ConnectionEvent::ResetSent, ConnectionEvent::ResetReceived);
        self.counts("stream_resets", "direction", &resets)?;
        let goaways = by_direction(ConnectionEvent::GoawaySent, ConnectionEvent::GoawayReceived);
        self.counts("goaways", "direction", &goaways)
    }

    pub(super) fn refused_requests(
        &mut self,
        meters: &Meters,
        connections: &ConnectionCounts,
    ) -> fmt::Result {
        self.samples("requests_refused", &mut |samples| {
            write_counts(samples, "reason", &meters.refusals)?;
            write_counts(samples, "reason", &connections.refused)
        })?;
        self.counts_by("http_requests_refused", "reason", &meters.http_refusals)
    }
}
