//! Long texts, such as the metrics of ten thousand limits: written and sent piece by piece.
//!
//! They are written on a thread of low priority, which yields between pieces; so does the thread of the port between those that it sends.
//! Neither decisions nor other requests of the port are delayed.

use super::HttpState;
use crate::priority::Yields;
use axum::{
    body::Body,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

/// Receives the pieces of a text.
type SendPiece<'p> = &'p mut dyn FnMut(String);

/// Writes a text.
pub(super) async fn long_text(
    state: &HttpState,
    about: &str,
    write: impl FnOnce() -> String + Send + 'static,
) -> Result<LongText, (StatusCode, String)> {
    long_text_in_pieces(state, about, |send| send(write())).await
}

/// Writes a text in pieces.
pub(super) async fn long_text_in_pieces(
    state: &HttpState,
    about: &str,
    write: impl FnOnce(SendPiece<'_>) + Send + 'static,
) -> Result<LongText, (StatusCode, String)> {
    let clock = state.service.clock();
    let (mut yields, yields_of_port) = (Yields::new(clock.clone()), Yields::new(clock.clone()));
    // Dropped with this future, when the client is gone.
    let client = Arc::new(());
    let is_client = Arc::downgrade(&client);
    let writing = tokio::task::spawn_blocking(move || {
        let mut pieces = Vec::new();
        if is_client.strong_count() == 0 {
            return pieces;
        }
        write(&mut |piece| {
            pieces.push(Bytes::from(piece));
            yields.yield_now();
        });
        pieces
    });
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, format!("{about} could not be written\n"));
    let pieces = writing.await.map_err(failed)?;
    drop(client);
    let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    Ok(LongText { pieces: pieces.into_iter(), bytes, yields: yields_of_port })
}

/// A text that is sent piece by piece; the memory of each is freed when it is sent. It is plain text unless the route states another type.
pub(super) struct LongText {
    pieces: vec::IntoIter<Bytes>,
    /// Length of `pieces`.
    bytes: u64,
    yields: Yields,
}

impl IntoResponse for LongText {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::new(self)).into_response()
    }
}

impl http_body::Body for LongText {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.next() else { return Poll::Ready(None) };
        self.yields.yield_now();
        self.bytes -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}
