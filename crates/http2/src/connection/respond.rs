//! Responses to the calls of the fast path.

use super::{
    Connection,
    batch::Batch,
    stream::{RecvState, SendItem},
};
use crate::{
    DeferredBody, OnReset, Responses, Service,
    flow_control::StreamSendWindow,
    frame,
    response_headers::{end_data, start_data},
};
use bytes::Bytes;

/// Writes each response to the stream of its call.
struct InOrder<'c, S: Service, I> {
    connection: &'c mut Connection<S>,
    streams: I,
    /// The stream of the response that was pushed last; 0 before the first.
    last: u32,
}

impl<S: Service, I: Iterator<Item = (u32, StreamSendWindow)>> Responses for InOrder<'_, S, I> {
    #[inline]
    fn push(&mut self, class: usize, body: impl FnOnce(&mut Vec<u8>)) {
        if let Some((stream, send_window)) = self.streams.next() {
            self.last = stream;
            self.connection.responses[class] += 1;
            self.connection.write_response(stream, send_window, body);
        }
    }

    fn push_uncounted(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        if let Some((stream, send_window)) = self.streams.next() {
            self.last = stream;
            self.connection.write_response(stream, send_window, body);
        }
    }

    fn on_reset(&mut self, hook: OnReset) {
        self.connection.watch(self.last, hook);
    }

    fn defer(&mut self, body: DeferredBody) {
        if let Some((stream, send_window)) = self.streams.next() {
            // A client within its limit of streams has room for this stream.
            self.connection.open(stream, RecvState::Ended, send_window);
            self.connection.deferred.push_back((stream, body));
        }
    }
}

impl<S: Service> Connection<S> {
    /// Responds to the calls of the batch, and empties it.
    #[inline]
    pub(super) fn respond_to_batch(&mut self, batch: &mut Batch<'_, S>, service: &S) {
        if batch.is_empty() {
            return;
        }
        let mut in_order = InOrder { connection: self, streams: batch.streams.drain(..), last: 0 };
        service.respond(&batch.calls, &mut in_order);
        debug_assert!(in_order.streams.next().is_none(), "every call has a response");
        drop(in_order);
        batch.calls.clear();
    }

    /// Writes a response of the fast path as far as the client's windows allow.
    #[inline]
    fn write_response(&mut self, id: u32, send_window: StreamSendWindow, body: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.outgoing;
        self.response_encoder.write_fast_path_headers(id, out);
        let start = start_data(id, out);
        body(out);
        let length = out.len() - start;
        let available = send_window.available(self.initial_window).min(self.send_window.available());
        if length <= available.min(frame::PAYLOAD_MAX) {
            end_data(start, out);
            self.send_window.consume(length);
            self.response_encoder.write_fast_path_trailers(id, out);
            self.budget.count_response();
        } else {
            let body = Bytes::from(out.split_off(start));
            out.truncate(start - frame::HEADER);
            self.queue_response(id, send_window, body);
        }
    }

    /// Queues a response that the client's windows do not allow yet.
    #[cold]
    fn queue_response(&mut self, id: u32, send_window: StreamSendWindow, body: Bytes) {
        let stream = self.open(id, RecvState::Ended, send_window);
        stream.send_queue.extend([SendItem::Data(body, None), SendItem::FastPathTrailers]);
        self.flush(id);
    }
}
