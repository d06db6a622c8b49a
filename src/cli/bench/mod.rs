//! `tidegate bench`: how fast a server decides, closed loop or open loop.
//!
//! One thread, no runtime, requests framed by hand: light enough to saturate any server on another core. An answer
//! is counted as what it is: nothing but a gRPC status of OK with a verdict counts as decided.

mod call_headers;
mod connect;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzz_bridge;
mod keys;
mod load;
mod outcome;
mod pace;
mod plot;
mod probe;
mod report;
mod server_cpu;
mod tally;
mod template;

use self::{
    keys::Keys,
    load::Plan,
    pace::Length,
    report::{Report, duration, grouped},
    server_cpu::ServerProcess,
    tally::Tally,
    template::{Descriptor, Template},
};
use super::{Failure, table::print};
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

/// Measures how fast a server decides.
///
/// Without --rate the loop is closed: each of --connections × --streams calls is followed by the next. With
/// --rate it is open: requests are sent on schedule whatever the server does, and latency counts from the scheduled
/// time, so that a server that stalls cannot hide it.
#[derive(Args)]
pub(super) struct Bench {
    /// The server: host:port or unix:/path/of/socket.
    #[arg(value_name = "ADDR", env = "TIDEGATE_ADDR", default_value = "127.0.0.1:8081")]
    address: ListenAddress,
    /// Connections to the server.
    #[arg(long, short = 'c', value_name = "N", default_value = "4")]
    connections: NonZeroUsize,
    /// The most calls under way on a connection; 16 unless said otherwise, or 256 with --rate.
    #[arg(long, short = 's', value_name = "N")]
    streams: Option<NonZeroUsize>,
    /// Requests a second, sent on schedule (an open loop).
    #[arg(long, short = 'r', value_name = "R", value_parser = positive_number)]
    rate: Option<f64>,
    /// How long to measure.
    #[arg(long, short = 'd', value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    #[arg(conflicts_with = "requests")]
    duration: Duration,
    /// How many requests to measure, instead of for how long.
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<NonZeroU64>,
    /// How long to send before measuring; 1s unless said otherwise, or 0s with --requests.
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
    /// How many different keys there are.
    #[arg(long, short = 'k', value_name = "N", default_value = "100000")]
    keys: NonZeroU64,
    /// Draw some keys more often than others: the n-th in proportion to 1/n^S.
    #[arg(long, value_name = "S", value_parser = positive_number)]
    zipf: Option<f64>,
    /// Take each key in turn instead of drawing them: N requests over N keys then make every counter once.
    #[arg(long, conflicts_with = "zipf")]
    in_order: bool,
    /// Draw the same keys as any other run with this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The hits_addend of the requests; none unless said otherwise, which means 1.
    #[arg(long, value_name = "N")]
    hits: Option<u32>,
    /// What each call says it waits for (grpc-timeout); 0s says nothing.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Never sleep while waiting for answers; an open loop never does.
    #[arg(long)]
    busy: bool,
    /// The server's process on this machine, to tell its processor time per request.
    #[arg(long)]
    pid: Option<u32>,
    /// Write latency by percentile as SVG to this file; - is standard output, and the report then goes to standard error.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Bench {
    /// Runs the load and prints what was found. Fails when no request was decided.
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let plot = self.plot.as_deref().map(Plot::open).transpose()?;
        let interrupted = stop_on_interrupt()?;
        let bar = progress_bar();
        let mut plan = self.plan();
        let measured = load::run(&mut plan, &interrupted, |tally, nanos, share| {
            bar.set_position((share * 1_000.0) as u64);
            bar.set_message(progress_line(tally, nanos));
        })?;
        bar.finish_and_clear();

        let limited = self.is_limited(&measured.tally, &mut plan.template);
        let report = Report::new(self.address.to_string(), self.load_in_words(), &measured, limited);
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
        if let Some(plot) = plot {
            let title = format!("{}: {}", self.address, self.load_in_words());
            plot.write(&measured.tally, &title)?;
        }
        Ok(if measured.tally.decided() > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn plan(&self) -> Plan {
        let length = match self.requests {
            Some(count) => Length::Requests(count.get()),
            None => Length::Nanos(u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)),
        };
        let warm_up = Duration::from_secs(if self.requests.is_some() { 0 } else { 1 });
        Plan {
            address: self.address.clone(),
            connections: self.connections.get(),
            streams: self.streams(),
            rate: self.rate,
            warm_up: self.warm_up.unwrap_or(warm_up),
            length,
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            template: Template::new(&self.domain, &self.descriptors, self.hits),
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
        let unsaid = if self.rate.is_some() { 256 } else { 16 };
        self.streams.map_or(unsaid, NonZeroUsize::get)
    }

    fn load_in_words(&self) -> String {
        let pace = match self.rate {
            Some(rate) => format!("open loop at {rate}/s over {} connections", self.connections),
            None => format!("closed loop, {} connections × {} streams", self.connections, self.streams()),
        };
        let spread = match self.zipf {
            Some(exponent) => format!("Zipf {exponent}"),
            None if self.in_order => "in order".to_owned(),
            None => "uniform".to_owned(),
        };
        format!("{pace}, {} keys ({spread})", grouped(self.keys.get()))
    }

    /// Whether limits applied: they did if any request was denied; else the server is probed.
    fn is_limited(&self, tally: &Tally, template: &mut Template) -> Option<bool> {
        match (tally.over_limit, tally.ok) {
            (1.., _) => Some(true),
            (0, 1..) => probe::is_limited(&self.address, template),
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
        let svg = plot::latency_svg(tally, title);
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

/// A flag that turns true at the first Ctrl-C, so that what was measured until then is shown.
fn stop_on_interrupt() -> std::io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::spawn(move || {
        // Without the signal there is nothing to do: Ctrl-C then ends the process as ever.
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    Ok(interrupted)
}

/// A line on standard error that shows itself on terminals only.
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
        assert_eq!(bench.load_in_words(), "closed loop, 4 connections × 16 streams, 100,000 keys (uniform)");
        let plan = bench.plan();
        assert_eq!(plan.warm_up, Duration::from_secs(1));
        assert!(matches!(plan.length, Length::Nanos(10_000_000_000)) && !plan.busy);
    }

    #[test]
    fn a_rate_makes_the_loop_open_and_busy() {
        let bench =
            bench(&["unix:/run/t", "--rate", "2e4", "--zipf", "1.1", "-n", "10"]).expect("good arguments");
        assert_eq!(bench.load_in_words(), "open loop at 20000/s over 4 connections, 100,000 keys (Zipf 1.1)");
        let plan = bench.plan();
        assert!(plan.busy && plan.streams == 256 && plan.warm_up.is_zero());
    }

    #[test]
    fn senseless_arguments_are_refused() {
        for arguments in [
            &["--connections", "0"][..],
            &["--rate", "0"],
            &["--rate", "NaN"],
            &["--zipf", "-1"],
            &["--duration", "1s", "--requests", "5"],
            &["--descriptor", "a={b}"],
            &["nowhere"],
        ] {
            assert!(bench(arguments).is_err(), "{arguments:?}");
        }
    }
}
