//! Flags of the HTTP port.

use crate::{
    api::http::{HttpBounds, MetricsPath},
    cli::arguments::{Choice, choice, interval},
    server::{HttpSettings, ListenAddress},
};
use clap::{ArgGroup, Args};
use std::{num::NonZeroUsize, path::PathBuf, time::Duration};
use tidegate_core::rules::Expression;
use tidegate_service::{LimitadorLabels, LimitadorSettings};

/// The HTTP port: metrics, rules and probes for operators, and decisions for clients without gRPC.
#[derive(Args)]
#[command(group = ArgGroup::new("uses_of_tokens").args(["http_listen", "control", "leases"]).multiple(true))]
pub(super) struct HttpFlags {
    /// Address of the HTTP port (docs/openapi.yaml lists its routes); by default there is none; repeatable.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub(super) http_listen: Vec<ListenAddress>,
    /// File of bearer tokens, as `tidegate token` writes it. Requests of the HTTP port then need a token, except those of probes;
    /// callers of the control API and holders of leases get their roles from it, on the gRPC port too. Read again when it changes.
    #[arg(long, value_name = "FILE", requires = "uses_of_tokens")]
    pub(super) http_token_file: Option<PathBuf>,
    /// Maximum number of HTTP connections. Beyond it a connection of the client with the most connections is closed.
    #[arg(long, value_name = "N", default_value = "256")]
    http_max_connections: NonZeroUsize,
    /// Maximum bytes of the line and the headers of an HTTP request; a longer head is refused with 431.
    #[arg(long, value_name = "BYTES", default_value_t = HttpBounds::default().header_bytes_max)]
    http_max_header_bytes: usize,
    /// Maximum bytes of the body of an HTTP request; a longer body is refused with 413.
    #[arg(long, value_name = "BYTES", default_value_t = HttpBounds::default().body_bytes_max)]
    http_max_body_bytes: usize,
    /// Time for each of: the headers of an HTTP request, its body, its wait in a queue of its rule, the writing of its response.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    http_timeout: Duration,
    /// Time after which an HTTP connection without requests is closed.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "2m")]
    http_idle_timeout: Duration,
    /// Names under which the HTTP port is reached: those of proxies in front of it, and without tokens and TLS every name in the header
    /// `host`; `*` allows all. Addresses and local names need not be listed: without a dot, or in .svc, .cluster.local, .local,
    /// .internal, .lan or .home.arpa.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    http_allowed_hosts: Vec<String>,
    /// Path at which the HTTP port serves the metrics besides /metrics.
    #[arg(long, value_name = "PATH", requires = "http_listen")]
    metrics_path: Option<MetricsPath>,
    /// Serve Limitador's HTTP API and its metrics at the HTTP port, and accept requests in the forms that it accepts (docs/migrate.md).
    #[arg(long, value_name = "LABELS", requires = "http_listen", value_parser = choice(LIMITADOR_LABELS))]
    limitador_api: Option<LimitadorLabels>,
    /// Expression in CEL that makes further labels of Limitador's metrics: a map of names to values, such as descriptors[1].
    #[arg(long, value_name = "EXPRESSION", value_parser = Expression::parse, requires = "limitador_api")]
    limitador_labels: Option<Expression>,
    /// Serve the console, pages over the control API for a browser, at /console of the HTTP port (docs/console.md).
    #[arg(long, requires = "control", requires = "http_listen")]
    console: bool,
}

/// Labels of Limitador's metrics.
const LIMITADOR_LABELS: [Choice<LimitadorLabels>; 2] = [
    ("namespace", "The namespace", LimitadorLabels::Namespace),
    ("limit-name", "The name of the limit too, of denied calls", LimitadorLabels::LimitName),
];

impl HttpFlags {
    /// The settings of Limitador's metrics, if its API is served.
    pub(super) fn limitador(&self) -> Option<LimitadorSettings> {
        Some(LimitadorSettings { labels: self.limitador_api?, expression: self.limitador_labels.clone() })
    }

    /// Serves the console to callers with a token of this file.
    pub(super) fn open_console(&mut self, token_file: PathBuf) {
        self.http_token_file = Some(token_file);
        self.console = true;
    }

    /// The settings of a port with or without TLS.
    pub(super) fn settings(&self, has_tls: bool) -> HttpSettings {
        let bounds = HttpBounds {
            connections_max: self.http_max_connections.get(),
            header_bytes_max: self.http_max_header_bytes,
            body_bytes_max: self.http_max_body_bytes,
            timeout: self.http_timeout,
            idle_timeout: self.http_idle_timeout,
        };
        HttpSettings {
            bounds,
            token_file: self.http_token_file.clone(),
            has_console: self.console,
            has_limitador_api: self.limitador_api.is_some(),
            metrics_path: self.metrics_path.clone(),
            effective: serde_json::Value::Null,
            allowed_hosts: self.http_allowed_hosts.clone(),
            // A page under another name has no token, and no certificate for its name.
            are_hosts_checked: self.http_token_file.is_none() && !has_tls,
        }
    }
}
