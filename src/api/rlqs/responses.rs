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

/// Time for which a client may have received assignments and not acted on them yet: Envoy's main thread passes them to its workers.
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

/// The receipt of the messages that were encoded last, in the extensions of their response. It includes those before.
#[derive(Clone, Default)]
pub(in crate::api) struct Receipts(Arc<Mutex<Option<Receipt>>>);

impl Receipts {
    /// The response, whose frames are confirmed.
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
    /// Of the frame that was returned last.
    sending: Option<Receipt>,
}

impl Body for Confirmed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // The connection polls for a frame once the last one was sent.
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
        // What was encoded by now is in this frame or in one before it.
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
