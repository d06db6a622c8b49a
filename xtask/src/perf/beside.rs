//! Work of the server beside a load: TLS handshakes that clients never complete, and changes of the rule file.

use super::{scenario::Scenario, server::Binaries};
use crate::Failure;
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

const HALF_HANDSHAKES: usize = 5_000;
/// Handshakes started at once, and the time to the next ones: all are started within two seconds.
const HANDSHAKES_AT_ONCE: usize = 50;
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(20);

const RELOAD_INTERVAL: Duration = Duration::from_millis(700);

/// A thread that works until it is stopped.
pub(super) struct Work {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Work {
    fn start(run: impl FnOnce(mpsc::Receiver<()>) -> Result<(), Failure> + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        Self { stop, thread: std::thread::spawn(move || run(stopped)) }
    }

    /// Starts handshakes with the server, and keeps their connections open.
    pub(super) fn half_handshakes(address: SocketAddr) -> Result<Self, Failure> {
        let hello = client_hello()?;
        allow_open_files()?;
        Ok(Self::start(move |stopped| {
            let mut open = Vec::new();
            while stopped.recv_timeout(HANDSHAKE_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                for _ in 0..HANDSHAKES_AT_ONCE.min(HALF_HANDSHAKES - open.len()) {
                    let started = TcpStream::connect(address).and_then(|mut stream| {
                        stream.write_all(&hello)?;
                        Ok(stream)
                    });
                    open.push(started.map_err(|error| format!("no handshake can be started: {error}"))?);
                }
            }
            if open.len() < HALF_HANDSHAKES {
                eprintln!("  the run ended after {} half handshakes", open.len());
            }
            Ok(())
        }))
    }

    /// Changes the name of a limit in the server's rule file again and again.
    pub(super) fn reloads(scenario: &Scenario, binaries: &Binaries) -> Self {
        let (path, rules) = (binaries.rules(), scenario.rules());
        Self::start(move |stopped| {
            let mut number = 0;
            while stopped.recv_timeout(RELOAD_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                number += 1;
                let changed =
                    rules.replacen("rate_limit: {", &format!("rate_limit: {{ name: changed-{number},"), 1);
                // Renamed, so that no half of it is read.
                let new = path.with_extension("new");
                let written = fs::write(&new, changed).and_then(|()| fs::rename(&new, &path));
                written.map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Ok(())
        })
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        drop(self.stop);
        self.thread.join().map_err(|_| "the work beside the load panicked".to_owned())?
    }
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

/// Allows this process, and the servers it starts, as many open files as the system does.
fn allow_open_files() -> Result<(), Failure> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}
