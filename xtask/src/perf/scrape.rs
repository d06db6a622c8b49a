//! Scrapes of the metrics page beside a load, as a monitoring system makes them.

use crate::Failure;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Time between scrapes: more often than monitoring systems scrape, so that a short run has some.
const INTERVAL: Duration = Duration::from_millis(700);

const PIECE_BYTES: usize = 64 << 10;

/// Scrapes until it is stopped.
pub(super) struct Scraper {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<Vec<Duration>, Failure>>,
}

impl Scraper {
    /// `prepare` is called on the thread that scrapes.
    pub(super) fn start(
        address: SocketAddr,
        prepare: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            prepare()?;
            let mut took = Vec::new();
            while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                took.push(
                    scrape(address).map_err(|error| format!("the metrics cannot be scraped: {error}"))?,
                );
            }
            Ok(took)
        });
        Self { stop, thread }
    }

    /// The longest time of a scrape, in milliseconds.
    pub(super) fn finish(self) -> Result<f64, Failure> {
        drop(self.stop);
        let took = self.thread.join().map_err(|_| "the scraper panicked".to_owned())??;
        let longest = took.into_iter().max().ok_or("the run was too short for a scrape")?;
        Ok(longest.as_secs_f64() * 1e3)
    }
}

/// The time from the request sent to the whole page received.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
fn scrape(address: SocketAddr) -> std::io::Result<Duration> {
    let mut stream = TcpStream::connect(address)?;
    let started = Instant::now();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    // Read like this, a page takes little time of a core that others share.
    let mut piece = vec![0; PIECE_BYTES];
    let mut length = stream.read(&mut piece)?;
    if !piece[..length].starts_with(b"HTTP/1.1 200") {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    while length > 0 {
        length = stream.read(&mut piece)?;
    }
    Ok(started.elapsed())
}
