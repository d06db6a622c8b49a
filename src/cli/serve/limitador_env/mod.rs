//! Limitador's command line and environment variables, as flags of `serve`.
//!
//! The command line applies under the program's name; with `--env limitador`, the variables alone, beside the flags of `serve`.
//! `docs/migrate.md` has the same tables for users.

mod arguments;
#[cfg(test)]
mod tests;

use crate::cli::{
    Failure,
    serve::{
        reference_env::start_again,
        settings::{Environment, Flags, Given, Selection, arguments},
    },
};
use arguments::{LimitadorServer, Storage};
use clap::{CommandFactory as _, FromArgMatches as _};
use std::collections::BTreeMap;

/// The name under which Limitador is started in containers.
const PROGRAM: &str = "limitador-server";

/// Bytes of a message that Limitador receives: the default of its gRPC library. Nothing else bounds a request there.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limitador's arguments, and its variables for those that are not given.
struct Settings<'v> {
    arguments: LimitadorServer,
    environment: Environment<'v>,
}

fn selection<'a>(args: &'a [String], variables: &BTreeMap<String, String>) -> Option<Selection<'a>> {
    Selection::of(args, variables, (PROGRAM, "limitador"))
}

/// Parses Limitador's arguments. Ends the process after wrong ones, and after `--help`.
fn parse(own: &[String]) -> LimitadorServer {
    let args = std::iter::once(PROGRAM.to_owned()).chain(own.iter().cloned());
    let matches = LimitadorServer::command().get_matches_from(args);
    LimitadorServer::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.format(&mut LimitadorServer::command()).exit())
}

/// The settings of this process: none if it is not in Limitador's place.
fn settings<'v>(args: &[String], variables: &'v BTreeMap<String, String>) -> Option<Settings<'v>> {
    let Selection { own, is_program, .. } = selection(args, variables)?;
    let arguments = if is_program { parse(own) } else { LimitadorServer::default() };
    Some(Settings { arguments, environment: Environment(variables) })
}

/// The arguments of `serve`, or of `check` for `--validate`, instead of Limitador's; none if the program has another name.
pub(super) fn command(
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<Option<Vec<String>>, Failure> {
    let is_program = selection(args, variables).is_some_and(|selected| selected.is_program);
    let Some(settings) = settings(args, variables).filter(|_| is_program) else { return Ok(None) };
    if settings.arguments.validate {
        return Ok(Some(vec!["tidegate".to_owned(), "check".to_owned(), settings.limits_file()?]));
    }
    let begin = ["tidegate", "serve", "--env=limitador"].map(str::to_owned);
    Ok(Some(begin.into_iter().chain(arguments(settings.flags()?)).collect()))
}

/// The flags that the variables stand for with `--env limitador`, less those that the user gives by flags, `TIDEGATE_` variables or a file
/// of settings; none if it is not selected.
pub(super) fn flags(
    args: &[String],
    given: &Given<'_>,
    is_in_file: impl Fn(&str) -> bool,
) -> Result<Option<Flags>, Failure> {
    if selection(args, given.variables).is_none() {
        return Ok(None);
    }
    let environment = Environment(given.variables);
    let names_port = environment.has_any(&["ENVOY_RLS_HOST", "ENVOY_RLS_PORT"]);
    let settings = Settings { arguments: LimitadorServer::default(), environment };
    let flags = match given.has("--rules") || is_in_file("--rules") {
        true => settings.flags_for("")?,
        false => settings.flags()?,
    };
    Ok(Some(given.without_given(flags, names_port, is_in_file)))
}

/// Starts the program again, as the same process, with the variables of OpenTelemetry for the endpoint of traces.
pub(super) fn add_open_telemetry(
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    // The flags of `serve` were made from Limitador's arguments by then.
    let endpoint = settings(args, variables).and_then(|settings| settings.tracing_endpoint());
    let Some(endpoint) = endpoint else { return Ok(()) };
    let mut derived = BTreeMap::from([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("OTEL_SERVICE_NAME", "limitador".to_owned()),
    ]);
    derived.retain(|name, _| variables.get(*name).is_none_or(String::is_empty));
    start_again(derived)
}

/// Warnings about arguments and variables without effect.
pub(super) fn warnings(args: &[String], variables: &BTreeMap<String, String>) -> Vec<String> {
    settings(args, variables).map_or_else(Vec::new, |settings| settings.warnings())
}

impl Settings<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.environment.text(name)
    }

    fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }

    /// The value of an argument, or else of a variable.
    fn required(
        &self,
        of_argument: &Option<String>,
        variable: &str,
        missing: &str,
    ) -> Result<String, Failure> {
        let text = of_argument.as_deref().or_else(|| self.text(variable));
        text.map(str::to_owned).ok_or_else(|| Failure(format!("{missing}, or set {variable}")))
    }

    fn limits_file(&self) -> Result<String, Failure> {
        let missing = "LIMITS_FILE is missing; name the file of limits";
        self.required(&self.arguments.limits_file, "LIMITS_FILE", missing)
    }

    fn flags(&self) -> Result<Flags, Failure> {
        self.flags_for(&self.limits_file()?)
    }

    /// The flags, with this file of limits unless it is empty.
    fn flags_for(&self, limits_file: &str) -> Result<Flags, Failure> {
        let LimitadorServer { rls_ip, rls_port, http_ip, http_port, .. } = &self.arguments;
        let grpc = self.address((rls_ip, "ENVOY_RLS_HOST"), (*rls_port, "ENVOY_RLS_PORT", 8081))?;
        let http = self.address((http_ip, "HTTP_API_HOST"), (*http_port, "HTTP_API_PORT", 8080))?;
        let has_names = self.arguments.limit_name_in_labels || self.is_on("LIMIT_NAME_IN_PROMETHEUS_LABELS");
        let labels = if has_names { "limit-name" } else { "namespace" };
        let mut flags: Flags = vec![
            ("--listen", Some(grpc)),
            ("--http-listen", Some(http)),
            ("--limitador-api", Some(labels.to_owned())),
            ("--log", Some(self.log_level()?)),
        ];
        let labels = self.arguments.metric_labels_default.clone();
        flags.extend(labels.map(|labels| ("--limitador-labels", Some(labels))));
        if !limits_file.is_empty() {
            flags.push(("--rules", Some(limits_file.to_owned())));
        }
        if self.arguments.structured_logs {
            flags.push(("--log-format", Some("json".to_owned())));
        }
        let headers =
            self.arguments.rate_limit_headers.as_deref().or_else(|| self.text("RATE_LIMIT_HEADERS"));
        match headers {
            None | Some("NONE") => {}
            Some("DRAFT_VERSION_03") => flags.push(("--response-headers", Some("draft03".to_owned()))),
            Some(_) => return Err(self.environment.wrong("RATE_LIMIT_HEADERS", "NONE or DRAFT_VERSION_03")),
        }
        for flag in ["--max-descriptors", "--max-entries", "--max-text-bytes", "--max-message-bytes"] {
            flags.push((flag, Some(MESSAGE_BYTES_MAX.to_string())));
        }
        self.storage(&mut flags)?;
        Ok(flags)
    }

    fn storage(&self, flags: &mut Flags) -> Result<(), Failure> {
        let url = |of_argument: &Option<String>| {
            self.required(of_argument, "REDIS_URL", "URL is missing; name the Redis server")
        };
        let mut redis = |url: String, lease: &str| {
            flags.extend([("--counters", Some(url)), ("--lease", Some(lease.to_owned()))]);
        };
        match &self.arguments.storage {
            Some(Storage::Memory { cache }) => {
                flags.extend(cache.map(|counters| ("--max-counters", Some(counters.to_string()))));
            }
            Some(Storage::Disk { path, .. }) => {
                let missing = "PATH is missing; name the folder of counters";
                flags.push(("--data", Some(self.required(path, "DISK_PATH", missing)?)));
            }
            Some(Storage::Redis { url: of_argument }) => redis(url(of_argument)?, "off"),
            Some(Storage::RedisCached { url: of_argument, response_timeout, .. }) => {
                redis(url(of_argument)?, "auto");
                flags.extend(response_timeout.map(|ms| ("--counters-timeout", Some(format!("{ms}ms")))));
            }
            Some(Storage::Distributed { .. }) => {
                let message = "the storage `distributed` is not supported: counters that are replicated later admit more than the \
                               limits. Use `redis_cached URL`, where several servers share exact counters";
                return Err(Failure(message.to_owned()));
            }
            None => match self.text("REDIS_URL") {
                Some(url) if self.is_on("REDIS_LOCAL_CACHE_ENABLED") => redis(url.to_owned(), "auto"),
                Some(url) => redis(url.to_owned(), "off"),
                None => {}
            },
        }
        Ok(())
    }

    /// `host:port`, with an IPv6 address in brackets.
    fn address(
        &self,
        (host, host_variable): (&Option<String>, &str),
        (port, port_variable, default_port): (Option<u16>, &str, u16),
    ) -> Result<String, Failure> {
        let host = host.as_deref().or_else(|| self.text(host_variable)).unwrap_or("0.0.0.0");
        let port = match (port, self.text(port_variable)) {
            (Some(port), _) => port,
            (None, Some(text)) => {
                text.parse().map_err(|_| self.environment.wrong(port_variable, "a port"))?
            }
            (None, None) => default_port,
        };
        let is_bare = host.contains(':') && !host.starts_with('[');
        Ok(if is_bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// The level of `-v`, else that of RUST_LOG, else errors.
    fn log_level(&self) -> Result<String, Failure> {
        let level = match self.arguments.verbosity {
            0 => self.text("RUST_LOG").unwrap_or("error"),
            1 => "warn",
            2 => "info",
            3 => "debug",
            4 => "trace",
            _ => return Err(Failure("-v is given more than 4 times; 4 is the most".to_owned())),
        };
        // A level for one of Limitador's modules has no meaning here.
        Ok(if level.contains('=') { "info" } else { level }.to_owned())
    }

    fn tracing_endpoint(&self) -> Option<String> {
        let endpoint = self.arguments.tracing_endpoint.as_deref().or_else(|| self.text("TRACING_ENDPOINT"));
        let endpoint = endpoint.filter(|endpoint| !endpoint.is_empty())?;
        // Kuadrant's documentation has the scheme rpc, and its operator's tests grpc.
        let address = endpoint.strip_prefix("rpc://").or_else(|| endpoint.strip_prefix("grpc://"));
        let is_set = self.text("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
        (!is_set).then(|| address.map_or_else(|| endpoint.to_owned(), |address| format!("http://{address}")))
    }

    fn warnings(&self) -> Vec<String> {
        const LEASES: &str = "credits are leased for --lease-length (docs/shared.md)";
        const SNAPSHOTS: &str = "snapshots are written every --snapshot-interval";
        let LimitadorServer { custom_metric_labels, storage, verbosity, .. } = &self.arguments;
        let has = |name| self.text(name).is_some();
        let labels = "write one expression for --metric-labels-default";
        let labels = (custom_metric_labels.is_some(), "--custom-metric-labels", labels);
        let of_storage = match storage {
            Some(Storage::RedisCached { batch_size, flush_period, max_cached, .. }) => vec![
                (batch_size.is_some(), "--batch-size", LEASES),
                (flush_period.is_some(), "--flush-period", LEASES),
                (max_cached.is_some(), "--max-cached", LEASES),
            ],
            Some(Storage::Disk { optimize, .. }) => vec![
                (optimize.is_some(), "--optimize", SNAPSHOTS),
                (has("DISK_OPTIMIZE"), "DISK_OPTIMIZE", SNAPSHOTS),
            ],
            _ => Vec::new(),
        };
        let names_modules = *verbosity == 0 && self.text("RUST_LOG").is_some_and(|level| level.contains('='));
        let modules = "levels of modules are not known here; the level is info, or that of -v";
        let cache = ["REDIS_LOCAL_CACHE_FLUSHING_PERIOD_MS", "REDIS_LOCAL_CACHE_BATCH_SIZE"];
        let of_variables = [(names_modules, "RUST_LOG", modules)];
        let of_variables = of_variables.into_iter().chain(cache.map(|name| (has(name), name, LEASES)));
        let all = [labels].into_iter().chain(of_storage).chain(of_variables);
        let given = all.filter(|(is_given, ..)| *is_given);
        let mut warnings: Vec<String> =
            given.map(|(_, name, reason)| format!("{name} has no effect: {reason}")).collect();
        if self.is_redis() {
            warnings.push("counters that Limitador has written to Redis are not read".to_owned());
        }
        warnings
    }

    fn is_redis(&self) -> bool {
        match &self.arguments.storage {
            None => self.text("REDIS_URL").is_some(),
            Some(storage) => matches!(storage, Storage::Redis { .. } | Storage::RedisCached { .. }),
        }
    }
}
