//! Options of TCP connections to a store.
//!
//! A connection whose other end is gone ends within [`NO_ACKNOWLEDGEMENT`] of the next call. By default it takes Linux a quarter of an hour. Keepalive
//! probes end idle connections too, and firewalls do not forget a connection with probes.

use redis::io::tcp::{
    TcpSettings,
    socket2::{SockRef, TcpKeepalive},
};
use std::{io, time::Duration};
use tokio::net::TcpStream;

/// A connection ends if its other end acknowledges nothing for this time.
const NO_ACKNOWLEDGEMENT: Duration = Duration::from_secs(10);

/// Time without data before the first keepalive probe.
const IDLE: Duration = Duration::from_secs(15);

/// Interval between probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(IDLE).with_interval(PROBE_INTERVAL)
}

/// The options of a connection that the Redis client makes.
pub(super) fn settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(NO_ACKNOWLEDGEMENT);
    settings
}

/// Sets these options of a connection.
pub(super) fn apply(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(NO_ACKNOWLEDGEMENT))?;
    socket.set_tcp_keepalive(&keepalive())
}
