//! Metrics pushed to a statsd server over UDP or TCP. `cadence` encodes them.
//!
//! A counter is sent as its growth since the last push, a gauge as its value. For each bucket of a histogram that has grown, one value is
//! sent: the bucket's upper bound, with a sample rate of one over the growth. The figures of the reference server have that server's names.

use super::{
    LAST_PUSH_TIMEOUT, Metrics,
    family::{Family, Kind},
    reference_statsd,
    sink::{Label, Number, Samples, Sink, Value, WriteSamples},
};
use cadence::{
    BufferedUdpMetricSink, Metric, MetricBuilder, MetricError, MetricResult, MetricSink, StatsdClient,
    prelude::*,
};
use std::{
    collections::HashMap,
    fmt,
    io::{self, BufWriter, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
};
use tidegate_counts::HistogramSums;
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Bytes of a packet that fits an Ethernet frame.
const PACKET_BYTES: usize = 1432;

/// Time to connect by TCP, and for each write.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// Prefix of the names that the setting replaces.
const OWN_PREFIX: &str = "tidegate_";

/// Dialect of statsd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StatsdFormat {
    /// Labels are parts of the name.
    Statsd,
    /// Labels are tags, as Datadog's agent reads them.
    #[value(name = "dogstatsd")]
    DogStatsd,
}

/// Settings of the push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatsdSettings {
    /// Host and port. The name is resolved at each push.
    pub address: String,
    /// The dialect.
    pub format: StatsdFormat,
    /// Time between pushes.
    pub interval: Duration,
    /// First part of every name, except those of the reference server.
    pub prefix: String,
    /// Tags of every metric. Plain statsd has no tags: they follow each name as `.__key=value`, as with the reference server.
    pub tags: Vec<(String, String)>,
    /// The transport.
    pub transport: StatsdTransport,
}

/// How the server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StatsdTransport {
    /// Packets, of which any may be lost.
    Udp,
    /// A connection for each push.
    Tcp,
}

impl StatsdSettings {
    /// Suffix of each name.
    fn suffix(&self) -> String {
        let mut tags: Vec<_> = self.tags.iter().filter(|_| self.format == StatsdFormat::Statsd).collect();
        tags.sort();
        tags.iter()
            .map(|(key, value)| format!(".__{}={}", cleaned(key, self.format), cleaned(value, self.format)))
            .collect()
    }
}

/// The thread that pushes.
pub struct Statsd {
    stop: mpsc::Sender<()>,
    thread: BackgroundThread,
}

impl Statsd {
    /// Starts to push.
    pub fn start(settings: StatsdSettings, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        tracing::info!(address = settings.address, interval = ?settings.interval, "pushing metrics to statsd");
        let (stop, stopped) = mpsc::channel();
        let mut pusher = Pusher { settings, metrics, sent: Sent::default(), is_failing: false };
        let run = move || {
            while stopped.recv_timeout(pusher.settings.interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                pusher.push();
            }
            pusher.push();
        };
        Ok(Self { stop, thread: BackgroundThread::start("statsd", Priority::Low, run)? })
    }

    /// Pushes once more, and ends. Waits only for a bounded time: the host's name may not resolve in time.
    pub fn stop(self) {
        drop(self.stop);
        self.thread.join_within(LAST_PUSH_TIMEOUT);
    }
}

/// Values of the last push.
#[derive(Default)]
struct Sent {
    counters: HashMap<String, u64>,
    histograms: HashMap<String, Vec<u64>>,
}

impl Sent {
    /// Sends the growth of a counter, if any. `id` identifies the counter from push to push.
    fn count(
        &mut self,
        client: &StatsdClient,
        name: &str,
        tags: &[(&str, String)],
        id: &str,
        value: u64,
    ) -> MetricResult<()> {
        let before = self.counters.insert(id.to_owned(), value).unwrap_or(0);
        // If a limit is counted anew, its count is lower.
        match value.checked_sub(before).unwrap_or(value) {
            0 => Ok(()),
            growth => send(client.count_with_tags(name, growth), tags),
        }
    }

    /// The upper bounds in seconds of the buckets that have grown, and their growths. `id` identifies the histogram from push to push.
    fn bucket_growths(&mut self, id: &str, histogram: &HistogramSums) -> Vec<(f64, u64)> {
        let before = self.histograms.entry(id.to_owned()).or_default();
        before.resize(histogram.buckets.len(), 0);
        let bounds = histogram.bounds.iter().chain(histogram.bounds.last());
        let buckets = bounds.zip(&histogram.buckets).zip(before);
        let growths =
            buckets.map(|((bound, count), before)| (*bound, *count - std::mem::replace(before, *count)));
        growths.filter(|(_, growth)| *growth > 0).collect()
    }
}

struct Pusher {
    settings: StatsdSettings,
    metrics: Arc<Metrics>,
    sent: Sent,
    is_failing: bool,
}

impl Pusher {
    fn push(&mut self) {
        match self.try_push() {
            Ok(()) if std::mem::take(&mut self.is_failing) => {
                tracing::info!("metrics are pushed to statsd again")
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => {
                let address = &self.settings.address;
                tracing::warn!(
                    %error,
                    address,
                    "metrics were not pushed to statsd; further failures are not logged until a push succeeds"
                );
            }
            Err(_) => {}
        }
    }

    fn try_push(&mut self) -> MetricResult<()> {
        let client = client(&self.settings)?;
        let (suffix, StatsdSettings { prefix, format, .. }) = (self.settings.suffix(), &self.settings);
        let suffix = &*suffix;
        let mut sink =
            StatsdSink { client, prefix, suffix, format: *format, sent: &mut self.sent, result: Ok(()) };
        // `result` has the error.
        let _ = self.metrics.write_own(&mut sink);
        let StatsdSink { client, sent, result, .. } = sink;
        result?;
        if let Some(figures) = self.metrics.reference() {
            for (name, value) in reference_statsd::counters(&figures) {
                let name = format!("{name}{suffix}");
                sent.count(&client, &name, &[], &name, value)?;
            }
            let name = format!("{}{suffix}", reference_statsd::RESPONSE_TIME);
            for (bound, growth) in sent.bucket_growths(&name, &figures.responses) {
                let bound = Duration::from_secs_f64(bound);
                send_sampled(client.time_with_tags(&name, bound), &[], growth)?;
            }
        }
        client.flush()
    }
}

fn client(settings: &StatsdSettings) -> MetricResult<StatsdClient> {
    let mut addresses = settings.address.to_socket_addrs()?;
    let unknown = || MetricError::from((cadence::ErrorKind::InvalidInput, "the host has no address"));
    let address = addresses.next().ok_or_else(unknown)?;
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Names are written with their own prefixes.
    let client = match settings.transport {
        StatsdTransport::Tcp => StatsdClient::builder("", TcpSink::connect(&address)?),
        StatsdTransport::Udp => {
            let socket = UdpSocket::bind(any)?;
            StatsdClient::builder("", BufferedUdpMetricSink::with_capacity(address, socket, PACKET_BYTES)?)
        }
    };
    let tags = settings.tags.iter().filter(|_| settings.format == StatsdFormat::DogStatsd);
    Ok(tags.fold(client, |client, (key, value)| client.with_tag(key, value)).build())
}

/// A connection on which each metric is a line.
struct TcpSink(Mutex<BufWriter<TcpStream>>);

impl TcpSink {
    fn connect(address: &SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(address, TCP_TIMEOUT)?;
        stream.set_write_timeout(Some(TCP_TIMEOUT))?;
        Ok(Self(Mutex::new(BufWriter::new(stream))))
    }

    fn writer(&self) -> MutexGuard<'_, BufWriter<TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricSink for TcpSink {
    fn emit(&self, metric: &str) -> io::Result<usize> {
        self.writer().write_all(format!("{metric}\n").as_bytes()).map(|()| metric.len() + 1)
    }

    fn flush(&self) -> io::Result<()> {
        self.writer().flush()
    }
}

struct StatsdSink<'p> {
    client: StatsdClient,
    prefix: &'p str,
    suffix: &'p str,
    format: StatsdFormat,
    sent: &'p mut Sent,
    result: MetricResult<()>,
}

impl Sink for StatsdSink<'_> {
    fn family(&mut self, family: Family, write: WriteSamples<'_>) -> fmt::Result {
        let name = family.name.strip_prefix(OWN_PREFIX).unwrap_or(family.name);
        let name = match self.prefix.trim_end_matches('.') {
            "" => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        };
        write(&mut StatsdSamples { sink: self, name, kind: family.kind })
    }
}

struct StatsdSamples<'s, 'p> {
    sink: &'s mut StatsdSink<'p>,
    name: String,
    kind: Kind,
}

impl Samples for StatsdSamples<'_, '_> {
    fn sample(&mut self, labels: &[Label<'_>], value: Value<'_>) -> fmt::Result {
        let StatsdSink { client, format, sent, result, suffix, .. } = &mut *self.sink;
        let texts: Vec<(&str, String)> =
            labels.iter().map(|(name, value)| (*name, cleaned(value, *format))).collect();
        let id = id(&self.name, labels);
        let dotted = texts.iter().fold(self.name.clone(), |mut dotted, (name, value)| {
            dotted.extend([".", name, ".", value]);
            dotted
        }) + *suffix;
        let (name, tags) = match format {
            StatsdFormat::Statsd => (&*dotted, &[][..]),
            StatsdFormat::DogStatsd => (&*self.name, &texts[..]),
        };
        *result = match (self.kind, value) {
            (Kind::Counter | Kind::PlainCounter, Value::Number(Number::Integer(value))) => {
                sent.count(client, name, tags, &id, value)
            }
            (_, Value::Number(Number::Integer(value))) => send(client.gauge_with_tags(name, value), tags),
            // Counts are whole numbers in statsd, so that seconds of CPU time are sent as a gauge.
            (_, Value::Number(Number::Float(value))) => {
                // Plain statsd subtracts a number with a minus from the gauge; DogStatsd sets the gauge to it.
                let is_subtracted = *format == StatsdFormat::Statsd && value.is_sign_negative();
                let zero = if is_subtracted { send(client.gauge_with_tags(name, 0), tags) } else { Ok(()) };
                zero.and_then(|()| send(client.gauge_with_tags(name, value), tags))
            }
            (_, Value::Histogram(histogram)) => {
                let mut growths = sent.bucket_growths(&id, histogram).into_iter();
                growths.try_for_each(|(bound, growth)| {
                    send_sampled(client.histogram_with_tags(name, bound), tags, growth)
                })
            }
        };
        if result.is_ok() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Identifies a sample from push to push, by its labels as they are: two of them may be the same once cleaned.
fn id(name: &str, labels: &[Label<'_>]) -> String {
    let length = |text: &str| text.len().to_string();
    labels.iter().fold(name.to_owned(), |mut id, (name, value)| {
        // With its length, no value can look like the end of one and the begin of the next label.
        id.extend(["\n", name, "\n", &length(value), "\n", value]);
        id
    })
}

fn send<'m, T: Metric + From<String>>(
    metric: MetricBuilder<'m, '_, T>,
    tags: &'m [(&'m str, String)],
) -> MetricResult<()> {
    tags.iter().fold(metric, |metric, (name, value)| metric.with_tag(name, value)).try_send().map(drop)
}

/// Sends a value that represents `times` values.
fn send_sampled<'m, T: Metric + From<String>>(
    metric: MetricBuilder<'m, '_, T>,
    tags: &'m [(&'m str, String)],
    times: u64,
) -> MetricResult<()> {
    match times {
        1 => send(metric, tags),
        _ => send(metric.with_sampling_rate(1.0 / times as f64), tags),
    }
}

/// A label's value without characters that are special in this format.
fn cleaned(value: &str, format: StatsdFormat) -> String {
    let is_allowed = |character: char| match format {
        StatsdFormat::Statsd => character.is_alphanumeric() || "_-".contains(character),
        StatsdFormat::DogStatsd => !",|#@".contains(character) && !character.is_control(),
    };
    value.chars().map(|character| if is_allowed(character) { character } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_follow_the_names_of_statsd_in_the_order_of_their_keys() {
        let settings = |format| StatsdSettings {
            address: String::new(),
            format,
            interval: Duration::ZERO,
            prefix: String::new(),
            tags: vec![("foo".into(), "b.r".into()), ("a".into(), "b".into())],
            transport: StatsdTransport::Tcp,
        };
        assert_eq!(settings(StatsdFormat::Statsd).suffix(), ".__a=b.__foo=b_r");
        assert_eq!(settings(StatsdFormat::DogStatsd).suffix(), "");
    }

    #[test]
    fn characters_of_the_protocol_are_replaced_in_values_of_labels() {
        assert_eq!(cleaned("api key → a.b|c", StatsdFormat::Statsd), "api_key___a_b_c");
        assert_eq!(cleaned("api key → a.b|c,d\ne", StatsdFormat::DogStatsd), "api key → a.b_c_d_e");
    }

    /// A clock 1 ms behind moved the gauge of plain statsd down by 1 ms with each push.
    #[test]
    fn a_negative_gauge_is_set_and_not_subtracted() {
        for (format, expected) in [
            (StatsdFormat::Statsd, &["offset:0|g", "offset:-0.5|g", "offset:0.25|g"][..]),
            (StatsdFormat::DogStatsd, &["offset:-0.5|g", "offset:0.25|g"]),
        ] {
            let (spy, sink) = cadence::SpyMetricSink::new();
            let client = StatsdClient::from_sink("", sink);
            let sent = &mut Sent::default();
            let mut sink = StatsdSink { client, prefix: "", suffix: "", format, sent, result: Ok(()) };
            let mut samples = StatsdSamples { sink: &mut sink, name: "offset".into(), kind: Kind::Gauge };
            for value in [-0.5, 0.25] {
                samples.sample(&[], value.into()).expect("sent");
            }
            let lines: Vec<_> = spy.try_iter().map(|line| String::from_utf8(line).expect("text")).collect();
            assert_eq!(lines, expected);
        }
    }

    /// Two values that clean to one name overwrote each other's last count, so that the counters grew at each push without traffic.
    #[test]
    fn counters_of_one_cleaned_name_do_not_grow_without_traffic() {
        let (spy, sink) = cadence::SpyMetricSink::new();
        let mut sent = Sent::default();
        let mut client = StatsdClient::from_sink("", sink);
        for push in 0..3 {
            let mut of_push = StatsdSink {
                client,
                prefix: "",
                suffix: "",
                format: StatsdFormat::Statsd,
                sent: &mut sent,
                result: Ok(()),
            };
            let mut samples = StatsdSamples { sink: &mut of_push, name: "hits".into(), kind: Kind::Counter };
            for (limit, value) in [("/a/b", 7_u64), ("/a.b", 2)] {
                samples.sample(&[("limit", limit)], value.into()).expect("sent");
            }
            client = of_push.client;
            let lines: Vec<_> = spy.try_iter().map(|line| String::from_utf8(line).expect("text")).collect();
            let expected: &[&str] =
                if push == 0 { &["hits.limit._a_b:7|c", "hits.limit._a_b:2|c"] } else { &[] };
            assert_eq!(lines, expected, "push {push}");
        }
    }
}
