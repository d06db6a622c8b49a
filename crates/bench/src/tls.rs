//! TLS over the sockets of the load generator.

use mio::{Interest, Registry, Token, event::Source};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use std::{
    io::{self, Read, Write},
    sync::Arc,
};
use tidegate_transport::{ListenAddress, TlsClient, TlsClientError};

/// TLS of connections to one server.
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// TLS of connections to the server at this address, with these settings.
    pub fn new(client: &TlsClient, address: &ListenAddress) -> Result<Self, TlsClientError> {
        Ok(Self { config: client.config()?, name: client.server_name(address.authority())? })
    }

    /// Completes the handshake over a blocking socket.
    pub(crate) fn handshake(&self, socket: &mut (impl Read + Write)) -> io::Result<Box<ClientConnection>> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut session = Box::new(session.map_err(io::Error::other)?);
        while session.is_handshaking() {
            session.complete_io(socket)?;
        }
        Ok(session)
    }
}

/// A non-blocking socket with TLS.
pub(crate) struct TlsSocket<S> {
    socket: S,
    session: Box<ClientConnection>,
}

impl<S: Read + Write> TlsSocket<S> {
    pub(crate) fn new(socket: S, session: Box<ClientConnection>) -> Self {
        Self { socket, session }
    }

    /// Sends what the session has encrypted. An error of kind `WouldBlock` if the socket does not accept all of it.
    fn send_pending(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Receives and decrypts once; false at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        if self.session.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        self.session.process_new_packets().map_err(io::Error::other)?;
        Ok(true)
    }
}

/// As with a plain socket, a short read means that the socket is empty.
impl<S: Read + Write> Read for TlsSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Sends the rest of an earlier write. A read may only wait once it is complete.
        match self.send_pending() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.session.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.receive() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl<S: Read + Write> Write for TlsSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_pending()?;
        let taken = self.session.writer().write(bytes)?;
        match self.send_pending() {
            // The next read or write sends the rest: the socket reports when it can be written to.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            sent => sent.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_pending()
    }
}

impl<S: Source> Source for TlsSocket<S> {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}
