//! Calls that are answered at once: those that came together are answered together.

use super::Connection;
use crate::http2::{
    Answers, Service,
    answer::{end_data, start_data},
    flow::Outbound,
    frame,
    stream::{Incoming, Outgoing},
};
use bytes::Bytes;
use smallvec::SmallVec;

/// The most calls that are answered together.
const TOGETHER_MAX: usize = 16;

/// What is left of what was read, and the calls from before that are yet to be answered.
pub(super) struct Reading<'s, 'b, S: Service> {
    pub(super) rest: &'b [u8],
    pub(super) service: &'s S,
    pub(super) calls: Calls<'b, S>,
}

/// Calls, in the order in which they came.
pub(super) struct Calls<'b, S: Service> {
    streams: SmallVec<[(u32, Outbound); TOGETHER_MAX]>,
    asked: SmallVec<[S::Asked<'b>; TOGETHER_MAX]>,
}

impl<'b, S: Service> Calls<'b, S> {
    pub(super) fn new() -> Self {
        Self { streams: SmallVec::new(), asked: SmallVec::new() }
    }

    /// Adds a call that has come whole, unless the service has it routed.
    #[inline]
    pub(super) fn add(
        &mut self,
        service: &S,
        (stream, outbound): (u32, Outbound),
        quick: S::Quick,
        body: &'b [u8],
    ) -> bool {
        self.asked.push(S::Asked::default());
        let is_asked = self.asked.last_mut().is_some_and(|asked| service.ask(quick, body, asked));
        if is_asked {
            self.streams.push((stream, outbound));
        } else {
            self.asked.pop();
        }
        is_asked
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    #[inline]
    pub(super) fn are_enough(&self) -> bool {
        self.asked.len() >= TOGETHER_MAX
    }
}

/// Answers go to streams in turn.
struct InTurn<'c, S: Service, I> {
    connection: &'c mut Connection<S>,
    streams: I,
}

impl<S: Service, I: Iterator<Item = (u32, Outbound)>> Answers for InTurn<'_, S, I> {
    #[inline]
    fn answer(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        if let Some((stream, outbound)) = self.streams.next() {
            self.connection.answer(stream, outbound, body);
        }
    }
}

impl<S: Service> Connection<S> {
    /// Answers the calls, of which none are left then.
    #[inline]
    pub(super) fn answer_calls(&mut self, calls: &mut Calls<'_, S>, service: &S) {
        if calls.is_empty() {
            return;
        }
        let mut in_turn = InTurn { connection: self, streams: calls.streams.drain(..) };
        service.answer(&calls.asked, &mut in_turn);
        debug_assert!(in_turn.streams.next().is_none(), "every call is answered");
        drop(in_turn);
        calls.asked.clear();
    }

    /// Writes an answer, as far as the client's windows let it.
    #[inline]
    fn answer(&mut self, id: u32, outbound: Outbound, body: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.outgoing;
        self.answers.write_quick_head(id, out);
        let start = start_data(id, out);
        body(out);
        self.budget.answer();
        let length = out.len() - start;
        if length <= outbound.room().min(self.outbound.room()).min(frame::PAYLOAD_MAX) {
            end_data(start, out);
            self.outbound.take(length);
            self.answers.write_quick_trailers(id, out);
        } else {
            let body = Bytes::from(out.split_off(start));
            out.truncate(start - frame::HEADER);
            self.answer_later(id, outbound, body);
        }
    }

    /// The client's windows do not let it take the answer yet.
    #[cold]
    fn answer_later(&mut self, id: u32, outbound: Outbound, body: Bytes) {
        let stream = self.open(id, Incoming::Ended, outbound);
        stream.outgoing.extend([Outgoing::Data(body, None), Outgoing::QuickTrailers]);
        self.flush(id);
    }
}
