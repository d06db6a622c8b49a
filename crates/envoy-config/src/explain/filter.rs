//! The effects of a rate limit filter on a request: its descriptors, with their hits.

use super::{request::Routed, response::Responses};
use crate::{
    actions::{Source, hits::HITS_MAX},
    configuration::{Configuration, Level, RateLimitEntry, RateLimitFilter, Runtime, Share},
    draft::entries,
    policy::{HitsAddend, Policy},
    selection::OfRoute,
};
use tidegate_core::{
    limit::{Hits, RequestLimit, RequestLimits, client_text},
    rules::Origin,
};

/// The effects of a rate limit filter on a request.
#[derive(Debug)]
pub struct ExplainedFilter<'d> {
    /// Its name.
    pub name: &'d str,
    /// The domain of its calls.
    pub domain: &'d str,
    /// The entries that apply.
    pub applied: Vec<ExplainedEntry>,
    /// The entries that do not apply, and why.
    pub left_out: Vec<(Origin, Level, String)>,
    /// Its responses.
    pub responses: Responses,
}

/// An entry that applies.
#[derive(Debug)]
pub struct ExplainedEntry {
    /// Its place.
    pub at: Origin,
    /// The level at which the entry is.
    pub level: Level,
    /// Whether it is applied when the response is sent.
    pub is_at_end: bool,
    /// Its descriptor.
    pub made: Made,
    /// The hits of the descriptor, if there is one.
    pub hits: Option<EntryHits>,
    /// The limit that its descriptor has instead of that of a rule.
    pub limit: Option<RequestLimit>,
}

/// The hits of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryHits {
    /// These.
    Known(Hits),
    /// Those of this format, which is evaluated at the end of the request.
    Format(String),
}

/// The descriptor of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// With these entries.
    Descriptor(Vec<(String, String)>),
    /// None, since the request has no such part.
    Nothing(String),
    /// Depends on something that only Envoy can evaluate.
    Unknown(String),
}

/// The ticket of a request, as texts have it.
const TICKET: &str = "<ticket>";

/// The effects of a filter on a request.
pub(super) fn of_filter<'d>(
    of_route: &OfRoute<'_, 'd>,
    configuration: &Configuration<'d>,
    routed: &Routed<'_>,
    unknown: &mut Vec<String>,
) -> ExplainedFilter<'d> {
    let OfRoute { filter, settings, .. } = *of_route;
    let runtime = &configuration.runtime;
    let (enabled, responses) = (settings.enabled(runtime), Responses::of(settings, runtime));
    let selection = of_route.select(&configuration.envoy);
    if selection.is_unknown() {
        unknown.push(format!("what the route configures for {} is not read here", filter.name));
    }
    let left_out = selection.left_out.iter();
    let mut left_out: Vec<_> =
        left_out.map(|(entry, why)| (entry.part.origin(), entry.level, why.to_string())).collect();
    let mut applied = Vec::new();
    for entry in &selection.applied {
        match why_disabled(entry, enabled, runtime) {
            Some(why) => left_out.push((entry.part.origin(), entry.level, why)),
            None => applied.push(of_entry(entry, routed, settings.metadata_namespace())),
        }
    }
    if !applied.is_empty() {
        unknown.extend(of_some_requests(filter.name, settings, enabled, responses.enforced));
    }
    ExplainedFilter { name: filter.name, domain: selection.domain, applied, left_out, responses }
}

/// Why an entry does not apply to any request, although it is an entry of the route.
fn why_disabled(entry: &RateLimitEntry<'_>, enabled: Share, runtime: &Runtime<'_>) -> Option<String> {
    if enabled.is_none() {
        return Some(format!("the filter is enabled for {enabled} requests (filter_enabled, or runtime)"));
    }
    let key =
        Some(entry.part.text("disable_key")).filter(|key| !key.is_empty() && entry.level.is_of_routes());
    let key = format!("ratelimit.{}.http_filter_enabled", key?);
    runtime.share(&key).filter(|(_, share)| share.is_none()).map(|(_, share)| format!("{key} is {share}"))
}

/// Lists the settings by which a filter limits only some requests.
fn of_some_requests(
    name: &str,
    settings: &RateLimitFilter<'_>,
    enabled: Share,
    enforced: Share,
) -> Vec<String> {
    let mut unknown = Vec::new();
    let is_chance = |share: Share| !share.is_all() && !share.is_none();
    if is_chance(enabled) {
        unknown.push(format!("{name} is enabled for {enabled} requests, and makes no call for others"));
    }
    if is_chance(enforced) {
        unknown.push(format!("{name} enforces {enforced} denials, and admits other requests above a limit"));
    }
    let origin = settings.settings.text("request_type");
    if ["internal", "external"].contains(&origin) {
        unknown.push(format!(
            "{name} makes calls for {origin} requests only, and only Envoy knows whether this is one"
        ));
    }
    unknown
}

fn of_entry(entry: &RateLimitEntry<'_>, routed: &Routed<'_>, namespace: &str) -> ExplainedEntry {
    let made = match &entry.policy {
        Ok(policy) => {
            made(policy, routed, namespace).and_then(|made| Ok((made, Some(hits(policy, routed)?))))
        }
        Err(problems) => {
            Err(Made::Unknown(problems.iter().map(|(_, problem)| &**problem).collect::<Vec<_>>().join("; ")))
        }
    };
    let (made, hits) = made.unwrap_or_else(|without| (without, None));
    let limit = entry.policy.as_ref().ok().and_then(|policy| policy.limit);
    ExplainedEntry {
        at: entry.part.origin(),
        level: entry.level,
        is_at_end: entry.is_at_end(),
        made,
        hits,
        limit,
    }
}

/// The descriptor of an entry of a filter with metadata in this namespace; the error is why there is none, or why it is not known.
fn made(policy: &Policy, routed: &Routed<'_>, namespace: &str) -> Result<Made, Made> {
    let has_cluster = routed.cluster.is_some();
    if let Some(action) = policy.actions.iter().find(|action| action.is_unknown(has_cluster, namespace)) {
        return Err(Made::Unknown(format!("{} is known to Envoy only", action.possible(namespace).what())));
    }
    let ticket = Some(TICKET).filter(|_| policy.on_stream_done);
    let source = Source::new(routed).with_ticket(ticket, namespace);
    let text = |value: &[u8]| client_text(value, RequestLimits::default().text_bytes_max).into_owned();
    match entries(policy, &source) {
        Ok(entries) => {
            let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), text(value)));
            Ok(Made::Descriptor(entries.collect()))
        }
        Err(action) => Err(Made::Nothing(action.possible(namespace).what())),
    }
}

/// The hits of an entry; the error is why there is no descriptor, or why it is not known.
fn hits(policy: &Policy, routed: &Routed<'_>) -> Result<EntryHits, Made> {
    let number = match &policy.hits {
        HitsAddend::Unset => None,
        HitsAddend::Number(number) => Some(*number),
        HitsAddend::Format(format) if format.is_of_request() => {
            let nothing = || Made::Nothing(format!("number from 0 to {HITS_MAX} in {}", format.text()));
            Some(format.hits(routed).ok_or_else(nothing)?)
        }
        HitsAddend::Format(format) if policy.on_stream_done => {
            let sign = if policy.is_negative { "-" } else { "" };
            return Ok(EntryHits::Format(format!("{sign}{}", format.text())));
        }
        HitsAddend::Format(format) => {
            return Err(Made::Unknown(format!("{} is known to Envoy only", format.text())));
        }
    };
    Ok(EntryHits::Known(Hits::new(number, 0, policy.is_negative)))
}
