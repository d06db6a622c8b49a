//! The environment variables of the reference server (envoyproxy/ratelimit), as flags of `serve`.
//!
//! `docs/reference-environment.md` has the same table for users; a test compares the two.

mod redis;
mod statsd;
#[cfg(test)]
mod tests;
mod tracing;

use super::Failure;
use std::{
    collections::BTreeMap, os::unix::process::CommandExt as _, path::Path, process::Command, time::Duration,
};

/// The name under which the reference server is started in containers.
const PROGRAM: &str = "ratelimit";

/// Bytes of a message that the reference server receives.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Variables that are read.
const READ: &[&str] = &[
    "BACKEND_TYPE",
    "CACHE_KEY_PREFIX",
    "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
    "CONFIG_GRPC_XDS_NODE_ID",
    "CONFIG_GRPC_XDS_NODE_METADATA",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
    "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
    "CONFIG_GRPC_XDS_SERVER_URL",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    "CONFIG_TYPE",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "DISABLE_STATS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_CLIENT_TLS_CACERT",
    "GRPC_CLIENT_TLS_SAN",
    "GRPC_HOST",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "GRPC_PORT",
    "GRPC_SERVER_TLS_CERT",
    "GRPC_SERVER_TLS_KEY",
    "GRPC_SERVER_USE_TLS",
    "GRPC_UDS",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "HOST",
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "MERGE_DOMAIN_CONFIG",
    "NEAR_LIMIT_RATIO",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "PORT",
    "PROMETHEUS_ADDR",
    "PROMETHEUS_PATH",
    "QUOTA_MODE",
    "REDIS_AUTH",
    "REDIS_SOCKET_TYPE",
    "REDIS_TLS",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TYPE",
    "REDIS_URL",
    "RESPONSE_DYNAMIC_METADATA",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "SHADOW_MODE",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "TRACING_ENABLED",
    "TRACING_EXPORTER_PROTOCOL",
    "TRACING_SAMPLING_RATE",
    "TRACING_SERVICE_INSTANCE_ID",
    "TRACING_SERVICE_NAME",
    "TRACING_SERVICE_NAMESPACE",
    "USE_DOG_STATSD",
    "USE_PROMETHEUS",
    "USE_STATSD",
    "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
    "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
    "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
];

/// Beginnings of names that belong to the reference server; such a variable that is not read is reported.
const PREFIXES: [&str; 21] = [
    "BACKEND_TYPE",
    "CACHE_",
    "CONFIG_",
    "DEBUG_",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_",
    "EXTRA_TAGS",
    "GRPC_",
    "LIMIT_",
    "LOCAL_CACHE_",
    "MEMCACHE_",
    "MERGE_DOMAIN_",
    "PROMETHEUS_",
    "QUOTA_MODE",
    "REDIS_",
    "RUNTIME_",
    "STATS",
    "STOP_CACHE_KEY_",
    "TRACING_",
    "USE_",
    "XDS_CLIENT_",
];

/// Variables of the process, and what follows from them.
struct Environment<'v>(&'v BTreeMap<String, String>);

/// The variables of this process, those that are UTF-8.
pub(super) fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Whether `--env reference` or the program's name selects the variables: the user's arguments after the command, and whether
/// `--env` is among them.
fn selection<'a>(args: &'a [String], variables: &BTreeMap<String, String>) -> Option<(&'a [String], bool)> {
    let program = args.first().map(|path| Path::new(path).file_name().unwrap_or_default().to_owned());
    let (own, is_named) = match program {
        Some(name) if name == PROGRAM => (args.get(1..).unwrap_or_default(), true),
        _ if args.get(1).is_some_and(|command| command == "serve") => (&args[2..], false),
        _ => return None,
    };
    let is_selected = own.iter().any(|arg| arg == "--env=reference")
        || own.windows(2).any(|pair| pair == ["--env", "reference"])
        || variables.get("TIDEGATE_ENV").is_some_and(|value| value == "reference");
    (is_named || is_selected).then_some((own, is_selected))
}

/// Starts the program again, as the same process, with the variables of OpenTelemetry that follow from those of the
/// reference server. OpenTelemetry reads the environment, which a running process cannot change safely. Returns if there is
/// nothing to add.
pub(super) fn add_open_telemetry(
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let derived = match selection(args, variables) {
        Some(_) => Environment(variables).open_telemetry()?,
        None => return Ok(()),
    };
    if derived.is_empty() {
        return Ok(());
    }
    let failed = |error| Failure(format!("cannot start again with the variables of OpenTelemetry: {error}"));
    let mut program = Command::new(std::env::current_exe().map_err(failed)?);
    Err(failed(program.arg0(&args[0]).args(&args[1..]).envs(derived).exec()))
}

/// Arguments of the process with the flags that the variables stand for, where `--env reference` or the program's name
/// selects that. Flags and `TIDEGATE_` variables of the user take precedence.
pub(super) fn expand(
    args: Vec<String>,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<String>, Failure> {
    let Some((own, is_selected)) = selection(&args, variables) else { return Ok(args) };
    let is_flag = |flag: &str| {
        let with_value = format!("{flag}=");
        own.iter().any(|arg| arg == flag || arg.starts_with(&with_value))
    };
    let own_variable = |flag: &str| format!("TIDEGATE_{}", flag[2..].replace('-', "_").to_uppercase());
    // Images set TIDEGATE_LISTEN; a variable that names the port overrides that.
    let names_port = ["GRPC_HOST", "GRPC_PORT", "GRPC_UDS"].iter().any(|name| variables.contains_key(*name));
    let is_given = |flag: &str| {
        is_flag(flag) || !(flag == "--listen" && names_port) && variables.contains_key(&own_variable(flag))
    };
    let mut expanded = vec!["tidegate".to_owned(), "serve".to_owned()];
    if !is_selected {
        expanded.push("--env=reference".to_owned());
    }
    for (flag, value) in Environment(variables).flags()? {
        if !is_given(flag) {
            expanded.push(value.map_or_else(|| flag.to_owned(), |value| format!("{flag}={value}")));
        }
    }
    expanded.extend_from_slice(own);
    Ok(expanded)
}

/// A variable of gRPC's libraries, which other programs may need.
const GRPC_LIBRARY_ROOTS: &str = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH";

/// Warnings about variables that have no effect.
pub(super) fn warnings(variables: &BTreeMap<String, String>) -> Vec<String> {
    let ignored = variables.keys().filter(|name| {
        let is_read = READ.contains(&name.as_str()) || *name == GRPC_LIBRARY_ROOTS;
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_read
    });
    let ignored: Vec<&str> = ignored.map(String::as_str).collect();
    let mut warnings = Vec::new();
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        warnings.push(format!("variables of the reference server without effect here: {names}"));
    }
    let environment = Environment(variables);
    if environment.text("BACKEND_TYPE").is_some_and(|backend| backend != "redis") {
        let message = "BACKEND_TYPE is not redis: counters are kept in the memory of this process. Set TIDEGATE_COUNTERS to \
                       share them between replicas";
        warnings.push(message.to_owned());
    }
    if environment.text("EXTRA_TAGS").is_some() && !environment.is_on("USE_DOG_STATSD").unwrap_or(false) {
        warnings.push("EXTRA_TAGS has an effect with USE_DOG_STATSD alone".to_owned());
    }
    warnings
}

type Flags = Vec<(&'static str, Option<String>)>;

impl Environment<'_> {
    fn flags(&self) -> Result<Flags, Failure> {
        let mut flags: Flags = vec![("--compat", Some("reference".to_owned()))];
        self.ports(&mut flags)?;
        self.rules(&mut flags)?;
        self.store(&mut flags)?;
        self.statsd(&mut flags)?;
        for (variable, flag) in [
            ("SHADOW_MODE", "--global-shadow"),
            ("QUOTA_MODE", "--quota-mode"),
            ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "--stop-counting-over-limit"),
            ("MERGE_DOMAIN_CONFIG", "--merge-domains"),
        ] {
            if self.is_on(variable)? {
                flags.push((flag, None));
            }
        }
        for (variable, flag) in [
            ("GRPC_MAX_CONNECTION_AGE", "--max-connection-age"),
            ("GRPC_MAX_CONNECTION_AGE_GRACE", "--max-connection-age-grace"),
        ] {
            flags.extend(self.duration(variable)?.map(|time| (flag, Some(time))));
        }
        if let Some(ratio) = self.text("NEAR_LIMIT_RATIO") {
            let percent = ratio.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            let percent = percent.ok_or_else(|| self.wrong("NEAR_LIMIT_RATIO", "a number from 0 to 1"))?;
            flags.push(("--near-limit-percent", Some(format!("{:.0}", percent * 100.0))));
        }
        // There, the size of the message is the only bound.
        for flag in ["--max-descriptors", "--max-entries", "--max-text-bytes", "--max-message-bytes"] {
            flags.push((flag, Some(MESSAGE_BYTES_MAX.to_string())));
        }
        flags.push(("--log", Some(self.log_level()?)));
        let is_json = self.text("LOG_FORMAT").is_some_and(|format| format.eq_ignore_ascii_case("json"));
        flags.push(("--log-format", Some(if is_json { "json" } else { "text" }.to_owned())));
        Ok(flags)
    }

    fn ports(&self, flags: &mut Flags) -> Result<(), Failure> {
        let grpc = match self.text("GRPC_UDS") {
            Some(path) => format!("unix:{path}"),
            None => self.address("GRPC_HOST", "GRPC_PORT", "8081"),
        };
        flags.push(("--listen", Some(grpc)));
        let mut http =
            vec![self.address("HOST", "PORT", "8080"), self.address("DEBUG_HOST", "DEBUG_PORT", "6070")];
        if self.is_on("USE_PROMETHEUS")? {
            let address = self.text("PROMETHEUS_ADDR").unwrap_or(":9090");
            let all = if address.starts_with(':') { "0.0.0.0" } else { "" };
            http.push(format!("{all}{address}"));
            flags.push(("--reference-metrics", None));
            let path = self.text("PROMETHEUS_PATH").filter(|path| *path != "/metrics");
            flags.extend(path.map(|path| ("--metrics-path", Some(path.to_owned()))));
        }
        http.dedup();
        flags.push(("--http-listen", Some(http.join(","))));
        if self.is_on("GRPC_SERVER_USE_TLS")? {
            for (variable, flag) in [
                ("GRPC_SERVER_TLS_CERT", "--tls-cert"),
                ("GRPC_SERVER_TLS_KEY", "--tls-key"),
                ("GRPC_CLIENT_TLS_CACERT", "--tls-client-ca"),
                ("GRPC_CLIENT_TLS_SAN", "--tls-allow-san"),
            ] {
                flags.extend(self.text(variable).map(|value| (flag, Some(value.to_owned()))));
            }
        }
        Ok(())
    }

    fn rules(&self, flags: &mut Flags) -> Result<(), Failure> {
        let needs_rules = self.is_on("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED")?;
        let is_healthy = match self.text("CONFIG_TYPE").unwrap_or("FILE") {
            "FILE" => {
                let root = Path::new(self.text("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current"));
                let files = root
                    .join(self.text("RUNTIME_SUBDIRECTORY").unwrap_or_default())
                    .join(self.text("RUNTIME_APPDIRECTORY").unwrap_or("config"));
                flags.push(("--rules", Some(files.display().to_string())));
                flags.extend([("--rules-every-file", None), ("--wait-for-rules", None)]);
                if !self.is_on("RUNTIME_IGNOREDOTFILES")? {
                    flags.push(("--rules-dot-files", None));
                }
                !needs_rules
            }
            "GRPC_XDS_SOTW" => {
                self.control_plane(flags)?;
                self.is_on("FORCE_START_WITHOUT_INITIAL_CONFIG")? && !needs_rules
            }
            _ => return Err(self.wrong("CONFIG_TYPE", "FILE or GRPC_XDS_SOTW")),
        };
        if is_healthy {
            flags.push(("--healthy-without-rules", None));
        }
        Ok(())
    }

    fn control_plane(&self, flags: &mut Flags) -> Result<(), Failure> {
        let server = self.text("CONFIG_GRPC_XDS_SERVER_URL").unwrap_or("localhost:18000");
        let node = self.text("CONFIG_GRPC_XDS_NODE_ID").unwrap_or("default");
        flags.push(("--rules", Some(format!("xds://{server}?node={node}"))));
        for (variable, flag) in [
            ("CONFIG_GRPC_XDS_NODE_METADATA", "--xds-node-metadata"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "--xds-max-message-bytes"),
        ] {
            flags.extend(self.text(variable).map(|value| (flag, Some(value.to_owned()))));
        }
        if let Some(headers) = self.text("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS") {
            // There, name and value are separated by a colon.
            let header = |pair: &str| pair.replacen(':', "=", 1);
            let headers: Vec<String> = headers.split(',').map(header).collect();
            flags.push(("--xds-header", Some(headers.join(","))));
        }
        let backoff = [
            ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "--xds-backoff", "10s"),
            ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "--xds-backoff-max", "60s"),
        ];
        for (variable, flag, default) in backoff {
            flags.push((flag, Some(self.duration(variable)?.unwrap_or_else(|| default.to_owned()))));
        }
        if self.is_on("CONFIG_GRPC_XDS_SERVER_USE_TLS")? {
            for (variable, flag) in [
                ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "--xds-tls-ca"),
                ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "--xds-tls-cert"),
                ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "--xds-tls-key"),
                ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "--xds-tls-server-name"),
            ] {
                flags.extend(self.text(variable).map(|value| (flag, Some(value.to_owned()))));
            }
            if self.text("CONFIG_GRPC_XDS_SERVER_TLS_CACERT").is_none() {
                return Err(self.wrong(
                    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
                    "the file of the authorities that sign the control plane's certificate",
                ));
            }
        }
        Ok(())
    }

    /// The value; none if it is empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_on(&self, name: &str) -> Result<bool, Failure> {
        super::response_options::boolean(name, self.text(name))
    }

    fn duration(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed: Result<Duration, _> = humantime::parse_duration(text);
        parsed.map(|_| Some(text.to_owned())).map_err(|_| self.wrong(name, "a time such as 1h30m"))
    }

    /// `host:port`, with an IPv6 address in brackets.
    fn address(&self, host: &str, port: &str, default_port: &str) -> String {
        let host = self.text(host).unwrap_or("0.0.0.0");
        let port = self.text(port).unwrap_or(default_port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn log_level(&self) -> Result<String, Failure> {
        let level = self.text("LOG_LEVEL").unwrap_or("warn").to_ascii_lowercase();
        match level.as_str() {
            "panic" | "fatal" => Ok("error".to_owned()),
            "warning" => Ok("warn".to_owned()),
            "error" | "warn" | "info" | "debug" | "trace" => Ok(level),
            _ => Err(self.wrong("LOG_LEVEL", "error, warn, info, debug or trace")),
        }
    }

    fn wrong(&self, name: &str, remedy: &str) -> Failure {
        Failure(format!("the variable {name} is {:?}; write {remedy}", self.text(name).unwrap_or_default()))
    }
}
