//! The filter: what happens at each hook, in the order of Envoy's `ratelimit` filter.

use crate::{
    actions::{Added, Source},
    limits::Limits,
    metrics::{Metrics, Outcome},
    response::{Consequence, HeaderList, consequence, respond},
    settings::{self, FailureDeny, Fractions, HitsAddend, Policy, RequestType, RouteSettings, Settings},
};
use smallvec::SmallVec;
use std::{
    borrow::Cow,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use tidegate_core::limit::{Descriptor, Entry, Hits, Override, Request};
use tidegate_envoy_abi::{ConfigHost, Flow, Headers, Host, Module};

/// The details of responses to denied requests, as Envoy's filter has them.
const DENIED: &str = "request_rate_limited";
/// The details of responses to requests that could not be decided.
const FAILED: &str = "rate_limiter_error";
/// The gRPC status that the filter can be configured to end denied calls with.
const RESOURCE_EXHAUSTED: u8 = 8;
/// The object of filter state by which other filters set the hits of a request.
const HITS_STATE: &str = "envoy.ratelimit.hits_addend";

thread_local! {
    static RANDOM: Fractions = Fractions::new(RandomState::new().hash_one(0));
}

/// The filter.
pub(crate) struct RateLimit;

/// A configuration of the filter.
pub(crate) struct Config {
    pub(crate) settings: Settings,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Drop for Config {
    fn drop(&mut self) {
        self.metrics.retire();
    }
}

/// State of a stream.
#[derive(Default)]
pub(crate) struct Stream {
    /// Headers that the response gets.
    response_headers: HeaderList,
    /// Set if entries are applied when the stream ends.
    at_end: Option<AtEnd>,
    /// The slots of a request in flight.
    slot: Option<HeldSlot>,
}

/// What entries that are applied at the end need from the beginning.
struct AtEnd {
    route: Option<Arc<RouteSettings>>,
}

/// The slots of a request in flight, released when dropped.
struct HeldSlot {
    limits: Arc<Limits>,
    ticket: Box<str>,
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.limits.release(&self.ticket);
    }
}

/// An entry of a descriptor, as bytes.
type DraftEntry<'s> = (&'s str, Cow<'s, [u8]>);

/// A descriptor as actions have made it.
struct Draft<'s> {
    entries: SmallVec<[DraftEntry<'s>; 3]>,
    limit: Option<Override>,
    hits: Option<u64>,
    is_negative: bool,
    x_ratelimit: Option<bool>,
}

impl Module for RateLimit {
    type Config = Config;
    type Route = RouteSettings;
    type Stream = Stream;

    fn configure(host: &ConfigHost, bytes: &[u8]) -> Result<Config, String> {
        let located = |error: String| format!("tidegate: {error}");
        let settings = settings::filter(bytes).map_err(located)?;
        let limits = Limits::of(&settings.local).map_err(located)?;
        let metrics = Arc::new(Metrics::new(host, &settings.stat_prefix));
        limits.publish(&metrics);
        Ok(Config { settings, limits, metrics })
    }

    fn configure_route(bytes: &[u8]) -> Result<RouteSettings, String> {
        settings::route(bytes).map_err(|error| format!("tidegate: {error}"))
    }

    fn publish(config: &Config, host: &ConfigHost) {
        config.metrics.publish(host);
    }

    fn request_headers(
        config: &Config,
        route: Option<&Arc<RouteSettings>>,
        stream: &mut Stream,
        host: &mut dyn Host,
    ) -> Flow {
        let settings = &config.settings;
        let is_applied = RANDOM.with(|random| settings.enabled.has(host, random))
            && applies(settings.request_type, host)
            && host.cluster().is_some();
        if !is_applied {
            return Flow::Continue;
        }
        let policies = policies(settings, route);
        if policies.iter().any(|policy| policy.on_stream_done) {
            stream.at_end = Some(AtEnd { route: route.cloned() });
        }
        match decide(config, route, host, &mut stream.slot, false) {
            Some(Ok(made)) => conclude(config, made, stream, host),
            Some(Err(Undecided)) => fail(config, host),
            None => Flow::Continue,
        }
    }

    fn response_headers(_: &Config, stream: &mut Stream, host: &mut dyn Host) {
        for (name, value) in std::mem::take(&mut stream.response_headers) {
            host.add_header(Headers::Response, &name, &value);
        }
    }

    fn complete(config: &Config, stream: &mut Stream, host: &mut dyn Host) {
        if let Some(AtEnd { route }) = stream.at_end.take() {
            // The response is sent: the decision only counts hits.
            let _ = decide(config, route.as_ref(), host, &mut None, true);
        }
        stream.slot = None;
        config.metrics.publish_in_stream(host);
    }

    fn after_panic(config: &Config, host: &mut dyn Host) -> Flow {
        fail(config, host)
    }
}

/// Whether the filter applies to a request: `x-envoy-internal` is set by Envoy.
fn applies(to: RequestType, host: &dyn Host) -> bool {
    if to == RequestType::Both {
        return true;
    }
    let is_internal = host.header(Headers::Request, "x-envoy-internal", 0).0 == Some(b"true");
    is_internal == (to == RequestType::Internal)
}

/// The entries that apply: those of the route, if it has any.
fn policies<'c>(settings: &'c Settings, route: Option<&'c Arc<RouteSettings>>) -> &'c [Policy] {
    match route {
        Some(route) if !route.policies.is_empty() => &route.policies,
        _ => &settings.policies,
    }
}

/// A request that is malformed: a server would have refused it with a status.
struct Undecided;

/// Decides a stream by the entries for its beginning or its end; none if no descriptor applies. Sets the slots that it takes.
fn decide(
    config: &Config,
    route: Option<&Arc<RouteSettings>>,
    host: &dyn Host,
    slot: &mut Option<HeldSlot>,
    at_end: bool,
) -> Option<Result<Consequence, Undecided>> {
    let settings = &config.settings;
    let source = Source::new(host);
    let drafts: SmallVec<[Draft<'_>; 2]> = policies(settings, route)
        .iter()
        .filter(|policy| policy.on_stream_done == at_end)
        .filter_map(|policy| draft(policy, &source))
        .collect();
    if drafts.is_empty() {
        return None;
    }
    let domain = route.and_then(|route| route.domain.as_deref()).unwrap_or(&settings.domain);
    let hits = host.filter_state(HITS_STATE).and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    let mut request = Request::new(domain);
    for draft in &drafts {
        let Some(descriptor) = draft.descriptor(hits.unwrap_or(0)) else { return Some(Err(Undecided)) };
        request.push(descriptor);
    }
    let x_options = drafts.iter().map(|draft| draft.x_ratelimit);
    let is_enforced = || RANDOM.with(|random| settings.enforced.has(host, random));
    let made = config.limits.decide(&request, |decision| {
        *slot = decision
            .slot
            .as_ref()
            .map(|slot| HeldSlot { limits: Arc::clone(&config.limits), ticket: slot.ticket.clone() });
        config.metrics.count(match decision.code {
            tidegate_core::limit::Code::Ok => Outcome::Ok,
            tidegate_core::limit::Code::OverLimit => Outcome::OverLimit,
        });
        consequence(settings, decision, x_options, is_enforced)
    });
    Some(made.map_err(|_| Undecided))
}

/// The descriptor of an entry; none if an action or the hits keep it from being made.
fn draft<'s>(policy: &'s Policy, source: &Source<'s>) -> Option<Draft<'s>> {
    let mut entries = SmallVec::new();
    for action in &policy.actions {
        match action.added(source) {
            Added::Entry(key, value) => entries.push((key, value)),
            Added::Nothing => {}
            Added::NoDescriptor => return None,
        }
    }
    let hits = match &policy.hits {
        HitsAddend::Unset => None,
        HitsAddend::Number(number) => Some(*number),
        HitsAddend::Format(format) => Some(format.hits(source.host)?),
    };
    let Policy { limit, is_negative, x_ratelimit, .. } = *policy;
    Some(Draft { entries, limit, hits, is_negative, x_ratelimit })
}

impl Draft<'_> {
    /// The descriptor; none if a text is not UTF-8, as protobuf has to have it.
    fn descriptor(&self, hits_of_request: u32) -> Option<Descriptor<'_>> {
        let entries = self.entries.iter();
        let entries = entries.map(|(key, value)| Some(Entry { key, value: str::from_utf8(value).ok()? }));
        Some(Descriptor {
            entries: entries.collect::<Option<_>>()?,
            limit: self.limit,
            hits: Hits::new(self.hits, hits_of_request, self.is_negative),
        })
    }
}

/// Lets the request pass or responds to it.
fn conclude(config: &Config, made: Consequence, stream: &mut Stream, host: &mut dyn Host) -> Flow {
    for (name, value) in &made.request_headers {
        host.add_header(Headers::Request, name, value);
    }
    if !made.is_denied {
        stream.response_headers = made.response_headers;
        return Flow::Continue;
    }
    let settings = &config.settings;
    let grpc_status = settings.resource_exhausted.then_some(RESOURCE_EXHAUSTED);
    respond(host, settings.denied_status, grpc_status, &made.response_headers, &made.body, DENIED);
    Flow::Responded
}

/// What the failure mode has a request become that could not be decided.
fn fail(config: &Config, host: &mut dyn Host) -> Flow {
    config.metrics.count(Outcome::Error);
    let is_denied = match &config.settings.failure_deny {
        FailureDeny::Always => true,
        FailureDeny::Never => false,
        FailureDeny::Fraction(fraction) => RANDOM.with(|random| fraction.has(host, random)),
    };
    if !is_denied {
        config.metrics.count(Outcome::FailureModeAllowed);
        return Flow::Continue;
    }
    respond(host, config.settings.error_status, None, &HeaderList::new(), "", FAILED);
    Flow::Responded
}
