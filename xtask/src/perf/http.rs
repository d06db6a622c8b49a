//! HTTP/1.1 to Envoy: requests one after the other, or in parallel.

use crate::Failure;
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: edge\r\nx-api-key: alice\r\n\r\n";
/// Connections with a request in flight each, where throughput is measured.
const CONNECTIONS: usize = 32;
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is kept open.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(Self { address, stream, buffer: Vec::with_capacity(1 << 12) })
        };
        open().map_err(failed)
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(REQUEST)
    }

    /// Reads one response, which must be that of the application.
    fn receive(&mut self) -> io::Result<()> {
        self.buffer.clear();
        loop {
            let mut piece = [0; 1 << 12];
            let count = self.stream.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&piece[..count]);
            if self.buffer.ends_with(b"\r\n\r\nserved") {
                break;
            }
        }
        match self.buffer.starts_with(b"HTTP/1.1 200 ") {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&self.buffer).into_owned())),
        }
    }

    /// Sends requests, each after the response to the former: the microseconds that each took.
    #[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
    pub(super) fn one_by_one(&mut self, count: usize) -> Result<Vec<f64>, Failure> {
        let mut one = || {
            let sent = Instant::now();
            self.send()?;
            self.receive()?;
            Ok(sent.elapsed().as_secs_f64() * 1e6)
        };
        (0..count).map(|_| one()).collect::<io::Result<_>>().map_err(failed)
    }
}

/// Keeps one request in flight on each of [`CONNECTIONS`] connections for a while: the number of responses.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
pub(super) fn parallel(address: SocketAddr, length: Duration) -> Result<u64, Failure> {
    let mut clients: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::open(address)).collect::<Result<_, _>>()?;
    let (began, mut served) = (Instant::now(), 0);
    let mut run = || {
        clients.iter_mut().try_for_each(Client::send)?;
        while began.elapsed() < length {
            for client in &mut clients {
                client.receive()?;
                client.send()?;
                served += 1;
            }
        }
        for client in &mut clients {
            client.receive()?;
            served += 1;
        }
        Ok(())
    };
    run().map_err(failed)?;
    Ok(served)
}

fn failed(error: io::Error) -> Failure {
    format!("a request to Envoy failed: {error}")
}
