//! Work of the server beside a load: scrapes, TLS handshakes that clients never complete, changes of the rule file, readers of decisions.
//!
//! The threads here that do more than a little are on the server's core, in its spare time, where latencies count: the load generator
//! has its core for itself, so that calls wait for the server and not for clients of its other work.

use super::{
    Place,
    machine::move_beside_the_server,
    results::Figures,
    scrape::Scraper,
    server::{Running, TOKEN},
    suite::{Beside, Load},
};
use crate::Failure;
use std::{
    collections::VecDeque,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

const HALF_HANDSHAKES: u32 = 5_000;
/// Time in which so many are opened, before the load begins.
const OPENING_TIME: Duration = Duration::from_secs(4);
/// The server's default: within this time after the load has begun, each of them is replaced by another.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

const RELOAD_INTERVAL: Duration = Duration::from_millis(700);

/// Number of changed rule files so far.
static RELOADED: AtomicU32 = AtomicU32::new(0);

/// Work until it is stopped.
pub(super) enum Work {
    Scrapes(Scraper),
    Thread { stop: mpsc::Sender<()>, thread: JoinHandle<Result<(), Failure>> },
}

impl Work {
    /// Starts the work, if there is any.
    pub(super) fn start(
        beside: &Beside,
        load: &Load,
        running: &Running,
        place: &Place,
    ) -> Result<Option<Self>, Failure> {
        let core = place.machine.core(0);
        Ok(Some(match beside {
            Beside::Nothing => return Ok(None),
            Beside::Recording => return record(running).map(|()| None),
            Beside::Tail(args) => {
                let child = tail(running, args, place)?;
                Self::thread(move |stopped| {
                    let _ = stopped.recv();
                    end_tail(child)
                })
            }
            Beside::Scrapes => {
                let http = running.http.ok_or("the server has no HTTP port")?;
                // Where latencies do not count, a scraper without time would be measured.
                let is_open = load.load.contains("--rate");
                Self::Scrapes(Scraper::start(http, move || {
                    if is_open { move_beside_the_server(core) } else { Ok(()) }
                }))
            }
            Beside::HalfHandshakes => Self::half_handshakes(running.address, running, place)?,
            Beside::HalfHandshakesElsewhere => Self::half_handshakes(accept_only(core)?, running, place)?,
            Beside::Reloads => Self::reloads(load, place)?,
        }))
    }

    fn thread(run: impl FnOnce(&mpsc::Receiver<()>) -> Result<(), Failure> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || run(&stopped));
        Self::Thread { stop, thread }
    }

    /// Starts handshakes until [`HALF_HANDSHAKES`] are open, then replaces the oldest ones, as clients have to that keep so many open
    /// although the server ends those that last too long.
    #[expect(clippy::disallowed_methods, reason = "a load follows the real clock")]
    fn half_handshakes(address: SocketAddr, running: &Running, place: &Place) -> Result<Self, Failure> {
        let (hello, core) = (client_hello()?, place.machine.core(0));
        let start = move || {
            let started = TcpStream::connect(address).and_then(|mut stream| {
                stream.write_all(&hello)?;
                Ok(stream)
            });
            started.map_err(|error| format!("no handshake can be started: {error}"))
        };
        let (begun, mut open) = (Instant::now(), VecDeque::new());
        for number in 0..HALF_HANDSHAKES {
            let due = begun + OPENING_TIME * number / HALF_HANDSHAKES;
            sleep(due.saturating_duration_since(Instant::now()));
            open.push_back(start()?);
        }
        running.wait_until_idle(place)?;
        Ok(Self::thread(move |stopped| {
            move_beside_the_server(core)?;
            let begun = Instant::now();
            for number in 0.. {
                let due = begun + HANDSHAKE_TIMEOUT * number / HALF_HANDSHAKES;
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
                open.pop_front();
                open.push_back(start()?);
            }
            Ok(())
        }))
    }

    /// Changes the name of a limit in the server's rule file again and again.
    fn reloads(load: &Load, place: &Place) -> Result<Self, Failure> {
        let (path, rules, core) = (place.file("perf-rules.yaml"), load.rules(), place.machine.core(0));
        let write = |position: u32| -> Result<PathBuf, Failure> {
            // Names that no period before has put in force.
            let number = RELOADED.fetch_add(1, Ordering::Relaxed);
            let changed =
                rules.replacen("rate_limit: {", &format!("rate_limit: {{ name: changed-{number},"), 1);
            let file = path.with_extension(position.to_string());
            // The file in force may be a link to it.
            let _ = fs::remove_file(&file);
            super::write(file, &changed)
        };
        let files = [write(0)?, write(1)?];
        Ok(Self::thread(move |stopped| {
            move_beside_the_server(core)?;
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
    pub(super) fn finish(self) -> Result<Figures, Failure> {
        match self {
            Self::Scrapes(scraper) => Ok(vec![("scrape_ms", scraper.finish()?)]),
            Self::Thread { stop, thread } => {
                drop(stop);
                thread.join().map_err(|_| "the work beside the load panicked".to_owned())??;
                Ok(Vec::new())
            }
        }
    }
}

/// A program that reads the stream of decisions, on the core of the load, with these arguments of `tidegate ctl tail`.
fn tail(running: &Running, args: &str, place: &Place) -> Result<Child, Failure> {
    let mut command = place.machine.on_core(1, place.program("tidegate"));
    command.args(["ctl", "tail", "--json", "--addr"]).arg(running.address.to_string());
    command.arg("--token-file").arg(place.file(TOKEN)).args(args.split_whitespace());
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().map_err(|error| format!("no reader of decisions: {error}"))
}

/// Ends that program, which must not have ended before.
fn end_tail(mut child: Child) -> Result<(), Failure> {
    let ended = child.try_wait().map_err(|error| error.to_string())?;
    // It may have ended.
    let _ = child.kill();
    let _ = child.wait();
    ended.map_or(Ok(()), |status| Err(format!("the reader of decisions ended: {status}")))
}

/// Has decisions recorded from now on.
fn record(running: &Running) -> Result<(), Failure> {
    let (Some(http), Some(token)) = (running.http, &running.token) else {
        return Err("the server has no port for the control API".to_owned());
    };
    let request = format!(
        "POST /control/v1/RecordDecisions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    let mut response = String::new();
    let sent = TcpStream::connect(http).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        stream.read_to_string(&mut response)
    });
    sent.map_err(|error| format!("decisions cannot be recorded: {error}"))?;
    match response.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("decisions cannot be recorded: {response}")),
    }
}

/// A port whose connections are accepted and kept until [`HALF_HANDSHAKES`] others followed: one for as long as this program runs.
fn accept_only(core: usize) -> Result<SocketAddr, Failure> {
    static PORT: Mutex<Option<SocketAddr>> = Mutex::new(None);
    let mut port = PORT.lock().map_err(|_| "the port for half handshakes panicked".to_owned())?;
    if let Some(address) = *port {
        return Ok(address);
    }
    let failed = |error| format!("no port for half handshakes: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    // As many as the server under load lets wait.
    rustix::net::listen(&listener, 4_096).map_err(|error| failed(error.into()))?;
    let address = listener.local_addr().map_err(failed)?;
    std::thread::spawn(move || {
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
    *port = Some(address);
    Ok(address)
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
