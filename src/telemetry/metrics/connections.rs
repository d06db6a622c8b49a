//! Metrics of connections and streams, and of requests that were refused.

use super::{page::Page, sink::Kind};
use crate::service::{HttpRefusal, HttpRefusals, Refusal, Refusals};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tidegate_http2::{CloseReason, ConnectionTotals, RefusedConnections, StreamRefusal, WorkerCounts};

/// Source of the figures of connections.
#[derive(Clone, Default)]
pub struct ConnectionSources {
    /// Those of each worker.
    pub workers: Vec<Arc<WorkerCounts>>,
    /// Connections that were not admitted.
    pub refused: Arc<RefusedConnections>,
}

impl ConnectionSources {
    fn totals(&self) -> ConnectionTotals {
        ConnectionTotals::of(self.workers.iter().map(|worker| &**worker))
    }
}

impl Page<'_> {
    pub(super) fn connections(&mut self, sources: &ConnectionSources) -> fmt::Result {
        let totals = sources.totals();
        self.gauge("connections", "Open connections of the gRPC port", totals.open())?;
        self.counter("connections_accepted", "Connections of the gRPC port", totals.opened)?;
        let help = "Connections of the gRPC port that ended, by reason";
        self.samples("connections_closed", help, Kind::Counter, &mut |samples| {
            let reasons = CloseReason::ALL.into_iter().zip(totals.closed);
            reasons
                .into_iter()
                .try_for_each(|(reason, count)| samples.sample(&[("reason", reason.label())], count.into()))
        })?;
        let refused = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.counters_of(
            "connections_refused",
            "Connections closed when they were accepted, by the bound that was reached",
            &[
                ([("reason", "max_connections")], refused(&sources.refused.max)),
                ([("reason", "max_connections_per_peer")], refused(&sources.refused.per_peer_max)),
            ],
        )?;
        self.gauge("streams", "Open streams, without those that one read completes", totals.streams_open)?;
        self.counter("streams_opened", "Streams opened by clients", totals.streams)?;
        self.counter("received_bytes", "Bytes of HTTP/2 received", totals.bytes_read)?;
        self.counter("sent_bytes", "Bytes of HTTP/2 sent", totals.bytes_written)?;
        let [resets, goaways] =
            [(totals.resets_sent, totals.resets_received), (totals.goaways_sent, totals.goaways_received)]
                .map(|(sent, received)| {
                    [([("direction", "sent")], sent), ([("direction", "received")], received)]
                });
        self.counters_of("stream_resets", "RST_STREAM frames, by direction", &resets)?;
        self.counters_of("goaways", "GOAWAY frames, by direction", &goaways)
    }

    pub(super) fn refused_requests(
        &mut self,
        refusals: &Refusals,
        sources: &ConnectionSources,
    ) -> fmt::Result {
        let by_stream = sources.totals().refused;
        let help = "Requests refused without a decision, by reason";
        self.samples("requests_refused", help, Kind::Counter, &mut |samples| {
            for refusal in Refusal::ALL {
                samples.sample(&[("reason", refusal.label())], refusals.sum(refusal).into())?;
            }
            StreamRefusal::ALL
                .into_iter()
                .zip(by_stream)
                .try_for_each(|(refusal, count)| samples.sample(&[("reason", refusal.label())], count.into()))
        })
    }
    pub(super) fn refused_http_requests(&mut self, refusals: &HttpRefusals) -> fmt::Result {
        let help = "Requests refused by the HTTP port, by reason";
        self.samples("http_requests_refused", help, Kind::Counter, &mut |samples| {
            let mut reasons = HttpRefusal::ALL.into_iter();
            reasons.try_for_each(|refusal| {
                samples.sample(&[("reason", refusal.label())], refusals.sum(refusal).into())
            })
        })
    }
}
