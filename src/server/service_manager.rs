//! Notifications to the service manager that started the process, in the protocol of sd_notify(3): readiness, state, and
//! the watchdog. Without a service manager every notification is a no-op.

use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    io,
    os::unix::net::{SocketAddr, UnixDatagram},
    os::{linux::net::SocketAddrExt, unix::ffi::OsStrExt},
    time::Duration,
};

/// Notifications in one watchdog timeout: one may be late by as much as half of it.
const PINGS_PER_TIMEOUT: u32 = 3;

/// The service manager, if one started the process.
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Time without a ping after which the service manager kills the process.
    watchdog_timeout: Option<Duration>,
}

/// States that the service manager is notified of.
pub(super) const RESTORING: &str = "STATUS=Restoring counters";
pub(super) const SERVING: &str = "READY=1\nSTATUS=Serving";
pub(super) const DRAINING: &str = "STOPPING=1\nSTATUS=Draining";

impl ServiceManager {
    /// The service manager that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    pub(super) fn from_env() -> Self {
        let address = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let Some(address) = address else { return Self::none() };
        let pid = env::var("WATCHDOG_PID").ok();
        let usec = env::var("WATCHDOG_USEC").ok();
        let watchdog_timeout = watchdog_timeout(usec.as_deref(), pid.as_deref(), std::process::id());
        match connect(&address) {
            Ok(socket) => Self { socket: Some(socket), watchdog_timeout },
            Err(error) => {
                tracing::warn!(%error, ?address, "cannot reach the service manager at NOTIFY_SOCKET");
                Self::none()
            }
        }
    }

    fn none() -> Self {
        Self { socket: None, watchdog_timeout: None }
    }

    pub(super) fn notify(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!(%error, message, "cannot notify the service manager");
        }
    }

    /// Pings the watchdog while polled, as often as `all_respond` completes within the watchdog's timeout.
    pub(super) async fn ping_watchdog(&self, all_respond: impl AsyncFn()) -> Infallible {
        let Some(timeout) = self.watchdog_timeout else { return std::future::pending().await };
        let interval = timeout / PINGS_PER_TIMEOUT;
        loop {
            match tokio::time::timeout(timeout, all_respond()).await {
                Ok(()) => self.notify("WATCHDOG=1"),
                Err(_) => {
                    tracing::error!(
                        ?timeout,
                        "a worker thread does not respond; the watchdog is not notified"
                    );
                }
            }
            tokio::time::sleep(interval).await;
        }
    }
}

/// Opens a non-blocking socket: a notification must not delay the server.
fn connect(address: &OsString) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "not the path of a Unix socket")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The watchdog's timeout, unless it is meant for another process.
fn watchdog_timeout(usec: Option<&str>, watched_pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    let is_for_this_process = watched_pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    let usec = usec?.parse().ok().filter(|&usec| usec > 0 && is_for_this_process)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let timeout = |usec, pid| watchdog_timeout(usec, pid, 42);
        assert_eq!(timeout(Some("3000000"), Some("42")), Some(Duration::from_secs(3)));
        assert_eq!(timeout(Some("3000000"), None), Some(Duration::from_secs(3)));
        for (usec, pid) in
            [(Some("3000000"), Some("43")), (Some("0"), None), (Some("soon"), None), (None, Some("42"))]
        {
            assert_eq!(timeout(usec, pid), None, "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn an_address_that_is_no_unix_socket_is_refused() {
        for address in ["", "vsock:2:1", "relative/path"] {
            assert!(connect(&address.into()).is_err(), "{address}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_does_not_respond_keeps_the_watchdog_silent() {
        let (manager, socket) = UnixDatagram::pair().expect("a pair of sockets");
        manager.set_nonblocking(true).expect("a socket");
        let service_manager =
            ServiceManager { socket: Some(socket), watchdog_timeout: Some(Duration::from_secs(3)) };
        let received = || manager.recv(&mut [0; 64]).is_ok();
        let pings = service_manager.ping_watchdog(async || ());
        assert!(tokio::time::timeout(Duration::from_millis(2500), pings).await.is_err(), "it never ends");
        assert!(received() && received() && received() && !received(), "at 0 s, 1 s and 2 s");
        let pings = service_manager.ping_watchdog(std::future::pending);
        assert!(tokio::time::timeout(Duration::from_secs(30), pings).await.is_err(), "it never ends");
        assert!(!received());
    }
}
