//! One connection: over TCP or a Unix socket, with or without TLS.

use super::Peer;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// An accepted connection that is not registered with a runtime yet: it can move to a runtime of another thread.
pub struct Accepted {
    /// The client for which the connection counts.
    pub peer: Peer,
    socket: DetachedSocket,
    /// The TLS session, after its handshake; its own socket is [`Socket::Detached`].
    tls: Option<Box<TlsStream<Socket>>>,
}

/// A socket that is not registered with a runtime.
enum DetachedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// A socket that is registered with a runtime.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Placeholder for a socket that is moving to another runtime.
    Detached,
}

impl Accepted {
    pub(super) fn tcp(peer: Peer, stream: TcpStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Socket::Tcp(stream).detach()?, tls: None })
    }

    pub(super) fn unix(peer: Peer, stream: UnixStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Socket::Unix(stream).detach()?, tls: None })
    }

    /// A connection whose TLS handshake is complete.
    pub(super) fn tls(peer: Peer, mut tls: Box<TlsStream<Socket>>) -> io::Result<Self> {
        let socket = std::mem::replace(tls.get_mut().0, Socket::Detached);
        Ok(Self { peer, socket: socket.detach()?, tls: Some(tls) })
    }

    /// The names in the client's certificate, verified by its authorities and the port. Empty without a certificate.
    pub fn names(&self) -> Vec<String> {
        let session = self.tls.as_ref().map(|tls| tls.get_ref().1);
        let certificates = session.and_then(|session| session.peer_certificates()).unwrap_or_default();
        let names = certificates.first().and_then(super::tls::sans).unwrap_or_default();
        names.iter().map(ToString::to_string).collect()
    }

    /// Registers only the socket with the current runtime, for a handshake.
    pub(super) fn register_socket(self) -> io::Result<Socket> {
        self.socket.register()
    }

    /// Registers the connection with the current runtime.
    pub fn register(self) -> io::Result<Stream> {
        let socket = self.socket.register()?;
        Ok(match self.tls {
            None => Stream(Layers::Plain(socket)),
            Some(mut tls) => {
                *tls.get_mut().0 = socket;
                Stream(Layers::Tls(tls))
            }
        })
    }
}

impl DetachedSocket {
    fn register(self) -> io::Result<Socket> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Socket::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Socket::Unix),
        }
    }
}

impl Socket {
    fn detach(self) -> io::Result<DetachedSocket> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(DetachedSocket::Tcp),
            Self::Unix(stream) => stream.into_std().map(DetachedSocket::Unix),
            Self::Detached => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn writes_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Unix(socket) => socket.is_write_vectored(),
            Self::Detached => false,
        }
    }
}

/// Calls a method of the socket of any kind.
macro_rules! of_socket {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket.get_mut() {
            Socket::Tcp($inner) => $call,
            Socket::Unix($inner) => $call,
            Socket::Detached => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    };
}

/// Implements reading and writing for a type with several kinds of streams.
macro_rules! forward_io {
    ($type:ty, $forward:ident) => {
        impl AsyncRead for $type {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                $forward!(self, inner => Pin::new(inner).poll_read(context, buffer))
            }
        }

        impl AsyncWrite for $type {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                $forward!(self, inner => Pin::new(inner).poll_write(context, bytes))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                pieces: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $forward!(self, inner => Pin::new(inner).poll_write_vectored(context, pieces))
            }

            fn is_write_vectored(&self) -> bool {
                self.writes_vectored()
            }

            #[inline]
            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                $forward!(self, inner => Pin::new(inner).poll_flush(context))
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                $forward!(self, inner => Pin::new(inner).poll_shutdown(context))
            }
        }
    };
}

forward_io!(Socket, of_socket);

/// A connection's byte stream.
pub struct Stream(Layers);

enum Layers {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    fn writes_vectored(&self) -> bool {
        match &self.0 {
            Layers::Plain(socket) => socket.writes_vectored(),
            Layers::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// Calls a method of the stream of any kind.
macro_rules! of_stream {
    ($stream:expr, $inner:ident => $call:expr) => {
        match &mut $stream.get_mut().0 {
            Layers::Plain($inner) => $call,
            Layers::Tls($inner) => $call,
        }
    };
}

forward_io!(Stream, of_stream);
