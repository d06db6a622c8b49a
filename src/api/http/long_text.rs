//! Long texts, such as the metrics of ten thousand limits: written and sent piece by piece.
//!
//! They are written on a thread that is in the idle class for as long as it makes progress there, so that neither decisions nor other
//! requests of the port are delayed. On a core that decisions saturate, and where the system does not permit it, it has a low priority
//! instead. It yields between pieces, and so does the thread of the port between those that it sends.

use super::HttpState;
use crate::priority::{IdleAtFirst, Yields};
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
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
    vec,
};

/// Time in which a thread of the idle class writes a piece if it has a third of a core. One that does not leaves the class.
const PIECE_TIME: Duration = Duration::from_millis(3);

/// Receives the pieces of a text.
type SendPiece<'p> = &'p mut dyn FnMut(String);

/// A work whose progress is watched. When that ends, as the client has gone, it leaves the idle class.
struct Watched(Arc<IdleAtFirst>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.leave();
    }
}

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
    let (written, watched) = (Arc::new(AtomicU32::new(0)), Watched(Arc::default()));
    let write = {
        let (written, idle) = (Arc::clone(&written), Arc::clone(&watched.0));
        let write = move || {
            let mut pieces = Vec::new();
            write(&mut |piece| {
                pieces.push(Bytes::from(piece));
                written.store(pieces.len() as u32, Ordering::Relaxed);
                yields.yield_now();
            });
            pieces
        };
        move || idle.run(write)
    };
    let mut writing = tokio::task::spawn_blocking(write);
    let mut seen = 0;
    let pieces = loop {
        if let Ok(pieces) = tokio::time::timeout(PIECE_TIME, &mut writing).await {
            let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, format!("{about} could not be written\n"));
            break pieces.map_err(failed)?;
        }
        let now = written.load(Ordering::Relaxed);
        if now == seen {
            watched.0.leave();
        }
        seen = now;
    };
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
