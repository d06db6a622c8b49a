//! Answers as they go piece by piece: as a task makes them, and the client's windows let them.

use super::{Connection, UNREAD_MAX};
use crate::http2::{ErrorCode, Service, frame, routed::FromTask, stream::Outgoing};

impl<S: Service> Connection<S> {
    /// A task has something to tell of its stream, which may be over.
    pub(in crate::http2) fn on_task(&mut self, id: u32, told: FromTask) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match told {
            FromTask::Read(bytes) => {
                stream.held = stream.held.saturating_sub(bytes);
                let raise = stream.inbound.read(bytes).filter(|_| !stream.request_has_ended());
                self.write_stream_window(id, raise);
                self.give_back(bytes);
            }
            FromTask::Head { head, is_end } => {
                self.answers.write_head(id, head.status.as_u16(), &head.headers, is_end, &mut self.outgoing);
                if is_end {
                    self.finish(id);
                }
            }
            FromTask::Data(bytes, sent) => {
                stream.outgoing.push_back(Outgoing::Data(bytes, Some(sent)));
                self.flush(id);
            }
            FromTask::Trailers(trailers) => {
                stream.outgoing.push_back(Outgoing::Trailers(trailers));
                self.flush(id);
            }
            FromTask::End => {
                stream.outgoing.push_back(Outgoing::End);
                self.flush(id);
            }
            FromTask::Failed => self.reset(id, ErrorCode::Internal),
        }
    }

    /// Sends what the windows let, as long as the client reads.
    pub(super) fn flush(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let out = &mut self.outgoing;
        while let Some(next) = stream.outgoing.pop_front() {
            match next {
                Outgoing::Data(mut bytes, sent) => {
                    while !bytes.is_empty() {
                        let room = stream.outbound.room().min(self.outbound.room());
                        if room == 0 || out.len() - self.written >= UNREAD_MAX {
                            stream.outgoing.push_front(Outgoing::Data(bytes, sent));
                            // How long the client may read nothing at all is the connection's to bound.
                            let since = stream.blocked_since.unwrap_or(self.time.now());
                            stream.blocked_since = (room == 0).then_some(since);
                            return;
                        }
                        let piece = bytes.split_to(bytes.len().min(room).min(frame::PAYLOAD_MAX));
                        stream.outbound.take(piece.len());
                        self.outbound.take(piece.len());
                        stream.blocked_since = None;
                        frame::write(frame::DATA, 0, id, &piece, out);
                    }
                }
                Outgoing::QuickTrailers => {
                    self.answers.write_quick_trailers(id, out);
                    return self.finish(id);
                }
                Outgoing::Trailers(trailers) => {
                    self.answers.write_trailers(id, &trailers, out);
                    return self.finish(id);
                }
                Outgoing::End => {
                    frame::write(frame::DATA, frame::END_STREAM, id, &[], out);
                    return self.finish(id);
                }
            }
        }
    }

    /// Sends what the windows let, of every stream: the connection's was raised, or all of them.
    pub(super) fn flush_all(&mut self) {
        let waiting = self.streams.iter().filter(|(_, stream)| !stream.outgoing.is_empty());
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
