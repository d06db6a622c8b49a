//! Batch that are answered at once: those that came together are answered together.

use super::Connection;
use crate::http2::{
    Responses, Service,
    flow_control::SendWindow,
    frame,
    response_headers::{end_data, start_data},
    stream::{RecvState, SendItem},
};
use bytes::Bytes;
use smallvec::SmallVec;

/// The most calls that are answered together.
const BATCH_MAX: usize = 16;

/// What is left of what was read, and the calls from before that are yet to be answered.
pub(super) struct Input<'s, 'b, S: Service> {
    pub(super) rest: &'b [u8],
    pub(super) service: &'s S,
    pub(super) batch: Batch<'b, S>,
}

/// Batch, in the order in which they came.
pub(super) struct Batch<'b, S: Service> {
    streams: SmallVec<[(u32, SendWindow); BATCH_MAX]>,
    calls: SmallVec<[S::Call<'b>; BATCH_MAX]>,
}

impl<'b, S: Service> Batch<'b, S> {
    pub(super) fn new() -> Self {
        Self { streams: SmallVec::new(), calls: SmallVec::new() }
    }

    /// Adds a call that has come whole, unless the service has it routed.
    #[inline]
    pub(super) fn add(
        &mut self,
        service: &S,
        (stream, send_window): (u32, SendWindow),
        fast_path: S::FastPath,
        body: &'b [u8],
    ) -> bool {
        self.calls.push(S::Call::default());
        let is_decoded = self.calls.last_mut().is_some_and(|call| service.decode(fast_path, body, call));
        if is_decoded {
            self.streams.push((stream, send_window));
        } else {
            self.calls.pop();
        }
        is_decoded
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    #[inline]
    pub(super) fn are_enough(&self) -> bool {
        self.calls.len() >= BATCH_MAX
    }
}

/// Responses go to streams in turn.
struct InOrder<'c, S: Service, I> {
    connection: &'c mut Connection<S>,
    streams: I,
}

impl<S: Service, I: Iterator<Item = (u32, SendWindow)>> Responses for InOrder<'_, S, I> {
    #[inline]
    fn push(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        if let Some((stream, send_window)) = self.streams.next() {
            self.connection.answer(stream, send_window, body);
        }
    }
}

impl<S: Service> Connection<S> {
    /// Responses the calls, of which none are left then.
    #[inline]
    pub(super) fn respond_to_batch(&mut self, batch: &mut Batch<'_, S>, service: &S) {
        if batch.is_empty() {
            return;
        }
        let mut in_order = InOrder { connection: self, streams: batch.streams.drain(..) };
        service.respond(&batch.calls, &mut in_order);
        debug_assert!(in_order.streams.next().is_none(), "every call is answered");
        drop(in_order);
        batch.calls.clear();
    }

    /// Writes an answer, as far as the client's windows let it.
    #[inline]
    fn answer(&mut self, id: u32, send_window: SendWindow, body: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.outgoing;
        self.answers.write_fast_path_headers(id, out);
        let start = start_data(id, out);
        body(out);
        self.budget.answer();
        let length = out.len() - start;
        if length <= send_window.available().min(self.send_window.available()).min(frame::PAYLOAD_MAX) {
            end_data(start, out);
            self.send_window.consume(length);
            self.answers.write_fast_path_trailers(id, out);
        } else {
            let body = Bytes::from(out.split_off(start));
            out.truncate(start - frame::HEADER);
            self.answer_later(id, send_window, body);
        }
    }

    /// The client's windows do not let it take the answer yet.
    #[cold]
    fn answer_later(&mut self, id: u32, send_window: SendWindow, body: Bytes) {
        let stream = self.open(id, RecvState::Ended, send_window);
        stream.send_queue.extend([SendItem::Data(body, None), SendItem::FastPathTrailers]);
        self.flush(id);
    }
}
