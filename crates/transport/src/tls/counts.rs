//! Counts of handshakes by result, and the state of a port's certificate, for metrics and logs.

use super::client_verifier::SanNotAllowed;
use rustls::{CertificateError, Error, InvalidMessage};
use std::{
    io,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};
use tidegate_counts::{Attempt, Counts, LastAttempt, LogTimes, labels};

/// Time between two log lines about one result.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

labels! {
    /// The end of a handshake.
    #[allow(missing_docs, reason = "each is explained by `remedy`")]
    pub enum HandshakeResult {
        Completed = "completed",
        NotTls = "not_tls",
        TlsOnPlaintextPort = "tls_on_plaintext_port",
        Incompatible = "incompatible",
        ClientCertificateMissing = "client_certificate_missing",
        ClientCertificateExpired = "client_certificate_expired",
        ClientCertificateUnknownCa = "client_certificate_unknown_ca",
        ClientSanNotAllowed = "client_san_not_allowed",
        ClientCertificateInvalid = "client_certificate_invalid",
        RefusedByClient = "refused_by_client",
        TimedOut = "timed_out",
        Evicted = "evicted",
        Closed = "closed",
        Violation = "violation",
    }
}

impl HandshakeResult {
    /// The failure and its remedy, for operators.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Completed => "TLS handshake completed",
            Self::NotTls => "client without TLS on a TLS port; configure TLS on the client",
            Self::TlsOnPlaintextPort => {
                "client with TLS on a port without TLS; set --tls-cert and --tls-key (--http-tls-cert and --http-tls-key for the \
                 HTTP port), or remove TLS from the client"
            }
            Self::Incompatible => {
                "no common TLS version, cipher suite or ALPN protocol; TLS 1.2 and 1.3 are served"
            }
            Self::ClientCertificateMissing => {
                "client sent no certificate, which --tls-client-ca requires (--http-tls-client-ca for the HTTP port)"
            }
            Self::ClientCertificateExpired => "client certificate is expired or not yet valid; renew it",
            Self::ClientCertificateUnknownCa => {
                "client certificate is not signed by an authority in --tls-client-ca (--http-tls-client-ca for the HTTP port)"
            }
            Self::ClientSanNotAllowed => {
                "client certificate has no name in --tls-allow-san (--http-tls-allow-san for the HTTP port)"
            }
            Self::ClientCertificateInvalid => "client certificate is not valid",
            Self::RefusedByClient => {
                "client refused the handshake; compare its trusted authorities and its server name with this \
                 certificate"
            }
            Self::TimedOut => "handshake not complete within --tls-handshake-timeout",
            Self::Evicted => "too many handshakes; the oldest was ended (--tls-max-handshakes)",
            Self::Closed => "connection ended during the handshake",
            Self::Violation => "client violates the TLS protocol",
        }
    }

    /// Whether operators should read about it. Port scans and health checks also end connections.
    pub fn is_noteworthy(self) -> bool {
        !matches!(self, Self::Completed | Self::Closed)
    }

    /// The result of a handshake that failed with this error.
    pub(super) fn of_error(error: &io::Error) -> Self {
        let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
            return Self::Closed;
        };
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::Incompatible,
            Error::NoCertificatesPresented => Self::ClientCertificateMissing,
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(_) => Self::RefusedByClient,
            _ => Self::Violation,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::ClientCertificateExpired,
            CertificateError::UnknownIssuer => Self::ClientCertificateUnknownCa,
            CertificateError::Other(error) if error.0.downcast_ref::<SanNotAllowed>().is_some() => {
                Self::ClientSanNotAllowed
            }
            _ => Self::ClientCertificateInvalid,
        }
    }
}

/// Counts of one port, with or without TLS.
#[derive(Debug)]
pub struct TlsCounts {
    /// Handshakes.
    pub handshakes: Counts<HandshakeResult>,
    /// Reloads of the certificate. After a failed reload, the former certificate stays in force.
    reloads: Counts<Attempt>,
    /// The last reload.
    last_reload: LastAttempt,
    /// Time of the last log line for each result.
    logged: LogTimes<HandshakeResult>,
    /// End of the certificate's validity in seconds since the Unix epoch; zero without TLS.
    not_after: AtomicI64,
}

impl Default for TlsCounts {
    fn default() -> Self {
        Self {
            handshakes: Counts::default(),
            reloads: Counts::default(),
            last_reload: LastAttempt::default(),
            logged: LogTimes::every(LOG_INTERVAL),
            not_after: AtomicI64::new(0),
        }
    }
}

impl TlsCounts {
    /// End of the validity of the certificate in force, in seconds since the Unix epoch; none without TLS.
    pub fn not_after(&self) -> Option<i64> {
        Some(self.not_after.load(Relaxed)).filter(|&seconds| seconds != 0)
    }

    pub(super) fn certificate_loaded(&self, not_after: i64) {
        self.not_after.store(not_after, Relaxed);
    }

    pub(super) fn reloaded(&self, result: Attempt) {
        self.reloads.count(result);
        self.last_reload.record(result);
    }

    /// Number of reloads with this result.
    pub fn reloads(&self, result: Attempt) -> u64 {
        self.reloads.sum(result)
    }

    /// Whether the certificate in force is that of the files, as of the last reload.
    pub fn is_last_reload_successful(&self) -> bool {
        self.last_reload.is_successful()
    }

    /// Counts a result. If another log line is due, returns the number of results of this kind since the last.
    pub fn count(&self, result: HandshakeResult, now: Duration) -> Option<u64> {
        self.handshakes.count(result);
        if result.is_noteworthy() { self.logged.event(result, now) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_logged_once_an_interval_with_the_number_since() {
        let counts = TlsCounts::default();
        let at = |millis| Duration::from_secs(1_000) + Duration::from_millis(millis);
        assert_eq!(counts.count(HandshakeResult::NotTls, at(0)), Some(1));
        assert_eq!(counts.count(HandshakeResult::NotTls, at(1)), None);
        assert_eq!(counts.count(HandshakeResult::TimedOut, at(1)), Some(1));
        assert_eq!(counts.count(HandshakeResult::NotTls, at(9_999)), None);
        assert_eq!(counts.count(HandshakeResult::NotTls, at(10_000)), Some(3));
        assert_eq!(counts.count(HandshakeResult::Completed, at(10_000)), None);
        assert_eq!(counts.handshakes.sum(HandshakeResult::NotTls), 4);
    }
}
