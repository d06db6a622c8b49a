//! Channels of gRPC clients to a server of any address, with or without TLS.

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tidegate_transport::ListenAddress;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{
    codegen::{Service, http::Uri},
    transport::Endpoint,
};

/// An endpoint for [`TlsConnector`]: requests have the scheme https.
pub(crate) fn tls_endpoint(authority: &str) -> Result<Endpoint, Box<dyn Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
    Ok(endpoint.origin(format!("https://{authority}").parse()?))
}

/// Opens TLS connections for a channel.
pub(crate) struct TlsConnections {
    pub(crate) address: ListenAddress,
    pub(crate) tls: TlsConnector,
    /// The name that the server's certificate must have.
    pub(crate) name: ServerName<'static>,
}

pub(crate) trait Bytes: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Bytes for T {}

impl Service<Uri> for TlsConnections {
    type Response = TokioIo<TlsStream<Box<dyn Bytes>>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, tls, name) = (self.address.clone(), self.tls.clone(), self.name.clone());
        Box::pin(async move {
            let socket: Box<dyn Bytes> = match address {
                ListenAddress::Tcp(address) => Box::new(TcpStream::connect(address).await?),
                ListenAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
                ListenAddress::Systemd(_) => {
                    return Err(io::Error::other(ListenAddress::LISTEN_ONLY));
                }
            };
            tls.connect(name, socket).await.map(TokioIo::new)
        })
    }
}

/// The error and its causes, the innermost last.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The innermost cause of `error`, in words.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}
