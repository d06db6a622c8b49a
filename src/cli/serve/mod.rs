//! `tidegate serve`: the server.

mod check;
mod compat_flags;
mod connection_flags;
mod control_flags;
mod data_dir;
mod decision_log_flags;
mod demo;
mod first_rules;
mod http_flags;
mod limitador_env;
mod metrics_flags;
mod reference_env;
mod response_options;
mod rule_flags;
pub(super) mod settings;
mod shared_flags;
mod signals;
mod tls_flags;

use crate::{
    api::{BUILD, TestClock},
    cli::{
        Failure,
        arguments::{Choice, at_least_one, choice, rule_files::ReadAs},
    },
    server::{self, ListenAddress, Settings},
};
use clap::{Args, ValueEnum};
use compat_flags::CompatFlags;
use connection_flags::ConnectionFlags;
use control_flags::ControlFlags;
use data_dir::DataDir;
use decision_log_flags::DecisionLogFlags;
use demo::DemoFlags;
use http_flags::HttpFlags;
use metrics_flags::MetricsFlags;
use response_options::ResponseOptions;
use rule_flags::RuleFlags;
use settings::EffectiveSettings;
use shared_flags::SharedFlags;
use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use tidegate_core::{
    clock::{Clock, ManualClock, SystemClock},
    limit::{RequestForm, RequestLimits},
    limiter::{self, Compat, Limiter},
    rules::{LoadOptions, RuleSet},
    store::{self, OnFull, Seed, StoreSettings},
};
use tidegate_operations::telemetry::{self, LogFormat, OtlpSettings};
use tls_flags::TlsFlags;

/// Serves rate limit decisions over gRPC.
///
/// Without --rules it serves demo rules: domain `demo`, 5 hits per 10 s for each value of `api_key`. With --demo it opens the console
/// for them too.
/// Rule files are read again when they change, and at SIGHUP; if a file has an error, the rules in force stay.
/// SIGTERM and SIGINT drain: health becomes NOT_SERVING, calls in flight complete, the exit code is 0. A second signal ends the
/// process at once.
/// Traces and metrics are exported where OTEL_EXPORTER_OTLP_ENDPOINT is set (docs/operations.md).
#[derive(Args)]
#[command(mut_args(settings::with_variable))]
pub(in crate::cli) struct Serve {
    /// File of settings, as YAML: a map whose names are those of these flags without dashes in front, such as `max-counters: 1000000`.
    /// Flags and variables take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings and the files that they name (rules, tokens, certificates), and exit: with 0 if the server would start.
    #[arg(long)]
    check: bool,
    /// Set flags by the environment variables of another server: the reference server, envoyproxy/ratelimit
    /// (docs/reference-environment.md), or Limitador (docs/migrate.md). Selected also by the program name `ratelimit` or
    /// `limitador-server`; the latter takes Limitador's arguments too.
    #[arg(long, value_name = "SERVER")]
    env: Option<EnvChoice>,
    /// Address of the gRPC port: host:port, unix:/path/of/socket, or systemd:NAME for sockets that systemd passes; repeatable.
    #[arg(long, value_name = "ADDR", value_delimiter = ',', default_value = "127.0.0.1:8081")]
    listen: Vec<ListenAddress>,
    /// For tests: time stands still until a client of tidegate.test.v1.Clock moves it.
    #[arg(long, hide = true)]
    test_clock: bool,
    /// Worker threads; by default one per core.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Format of log lines.
    #[arg(long, help_heading = "Logs", default_value = "text")]
    log_format: LogFormat,
    /// Log level: off, error, warn, info, debug or trace, or a list of target=level. SIGUSR1 changes between it and debug.
    #[arg(long, help_heading = "Logs", default_value = "info", value_name = "LEVEL")]
    log: String,
    /// Admit every request; statuses still report which would have been denied.
    #[arg(long, help_heading = "Rules")]
    global_shadow: bool,
    /// Maximum number of live counters, at up to 64 bytes each; by default as many as fit in half of the memory.
    #[arg(long, help_heading = "Counters", value_name = "N")]
    max_counters: Option<NonZeroUsize>,
    /// Verdict for a request that needs a new counter when the maximum is reached.
    #[arg(long, help_heading = "Counters", default_value = "deny", value_parser = choice(ON_FULL))]
    on_full: OnFull,
    /// Maximum number of requests queued at once by rules with a max_wait; further ones are denied.
    #[arg(long, help_heading = "Queues", value_name = "N", default_value_t = limiter::QUEUED_MAX_DEFAULT)]
    max_queued: usize,
    /// A queued request is released at least this long before its caller's deadline; a request that would be released later is denied.
    #[arg(long, help_heading = "Queues", default_value = "2ms", value_parser = humantime::parse_duration)]
    queue_margin: Duration,
    /// Time between health becoming NOT_SERVING and GOAWAY on all connections.
    #[arg(long, help_heading = "Connections", default_value = "0s", value_parser = humantime::parse_duration)]
    drain_delay: Duration,
    /// Time that connections have to complete their calls after GOAWAY.
    #[arg(long, help_heading = "Connections", default_value = "10s", value_parser = humantime::parse_duration)]
    drain_timeout: Duration,
    #[command(flatten, next_help_heading = "Demo")]
    demo: DemoFlags,
    #[command(flatten, next_help_heading = "Rules")]
    rules: RuleFlags,
    #[command(flatten, next_help_heading = "Rules")]
    read_as: ReadAs,
    #[command(flatten, next_help_heading = "Rules")]
    compat: CompatFlags,
    #[command(flatten, next_help_heading = "Counters")]
    data: DataDir,
    #[command(flatten, next_help_heading = "Shared counters")]
    shared: SharedFlags,
    #[command(flatten, next_help_heading = "Bounds on requests")]
    bounds: Bounds,
    #[command(flatten, next_help_heading = "Responses")]
    response_options: ResponseOptions,
    #[command(flatten, next_help_heading = "Connections")]
    connections: ConnectionFlags,
    #[command(flatten, next_help_heading = "TLS")]
    tls: TlsFlags,
    #[command(flatten, next_help_heading = "HTTP")]
    http: HttpFlags,
    #[command(flatten, next_help_heading = "Control API")]
    control: ControlFlags,
    #[command(flatten, next_help_heading = "Metrics")]
    metrics: MetricsFlags,
    #[command(flatten, next_help_heading = "Decision log")]
    decision_log: DecisionLogFlags,
}

/// Bounds of a request; a larger one is refused with INVALID_ARGUMENT, except that a longer text is cut.
#[derive(Args)]
struct Bounds {
    /// Maximum number of descriptors in a request.
    #[arg(long, value_name = "N", default_value_t = at_least_one(RequestLimits::default().descriptors_max))]
    max_descriptors: NonZeroUsize,
    /// Maximum number of entries in a descriptor.
    #[arg(long, value_name = "N", default_value_t = at_least_one(RequestLimits::default().entries_max))]
    max_entries: NonZeroUsize,
    /// Maximum bytes of a domain, and of the text of a key or a value: a longer one counts by a hash of the whole.
    #[arg(long, value_name = "BYTES", default_value_t = at_least_one(RequestLimits::default().text_bytes_max))]
    max_text_bytes: NonZeroUsize,
    /// Maximum bytes of a request message.
    #[arg(long, value_name = "BYTES", default_value_t = at_least_one(1024 * 1024))]
    max_message_bytes: NonZeroUsize,
}

/// Servers whose environment variables are read.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvChoice {
    /// envoyproxy/ratelimit.
    Reference,
    /// Kuadrant's limitador-server.
    Limitador,
}

/// Verdict when there is no room for a new counter.
const ON_FULL: [Choice<OnFull>; 2] = [
    ("deny", "Deny: no limit is exceeded", OnFull::Deny),
    ("allow", "Admit without counting", OnFull::Allow),
];

impl Serve {
    /// Serves until a signal. With `--log-format json` a fatal error is a log line, so that standard error holds JSON alone.
    pub(in crate::cli) fn run(mut self, effective: EffectiveSettings) -> Result<ExitCode, Failure> {
        let log_format = self.log_format;
        let served = match telemetry::start_logging(log_format, &self.log) {
            Ok(()) => {
                self.log_settings(&effective);
                if self.check { self.check() } else { self.serve(&effective) }
            }
            Err(error) => {
                telemetry::start_logging(log_format, "error")?;
                Err(Failure(format!("--log: {error}")))
            }
        };
        match (served, log_format) {
            (Err(failure), LogFormat::Json) => {
                tracing::error!("{failure}");
                Ok(ExitCode::FAILURE)
            }
            (served, _) => served,
        }
    }

    /// Logs what runs, by which settings, and variables without effect.
    fn log_settings(&self, effective: &EffectiveSettings) {
        tracing::info!(version = BUILD.version, commit = BUILD.commit, "tidegate");
        effective.log();
        let variables = reference_env::variables();
        let of_reference = match self.env {
            Some(EnvChoice::Reference) => reference_env::warnings(&variables),
            Some(EnvChoice::Limitador) => limitador_env::warnings(&settings::texts(), &variables),
            None => reference_env::overlooked(&variables).into_iter().collect(),
        };
        let warnings = effective.warnings.iter().chain(&of_reference);
        warnings.for_each(|warning| tracing::warn!("{warning}"));
    }

    fn serve(mut self, effective: &EffectiveSettings) -> Result<ExitCode, Failure> {
        let demo = self.demo.start(&mut self.http, &mut self.control, &mut self.rules, &self.listen)?;
        let (mut settings, rules) = self.settings().map_err(Failure::all)?;
        settings.http.effective = effective.to_json();
        settings.greeting = demo.as_ref().map(|demo| demo.link.clone());
        let clock = self.clock(&mut settings)?;
        settings.decision_log = self.decision_log.start(&clock)?;
        let compat = self.compat()?;
        settings.shared_store = self.shared.connect(self.read_as.is_reference())?;
        let shared = settings.shared_store.clone();
        if shared.is_some() && settings.leases.is_some() {
            tracing::warn!(
                "--leases: of counters in the shared store no credits are granted, so that holders and Envoy modules send every request to this \
                 server; let Envoy call it by the filter ratelimit, or run one server without --counters (docs/envoy-module.md)"
            );
        }
        let counters_max = self.counters_max(&rules);
        let (on_full, global_shadow, max_queued, margin) =
            (self.on_full, self.global_shadow, self.max_queued, self.queue_margin);
        let build = move |seed: Seed| {
            let store = StoreSettings { seed, counters_max, on_full };
            let limiter = Limiter::new(rules.clone(), store, global_shadow)
                .with_compat(compat)
                .with_queued_max(max_queued)
                .with_queue_margin(margin);
            let Some(store) = &shared else { return limiter };
            let limiter = limiter.with_shared_seed(store.seed());
            let limiter = limiter.with_shared_resets(store.resets());
            if store.is_cluster { limiter.with_groups() } else { limiter }
        };
        let reload = settings.rules.reload.clone();
        let decision_log = settings.decision_log.clone();
        let stop = || signals::stop(reload, decision_log);
        server::serve(&settings, &clock, self.data.start(build, &clock)?, stop)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The machine's clock, or the clock that tests set.
    fn clock(&self, settings: &mut Settings) -> Result<Arc<dyn Clock>, Failure> {
        if !self.test_clock {
            return Ok(Arc::new(SystemClock::new()));
        }
        if let Some(address) = self.listen.iter().find(|address| !address.is_local()) {
            return Err(Failure(format!(
                "--test-clock lets clients set the time, and {address} is open to other machines; \
                 listen on 127.0.0.1 or on a Unix socket"
            )));
        }
        let clock = Arc::new(ManualClock::default());
        settings.test_clock = Some(TestClock(Arc::clone(&clock)));
        tracing::warn!("--test-clock: time stands still until a client sets it");
        Ok(clock)
    }

    /// The bound on counters. By default it is what fits in the memory if each counter has the widest limit of the rules and one request.
    fn counters_max(&self, rules: &RuleSet) -> usize {
        let heap_bytes = rules.heap_bytes().first;
        let (counters_max, because) = match (self.max_counters, server::available_memory()) {
            (Some(counters), _) => (counters.get(), "--max-counters"),
            (None, Some((bytes, because))) => (store::default_counters_max(bytes, heap_bytes), because),
            (None, None) => (store::default_counters_max(0, heap_bytes), "unknown memory"),
        };
        let bytes_max = counters_max as u64 * (store::COUNTER_BYTES + heap_bytes);
        tracing::info!(counters_max, because, mb_max = bytes_max / 1_000_000, "room for counters");
        counters_max
    }

    fn request_limits(&self, has_dynamic_metadata: bool) -> RequestLimits {
        let is_reference = self.read_as.is_reference();
        let is_lenient = is_reference || self.http.limitador().is_some();
        RequestLimits {
            descriptors_max: self.bounds.max_descriptors.get(),
            entries_max: self.bounds.max_entries.get(),
            text_bytes_max: self.bounds.max_text_bytes.get(),
            form: if is_lenient { RequestForm::Reference } else { RequestForm::Strict },
            keep_sent_hits: is_reference && has_dynamic_metadata,
        }
    }

    /// Options that change decisions.
    fn compat(&self) -> Result<Compat, Failure> {
        let compat = self.compat.options(self.read_as.is_reference())?;
        if compat.stop_counting && self.shared.leases_on_demand() {
            let message = "--stop-counting-over-limit (STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT) is not possible with leases; remove \
                           --lease auto, or it";
            return Err(Failure(message.into()));
        }
        Ok(compat)
    }

    /// The settings and the first rules, or every error in them.
    fn settings(&self) -> Result<(Settings, RuleSet), Vec<Failure>> {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let is_reference = self.read_as.is_reference();
        let leases = self.shared.leases(is_reference);
        let options = LoadOptions {
            series_max: self.metrics.metrics_series_max,
            shared_counters: self.shared.is_shared(),
            leases: leases.as_ref().is_ok_and(|leases| *leases),
            ..self.read_as.options()
        };
        let has_tokens = self.http.http_token_file.is_some();
        let parts = (
            self.rules.load(options, self.data.directory()),
            self.response_options.options(is_reference, self.compat.quota_mode),
            self.metrics.meters(is_reference, self.http.limitador()),
            OtlpSettings::from_env().map_err(Failure::from),
            self.control.require_callers(has_tokens, &self.listen, &self.http.http_listen),
            leases,
        );
        let (loaded, response_options, meters, otlp_metrics) = match parts {
            (Ok(loaded), Ok(response_options), Ok(meters), Ok(otlp), Ok(()), Ok(_)) => {
                (loaded, response_options, meters, otlp)
            }
            (loaded, response_options, meters, otlp, callers, leases) => {
                let errors = [
                    loaded.err(),
                    response_options.err(),
                    meters.err(),
                    otlp.err(),
                    callers.err(),
                    leases.err(),
                ];
                return Err(errors.into_iter().flatten().collect());
            }
        };
        let (rule_settings, rules) = loaded;
        let tls = self.tls.settings();
        let settings = Settings {
            listen: self.listen.clone(),
            test_clock: None,
            decision_log: None,
            control: self.control.settings(self.data.directory()),
            leases: self.control.leases,
            shared_store: None,
            http_listen: self.http.http_listen.clone(),
            http: self.http.settings(tls.http.is_some()),
            tls,
            rules: rule_settings,
            threads: self.threads.unwrap_or(cores),
            request_limits: self.request_limits(response_options.dynamic_metadata),
            response_options,
            meters,
            statsd: self.metrics.statsd(),
            otlp_metrics,
            message_bytes_max: self.bounds.max_message_bytes.get(),
            connections: self.connections.bounds(),
            long_lived_calls: self.connections.long_lived_calls(),
            http2: self.connections.http2(),
            body_memory: self.connections.body_memory(),
            quota_memory: self.connections.quota_memory(),
            quota_record: self.data.directory().map(server::QuotaRecordSettings::of),
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            snapshot_interval: self.data.snapshot_interval,
            greeting: None,
        };
        Ok((settings, rules))
    }
}
