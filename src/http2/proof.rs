//! The fuzzers' door to the server's connection.

use super::{
    Http2Settings, RequestBody, Service,
    connection::{Connection, PREFACE},
    frame,
    service::Fields,
};
use http::{Request, Response};
use std::{future::pending, sync::Arc};
use tokio::sync::mpsc;

/// Answers calls to `/quick` with their bodies, but for those that start with a 0; never answers anything else.
struct Echo;

impl Service for Echo {
    type Quick = ();
    type Body = tonic::body::Body;

    fn quick(&self, head: &Fields) -> Option<()> {
        (head.get(b":path") == Some(b"/quick")).then_some(())
    }

    fn answer(&self, (): (), body: &[u8], out: &mut Vec<u8>) -> bool {
        let is_answered = body.first() != Some(&0);
        if is_answered {
            out.extend_from_slice(body);
        }
        is_answered
    }

    async fn route(self: Arc<Self>, _: Request<RequestBody>) -> Response<Self::Body> {
        pending().await
    }
}

/// What the server says to a client that, after its preface and its SETTINGS, sends these bytes in pieces of this length;
/// and why it ended the connection, if it did.
pub fn http2_server(sent: &[u8], piece: usize) -> (Vec<u8>, Option<&'static str>) {
    let (tasks, _told) = mpsc::unbounded_channel();
    let settings = Http2Settings { control_frames_max: 100, resets_max: 10, ..Http2Settings::default() };
    let mut connection = Connection::<Echo>::new(settings, tasks);
    connection.read(PREFACE, &Echo);
    let mut opening = Vec::new();
    frame::write(frame::SETTINGS, 0, 0, &[], &mut opening);
    connection.read(&opening, &Echo);
    let mut said = Vec::new();
    for piece in sent.chunks(piece.min(sent.len().max(1))) {
        connection.read(piece, &Echo);
        while connection.take_routed().is_some() {}
        said.extend_from_slice(connection.unwritten());
        connection.wrote(connection.unwritten().len());
    }
    (said, connection.why_broken())
}
