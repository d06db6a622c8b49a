//! Work of the server beside a load: scrapes, TLS handshakes that clients never complete, changes of the rule file, clients of its API.
//!
//! The threads here that do more than a little are on the server's core, in its spare time, where latencies count: the load generator
//! has its core for itself, so that calls wait for the server and not for clients of its other work.

use super::{
    Place,
    machine::move_beside_the_server,
    process::Process,
    results::Figures,
    server::Running,
    suite::{Beside, Load},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::VecDeque,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

const HALF_HANDSHAKES: u32 = 5_000;
/// Time in which so many are opened, before the load begins.
const OPENING_TIME: Duration = Duration::from_secs(4);
/// The server's default: within this time after the load has begun, each of them is replaced by another.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between reloads, and between scrapes: more often than monitoring systems scrape, so that a short run has some.
const INTERVAL: Duration = Duration::from_millis(700);
/// Read in such pieces, a page of metrics takes little time of a core that others share.
const PIECE_BYTES: usize = 64 << 10;

/// Number of changed rule files so far.
static RELOADED: AtomicU32 = AtomicU32::new(0);

/// Work until it is stopped.
pub(super) struct Work {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<Figures>>,
}

/// Whether the work goes on after waiting so long.
type Wait<'w> = &'w dyn Fn(Duration) -> bool;

impl Work {
    /// Starts the work, if there is any.
    pub(super) fn start(
        beside: &Beside,
        load: &Load,
        running: &Running,
        place: &Place,
    ) -> Result<Option<Self>> {
        let core = place.machine.core(0);
        let work = match beside {
            Beside::Nothing => return Ok(None),
            Beside::Scrapes => {
                let (http, is_open) = (running.http, load.load.contains("--rate"));
                Self::spawn(move |wait| {
                    // Where latencies do not count, a scraper without time would be measured.
                    if is_open {
                        move_beside_the_server(core)?;
                    }
                    scrapes(http, wait).context("the metrics cannot be scraped")
                })
            }
            Beside::HalfHandshakes => half_handshakes(running.address, core, running)?,
            Beside::HalfHandshakesElsewhere => half_handshakes(accept_only(core)?, core, running)?,
            Beside::Reloads => {
                let (path, rules) = (place.files.join("rules.yaml"), load.rules());
                let files = [changed(&path, &rules)?, changed(&path, &rules)?];
                Self::spawn(move |wait| {
                    move_beside_the_server(core)?;
                    reloads(&path, &files, wait)
                })
            }
            Beside::Client(command) => {
                let mut client = place.shell(Some(1), command);
                client.env("ADDRESS", running.address.to_string()).env("HTTP", running.http.to_string());
                let mut client = Process::start(client, &place.files.join("client.log"), || true)?;
                Self::spawn(move |wait| {
                    while wait(INTERVAL) {}
                    client.has_not_failed().map(|()| Vec::new()).context("the client beside the load")
                })
            }
        };
        Ok(Some(work))
    }

    fn spawn(run: impl FnOnce(Wait<'_>) -> Result<Figures> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let wait = move |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        Self { stop, thread: thread::spawn(move || run(&wait)) }
    }

    /// Ends the work, and returns the figures of its own.
    pub(super) fn finish(self) -> Result<Figures> {
        drop(self.stop);
        self.thread.join().ok().context("the work beside the load panicked")?
    }
}

/// The longest time of a scrape, from the request sent to the whole page received.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
fn scrapes(http: SocketAddr, wait: Wait<'_>) -> Result<Figures> {
    let (mut longest, mut piece) = (None, vec![0; PIECE_BYTES]);
    while wait(INTERVAL) {
        let (mut stream, started) = (TcpStream::connect(http)?, Instant::now());
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut length = stream.read(&mut piece)?;
        ensure!(piece[..length].starts_with(b"HTTP/1.1 200"), "the response is no page");
        while length > 0 {
            length = stream.read(&mut piece)?;
        }
        longest = longest.max(Some(started.elapsed()));
    }
    let longest = longest.context("the run was too short for a scrape")?;
    Ok(vec![("scrape_ms", longest.as_secs_f64() * 1e3)])
}

/// Starts handshakes until [`HALF_HANDSHAKES`] are open, then replaces the oldest ones, as clients have to that keep so many open
/// although the server ends those that last too long.
#[expect(clippy::disallowed_methods, reason = "a load follows the real clock")]
fn half_handshakes(address: SocketAddr, core: usize, running: &Running) -> Result<Work> {
    let hello = client_hello()?;
    let start = move || {
        let mut stream = TcpStream::connect(address).context("no handshake can be started")?;
        stream.write_all(&hello)?;
        anyhow::Ok(stream)
    };
    let (begun, mut open) = (Instant::now(), VecDeque::new());
    for number in 0..HALF_HANDSHAKES {
        let due = begun + OPENING_TIME * number / HALF_HANDSHAKES;
        sleep(due.saturating_duration_since(Instant::now()));
        open.push_back(start()?);
    }
    running.wait_until_idle()?;
    Ok(Work::spawn(move |wait| {
        move_beside_the_server(core)?;
        let begun = Instant::now();
        for number in 0.. {
            let due = begun + HANDSHAKE_TIMEOUT * number / HALF_HANDSHAKES;
            if !wait(due.saturating_duration_since(Instant::now())) {
                break;
            }
            open.pop_front();
            open.push_back(start()?);
        }
        Ok(Vec::new())
    }))
}

/// A file beside the rule file, in which a limit has a name that no period before has put in force.
fn changed(path: &Path, rules: &str) -> Result<PathBuf> {
    let number = RELOADED.fetch_add(1, Ordering::Relaxed);
    let changed = rules.replacen("rate_limit: {", &format!("rate_limit: {{ name: changed-{number},"), 1);
    let file = path.with_extension((number % 2).to_string());
    // The file in force may be a link to it.
    let _ = fs::remove_file(&file);
    super::write(file, &changed)
}

/// Puts files in force in turns.
fn reloads(path: &Path, files: &[PathBuf], wait: Wait<'_>) -> Result<Figures> {
    for file in files.iter().cycle().take_while(|_| wait(INTERVAL)) {
        // Renamed, so that no half of it is read; linked, since a copy would take milliseconds.
        let new = path.with_extension("new");
        fs::hard_link(file, &new).and_then(|()| fs::rename(&new, path)).context("the rule file")?;
    }
    Ok(Vec::new())
}

/// A port whose connections are accepted and kept until [`HALF_HANDSHAKES`] others followed: one for as long as this program runs.
fn accept_only(core: usize) -> Result<SocketAddr> {
    static PORT: Mutex<Option<SocketAddr>> = Mutex::new(None);
    let mut port = PORT.lock().ok().context("the port for half handshakes panicked")?;
    if let Some(address) = *port {
        return Ok(address);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // As many as the server under load lets wait.
    rustix::net::listen(&listener, 4_096)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        // The clients report what they could not start.
        let _ = move_beside_the_server(core);
        let mut open = VecDeque::new();
        for stream in listener.incoming() {
            open.push_back(stream);
            if open.len() > HALF_HANDSHAKES as usize {
                open.pop_front();
            }
        }
    });
    Ok(*port.insert(address))
}

/// The first message of a handshake.
fn client_hello() -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    // The certificate is never received.
    let mut config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut client = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into()?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

/// Allows this process, and the servers it starts from now on, as many open files as the system does.
pub(super) fn allow_open_files() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}
