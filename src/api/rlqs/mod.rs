//! `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`: quotas on streams that clients keep open.
//!
//! Only what Envoy obeys is sent: times in whole seconds, always with a time to live, and no requests per unit of time.

mod pace;
mod responses;
mod screen;
mod wire;

use super::{
    client::Client,
    grpc::{BoxedResponse, Places},
    pb::quota::{
        RateLimitQuotaResponse, RateLimitQuotaUsageReports, rate_limit_quota_service_server as server,
    },
    refusals::{refuse, undecodable},
};
use pace::{Pace, Paces};
use prost::Message as _;
pub(in crate::api) use responses::Receipts;
use responses::{Message, Messages};
pub(in crate::api) use screen::screen;
use std::{future::ready, pin::pin, sync::Arc, time::Duration};
use tidegate_http2::BodyShare;
use tidegate_service::{QuotaPeer, QuotaStream, RateLimitService, Receipt, Refusal, StreamEnd};
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status, Streaming};

/// Bytes of one message of reports, unless all messages are bounded by less: Envoy reports all of its buckets in one.
pub(in crate::api) const REPORT_BYTES_MAX: usize = 4 << 20;

/// Bytes that a report takes when it is decoded, beside its texts.
const REPORT_BYTES: usize = 300;

/// Adapts quotas to tonic's trait.
pub(in crate::api) struct QuotaService {
    service: RateLimitService,
    /// Time from the start of a stream to its first message.
    first_message_within: Duration,
    paces: Paces,
}

impl server::RateLimitQuotaService for QuotaService {
    type StreamRateLimitQuotasStream = Messages;

    /// Responds at once: only after the response has begun may the request stay open.
    fn stream_rate_limit_quotas<'s, 'f>(
        &'s self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> BoxedResponse<'f, Messages>
    where
        's: 'f,
    {
        Box::pin(ready(self.open(request)))
    }
}

impl QuotaService {
    /// Streams whose first message arrives within so much time.
    pub(in crate::api) fn new(service: RateLimitService, first_message_within: Duration) -> Self {
        Self { service, first_message_within, paces: Paces::default() }
    }

    fn open(
        &self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Messages>, Status> {
        let Client { peer: address, names } = request.extensions().get().cloned().unwrap_or_default();
        self.service.ready().map_err(|not_ready| {
            refuse(&self.service, (&not_ready).into(), &address, &not_ready);
            Status::unavailable(not_ready.to_string())
        })?;
        let (responses, messages) = mpsc::channel(1);
        let peer = QuotaPeer { address, names };
        let share = request.extensions().get::<BodyShare>().cloned().unwrap_or_else(BodyShare::unlimited);
        let stream = Stream {
            pace: self.paces.of(Arc::clone(&peer.address)),
            service: self.service.clone(),
            peer,
            open: None,
            first_message_within: self.first_message_within,
            share,
            _places: request.extensions().get::<Arc<Places>>().cloned(),
        };
        tokio::spawn(stream.run(request.into_inner(), responses));
        let receipts = Receipts::default();
        let mut response = Response::new(Messages { messages, receipts: receipts.clone() });
        // The port finds them there.
        response.extensions_mut().insert(receipts);
        Ok(response)
    }
}

/// The end of a stream by the server.
struct End {
    status: Status,
    /// The reason, unless it is no fault. Envoy then has no limits, or those of its last assignments until they end.
    refusal: Option<Refusal>,
}

impl End {
    fn refused(refusal: Refusal, status: Status) -> Self {
        Self { status, refusal: Some(refusal) }
    }

    /// After a message that could not be read.
    fn of_message(status: Status) -> Self {
        let refusal = match status.code() {
            Code::ResourceExhausted => Some(Refusal::QuotaMemory),
            code => undecodable(code),
        };
        Self { status, refusal }
    }
}

impl From<StreamEnd> for End {
    fn from(end: StreamEnd) -> Self {
        let message = end.to_string();
        match end {
            StreamEnd::NoQuotas { .. } => {
                Self::refused(Refusal::QuotaDomain, Status::failed_precondition(message))
            }
            StreamEnd::Stuck => Self::refused(Refusal::QuotaStuck, Status::cancelled(message)),
            StreamEnd::Drain => Self { status: Status::unavailable(message), refusal: None },
        }
    }
}

/// A stream of one client.
struct Stream {
    service: RateLimitService,
    peer: QuotaPeer,
    /// None until the first message, which names the domain.
    open: Option<QuotaStream>,
    first_message_within: Duration,
    pace: Pace,
    /// Memory for reports that are not processed yet.
    share: BodyShare,
    /// Its places among the calls that stay open. Reports that are still being processed keep them after the response has ended.
    _places: Option<Arc<Places>>,
}

impl Stream {
    /// Passes reports and assignments on, until either side ends the stream.
    async fn run(
        mut self,
        mut reports: Streaming<RateLimitQuotaUsageReports>,
        responses: mpsc::Sender<Message>,
    ) {
        let mut is_late = pin!(tokio::time::sleep(self.first_message_within));
        self.pace.note_stream(self.service.clock().now());
        loop {
            let wait = self.pace.wait(self.service.clock().now());
            let next = tokio::select! {
                // The client has gone.
                () = responses.closed() => return,
                message = message_after(wait, &mut reports) => match message {
                    Ok(Some(message)) => self.take_in(message).await.map(|()| None),
                    Ok(None) => return,
                    Err(status) => Err(End::of_message(status)),
                },
                response = self.assignments() => response.map(Some),
                () = &mut is_late, if self.open.is_none() => Err(self.is_late()),
            };
            let is_end = next.is_err();
            let Some(next) = next.map_err(|end| self.ended(end)).transpose() else { continue };
            if responses.send(next).await.is_err() || is_end {
                return;
            }
        }
    }

    /// Counts and logs the end; returns its status.
    fn ended(&self, End { status, refusal }: End) -> Status {
        if let Some(refusal) = refusal {
            refuse(&self.service, refusal, &self.peer.address, &status.message());
        }
        status
    }

    fn is_late(&self) -> End {
        let message = format!(
            "no reports within {:?}; the first message of a stream names its domain",
            self.first_message_within
        );
        End::refused(Refusal::QuotaFirstMessage, Status::deadline_exceeded(message))
    }

    async fn take_in(&mut self, message: RateLimitQuotaUsageReports) -> Result<(), End> {
        let malformed = |status| End::refused(Refusal::QuotaReports, status);
        let reports = wire::reports(&message, self.service.request_limits()).map_err(malformed)?;
        let beyond = message.bucket_quota_usages.len() - reports.len();
        let stream = match &mut self.open {
            Some(stream) => stream,
            None if message.domain.is_empty() => {
                return Err(malformed(Status::invalid_argument(
                    "domain is empty; name it in the first message of a stream",
                )));
            }
            None => self.open.insert(self.service.quotas().open(&message.domain, self.peer.clone())),
        };
        let noted = self.pace.note_message(reports.len(), self.service.clock().now());
        noted.map_err(|status| End::refused(Refusal::QuotaPace, status))?;
        let bytes = message.encoded_len() + reports.len() * REPORT_BYTES;
        drop(message);
        let _held = self.share.hold(bytes).map_err(|no_room| {
            End::refused(Refusal::QuotaMemory, Status::resource_exhausted(no_room.to_string()))
        })?;
        let added = stream.report(reports, beyond as u64).await;
        self.pace.note_new(added, self.service.clock().now());
        Ok(())
    }

    /// The next assignments, once it is open.
    async fn assignments(&self) -> Result<(RateLimitQuotaResponse, Receipt), End> {
        let Some(stream) = &self.open else { return std::future::pending().await };
        let (assignments, until) = stream.outbox.next(|| self.service.clock().now()).await?;
        self.service.show_assignments(stream, &self.peer, &assignments);
        Ok((wire::response(&assignments), stream.receipt(until)))
    }
}

/// The next message, after a time.
async fn message_after(
    wait: Duration,
    reports: &mut Streaming<RateLimitQuotaUsageReports>,
) -> Result<Option<RateLimitQuotaUsageReports>, Status> {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    reports.message().await
}
