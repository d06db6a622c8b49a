//! `tidegate bench`: runs the load generator, [`tidegate_bench`], and prints its report.

mod probe;

use crate::cli::{
    Failure,
    arguments::client_tls::ClientTlsFlags,
    commands::target::{connect_remedy, no_answer_remedy},
    output::table::print,
};
use crate::server::ListenAddress;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    fs::File,
    io::Write as _,
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tidegate_bench::{
    ClientTls, ConnectError, Descriptor, HoldPlan, HoldTimes, Keys, Length, LoadError, Plan, Report,
    ServerProcess, Tally, Target, Template, duration, grouped, latency_svg,
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Measures the throughput and latency of a running server.
///
/// Without --rate the loop is closed: --connections × --streams calls are in flight, each followed by the next. With --rate it
/// is open: requests are sent on schedule, and latency counts from the scheduled time, so that stalls of the
/// server are measured (no coordinated omission).
///
/// With --hold an admitted request lasts: its slot of requests in flight, or its estimate, is held and then ended by a call of its own, which
/// the report counts apart. In a closed loop the next request follows that end.
#[derive(Args)]
pub(in crate::cli) struct Bench {
    /// Address of the server: host:port or unix:/path/of/socket.
    #[arg(value_name = "ADDR", env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081")]
    address: ListenAddress,
    /// The same as the argument ADDR.
    #[arg(long, value_name = "ADDR")]
    addr: Option<ListenAddress>,
    /// Number of connections.
    #[arg(long, short = 'c', value_name = "N", default_value = "4")]
    connections: NonZeroUsize,
    /// Maximum number of concurrent calls per connection; by default 16, or 256 with --rate.
    #[arg(long, short = 's', value_name = "N")]
    streams: Option<NonZeroUsize>,
    /// Requests per second, sent on schedule (open loop).
    #[arg(long, short = 'r', value_name = "R", value_parser = positive_number)]
    rate: Option<f64>,
    /// Duration of the measurement.
    #[arg(long, short = 'd', value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    #[arg(conflicts_with = "requests")]
    duration: Duration,
    /// Number of requests to measure, instead of a duration.
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<NonZeroU64>,
    /// Load before the measurement starts; by default 1s, or 0s with --requests.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    warm_up: Option<Duration>,
    /// Domain of the requests; the default is that of the demo rules.
    #[arg(long, default_value = "demo")]
    domain: String,
    /// A descriptor of the requests, such as 'plan=free,user={key}'; repeatable. The default is that of the demo rules.
    ///
    /// {key} is the key's number, {key%N} its remainder by N, {ip} the address 10.x.y.z made of it.
    #[arg(long = "descriptor", value_name = "KEY=VALUE,…", default_value = "api_key={key}")]
    descriptors: Vec<Descriptor>,
    /// Number of distinct keys.
    #[arg(long, short = 'k', value_name = "N", default_value = "100000")]
    keys: NonZeroU64,
    /// Draw keys from a Zipf distribution with exponent S instead of uniformly.
    #[arg(long, value_name = "S", value_parser = positive_number)]
    zipf: Option<f64>,
    /// Use the keys in order instead of drawing them: N requests over N keys create each counter once.
    #[arg(long, conflicts_with = "zipf")]
    in_order: bool,
    /// Seed of the drawn keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// hits_addend of the requests; absent by default, which means 1.
    #[arg(long, value_name = "N")]
    hits: Option<u32>,
    /// Time for which an admitted request holds its slot or estimate before its end, or a range such as 10ms..2s.
    ///
    /// With --duration, requests that are still held end with the run. With --requests, each ends after its time.
    #[arg(long, value_name = "TIME")]
    hold: Option<HoldTimes>,
    /// Actual cost of a request at its end, instead of its estimate, which stays by default.
    #[arg(long, value_name = "N", requires = "hold")]
    cost: Option<u64>,
    /// grpc-timeout of each call; 0s sends none.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Send a traceparent header, which differs in each call and is not sampled.
    #[arg(long)]
    traceparent: bool,
    /// Poll without sleeping; always on with --rate.
    #[arg(long)]
    busy: bool,
    /// Process id of a server on this machine, to report its CPU time per request.
    #[arg(long)]
    pid: Option<u32>,
    /// Write latency by percentile as SVG to this file; - is standard output, and the report is then on standard error.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "TLS")]
    tls: ClientTlsFlags,
}

impl Bench {
    /// Runs the load and prints the report. Fails if no request was decided.
    pub(super) fn run(mut self) -> Result<ExitCode, Failure> {
        if let Some(address) = self.addr.take() {
            self.address = address;
        }
        let plot = self.plot.as_deref().map(Plot::open).transpose()?;
        let interrupted = stop_on_interrupt()?;
        let bar = progress_bar();
        let mut plan = self.plan();
        let tls = self.tls.client();
        plan.target.tls = tls.map(|client| ClientTls::new(&client, &self.address)).transpose()?;
        let run = tidegate_bench::run(&mut plan, &interrupted, |tally, nanos, share| {
            bar.set_position((share * 1_000.0) as u64);
            bar.set_message(progress_line(tally, nanos));
        });
        let measured = run.map_err(|error| self.failure(&error))?;
        bar.finish_and_clear();

        let limited = self.is_limited(&measured.tally, &mut plan.template);
        let report = Report::new(self.address.to_string(), self.describe_load(), &measured, limited);
        let report = if self.json {
            format!("{}\n", serde_json::to_string_pretty(&report)?)
        } else {
            report.to_string()
        };
        match plot {
            Some(Plot::StandardOutput) => eprint!("{report}"),
            _ => print(&report),
        }
        if limited == Some(false) {
            eprintln!(
                "warning: no limit applied to these requests, so the run measured no counters; choose requests that \
                 rules match with --domain (now `{}`) and --descriptor",
                self.domain
            );
        }
        if measured.held.is_some_and(|held| held.most == 0) && measured.tally.ok > 0 {
            eprintln!(
                "warning: no request was held, since no response had a ticket; those of admitted requests have one, if a limit is of \
                 requests in flight or reserves"
            );
        }
        if let Some(plot) = plot {
            let title = format!("{}: {}", self.address, self.describe_load());
            plot.write(&measured.tally, &title)?;
        }
        match &measured.ended_by {
            Some(error) => {
                let Failure(reason) = self.failure(error);
                Err(Failure(format!(
                    "the run ended early, and the report covers the time until then: {reason}"
                )))
            }
            None if measured.tally.decided() > 0 => Ok(ExitCode::SUCCESS),
            None => Ok(ExitCode::FAILURE),
        }
    }

    /// The failure of a run, with its remedy.
    fn failure(&self, error: &LoadError) -> Failure {
        let remedy = match error {
            LoadError::Connect(ConnectError { address, cause }) => connect_remedy(address, cause),
            LoadError::Connection(_) | LoadError::Closed(_) => {
                no_answer_remedy(self.tls.client().is_some()).to_owned()
            }
            _ => String::new(),
        };
        Failure(format!("{error}{remedy}"))
    }

    fn plan(&self) -> Plan {
        let length = match self.requests {
            Some(count) => Length::Requests(count.get()),
            None => Length::Nanos(u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)),
        };
        let warm_up = Duration::from_secs(if self.requests.is_some() { 0 } else { 1 });
        Plan {
            target: Target { address: self.address.clone(), tls: None },
            connections: self.connections.get(),
            streams: self.streams(),
            rate: self.rate,
            warm_up: self.warm_up.unwrap_or(warm_up),
            length,
            traceparent: self.traceparent,
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            template: Template::new(&self.domain, &self.descriptors, self.hits),
            hold: self.hold.map(|times| HoldPlan { times, domain: self.domain.clone(), cost: self.cost }),
            keys: match self.in_order {
                true => Keys::in_order(self.keys.get()),
                false => Keys::new(self.keys.get(), self.zipf),
            },
            seed: self.seed,
            // Sleeping is exact to a millisecond; a schedule needs microseconds.
            busy: self.busy || self.rate.is_some(),
            server: self.pid.map(ServerProcess::new),
        }
    }

    fn streams(&self) -> usize {
        let default = if self.rate.is_some() { 256 } else { 16 };
        self.streams.map_or(default, NonZeroUsize::get)
    }

    fn describe_load(&self) -> String {
        let pace = match self.rate {
            Some(rate) => format!("open loop at {rate}/s over {} connections", self.connections),
            None => format!("closed loop, {} connections × {} streams", self.connections, self.streams()),
        };
        let spread = match self.zipf {
            Some(exponent) => format!("Zipf {exponent}"),
            None if self.in_order => "in order".to_owned(),
            None => "uniform".to_owned(),
        };
        let hold = self.hold.map(|times| format!(", held for {times}")).unwrap_or_default();
        format!("{pace}, {} keys ({spread}){hold}", grouped(self.keys.get()))
    }

    /// Whether limits applied: yes if a request was denied; otherwise the server is probed.
    fn is_limited(&self, tally: &Tally, template: &mut Template) -> Option<bool> {
        match (tally.over_limit, tally.ok) {
            (1.., _) => Some(true),
            (0, 1..) => probe::is_limited(&self.address, &self.tls, template),
            (0, 0) => None,
        }
    }
}

/// Destination of the plot, opened before the run: a path that cannot be written must not cost the run.
enum Plot<'p> {
    StandardOutput,
    File(&'p Path, File),
}

impl<'p> Plot<'p> {
    fn open(path: &'p Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::StandardOutput);
        }
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|cause| Failure(format!("--plot {}: {cause}", path.display())))?;
        Ok(Self::File(path, file))
    }

    fn write(self, tally: &Tally, title: &str) -> Result<(), Failure> {
        if tally.decided() == 0 {
            return Err(Failure("no request was decided, so there is no latency to plot".to_owned()));
        }
        let svg = latency_svg(tally, title);
        match self {
            Self::StandardOutput => print(&svg),
            Self::File(path, mut file) => {
                let written = file.set_len(0).and_then(|()| file.write_all(svg.as_bytes()));
                written.map_err(|cause| Failure(format!("cannot write {}: {cause}", path.display())))?;
            }
        }
        Ok(())
    }
}

/// A flag that SIGINT sets, so that an interrupted run still reports.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>, StartError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    BackgroundThread::start_async("signals", Priority::Full, async move || {
        // If the signal cannot be handled, it ends the process as by default.
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(interrupted)
}

/// Progress on standard error, if that is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("[{elapsed}] {wide_bar} {msg}").expect("the template is good");
    ProgressBar::new(1_000).with_style(style)
}

fn progress_line(tally: &Tally, nanos: u64) -> String {
    if nanos == 0 {
        return "warming up".to_owned();
    }
    let rate = tally.decided() as f64 * 1e9 / nanos as f64;
    format!(
        "{}/s  p50 {}  p99 {}  over {:.0} %  errors {}",
        grouped(rate as u64),
        duration(tally.percentile_us(50.0)),
        duration(tally.percentile_us(99.0)),
        tally.over_limit as f64 * 100.0 / tally.decided().max(1) as f64,
        grouped(tally.failed())
    )
}

fn positive_number(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bench: Bench,
    }

    fn bench(arguments: &[&str]) -> Result<Bench, clap::Error> {
        Command::try_parse_from([&["bench"], arguments].concat()).map(|command| command.bench)
    }

    #[test]
    fn the_defaults_are_an_envoy_like_closed_loop() {
        let bench = bench(&[]).expect("no argument is needed");
        assert_eq!(bench.describe_load(), "closed loop, 4 connections × 16 streams, 100,000 keys (uniform)");
        let plan = bench.plan();
        assert_eq!(plan.warm_up, Duration::from_secs(1));
        assert!(matches!(plan.length, Length::Nanos(10_000_000_000)) && !plan.busy);
    }

    #[test]
    fn a_rate_makes_the_loop_open_and_busy() {
        let bench =
            bench(&["unix:/run/t", "--rate", "2e4", "--zipf", "1.1", "-n", "10"]).expect("good arguments");
        assert_eq!(bench.describe_load(), "open loop at 20000/s over 4 connections, 100,000 keys (Zipf 1.1)");
        let plan = bench.plan();
        assert!(plan.busy && plan.streams == 256 && plan.warm_up.is_zero());
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for arguments in [
            &["--connections", "0"][..],
            &["--rate", "0"],
            &["--rate", "NaN"],
            &["--zipf", "-1"],
            &["--duration", "1s", "--requests", "5"],
            &["--hold", "2s..1s"],
            &["--cost", "5"],
            &["--descriptor", "a={b}"],
            &["nowhere"],
        ] {
            assert!(bench(arguments).is_err(), "{arguments:?}");
        }
    }
}
