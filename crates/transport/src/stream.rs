//! One connection: over TCP or a Unix socket, with or without TLS.

use super::Peer;
use std::{io, mem, net, os::unix};
use tokio::{
    io::Empty,
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either::{self, Left, Right};

/// A connection's byte stream, with or without TLS.
pub type Stream = Either<Socket, Box<TlsStream<Socket>>>;

/// A socket that is registered with a runtime. `Empty` stands for a socket that is moving to another runtime.
pub(super) type Socket = Either<TcpStream, Either<UnixStream, Empty>>;

/// An accepted connection that is not registered with a runtime yet: it can move to a runtime of another thread.
pub struct Accepted {
    /// The client for which the connection counts.
    pub peer: Peer,
    socket: DetachedSocket,
    /// The TLS session, after its handshake; its own socket is `Empty`.
    tls: Option<Box<TlsStream<Socket>>>,
}

/// A socket that is not registered with a runtime.
type DetachedSocket = Either<net::TcpStream, unix::net::UnixStream>;

impl Accepted {
    pub(super) fn tcp(peer: Peer, stream: TcpStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Left(stream.into_std()?), tls: None })
    }

    pub(super) fn unix(peer: Peer, stream: UnixStream) -> io::Result<Self> {
        Ok(Self { peer, socket: Right(stream.into_std()?), tls: None })
    }

    /// A connection whose TLS handshake is complete.
    pub(super) fn tls(peer: Peer, mut tls: Box<TlsStream<Socket>>) -> io::Result<Self> {
        let accepted = match mem::replace(tls.get_mut().0, Right(Right(tokio::io::empty()))) {
            Left(stream) => Self::tcp(peer, stream)?,
            Right(Left(stream)) => Self::unix(peer, stream)?,
            Right(Right(_)) => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(Self { tls: Some(tls), ..accepted })
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
        register(self.socket)
    }

    /// Registers the connection with the current runtime.
    pub fn register(self) -> io::Result<Stream> {
        let socket = register(self.socket)?;
        Ok(match self.tls {
            None => Left(socket),
            Some(mut tls) => {
                *tls.get_mut().0 = socket;
                Right(tls)
            }
        })
    }
}

fn register(socket: DetachedSocket) -> io::Result<Socket> {
    Ok(match socket {
        Left(stream) => Left(TcpStream::from_std(stream)?),
        Right(stream) => Right(Left(UnixStream::from_std(stream)?)),
    })
}
