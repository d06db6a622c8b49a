//! Limitador's arguments.

use clap::{ArgAction, Parser, Subcommand, builder::PossibleValuesParser};

/// Tidegate in Limitador's place: reads the arguments and the environment variables of limitador-server (docs/migrate.md).
#[derive(Parser, Default)]
#[command(
    name = "limitador-server",
    version,
    disable_help_subcommand = true,
    subcommand_value_name = "STORAGE"
)]
pub(super) struct LimitadorServer {
    /// The file of limits; LIMITS_FILE.
    #[arg(value_name = "LIMITS_FILE")]
    pub(super) limits_file: Option<String>,
    /// Address of the gRPC port; ENVOY_RLS_HOST, by default 0.0.0.0.
    #[arg(short = 'b', long, value_name = "IP")]
    pub(super) rls_ip: Option<String>,
    /// The gRPC port; ENVOY_RLS_PORT, by default 8081.
    #[arg(short = 'p', long, value_name = "PORT")]
    pub(super) rls_port: Option<u16>,
    /// Address of the HTTP port; HTTP_API_HOST, by default 0.0.0.0.
    #[arg(short = 'B', long, value_name = "IP")]
    pub(super) http_ip: Option<String>,
    /// The HTTP port; HTTP_API_PORT, by default 8080.
    #[arg(short = 'P', long, value_name = "PORT")]
    pub(super) http_port: Option<u16>,
    /// Label denied calls with the name of the limit; LIMIT_NAME_IN_PROMETHEUS_LABELS=1.
    #[arg(short = 'l', long)]
    pub(super) limit_name_in_labels: bool,
    /// Has no effect.
    #[arg(short = 'L', long, value_name = "FILE")]
    pub(super) custom_metric_labels: Option<String>,
    /// Expression that makes further labels of metrics: a map of names to values.
    #[arg(long, value_name = "EXPRESSION")]
    pub(super) metric_labels_default: Option<String>,
    /// Endpoint of traces by OTLP over gRPC; TRACING_ENDPOINT.
    #[arg(long, value_name = "URL")]
    pub(super) tracing_endpoint: Option<String>,
    /// Level of the log: -v warn, -vv info, -vvv debug, -vvvv trace; RUST_LOG, by default error.
    #[arg(short = 'v', action = ArgAction::Count)]
    pub(super) verbosity: u8,
    /// Log JSON.
    #[arg(long)]
    pub(super) structured_logs: bool,
    /// Check the file of limits, and exit.
    #[arg(long)]
    pub(super) validate: bool,
    /// Headers of responses; RATE_LIMIT_HEADERS, by default NONE.
    #[arg(short = 'H', long, value_name = "SET", value_parser = PossibleValuesParser::new(["NONE", "DRAFT_VERSION_03"]))]
    pub(super) rate_limit_headers: Option<String>,
    /// Is always on.
    #[arg(long)]
    grpc_reflection_service: bool,
    #[command(subcommand)]
    pub(super) storage: Option<Storage>,
}

/// Where counters are kept.
#[derive(Subcommand)]
pub(super) enum Storage {
    /// In memory.
    Memory {
        /// Maximum number of counters.
        #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        cache: Option<u64>,
    },
    /// In memory, with snapshots in a folder.
    Disk {
        /// The folder; DISK_PATH.
        path: Option<String>,
        /// Has no effect.
        #[arg(long, value_parser = PossibleValuesParser::new(["throughput", "disk"]))]
        optimize: Option<String>,
    },
    /// In Redis or Valkey, which makes every decision.
    Redis {
        /// The server; REDIS_URL.
        url: Option<String>,
    },
    /// In Redis or Valkey, with credits that are leased.
    #[command(name = "redis_cached")]
    RedisCached {
        /// The server; REDIS_URL.
        url: Option<String>,
        /// Has no effect.
        #[arg(long, value_name = "N")]
        batch_size: Option<usize>,
        /// Has no effect.
        #[arg(long, value_name = "MILLISECONDS")]
        flush_period: Option<i64>,
        /// Has no effect.
        #[arg(long, value_name = "N")]
        max_cached: Option<usize>,
        /// Time limit of a decision of the store, in milliseconds.
        #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..))]
        response_timeout: Option<u64>,
    },
    /// Is not supported.
    Distributed {
        /// The name, the address and the peers.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        rest: Vec<String>,
    },
}
