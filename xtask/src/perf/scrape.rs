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

/// Scrapes until it is stopped.
pub(super) struct Scraper {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<Vec<Duration>, Failure>>,
}

impl Scraper {
    pub(super) fn start(address: SocketAddr) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
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
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    if page.starts_with(b"HTTP/1.1 200") {
        Ok(started.elapsed())
    } else {
        Err(std::io::ErrorKind::InvalidData.into())
    }
}
