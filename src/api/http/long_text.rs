//! Long texts, such as the metrics of ten thousand limits: written and sent piece by piece.
//!
//! A low-priority thread writes the pieces and yields between them; the port's thread yields between the pieces that it sends. So neither
//! decisions nor other requests of the port are delayed.

use super::state::HttpState;
use axum::{
    body::Body,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use std::{convert::Infallible, fmt, sync::Arc};
use tidegate_core::clock::Clock;
use tidegate_threads::Yields;
use tokio::task::JoinError;
use tokio_stream::StreamExt as _;

/// Receives the pieces of a text; returns an error once the client is gone.
pub(super) type SendPiece<'p> = &'p mut dyn FnMut(String) -> fmt::Result;

/// A response with a text.
pub(super) async fn long_text(
    state: &HttpState,
    about: &str,
    write: impl FnOnce() -> String + Send + 'static,
) -> Result<Response, (StatusCode, String)> {
    long_text_in_pieces(state, about, |send| send(write())).await
}

/// A response with a text in pieces; the memory of each is freed when it is sent. It is plain text unless the route states another type.
pub(super) async fn long_text_in_pieces(
    state: &HttpState,
    about: &str,
    write: impl FnOnce(SendPiece<'_>) -> fmt::Result + Send + 'static,
) -> Result<Response, (StatusCode, String)> {
    let clock = state.service.clock();
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, format!("{about} could not be written\n"));
    let pieces = pieces_of(clock, write).await.map_err(failed)?;
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut yields = Yields::new(clock.clone());
    let pieces = tokio_stream::iter(pieces).map(move |piece| {
        yields.yield_now();
        Ok::<_, Infallible>(piece)
    });
    Ok(([(CONTENT_TYPE, plain), (CONTENT_LENGTH, bytes.into())], Body::from_stream(pieces)).into_response())
}

/// Collects the pieces of a text. Dropping this future ends the writing after the current piece.
async fn pieces_of(
    clock: &Arc<dyn Clock>,
    write: impl FnOnce(SendPiece<'_>) -> fmt::Result + Send + 'static,
) -> Result<Vec<Bytes>, JoinError> {
    let mut yields = Yields::new(clock.clone());
    // Dropped with this future, when the client is gone.
    let client = Arc::new(());
    let is_client = Arc::downgrade(&client);
    let writing = tokio::task::spawn_blocking(move || {
        let mut pieces = Vec::new();
        let is_wanted = || if is_client.strong_count() == 0 { Err(fmt::Error) } else { Ok(()) };
        // After an error, the text is partial and no client receives it.
        let _ = is_wanted().and_then(|()| {
            write(&mut |piece| {
                pieces.push(Bytes::from(piece));
                yields.yield_now();
                is_wanted()
            })
        });
        pieces
    });
    let pieces = writing.await;
    drop(client);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tidegate_core::{clock::ManualClock, limit::Timestamp};

    /// 5,000 scrapes that were reset once took as much time as complete scrapes.
    #[tokio::test]
    async fn a_text_that_nobody_waits_for_is_not_written_to_its_end() {
        const PIECES_MAX: u32 = 10_000_000;
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
        let (ended, end) = mpsc::channel();
        let (began, mut beginning) = tokio::sync::mpsc::unbounded_channel();
        let write = move |send: SendPiece<'_>| {
            let written = (1..=PIECES_MAX).find(|_| {
                let is_over = send(String::new()).is_err();
                // The test may have ended.
                let _ = began.send(());
                is_over
            });
            ended.send(written).map_err(|_| fmt::Error)
        };
        {
            let mut pieces = std::pin::pin!(pieces_of(&clock, write));
            tokio::select! {
                _ = beginning.recv() => {}
                _ = &mut pieces => panic!("it was written to its end"),
            }
        }
        assert!(end.recv().expect("it ends").is_some(), "all of {PIECES_MAX} pieces were written");
    }
}
