//! A door for the fuzzers, and the service behind it.

use super::{Fields, Http2Settings, RequestBody, Responses, Service, connection::Connection, frame::PREFACE};
use http::{Request, Response};
use std::{future::pending, sync::Arc};
use tokio::sync::mpsc;

/// Echoes the bodies of calls to `/fast`, but for those that say `route`; never answers anything else.
pub(super) struct Echo;

impl Service for Echo {
    type FastPath = ();
    type Call<'b> = &'b [u8];
    type Body = String;

    fn fast_path(&self, head: &Fields) -> Option<()> {
        (head.get(b":path") == Some(b"/fast")).then_some(())
    }

    fn decode<'b>(&self, (): (), body: &'b [u8], call: &mut &'b [u8]) -> bool {
        *call = body;
        body != b"route"
    }

    fn respond(&self, calls: &[&[u8]], responses: &mut impl Responses) {
        for body in calls {
            responses.push(|out| out.extend_from_slice(body));
        }
    }

    async fn route(self: Arc<Self>, _: Request<RequestBody>) -> Response<String> {
        pending().await
    }
}

/// What the server's side of a connection says to all that a client sends after the preface, read in pieces of so many
/// bytes; and how many requests it routes, or why it is broken: then it routes nothing any more.
pub fn http2_server(sent: &[u8], piece: usize) -> (Vec<u8>, Result<usize, &'static str>) {
    // Nothing is told by tasks: routed requests are dropped.
    let (tasks, _from_tasks) = mpsc::unbounded_channel();
    let mut connection = Connection::<Echo>::new(Http2Settings::default(), tasks);
    let (mut said, mut routed) = (Vec::new(), 0);
    for bytes in [PREFACE].into_iter().chain(sent.chunks(piece)) {
        if connection.is_finished() {
            break;
        }
        connection.read(bytes, &Echo);
        routed += std::iter::from_fn(|| connection.take_routed()).count();
        said.extend_from_slice(connection.unwritten());
        connection.wrote(connection.unwritten().len());
    }
    (said, connection.failure().map_or(Ok(routed), Err))
}
