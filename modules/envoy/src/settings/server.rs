//! The server that grants leases: its address, and the module's credentials for it.

use super::Problems;
use serde::Deserialize;
use std::{
    fmt::{self, Display, Formatter},
    path::PathBuf,
};
use tidegate_transport::TlsClient;

/// A server, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) tls: Option<TlsClient>,
    /// A file with the token of the module.
    pub(crate) token_file: Option<PathBuf>,
}

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// In order of preference; at least one.
    Tcp(Vec<HostPort>),
}

/// A host, which may be a name with several addresses, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Written {
    address: String,
    tls: Option<WrittenTls>,
    token_file: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenTls {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
}

/// The places at which fields were configured, for errors.
struct Places {
    address: &'static str,
    ca: &'static str,
    cert: &'static str,
    server_name: &'static str,
}

impl Server {
    /// Reads `tidegate.server`.
    pub(super) fn read(json: serde_json::Value, problems: &Problems) -> Option<Self> {
        let written = match Written::deserialize(json) {
            Ok(written) => written,
            Err(error) => {
                problems.add("tidegate.server", error.to_string());
                return None;
            }
        };
        let places = Places {
            address: "tidegate.server.address",
            ca: "tidegate.server.tls.ca",
            cert: "tidegate.server.tls.cert",
            server_name: "tidegate.server.tls.server_name",
        };
        written.checked(&places, problems)
    }

    /// Reads a server from variables of the environment; none if they set none.
    pub(super) fn of_variables(
        variable: impl Fn(&str) -> Option<String>,
        problems: &Problems,
    ) -> Option<Self> {
        let path = |name| variable(name).map(PathBuf::from);
        let (ca, cert) = (path("TIDEGATE_LEASE_TLS_CA"), path("TIDEGATE_LEASE_TLS_CERT"));
        let (key, server_name) = (path("TIDEGATE_LEASE_TLS_KEY"), variable("TIDEGATE_LEASE_TLS_SERVER_NAME"));
        let has_tls = ca.is_some() || cert.is_some() || key.is_some() || server_name.is_some();
        let tls = has_tls.then_some(WrittenTls { ca, cert, key, server_name });
        let token_file = path("TIDEGATE_LEASE_TOKEN_FILE");
        let places = Places {
            address: "the variable TIDEGATE_LEASE_SERVER",
            ca: "the variable TIDEGATE_LEASE_TLS_CA",
            cert: "the variables TIDEGATE_LEASE_TLS_CERT and TIDEGATE_LEASE_TLS_KEY",
            server_name: "the variable TIDEGATE_LEASE_TLS_SERVER_NAME",
        };
        Written { address: variable("TIDEGATE_LEASE_SERVER")?, tls, token_file }.checked(&places, problems)
    }
}

impl Written {
    fn checked(self, places: &Places, problems: &Problems) -> Option<Server> {
        let Some(address) = Address::parse(&self.address) else {
            let what = format!(
                "{:?} is not host:port, several of these with commas between, or unix:/path",
                self.address
            );
            problems.add(places.address, what);
            return None;
        };
        let tls = self.tls.and_then(|tls| tls.checked(&address, places, problems));
        Some(Server { address, tls, token_file: self.token_file })
    }
}

impl WrittenTls {
    fn checked(self, address: &Address, places: &Places, problems: &Problems) -> Option<TlsClient> {
        let Address::Tcp(hosts) = address else {
            problems.add(places.ca, "does not apply to a Unix socket; remove it");
            return None;
        };
        let Some(ca) = self.ca else {
            problems.add(places.ca, "is not set; name the file of authorities that verify the server");
            return None;
        };
        let cert_and_key = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                problems.add(
                    places.cert,
                    "a certificate needs its key, and a key its certificate; set both or none",
                );
                None
            }
        };
        let names = match &self.server_name {
            Some(name) => vec![name],
            None => hosts.iter().map(|own| &own.host).collect(),
        };
        for name in names {
            if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() {
                problems.add(places.server_name, format!("{name:?} is not a name or an address"));
            }
        }
        Some(TlsClient { ca: Some(ca), cert_and_key, server_name: self.server_name, insecure: false })
    }
}

impl Address {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return path.starts_with('/').then(|| Self::Unix(path.into()));
        }
        text.split(',').map(HostPort::parse).collect::<Option<_>>().map(Self::Tcp)
    }
}

impl HostPort {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }
}

/// Writes the address as it is configured.
impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(hosts) => {
                f.write_str(&hosts.iter().map(HostPort::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Writes the host and port as an authority.
impl Display for HostPort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
