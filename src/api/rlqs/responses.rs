//! The messages of assignments and the body that they are encoded to, of which the client's connection confirms the receipt.

use crate::api::pb::quota::RateLimitQuotaResponse;
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tidegate_http2::Delivery;
use tidegate_service::Receipt;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// Time in which a client may have received assignments without acting on them: Envoy's main thread passes them to its workers.
const ACTS_WITHIN: Duration = Duration::from_millis(500);

/// Messages for the client, each with its receipt, or the status at the end.
pub(super) type Message = Result<(RateLimitQuotaResponse, Receipt), Status>;

/// The messages of one stream.
pub(in crate::api) struct Messages {
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) receipts: Receipts,
}

impl Stream for Messages {
    type Item = Result<RateLimitQuotaResponse, Status>;

    /// The encoder encodes a message as soon as it is returned.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.messages.poll_recv(context));
        Poll::Ready(next.map(|message| {
            message.map(|(message, receipt)| {
                *self.receipts.0.lock() = Some(receipt);
                message
            })
        }))
    }
}

/// The receipt of the messages encoded last, and of all before; in the extensions of the response.
#[derive(Clone, Default)]
pub(in crate::api) struct Receipts(Arc<Mutex<Option<Receipt>>>);

impl Receipts {
    /// Wraps the response, so that its frames are confirmed.
    pub(in crate::api) fn confirm_frames(
        self,
        response: Response<tonic::body::Body>,
        delivery: Delivery,
    ) -> Response<tonic::body::Body> {
        let confirm = |body| Confirmed { body, receipts: self, delivery, sending: None };
        response.map(|body| tonic::body::Body::new(confirm(body)))
    }
}

struct Confirmed {
    body: tonic::body::Body,
    receipts: Receipts,
    delivery: Delivery,
    /// Receipt of the frame returned last.
    sending: Option<Receipt>,
}

impl Body for Confirmed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // The connection polls for the next frame once the last frame is sent.
        if let Some(receipt) = self.sending.take() {
            let received = self.delivery.confirmed();
            tokio::spawn(async move {
                if received.await.is_ok() {
                    tokio::time::sleep(ACTS_WITHIN).await;
                    receipt.confirm();
                }
            });
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // All messages encoded so far are in this frame or an earlier frame.
        let receipt = self.receipts.0.lock().take();
        self.sending = receipt;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
