//! The filter: what happens at each hook, in the order of Envoy's `ratelimit` filter.

use crate::{
    leased::{Attempt, Leased, LeasedSlot, LocalDecision, Waiting, value_bytes_max},
    limits::{ConfiguredLimits, Limits, LocalSlot},
    logged::Logged,
    metrics::{Event, Metrics, Outcome, Place},
    response::{Consequence, HeaderList, respond},
    settings::{self, Fractions, RequestType, RouteSettings, Settings},
    status::ShownStatus,
};
use smallvec::SmallVec;
use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use tidegate_core::limit::{CUT_BYTES, Code, Decision, DenialCause, Request, RequestLimits};
use tidegate_envoy_abi::{ConfigHost, Flow, Host, Module};
use tidegate_envoy_config::{Draft, Headers, Policy, Source, Texts, draft};

/// The details of responses to denied requests, as Envoy's filter has them.
const DENIED: &str = "request_rate_limited";
/// The details of responses to requests that could not be decided.
const FAILED: &str = "rate_limiter_error";
/// The gRPC status of denied calls, if the filter is configured so.
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
    pub(crate) decider: Decider,
    pub(crate) metrics: Arc<Metrics>,
}

/// The place of decisions.
pub(crate) enum Decider {
    /// Rules and counters of this process.
    Limits(ConfiguredLimits),
    /// A server, and this process by credits from the server.
    Server(Arc<Leased>),
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
    /// Set while the request waits for a server.
    held: Option<Held>,
    /// The slots of a request in flight.
    slot: Option<HeldSlot>,
}

/// Data from the beginning of the stream for entries that are applied at its end.
struct AtEnd {
    route: Option<Arc<RouteSettings>>,
}

/// A request that waits.
struct Held {
    waiting: Waiting,
    x_options: XOptions,
}

/// The option of each descriptor about `x-ratelimit-*`.
type XOptions = SmallVec<[Option<bool>; 4]>;

/// The slots of a request in flight: renewed until they are released, when this is dropped.
enum HeldSlot {
    Here(LocalSlot),
    AtServer(LeasedSlot),
}

impl HeldSlot {
    fn ticket(&self) -> &str {
        match self {
            Self::Here(slot) => slot.ticket(),
            Self::AtServer(slot) => slot.ticket(),
        }
    }
}

impl Module for RateLimit {
    type Config = Config;
    type Route = RouteSettings;
    type Stream = Stream;

    fn configure(host: &ConfigHost, bytes: &[u8]) -> Result<Config, String> {
        let located = |error: String| format!("tidegate: {error}");
        let settings = settings::filter(bytes).map_err(located)?;
        let metrics = Arc::new(Metrics::new(host, &settings.stat_prefix));
        let decider = match &settings.local.server {
            Some(server) => {
                let leased =
                    Leased::of(server).map_err(|error| located(format!("tidegate.server: {error}")))?;
                leased.publish(&metrics);
                Decider::Server(leased)
            }
            None => {
                let limits = Limits::of(&settings.local).map_err(located)?;
                limits.shared().publish(&metrics);
                Decider::Limits(limits)
            }
        };
        Ok(Config { settings, decider, metrics })
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
            Decided::Made(made) => conclude(config, made, stream, host),
            Decided::Undecided => fail(config, host),
            Decided::Nothing => Flow::Continue,
            Decided::Waits(held) => {
                stream.held = Some(held);
                Flow::Wait
            }
        }
    }

    fn resumed(config: &Config, stream: &mut Stream, host: &mut dyn Host) -> Flow {
        let Some(Held { waiting, x_options }) = stream.held.take() else { return Flow::Continue };
        let Some((response, slot)) = waiting.take() else { return fail(config, host) };
        stream.slot = slot.map(HeldSlot::AtServer);
        let outcome = if response.is_denied { Outcome::OverLimit } else { Outcome::Ok };
        let decided = count(config, outcome, Some(Place::Server));
        let made = response.additions.consequence(response.is_denied);
        let statuses = response.statuses.iter().map(|status| status.borrowed());
        let made = with_headers(config, decided, made, statuses, x_options.into_iter(), host);
        conclude(config, made, stream, host)
    }

    fn response_headers(_: &Config, stream: &mut Stream, host: &mut dyn Host) {
        for (name, value) in std::mem::take(&mut stream.response_headers) {
            host.add_header(Headers::Response, &name, &value);
        }
    }

    fn complete(config: &Config, stream: &mut Stream, host: &mut dyn Host) {
        let mut slot = stream.slot.take();
        // As Envoy's filter, which only cancels its call if the stream ends before the decision: dropping it does.
        let is_undecided = stream.held.take().is_some();
        if let Some(AtEnd { route }) = stream.at_end.take().filter(|_| !is_undecided) {
            // The response is sent: this decision only counts hits. It takes no slots, and names those taken at the beginning.
            let _ = decide(config, route.as_ref(), host, &mut slot, true);
        }
        drop(slot);
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

/// The way in which a stream is decided.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one hook, and most decisions are of the large variant"
)]
enum Decided {
    /// No descriptor applies.
    Nothing,
    Made(Consequence),
    /// The server cannot be reached, or the configuration makes descriptors that no server accepts, or no message has room for.
    Undecided,
    Waits(Held),
}

/// Decides a stream by the entries for its beginning or for its end. At the beginning it sets `slot` to the slots that it takes; at the end
/// the entries use their ticket.
fn decide(
    config: &Config,
    route: Option<&Arc<RouteSettings>>,
    host: &dyn Host,
    slot: &mut Option<HeldSlot>,
    at_end: bool,
) -> Decided {
    let settings = &config.settings;
    let ticket = slot.take();
    let ticket_text = ticket.as_ref().map(HeldSlot::ticket);
    let source = Source::new(host).with_ticket(ticket_text, &settings.metadata_namespace);
    let policies = policies(settings, route).iter().filter(|policy| policy.on_stream_done == at_end);
    let drafts: SmallVec<[Draft<'_>; 2]> =
        policies.clone().filter_map(|policy| draft(policy, &source)).collect();
    if drafts.is_empty() {
        return Decided::Nothing;
    }
    let domain = route.and_then(|route| route.domain.as_deref()).unwrap_or(&settings.domain);
    let hits = host.filter_state(HITS_STATE).and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    // A server gets the bytes and cuts its texts itself, unless the message would be too long.
    let whole_max = match &config.decider {
        Decider::Limits(_) => None,
        Decider::Server(_) => Some(value_bytes_max(domain, &drafts, policies)),
    };
    let text_bytes_max = |value_bytes| match whole_max {
        None => RequestLimits::default().text_bytes_max,
        Some(whole_max) if value_bytes > whole_max => whole_max - CUT_BYTES,
        Some(_) => usize::MAX,
    };
    let texts: SmallVec<[Texts<'_>; 2]> = drafts.iter().map(|draft| draft.texts(text_bytes_max)).collect();
    let mut request = Request::new(domain);
    for (draft, texts) in drafts.iter().zip(&texts) {
        request.push(draft.descriptor(texts, hits.unwrap_or(0)));
    }
    let x_options = drafts.iter().map(|draft| draft.x_ratelimit);
    match &config.decider {
        Decider::Limits(limits) => decide_here(config, limits.shared(), &request, (x_options, host), slot),
        Decider::Server(leased) if at_end => {
            if let Some(decision) = leased.count(&request, ticket_text) {
                count(config, outcome_of(&decision), Some(Place::Envoy));
            }
            Decided::Nothing
        }
        Decider::Server(leased) => match leased.decide(&request, settings.timeout, || host.waker()) {
            Attempt::Local(decision) => {
                let decided = count(config, outcome_of(&decision), Some(Place::Envoy));
                let made = decision.consequence();
                Decided::Made(with_headers(config, decided, made, decision.statuses(), x_options, host))
            }
            Attempt::Waits(waiting) => Decided::Waits(Held { waiting, x_options: x_options.collect() }),
            Attempt::Away => Decided::Undecided,
        },
    }
}

/// Decides a request by the counters of this process.
fn decide_here(
    config: &Config,
    limits: &Arc<Limits>,
    request: &Request<'_>,
    (x_options, host): (impl Iterator<Item = Option<bool>>, &dyn Host),
    slot: &mut Option<HeldSlot>,
) -> Decided {
    let made = limits.decide(request, |decision: &Decision<'_>| {
        *slot = decision.slot.as_ref().map(|slot| HeldSlot::Here(limits.hold(slot)));
        let outcome = match decision.code {
            Code::Ok => Outcome::Ok,
            Code::OverLimit if is_for_want_of_room(decision) => Outcome::CountersFull,
            Code::OverLimit => Outcome::OverLimit,
        };
        let decided = count(config, outcome, None);
        let statuses = decision.statuses.iter().map(ShownStatus::from);
        with_headers(config, decided, Consequence::of_rules(decision), statuses, x_options, host)
    });
    made.map_or(Decided::Undecided, Decided::Made)
}

/// Whether no limit of a denied request is exceeded.
fn is_for_want_of_room(decision: &Decision<'_>) -> bool {
    let mut over = decision.statuses.iter().filter(|status| status.code == Code::OverLimit);
    over.all(|status| decision.cause(status) == Some(DenialCause::CountersFull))
}

fn outcome_of(decision: &LocalDecision) -> Outcome {
    if decision.is_over() { Outcome::OverLimit } else { Outcome::Ok }
}

/// The outcome of a decision, and its place if a server may make it.
type Counted = (Outcome, Option<Place>);

/// Counts a decision.
fn count(config: &Config, outcome: Outcome, place: Option<Place>) -> Counted {
    config.metrics.count(Event::Decision(outcome));
    place.into_iter().for_each(|place| config.metrics.count(Event::DecidedIn(place)));
    (outcome, place)
}

/// Adds the filter's own headers, and metadata.
fn with_headers<'s>(
    config: &Config,
    (outcome, place): Counted,
    made: Consequence,
    statuses: impl Iterator<Item = ShownStatus<&'s str>> + Clone,
    x_options: impl Iterator<Item = Option<bool>>,
    host: &dyn Host,
) -> Consequence {
    let settings = &config.settings;
    let is_enforced = || RANDOM.with(|random| settings.enforced.has(host, random));
    let logged =
        settings.local.dynamic_metadata.then(|| Box::new(Logged::of(outcome, place, statuses.clone())));
    Consequence { logged, ..made.with_headers(settings, statuses, x_options, is_enforced) }
}

/// Lets the request pass or responds to it.
fn conclude(config: &Config, made: Consequence, stream: &mut Stream, host: &mut dyn Host) -> Flow {
    if let Some(logged) = &made.logged {
        logged.write(&config.settings.metadata_namespace, host);
    }
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

/// Applies the failure mode to a request that could not be decided.
fn fail(config: &Config, host: &mut dyn Host) -> Flow {
    let settings = &config.settings;
    config.metrics.count(Event::Decision(Outcome::Error));
    let is_denied = RANDOM.with(|random| settings.failure_deny.has(host, random));
    if settings.local.dynamic_metadata {
        let outcome = if is_denied { Outcome::Error } else { Outcome::FailureModeAllowed };
        Logged::undecided(outcome).write(&settings.metadata_namespace, host);
    }
    if !is_denied {
        config.metrics.count(Event::Decision(Outcome::FailureModeAllowed));
        return Flow::Continue;
    }
    respond(host, settings.error_status, None, &HeaderList::new(), "", FAILED);
    Flow::Responded
}
