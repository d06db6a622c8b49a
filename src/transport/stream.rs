//! One connection, over TCP or a Unix socket.

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

/// A connection that was accepted and is not yet registered with a runtime: it can move to another thread's.
pub(crate) struct Accepted {
    /// The client that the connection is counted for.
    pub(crate) peer: Peer,
    socket: Socket,
}

enum Socket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    pub(super) fn tcp(peer: Peer, stream: TcpStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Socket::Tcp(stream.into_std()?) })
    }

    pub(super) fn unix(peer: Peer, stream: UnixStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Socket::Unix(stream.into_std()?) })
    }

    /// Registers the connection with the current runtime.
    pub(crate) fn register(self) -> io::Result<Stream> {
        match self.socket {
            Socket::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Socket::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

/// A connection's byte stream.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Calls a method of the socket, whatever its kind.
macro_rules! of_socket {
    ($stream:expr, $socket:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($socket) => $call,
            Stream::Unix($socket) => $call,
        }
    };
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of_socket!(self, socket => Pin::new(socket).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_socket!(self, socket => Pin::new(socket).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_socket!(self, socket => Pin::new(socket).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Unix(socket) => socket.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_socket!(self, socket => Pin::new(socket).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_socket!(self, socket => Pin::new(socket).poll_shutdown(context))
    }
}
