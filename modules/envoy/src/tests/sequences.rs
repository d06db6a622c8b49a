//! Random sequences of hooks, of several streams at a time, in orders that Envoy may never use.
//!
//! `TIDEGATE_HOOK_SEQUENCES` is the number of streams, 8,000 unless set.

use crate::{
    fake::Fake,
    filter::{Config, RateLimit, Stream},
    rng::Rng,
    settings::RouteSettings,
};
use serde_json::{Value as Json, json};
use std::{
    collections::HashMap,
    env,
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
};
use tidegate_envoy_abi::{Flow, Module as _};

/// Streams that exist at a time.
const STREAMS: u64 = 8;
/// Values of a header.
pub(crate) const VALUES: u64 = 40;

/// The number of streams of a test.
pub(crate) fn count() -> u64 {
    env::var("TIDEGATE_HOOK_SEQUENCES").ok().and_then(|text| text.parse().ok()).unwrap_or(8_000)
}

/// Entries for a descriptor of each of these headers, with the header's name as its key, and some of other kinds.
pub(crate) fn entries(headers: &[&str]) -> Json {
    let by_header = headers.iter().map(
        |header| json!({"actions": [{"request_headers": {"header_name": header, "descriptor_key": header}}]}),
    );
    let slot = json!({"metadata": {
        "descriptor_key": "slot",
        "metadata_key": {"key": "envoy.filters.http.ratelimit", "path": [{"key": "slot"}]},
    }});
    let others = json!([
        {"actions": [{"masked_remote_address": {"v4_prefix_mask_len": 8}}, {"query_parameters": {"query_parameter_name": "q", "descriptor_key": "q"}}]},
        {"actions": [{"header_value_match": {"descriptor_value": "v", "headers": [
            {"name": headers[0], "range_match": {"start": 1, "end": 9}},
            {"name": "x", "string_match": {"safe_regex": {"regex": "(a|b)*"}}, "invert_match": true},
        ]}}]},
        {"actions": [slot], "hits_addend": {"format": "%RESP(x-cost)%"}, "apply_on_stream_done": true},
        {"actions": [{"generic_key": {"descriptor_key": "end", "descriptor_value": "v"}}], "hits_addend": {"format": "%DYNAMIC_METADATA(ns:n)%"},
         "apply_on_stream_done": true},
    ]);
    by_header.chain(others.as_array().unwrap().iter().cloned()).collect()
}

/// A stream that exists.
struct Live {
    stream: Stream,
    host: Fake,
    /// Its limited value, if the filter can decide it.
    value: Option<u64>,
    /// Whether it waits for a server.
    waits: bool,
    /// Wakes for which it was resumed.
    resumed: usize,
}

/// Streams of a filter, and the hooks called for them so far.
pub(crate) struct Sequences<'c> {
    config: &'c Config,
    route: Arc<RouteSettings>,
    headers: &'c [&'c str],
    live: Vec<Live>,
    /// Requests that went on, by the value of the first header.
    pub(crate) passed: HashMap<u64, u64>,
    /// Streams that are gone: the wakes of each, and their number at that time.
    gone: Vec<(Arc<AtomicUsize>, usize)>,
    pub(crate) begun: u64,
    pub(crate) switches: Option<Switches>,
}

impl<'c> Sequences<'c> {
    /// Sequences for a filter with [`entries`] for these headers. Each value of the first header is limited.
    pub(crate) fn new(config: &'c Config, headers: &'c [&'c str]) -> Self {
        let route = json!({"domain": "without-rules"}).to_string();
        Self {
            config,
            route: Arc::new(crate::settings::route(route.as_bytes()).unwrap()),
            headers,
            live: Vec::new(),
            passed: HashMap::new(),
            gone: Vec::new(),
            begun: 0,
            switches: None,
        }
    }

    /// Calls a hook of a stream, or begins or ends a stream.
    pub(crate) fn step(&mut self, rng: &mut Rng) {
        if self.live.is_empty() || (self.live.len() as u64) < STREAMS && rng.once_in(4) {
            let live = self.begin(rng);
            self.live.push(live);
            return;
        }
        let index = rng.below(self.live.len() as u64) as usize;
        let live = &mut self.live[index];
        let config = self.config;
        let route = if rng.once_in(16) { Some(&self.route) } else { None };
        let (switches, wakes) = (&mut self.switches, live.host.wakes.load(Ordering::Relaxed));
        let flow = match rng.below(16) {
            0..=5 if live.host.responses.is_empty() && live.resumed == 0 => {
                let begin = || RateLimit::request_headers(config, route, &mut live.stream, &mut live.host);
                let flow = observed(switches, begin);
                live.waits = flow == Flow::Wait && route.is_none();
                Some(flow).filter(|_| route.is_none())
            }
            6..=9 if wakes > live.resumed || rng.once_in(64) => {
                live.resumed = wakes.max(1);
                let resume = || RateLimit::resumed(config, &mut live.stream, &mut live.host);
                Some(observed(switches, resume)).filter(|_| std::mem::take(&mut live.waits))
            }
            10 | 11 => {
                observed(switches, || RateLimit::response_headers(config, &mut live.stream, &mut live.host));
                None
            }
            12 => {
                observed(switches, || RateLimit::complete(config, &mut live.stream, &mut live.host));
                live.waits = false;
                None
            }
            13 => {
                self.end(index);
                return;
            }
            _ => None,
        };
        // A request with a mark goes on uncounted.
        let is_marked = live.host.request.iter().any(|(name, _)| name == "x-mark");
        if flow == Some(Flow::Continue)
            && let (Some(value), false) = (live.value, is_marked)
        {
            *self.passed.entry(value).or_default() += 1;
        }
    }

    /// Ends all streams.
    pub(crate) fn finish(&mut self) {
        while !self.live.is_empty() {
            self.end(0);
        }
        for (wakes, then) in std::mem::take(&mut self.gone) {
            assert_eq!(wakes.load(Ordering::Relaxed), then, "a stream was woken after its end");
        }
    }

    fn end(&mut self, index: usize) {
        let live = self.live.swap_remove(index);
        let wakes = Arc::clone(&live.host.wakes);
        observed(&mut self.switches, || drop(live.stream));
        let then = wakes.load(Ordering::Relaxed);
        self.gone.push((wakes, then));
    }

    fn begin(&mut self, rng: &mut Rng) -> Live {
        self.begun += 1;
        let mut host = Fake::new(rng.pick(&["/", "/?q=1", "/?q=%41%", "/?&&q", ""]));
        host.address =
            Some(rng.pick(&["192.0.2.7:4711", "[2001:db8::1]:1", "[", ":", "@", "1.5"]).to_owned());
        let (mut value, mut is_text) = (None, true);
        for (index, header) in self.headers.iter().enumerate() {
            if rng.once_in(index as u64 + 1) {
                // Value 0 is in high demand.
                let number = if rng.once_in(2) { 0 } else { rng.below(VALUES) };
                host.request.push(((*header).to_owned(), number.to_string().into_bytes()));
                value = if index == 0 { Some(number) } else { value };
            }
        }
        if rng.once_in(16) {
            let bytes: Vec<u8> = (0..rng.below(12)).map(|_| rng.below(256) as u8).collect();
            is_text = false;
            host.request.push((rng.pick(self.headers).to_owned(), bytes));
        }
        if rng.once_in(8) {
            host.request.push(("content-type".to_owned(), b"application/grpc".to_vec()));
        }
        if rng.once_in(4) {
            host.numbers.insert(
                "Dynamic/ns/n".to_owned(),
                rng.pick(&[1.0, -1.0, f64::NAN, f64::INFINITY, 1e10, 0.5]),
            );
        }
        if rng.once_in(2) {
            host.response.push(("x-cost".to_owned(), rng.pick(&[&b"3"[..], b"1e99", b"\xff", b""]).to_vec()));
        }
        Live { stream: Stream::default(), host, value: value.filter(|_| is_text), waits: false, resumed: 0 }
    }
}

/// Calls a hook; notes whether it blocked, if `switches` are observed.
fn observed<T>(switches: &mut Option<Switches>, hook: impl FnOnce() -> T) -> T {
    match switches {
        Some(switches) => switches.of(hook),
        None => hook(),
    }
}

/// Hooks that yielded the processor without being preempted: the kernel counts these as the thread's voluntary context switches.
pub(crate) struct Switches {
    status: File,
    pub(crate) hooks: u64,
    /// Number of hooks that blocked.
    pub(crate) blocked: u64,
}

impl Switches {
    /// Counts those of the calling thread.
    pub(crate) fn new() -> Self {
        Self { status: File::open("/proc/thread-self/status").unwrap(), hooks: 0, blocked: 0 }
    }

    /// Voluntary context switches of the thread so far.
    fn count(&self) -> u64 {
        let mut bytes = [0; 4_096];
        let length = self.status.read_at(&mut bytes, 0).unwrap();
        let text = str::from_utf8(&bytes[..length]).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    fn of<T>(&mut self, hook: impl FnOnce() -> T) -> T {
        let before = self.count();
        let result = hook();
        self.hooks += 1;
        self.blocked += u64::from(self.count() > before);
        result
    }
}
