//! Addresses to listen on, in the form of settings.

use std::{fmt, net::ToSocketAddrs, path::PathBuf, str::FromStr};

/// An address to listen on: `host:port`, `unix:/path/of/socket`, or `systemd:NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    /// A TCP address, `host:port`.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// The sockets that systemd passes under this name (`FileDescriptorName` of a socket unit).
    Systemd(String),
}

/// A text that is not an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not an address; write host:port (127.0.0.1:8081, [::1]:8081), unix:/path/of/socket, or systemd:NAME to listen \
     on sockets that systemd passes"
)]
pub struct ListenAddressError(String);

impl ListenAddress {
    /// The reason why clients cannot connect to `systemd:NAME`.
    pub const LISTEN_ONLY: &str = "it is an address of `tidegate serve` alone";

    /// The `:authority` of requests to the address, with the host that a certificate there must name. A Unix socket has no host of its own.
    pub fn authority(&self) -> &str {
        match self {
            Self::Tcp(address) => address,
            Self::Unix(_) | Self::Systemd(_) => "localhost",
        }
    }

    /// Whether only processes of this machine can connect: it is a Unix socket, or a name that only resolves to loopback.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            // The socket may be bound to any address.
            Self::Systemd(_) => false,
            Self::Tcp(text) => {
                let addresses = text.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
                !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback())
            }
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if let Some(name) = text.strip_prefix("systemd:").filter(|name| !name.is_empty()) {
            return Ok(Self::Systemd(name.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.into()))
            }
            _ => Err(ListenAddressError(text.into())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd(name) => write!(f, "systemd:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_unix_sockets_are_local() {
        let is_local = |text: &str| text.parse::<ListenAddress>().expect("an address").is_local();
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/run/t.sock"] {
            assert!(is_local(local), "{local}");
        }
        for remote in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1", "systemd:grpc"] {
            assert!(!is_local(remote), "{remote}");
        }
    }

    #[test]
    fn good_addresses_parse_and_bad_ones_name_the_remedy() {
        let parse = |text: &str| text.parse::<ListenAddress>();
        assert_eq!(parse("127.0.0.1:0"), Ok(ListenAddress::Tcp("127.0.0.1:0".into())));
        assert_eq!(parse("[::1]:8081"), Ok(ListenAddress::Tcp("[::1]:8081".into())));
        assert_eq!(parse("unix:/run/t.sock"), Ok(ListenAddress::Unix("/run/t.sock".into())));
        assert_eq!(parse("systemd:grpc"), Ok(ListenAddress::Systemd("grpc".into())));
        for wrong in [
            "",
            "systemd:",
            "8081",
            ":8081",
            "localhost",
            "localhost:http",
            "localhost:70000",
            "unix:",
            "http://localhost:8081",
        ] {
            let error = parse(wrong).expect_err("not an address").to_string();
            assert!(error.contains("write host:port"), "{error}");
        }
    }
}
