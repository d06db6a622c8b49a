//! Sends responses piece by piece, as a task makes them and the client's windows allow.

use super::{
    Connection, Phase, UNREAD_MAX,
    send_queues::BlockedBy,
    stream::{RecvState, SendItem},
};
use crate::{DeferredResponse, ErrorCode, OnReset, Service, frame, steps, task_event::TaskEvent};
use bytes::Bytes;
use http::Response;

/// A shorter DATA frame counts as a control frame if only a window made it so short.
const FRAGMENT_MAX: usize = 1024;

impl<S: Service> Connection<S> {
    /// Applies an event of the task of a stream. The stream may be closed by now.
    pub(crate) fn on_task(&mut self, id: u32, event: TaskEvent) {
        let Some(stream) = self.streams.get_mut(&id) else { return event.run_hook() };
        match event {
            TaskEvent::Read(bytes) => {
                stream.unreleased = stream.unreleased.saturating_sub(bytes);
                let increment = stream.recv_window.release(bytes).filter(|_| !stream.request_has_ended());
                self.write_stream_window(id, increment);
                self.release_window(bytes);
            }
            TaskEvent::Head { head, is_end } => {
                stream.has_response = true;
                let (status, headers) = (head.status.as_u16(), &head.headers);
                self.response_encoder.write_head(id, status, headers, is_end, &mut self.outgoing);
                if let Some(hook) = head.extensions.get::<OnReset>() {
                    self.watch(id, hook.clone());
                }
                if is_end {
                    self.finish(id);
                }
            }
            TaskEvent::Data(bytes, sent) => {
                stream.send_queue.push_back(SendItem::Data(bytes, Some(sent)));
                self.flush(id);
            }
            TaskEvent::Body(bytes) => {
                stream.send_queue.extend([SendItem::Data(bytes, None), SendItem::End]);
                self.flush(id);
            }
            TaskEvent::Confirm(task) => self.deliveries.add(task, self.removed, &mut self.outgoing),
            TaskEvent::FastPath(DeferredResponse { body, on_reset }) => {
                stream.has_response = true;
                stream.send_queue.extend([SendItem::Data(body, None), SendItem::FastPathTrailers]);
                self.response_encoder.write_fast_path_headers(id, &mut self.outgoing);
                self.flush(id);
                if let Some(hook) = on_reset {
                    self.watch(id, hook);
                }
            }
            TaskEvent::Trailers(trailers) => {
                stream.send_queue.push_back(SendItem::Trailers(trailers));
                self.flush(id);
            }
            TaskEvent::End => {
                stream.send_queue.push_back(SendItem::End);
                self.flush(id);
            }
            TaskEvent::Failed => self.reset(id, ErrorCode::Internal),
        }
    }

    /// Responds to a routed request without a task.
    pub(crate) fn refuse_routed(&mut self, id: u32, refusal: Response<Bytes>) {
        let (head, body) = refusal.into_parts();
        let is_end = body.is_empty();
        self.on_task(id, TaskEvent::Head { head: Box::new(head), is_end });
        if !is_end {
            self.on_task(id, TaskEvent::Body(body));
        }
    }

    /// Writes queued frames of a stream, unless it is known to be blocked.
    pub(super) fn flush(&mut self, id: u32) {
        if self.streams.get(&id).is_none_or(|stream| stream.blocked_by.is_some()) {
            return;
        }
        if self.write_queued(id) == Some(BlockedBy::Connection) {
            self.send_queues.push(id);
        }
    }

    /// Writes frames of streams that were blocked by the connection's window, or by bytes that the client had not read.
    pub(super) fn flush_connection(&mut self) {
        while self.send_window.available() > 0
            && self.unwritten().len() < UNREAD_MAX
            && let Some(id) = self.send_queues.pop()
        {
            if self.write_queued(id) == Some(BlockedBy::Connection) {
                self.send_queues.push_first(id);
            }
        }
    }

    /// Writes frames of streams that a larger initial window has unblocked.
    pub(super) fn flush_unblocked(&mut self) {
        while let Some(id) = self.send_queues.pop_unblocked(self.initial_window) {
            if self.write_queued(id) == Some(BlockedBy::Connection) {
                self.send_queues.push(id);
            }
        }
    }

    /// Writes queued frames of a stream as far as the windows allow. Returns the reason if some are left. If it is the stream's own window,
    /// queues the stream.
    fn write_queued(&mut self, id: u32) -> Option<BlockedBy> {
        steps::add(steps::FRAME);
        let stream = self.streams.get_mut(&id)?;
        stream.blocked_by = None;
        let out = &mut self.outgoing;
        while let Some(next) = stream.send_queue.pop_front() {
            match next {
                SendItem::Data(mut bytes, sent) => {
                    while !bytes.is_empty() {
                        let own = stream.send_window.available(self.initial_window);
                        let available = own.min(self.send_window.available());
                        if available == 0 || out.len() - self.written >= UNREAD_MAX {
                            stream.send_queue.push_front(SendItem::Data(bytes, sent));
                            // If a client reads nothing at all, the connection's own deadline applies.
                            if available == 0 {
                                stream.blocked_since.get_or_insert(self.time.now());
                            }
                            let reason = if own == 0 { BlockedBy::Stream } else { BlockedBy::Connection };
                            stream.blocked_by = Some(reason);
                            if own == 0 {
                                self.send_queues.push_credit(id, stream.send_window.credit());
                            }
                            return Some(reason);
                        }
                        let piece = bytes.split_to(bytes.len().min(available).min(frame::PAYLOAD_MAX));
                        stream.send_window.consume(piece.len());
                        self.send_window.consume(piece.len());
                        if !bytes.is_empty() && piece.len() < FRAGMENT_MAX {
                            self.budget.fragment();
                        }
                        frame::write(frame::DATA, 0, id, &piece, out);
                    }
                    // Only here: a window that is raised byte by byte is no progress.
                    stream.blocked_since = None;
                }
                SendItem::FastPathTrailers => {
                    self.response_encoder.write_fast_path_trailers(id, out);
                    self.finish(id);
                    return None;
                }
                SendItem::Trailers(trailers) => {
                    self.response_encoder.write_trailers(id, &trailers, out);
                    self.finish(id);
                    return None;
                }
                SendItem::End => {
                    frame::write(frame::DATA, frame::END_STREAM, id, &[], out);
                    self.finish(id);
                    return None;
                }
            }
        }
        None
    }

    /// Closes the server's half of a stream: the end of the response has been written.
    fn finish(&mut self, id: u32) {
        let phase = self.phase;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        self.budget.count_response();
        if stream.request_has_ended() {
            self.close(id);
        } else if phase >= Phase::Draining {
            // The rest of the request is not needed (RFC 9113, section 8.1).
            self.reset(id, ErrorCode::No);
        } else {
            // The rest of the request is still checked, so that errors in it do not depend on when the response is ready.
            stream.task = None;
            let unread = std::mem::take(&mut stream.unreleased);
            stream.request = RecvState::Discarding(unread);
            self.release_window(unread);
        }
    }
}
