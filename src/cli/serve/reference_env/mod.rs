//! The environment variables of the reference server (envoyproxy/ratelimit), as flags of `serve`.
//!
//! `docs/reference-environment.md` has the same table for users; a test compares the two.

mod names;
mod redis;
mod statsd;
#[cfg(test)]
mod tests;
mod tracing;

pub(super) use names::{READ, overlooked, warnings};

use crate::cli::{
    Failure,
    serve::settings::{Environment, Flags, Given, Selection},
};
use std::{
    collections::BTreeMap, ffi::OsString, os::unix::process::CommandExt as _, path::Path, process::Command,
    time::Duration,
};

/// The name under which the reference server is started in containers.
const PROGRAM: &str = "ratelimit";

/// Bytes of a message that the reference server receives.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A time that no connection reaches.
const UNBOUNDED: &str = "365days";

/// The address of all interfaces: that of IPv6 accepts IPv4 too, where the machine has it.
fn any_address() -> &'static str {
    if std::net::UdpSocket::bind("[::]:0").is_ok() { "[::]" } else { "0.0.0.0" }
}

/// `host:port` of a target of gRPC, `dns:///host:port` or `dns://authority/host:port`.
fn without_resolver(target: &str) -> &str {
    let rest = target.strip_prefix("dns:").or_else(|| target.strip_prefix("passthrough:"));
    match rest {
        None => target,
        Some(rest) => {
            rest.strip_prefix("//").and_then(|rest| rest.split_once('/')).map_or(rest, |(_, host)| host)
        }
    }
}

/// The variables of this process as text. What is not UTF-8 is replaced by U+FFFD, so that such a value is an error and not absent.
pub(super) fn variables() -> BTreeMap<String, String> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Whether `--env reference`, the name of the program or its first argument selects the variables.
pub(super) fn selection<'a>(
    args: &'a [String],
    variables: &BTreeMap<String, String>,
) -> Option<Selection<'a>> {
    Selection::of(args, variables, (PROGRAM, "reference"))
}

/// Starts the program again, as the same process, with the variables of OpenTelemetry that follow from those of the reference server.
/// OpenTelemetry reads the environment, which a running process cannot change safely. Returns if none is missing.
pub(super) fn add_open_telemetry(
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let derived = match selection(args, variables) {
        Some(_) => Environment(variables).open_telemetry()?,
        None => return Ok(()),
    };
    start_again(derived)
}

/// Starts the program again, as the same process, with these variables. Returns if there are none.
pub(super) fn start_again(derived: BTreeMap<&'static str, String>) -> Result<(), Failure> {
    if derived.is_empty() {
        return Ok(());
    }
    let failed = |error| Failure(format!("cannot start again with the variables of OpenTelemetry: {error}"));
    let mut program = Command::new(std::env::current_exe().map_err(failed)?);
    let mut args = std::env::args_os();
    if let Some(name) = args.next() {
        program.arg0(name);
    }
    Err(failed(program.args(args).envs(derived).exec()))
}

/// The flags that the variables stand for, less those that the user gives by flags, `TIDEGATE_` variables or a file of settings.
pub(super) fn flags(given: &Given<'_>, is_in_file: impl Fn(&str) -> bool) -> Result<Flags, Failure> {
    let environment = Environment(given.variables);
    let names_port = environment.has_any(&["GRPC_HOST", "GRPC_PORT", "GRPC_UDS"]);
    let flags = environment.flags()?;
    environment.require_certificate(|flag| {
        given.has(flag) || is_in_file(flag) || flags.iter().any(|(name, _)| *name == flag)
    })?;
    Ok(given.without_given(flags, names_port, is_in_file))
}

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
        // The reference server bounds the message alone.
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
            let all = if address.starts_with(':') { any_address() } else { "" };
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

    /// Refuses TLS without a certificate: the reference server does not start then, and a plaintext port would go unnoticed.
    fn require_certificate(&self, is_given: impl Fn(&str) -> bool) -> Result<(), Failure> {
        if !self.is_on("GRPC_SERVER_USE_TLS")? {
            return Ok(());
        }
        for (flag, variable) in [("--tls-cert", "GRPC_SERVER_TLS_CERT"), ("--tls-key", "GRPC_SERVER_TLS_KEY")]
        {
            if !is_given(flag) {
                return Err(Failure(format!(
                    "GRPC_SERVER_USE_TLS is true and {variable} is not set; name the file with {variable} or {flag}, or set \
                     GRPC_SERVER_USE_TLS to false to serve without TLS"
                )));
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
                let files = files.display();
                // A key `config.NAME` of the runtime is the file `config/NAME` or, with a watched root, `config.NAME`.
                let is_root_watched =
                    self.text("RUNTIME_WATCH_ROOT").is_none() || self.is_on("RUNTIME_WATCH_ROOT")?;
                let paths = if is_root_watched { format!("{files}:{files}.*") } else { files.to_string() };
                flags.push(("--rules", Some(paths)));
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
        if needs_rules {
            flags.push(("--health-needs-rules", None));
        }
        Ok(())
    }

    fn control_plane(&self, flags: &mut Flags) -> Result<(), Failure> {
        let server = without_resolver(self.text("CONFIG_GRPC_XDS_SERVER_URL").unwrap_or("localhost:18000"));
        let node = self.text("CONFIG_GRPC_XDS_NODE_ID").unwrap_or("default");
        flags.push(("--rules", Some(format!("xds://{server}?node={node}"))));
        for (variable, flag) in [
            ("CONFIG_GRPC_XDS_NODE_METADATA", "--xds-node-metadata"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "--xds-max-message-bytes"),
        ] {
            // The reference server takes a size of zero as the default.
            let value = self.text(variable).filter(|value| *value != "0");
            flags.extend(value.map(|value| (flag, Some(value.to_owned()))));
        }
        if let Some(headers) = self.text("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS") {
            // The reference server separates name and value by a colon.
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

    fn is_on(&self, name: &str) -> Result<bool, Failure> {
        crate::cli::serve::response_options::boolean(name, self.text(name))
    }

    fn duration(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed: Result<Duration, _> = humantime::parse_duration(text);
        let time = parsed.map_err(|_| self.wrong(name, "a time such as 1h30m"))?;
        // In Go's servers, zero is no bound.
        let is_bound = name.starts_with("GRPC_MAX_") && time.is_zero();
        Ok(Some(if is_bound { UNBOUNDED.to_owned() } else { text.to_owned() }))
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
}
