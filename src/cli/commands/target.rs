//! Connections of commands to a server, and the remedies for those that fail.

use crate::{
    api::channel::{TlsConnections, causes, root_cause, tls_endpoint},
    cli::{Failure, arguments::client_tls::ClientTlsFlags},
    server::ListenAddress,
};
use std::{error::Error, io, os::unix::fs::FileTypeExt as _, time::Duration};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

/// Connects to a gRPC server.
pub(super) async fn connect(
    address: &ListenAddress,
    tls: &ClientTlsFlags,
    timeout: Duration,
) -> Result<Channel, Failure> {
    let (connected, with_tls) = match tls.client() {
        Some(client) => {
            let authority = address.authority();
            let (config, name) = (client.config()?, client.server_name(authority)?);
            let connector = TlsConnections { address: address.clone(), tls: config.into(), name };
            let endpoint = tls_endpoint(authority).map_err(|error| Failure(error.to_string()))?;
            (endpoint.connect_timeout(timeout).connect_with_connector(connector).await, " with TLS")
        }
        None => {
            let uri = match address {
                ListenAddress::Tcp(address) => format!("http://{address}"),
                unix @ ListenAddress::Unix(_) => unix.to_string(),
                ListenAddress::Systemd(_) => {
                    let reason = ListenAddress::LISTEN_ONLY;
                    return Err(Failure(format!("cannot connect to {address}: {reason}")));
                }
            };
            (Endpoint::from_shared(uri)?.connect_timeout(timeout).connect().await, "")
        }
    };
    connected.map_err(|error| {
        let remedy = io_cause(&error).map(|cause| connect_remedy(address, cause)).unwrap_or_default();
        Failure(format!("cannot connect to {address}{with_tls}: {}{remedy}", root_cause(&error)))
    })
}

/// The error of the connection by which a call ended with `status`; none if the server sent it.
fn connection_error(status: &Status) -> Option<&(dyn Error + 'static)> {
    // A status sent by the server has no cause here.
    status.source().filter(|cause| match status.code() {
        Code::Unknown | Code::Internal | Code::Unavailable => true,
        Code::Cancelled => is_unsent(*cause),
        _ => false,
    })
}

/// The failure of a connection to a server that answered before; none if the server sent the status.
pub(super) fn connection_failure(address: &ListenAddress, status: &Status) -> Option<Failure> {
    let cause = connection_error(status)?;
    Some(Failure(format!("no connection to {address}: {}", root_cause(cause))))
}

/// The failure of a call that ended with `status`: the server's answer, or an error of the connection.
pub(super) fn call_failure(address: &ListenAddress, tls: &ClientTlsFlags, status: &Status) -> Failure {
    let cause = connection_error(status);
    let refusal = cause.and_then(tls_refusal);
    Failure(match cause {
        // With TLS 1.3 a server refuses a client after the client's handshake is complete.
        Some(cause) if refusal.is_some() => {
            let remedy = refusal.as_ref().map(tls_remedy).unwrap_or_default();
            format!("{address} refuses the connection: {}{remedy}", root_cause(cause))
        }
        _ if is_timeout(status) => {
            format!(
                "{address} does not answer in time; check that it is the gRPC port of a server, or give a longer --timeout"
            )
        }
        Some(cause) => {
            format!(
                "{address} does not answer in HTTP/2: {}{}",
                root_cause(cause),
                no_answer_remedy(tls.client().is_some())
            )
        }
        None => format!("{address} answered {:?}: {}", status.code(), status.message()),
    })
}

/// The TLS alert by which a server refused the client, if that is the cause. h2 keeps only the text of a read error.
fn tls_refusal(cause: &(dyn Error + 'static)) -> Option<rustls::Error> {
    use rustls::{AlertDescription as Alert, Error::AlertReceived};
    let error = io_cause(cause).and_then(|cause| cause.get_ref()?.downcast_ref::<rustls::Error>());
    error.cloned().or_else(|| {
        let text = root_cause(cause);
        let refusals = [
            Alert::CertificateRequired,
            Alert::BadCertificate,
            Alert::UnknownCA,
            Alert::CertificateExpired,
            Alert::CertificateUnknown,
            Alert::AccessDenied,
            Alert::HandshakeFailure,
        ];
        refusals.map(AlertReceived).into_iter().find(|refusal| text.contains(&refusal.to_string()))
    })
}

/// Whether the call timed out: at this client, or by the server's count.
fn is_timeout(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::TimeoutExpired>()) || status.code() == Code::DeadlineExceeded
}

/// Whether a call was dropped before it was sent, because its connection had ended.
fn is_unsent(cause: &(dyn Error + 'static)) -> bool {
    causes(cause).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled))
}

/// The remedy to append to an error of a connection on which no HTTP/2 is received.
pub(super) fn no_answer_remedy(has_tls: bool) -> &'static str {
    if has_tls {
        return "; if the server requires a client certificate, give it with --tls-cert and --tls-key; otherwise give the address of a gRPC server";
    }
    "; if the port has TLS, give the authority of its certificate with --tls-ca; otherwise give the address of a gRPC server"
}

/// The remedy to append to an error of connecting to `address`; empty if none is known.
pub(super) fn connect_remedy(address: &ListenAddress, cause: &io::Error) -> String {
    if let ListenAddress::Unix(path) = address
        && path.metadata().is_ok_and(|found| !found.file_type().is_socket())
    {
        return format!("; {} is not a socket", path.display());
    }
    let tls = cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    if let Some(error) = tls {
        return tls_remedy(error).to_owned();
    }
    match cause.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; start a server with `tidegate serve`, or give the address of a running one".to_owned()
        }
        _ => String::new(),
    }
}

/// The remedy to append to an error of TLS; empty if none is known.
fn tls_remedy(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "; the server has no TLS on this port: leave out the --tls flags"
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; give the authority of the server's certificate with --tls-ca"
        }
        Error::InvalidCertificate(CertificateError::Other(error)) if is_authority(error) => {
            "; the server's certificate is that of an authority (CA:TRUE): make a server certificate with CA:FALSE, or \
             accept any certificate with --tls-insecure"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; give the name in the server's certificate with --tls-server-name",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "; the server requires a client certificate: give it with --tls-cert and --tls-key"
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "; the server does not know the authority of the client certificate: give a certificate that its --tls-client-ca signed"
        }
        _ => "",
    }
}

/// Whether a certificate was refused for being that of an authority.
fn is_authority(error: &rustls::OtherError) -> bool {
    error.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// The first IO error among the causes of `error`.
pub(super) fn io_cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_not_called_a_missing_server() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let address = ListenAddress::Unix(file.path().into());
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(connect_remedy(&address, &refused).ends_with("is not a socket"));
        let absent = ListenAddress::Unix(file.path().with_extension("absent"));
        assert!(connect_remedy(&absent, &refused).contains("tidegate serve"));
    }

    #[test]
    fn a_refusal_of_which_only_the_text_is_left_has_its_remedy() {
        let required = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        for read in [io::Error::other(required.clone()), io::Error::other(required.to_string())] {
            let refusal = tls_refusal(&read).unwrap();
            assert!(tls_remedy(&refusal).contains("the server requires a client certificate"));
        }
        assert!(tls_refusal(&io::Error::other("connection closed")).is_none());
    }

    #[test]
    fn causes_are_found_at_any_depth() {
        let inner = io::Error::other(io::Error::from(io::ErrorKind::TimedOut));
        assert!(io_cause(&inner).is_some());
        assert_eq!(root_cause(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
