//! tonic: decodes each request, discards it, and encodes a constant response.

use super::pb::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use std::{hint::black_box, io};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status,
    transport::{
        Server,
        server::{Connected, TcpIncoming},
    },
};

struct Constant;

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        black_box(request.into_inner());
        Ok(Response::new(super::answer()))
    }
}

pub(super) async fn serve(listener: TcpListener) -> io::Result<()> {
    serve_connections(TcpIncoming::from(listener).with_nodelay(Some(true))).await
}

pub(super) async fn serve_connections<I>(incoming: impl Stream<Item = io::Result<I>>) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let service = RateLimitServiceServer::new(Constant);
    Server::builder().add_service(service).serve_with_incoming(incoming).await.map_err(io::Error::other)
}
