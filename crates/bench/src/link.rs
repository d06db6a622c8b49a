//! A connection with its socket.

use crate::{
    connect::{Socket, Target, connect},
    load_error::LoadError,
    outcome::CallResponse,
};
use mio::{Interest, Poll, Token};
use std::io::{self, Write as _};
use tidegate_http2::client::{Connection, RequestEncoder};

/// A connection with its socket.
pub(crate) struct Link {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) connection: Connection<CallResponse>,
    pub(crate) has_responded: bool,
}

impl Link {
    /// Opens a connection, registered under its position.
    pub(crate) fn open(
        target: &Target,
        headers: &RequestEncoder,
        poll: &Poll,
        position: usize,
    ) -> Result<Self, LoadError> {
        let mut socket = connect(target)?;
        let connection = Connection::new(headers.clone());
        poll.registry().register(&mut socket, Token(position), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { socket, connection, has_responded: false })
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.connection.unwritten().is_empty() {
            match self.socket.write(self.connection.unwritten()) {
                Ok(count) => self.connection.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
