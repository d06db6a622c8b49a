//! Responses as they go piece by piece: as a task makes them, and the client's windows let them.

use super::{Connection, UNREAD_MAX};
use crate::http2::{ErrorCode, Service, frame, routed::TaskEvent, stream::SendItem};

impl<S: Service> Connection<S> {
    /// A task has something to tell of its stream, which may be over.
    pub(in crate::http2) fn on_task(&mut self, id: u32, told: TaskEvent) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match told {
            TaskEvent::Read(bytes) => {
                stream.unreleased = stream.unreleased.saturating_sub(bytes);
                let raise = stream.recv_window.release(bytes).filter(|_| !stream.request_has_ended());
                self.write_stream_window(id, raise);
                self.release_window(bytes);
            }
            TaskEvent::Head { head, is_end } => {
                stream.has_response = true;
                self.answers.write_head(id, head.status.as_u16(), &head.headers, is_end, &mut self.outgoing);
                if is_end {
                    self.finish(id);
                }
            }
            TaskEvent::Data(bytes, sent) => {
                stream.send_queue.push_back(SendItem::Data(bytes, Some(sent)));
                self.flush(id);
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

    /// Sends what the windows let, as long as the client reads.
    pub(super) fn flush(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let out = &mut self.outgoing;
        while let Some(next) = stream.send_queue.pop_front() {
            match next {
                SendItem::Data(mut bytes, sent) => {
                    while !bytes.is_empty() {
                        let room = stream.send_window.available().min(self.send_window.available());
                        if room == 0 || out.len() - self.written >= UNREAD_MAX {
                            stream.send_queue.push_front(SendItem::Data(bytes, sent));
                            // A client that reads nothing at all is bounded by the connection's own deadline.
                            if room == 0 {
                                stream.blocked_since.get_or_insert(self.time.now());
                            }
                            return;
                        }
                        let piece = bytes.split_to(bytes.len().min(room).min(frame::PAYLOAD_MAX));
                        stream.send_window.consume(piece.len());
                        self.send_window.consume(piece.len());
                        frame::write(frame::DATA, 0, id, &piece, out);
                    }
                    // Only now: a window raised byte by byte is no progress.
                    stream.blocked_since = None;
                }
                SendItem::FastPathTrailers => {
                    self.answers.write_fast_path_trailers(id, out);
                    return self.finish(id);
                }
                SendItem::Trailers(trailers) => {
                    self.answers.write_trailers(id, &trailers, out);
                    return self.finish(id);
                }
                SendItem::End => {
                    frame::write(frame::DATA, frame::END_STREAM, id, &[], out);
                    return self.finish(id);
                }
            }
        }
    }

    /// Sends what the windows let, of every stream: the connection's was raised, or all of them.
    pub(super) fn flush_all(&mut self) {
        let waiting = self.streams.iter().filter(|(_, stream)| !stream.send_queue.is_empty());
        let mut waiting: Vec<u32> = waiting.map(|(&id, _)| id).collect();
        // First come, first served.
        waiting.sort_unstable();
        for id in waiting {
            self.flush(id);
        }
    }

    /// The end of the answer has been written.
    fn finish(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else { return };
        self.budget.answer();
        if stream.request_has_ended() {
            self.close(id);
        } else {
            // What else the client would send of the request is of no interest (RFC 9113, section 8.1).
            self.reset(id, ErrorCode::No);
        }
    }
}
