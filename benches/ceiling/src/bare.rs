//! Bare hyper: reads the body without decoding it, and returns bytes encoded once.

use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::net::TcpListener;

/// Message frame, then trailers.
enum Answer {
    Message(Bytes),
    Trailers,
    End,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (frame, rest) = match std::mem::replace(&mut *self, Self::End) {
            Self::Message(message) => (Some(Ok(Frame::data(message))), Self::Trailers),
            Self::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                (Some(Ok(Frame::trailers(trailers))), Self::End)
            }
            Self::End => (None, Self::End),
        };
        *self = rest;
        Poll::Ready(frame)
    }
}

async fn answer(request: Request<Incoming>, message: Bytes) -> Result<Response<Answer>, hyper::Error> {
    let mut body = request.into_body();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        frame?;
    }
    let mut response = Response::new(Answer::Message(message));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

pub(super) async fn serve(listener: TcpListener) -> io::Result<()> {
    let message = super::answer().encode_to_vec();
    let length = u32::try_from(message.len()).expect("the answer is short");
    // Leaked to avoid reference counts; needed until the process ends.
    let framed: &'static [u8] = [&[0][..], &length.to_be_bytes(), &message].concat().leak();
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let service = service_fn(move |request| answer(request, Bytes::from_static(framed)));
        tokio::spawn(async move {
            // An aborted connection does not affect the others.
            let _ = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}
