//! Metrics of TLS: handshakes by result, reloads of certificates, and the end of their validity.

use super::page::Page;
use std::{fmt, sync::Arc};
use tidegate_counts::{Attempt, Label};
use tidegate_transport::{HandshakeResult, TlsCounts};

impl Page<'_> {
    /// Writes the metrics of the ports. A port without TLS only has the count of clients that expect TLS.
    pub(super) fn tls(&mut self, ports: &[(&'static str, Arc<TlsCounts>)]) -> fmt::Result {
        let with_tls =
            || ports.iter().filter_map(|(port, counts)| Some((*port, counts, counts.not_after()?)));
        self.samples("tls_handshakes", &mut |samples| {
            for (port, counts) in ports {
                for result in HandshakeResult::ALL.iter().copied() {
                    let has_tls = counts.not_after().is_some();
                    if has_tls == (result != HandshakeResult::TlsOnPlaintextPort) {
                        let labels = [("port", *port), ("result", result.name())];
                        samples.sample(&labels, counts.handshakes.sum(result).into())?;
                    }
                }
            }
            Ok(())
        })?;
        let name = "tls_certificate_not_after_timestamp_seconds";
        self.samples(name, &mut |samples| {
            with_tls().try_for_each(|(port, _, not_after)| {
                samples.sample(&[("port", port)], (not_after as f64).into())
            })
        })?;
        self.samples("tls_certificate_reloads", &mut |samples| {
            for (port, counts, _) in with_tls() {
                for result in Attempt::ALL {
                    let labels = [("port", port), ("result", result.name())];
                    samples.sample(&labels, counts.reloads(*result).into())?;
                }
            }
            Ok(())
        })
    }
}
