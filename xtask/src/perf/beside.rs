//! Work of the server beside an open loop: scrapes, TLS handshakes that clients never complete, and changes of the rule file.
//!
//! The threads here share a core with the load generator. They do little at once, or have the lowest priority, so that they delay
//! the load little.

use super::{
    control,
    machine::Machine,
    results::Figure,
    scenario::{Beside, Scenario},
    scrape::{BYTES_OF_LIMIT, Scraper, constant_page},
    server::{Binaries, Running},
};
use crate::Failure;
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

const HALF_HANDSHAKES: u32 = 5_000;
/// Time in which all of them are started, at equal distances.
const HANDSHAKES_TIME: Duration = Duration::from_millis(1_800);

const RELOAD_INTERVAL: Duration = Duration::from_millis(700);

/// Number of changed rule files so far.
static RELOADED: AtomicU32 = AtomicU32::new(0);

/// Niceness of the threads whose work may take longer. Handshakes have to be started in time, one by one: with this niceness, less than
/// half of them are.
const NICE: i32 = 19;

/// Work until it is stopped.
pub(super) enum Work {
    Scrapes(Scraper),
    Thread { stop: mpsc::Sender<()>, thread: JoinHandle<Result<(), Failure>> },
}

impl Work {
    /// Starts the work, if there is any.
    pub(super) fn start(
        beside: Beside,
        scenario: &Scenario,
        running: &Running,
        machine: &Machine,
        binaries: &Binaries,
    ) -> Result<Option<Self>, Failure> {
        Ok(Some(match beside {
            Beside::Nothing => return Ok(None),
            Beside::Recording => return control::record(running).map(|()| None),
            Beside::Tail(args) => {
                let child = control::tail(running, args, machine, binaries)?;
                Self::thread(move |stopped| {
                    let _ = stopped.recv();
                    control::end_tail(child)
                })
            }
            Beside::Scrapes => {
                let http = running.http.ok_or("the server has no HTTP port")?;
                // Where latencies do not count, a scraper without time would be measured.
                let is_open = scenario.load.contains(&"--rate");
                Self::Scrapes(Scraper::start(http, if is_open { lower_priority } else { || () }))
            }
            Beside::ScrapesElsewhere => {
                let bytes = scenario.sibling_rules as usize * BYTES_OF_LIMIT;
                Self::Scrapes(Scraper::start(constant_page(machine.core(0), bytes)?, lower_priority))
            }
            Beside::HalfHandshakes => Self::half_handshakes(running.address)?,
            Beside::HalfHandshakesElsewhere => Self::half_handshakes(accept_only()?)?,
            Beside::Reloads => Self::reloads(scenario, binaries)?,
        }))
    }

    fn thread(run: impl FnOnce(&mpsc::Receiver<()>) -> Result<(), Failure> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || run(&stopped));
        Self::Thread { stop, thread }
    }

    /// Starts handshakes with the server, and keeps their connections open.
    #[expect(clippy::disallowed_methods, reason = "a load follows the real clock")]
    fn half_handshakes(address: SocketAddr) -> Result<Self, Failure> {
        let hello = client_hello()?;
        Ok(Self::thread(move |stopped| {
            let (begun, mut open) = (Instant::now(), Vec::new());
            for number in 0..HALF_HANDSHAKES {
                let due = begun + HANDSHAKES_TIME * number / HALF_HANDSHAKES;
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return Err(format!(
                        "the load ended after {number} of {HALF_HANDSHAKES} half handshakes"
                    ));
                }
                let started = TcpStream::connect(address).and_then(|mut stream| {
                    stream.write_all(&hello)?;
                    Ok(stream)
                });
                open.push(started.map_err(|error| format!("no handshake can be started: {error}"))?);
            }
            // The end of the load.
            let _ = stopped.recv();
            Ok(())
        }))
    }

    /// Changes the name of a limit in the server's rule file again and again.
    fn reloads(scenario: &Scenario, binaries: &Binaries) -> Result<Self, Failure> {
        let (path, rules) = (binaries.rules(), scenario.rules());
        let write = |position: u32| -> Result<PathBuf, Failure> {
            // Names that no period before has put in force.
            let number = RELOADED.fetch_add(1, Ordering::Relaxed);
            let changed =
                rules.replacen("rate_limit: {", &format!("rate_limit: {{ name: changed-{number},"), 1);
            let file = path.with_extension(position.to_string());
            // The file in force may be a link to it.
            let _ = fs::remove_file(&file);
            fs::write(&file, changed).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(file)
        };
        let files = [write(0)?, write(1)?];
        Ok(Self::thread(move |stopped| {
            lower_priority();
            for file in files.iter().cycle() {
                if stopped.recv_timeout(RELOAD_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
                // Renamed, so that no half of it is read; linked, since a copy would take milliseconds.
                let new = path.with_extension("new");
                let changed = fs::hard_link(file, &new).and_then(|()| fs::rename(&new, &path));
                changed.map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Ok(())
        }))
    }

    /// Ends the work, and returns the figures of its own.
    pub(super) fn finish(self) -> Result<Vec<(Figure, f64)>, Failure> {
        match self {
            Self::Scrapes(scraper) => Ok(vec![(Figure::ScrapeMillis, scraper.finish()?)]),
            Self::Thread { stop, thread } => {
                drop(stop);
                thread.join().map_err(|_| "the work beside the load panicked".to_owned())??;
                Ok(Vec::new())
            }
        }
    }
}

/// A port whose connections are accepted and kept for as long as [`HANDSHAKES_TIME`] lasts twice.
fn accept_only() -> Result<SocketAddr, Failure> {
    let failed = |error| format!("no port for half handshakes: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    // As many as the server under load lets wait.
    rustix::net::listen(&listener, 4_096).map_err(|error| failed(error.into()))?;
    let address = listener.local_addr().map_err(failed)?;
    std::thread::spawn(move || {
        lower_priority();
        // Kept until all have been started.
        let open: Vec<_> = listener.incoming().take(HALF_HANDSHAKES as usize).collect();
        std::thread::sleep(HANDSHAKES_TIME);
        drop(open);
    });
    Ok(address)
}

fn lower_priority() {
    // On Linux a priority belongs to a thread.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// The first message of a handshake.
fn client_hello() -> Result<Vec<u8>, Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("no TLS client: {error}");
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
    // The certificate is never received.
    let mut config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = "localhost".try_into().map_err(|error| failed(&error))?;
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).map_err(|error| failed(&error))?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello).map_err(|error| failed(&error))?;
    Ok(hello)
}

/// Allows this process, and the servers it starts from now on, as many open files as the system does.
pub(super) fn allow_open_files() -> Result<(), Failure> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}
