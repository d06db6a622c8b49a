//! The fuzz bridge of this crate, and its service.

use super::{
    FieldNames, Fields, Http2Settings, RequestBody, Responses, Service, connection::Connection,
    frame::PREFACE,
};
use http::{Request, Response};
use std::{
    future::pending,
    sync::{Arc, LazyLock},
};
use tokio::sync::mpsc;

/// Echoes the bodies of calls to `/fast`, except `route`, which is routed, and `defer`, whose response is deferred. Routed and
/// deferred calls have no response.
pub(super) struct Echo;

impl Service for Echo {
    type FastPath = ();
    type Call<'b> = &'b [u8];
    type Body = String;

    fn field_names() -> &'static FieldNames {
        static NAMES: LazyLock<FieldNames> =
            LazyLock::new(|| FieldNames::new(["content-type", "traceparent"]));
        &NAMES
    }

    fn fast_path(&self, head: Fields<'_>) -> Option<()> {
        (head.get(b":path") == Some(b"/fast")).then_some(())
    }

    fn fast_path_after<'v>(&self, (): (), name: &[u8], _: impl FnOnce() -> &'v [u8]) -> Option<()> {
        (name != b"content-type").then_some(())
    }

    fn decode<'b>(&self, (): (), body: &'b [u8], call: &mut &'b [u8]) -> bool {
        *call = body;
        body != b"route"
    }

    fn respond(&self, calls: &[&[u8]], responses: &mut impl Responses) {
        for body in calls {
            match *body {
                b"defer" => responses.defer(Box::pin(pending())),
                body => responses.push(0, |out| out.extend_from_slice(body)),
            }
        }
    }

    async fn route(self: Arc<Self>, _: Request<RequestBody>) -> Response<String> {
        pending().await
    }
}

/// The bytes that the server half writes if a client sends `sent` after the preface, read in pieces of `piece` bytes. Also the number of
/// routed requests, or the reason why the connection failed.
pub fn http2_server(sent: &[u8], piece: usize) -> (Vec<u8>, Result<usize, &'static str>) {
    // There are no tasks: routed requests are dropped.
    let (tasks, _from_tasks) = mpsc::unbounded_channel();
    let mut connection = Connection::<Echo>::new(Http2Settings::default(), tasks);
    let (mut written, mut routed) = (Vec::new(), 0);
    for bytes in [PREFACE].into_iter().chain(sent.chunks(piece)) {
        if connection.is_finished() {
            break;
        }
        connection.read(bytes, &Echo);
        routed += std::iter::from_fn(|| connection.take_routed()).count();
        written.extend_from_slice(connection.unwritten());
        connection.wrote(connection.unwritten().len());
    }
    (written, connection.failure().map_or(Ok(routed), Err))
}
