//! A decision as Envoy's filter shows it: `x-ratelimit-*`, `Retry-After`, and the response to a denied request.

use crate::{
    logged::Logged,
    settings::{AddedHeader, Merge, Settings},
    status::ShownStatus,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use smallvec::SmallVec;
use std::fmt::Write as _;
use tidegate_core::limit::{Code, Decision, Denial};
use tidegate_envoy_abi::Host;
use tidegate_envoy_config::Headers;

/// Characters of `grpc-message` that are escaped, beside those that are not ASCII.
const GRPC_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// Headers in the order in which they are added.
pub(crate) type HeaderList = SmallVec<[(Box<str>, Box<[u8]>); 4]>;

/// The effects of a decision.
#[derive(Default, Debug)]
pub(crate) struct Consequence {
    pub(crate) is_denied: bool,
    pub(crate) body: String,
    pub(crate) response_headers: HeaderList,
    /// Marks for the upstream.
    pub(crate) request_headers: HeaderList,
    /// Values for the stream's metadata, if configured.
    pub(crate) logged: Option<Box<Logged>>,
}

impl Consequence {
    /// The consequence that rules declare for a decision.
    pub(crate) fn of_rules(decision: &Decision<'_>) -> Self {
        let mut made = Self { is_denied: decision.code == Code::OverLimit, ..Self::default() };
        match decision.has_on_deny().then(|| decision.denial()).flatten() {
            Some(Denial::Reply(Some(reply))) => {
                made.body = reply.body.to_string();
                made.response_headers.extend(
                    reply.headers.iter().map(|header| added(header.name.as_str(), header.value.as_bytes())),
                );
            }
            Some(Denial::Mark(headers)) => {
                made.is_denied = false;
                made.request_headers.extend(
                    headers.iter().map(|header| added(header.name.as_str(), header.value.as_bytes())),
                );
            }
            _ => {}
        }
        made
    }

    /// Adds the headers that the filter is configured for. `x_options` are those of the descriptors; `is_enforced` is evaluated for denials
    /// only.
    #[must_use]
    pub(crate) fn with_headers<'s>(
        mut self,
        settings: &Settings,
        statuses: impl Iterator<Item = ShownStatus<&'s str>> + Clone,
        x_options: impl Iterator<Item = Option<bool>>,
        is_enforced: impl FnOnce() -> bool,
    ) -> Self {
        if self.is_denied && settings.x_envoy_ratelimited {
            self.response_headers.push(added("x-envoy-ratelimited", b"true"));
        }
        x_ratelimit(settings.x_ratelimit, statuses.clone(), x_options, &mut self.response_headers);
        if self.is_denied && !is_enforced() {
            self.is_denied = false;
            self.body.clear();
        }
        if self.is_denied {
            if settings.retry_after && settings.denied_status == 429 {
                retry_after(statuses, &mut self.response_headers);
            }
            merge(&settings.denied_headers, &mut self.response_headers);
        }
        self
    }
}

pub(crate) fn added(name: &str, value: &[u8]) -> (Box<str>, Box<[u8]>) {
    (name.into(), value.into())
}

/// Adds `x-ratelimit-limit`, `-remaining` and `-reset` of the limit with the fewest remaining hits, and quota policies. Whether a
/// descriptor's policy is listed depends on its option, else on the filter's setting. For the limit with the fewest remaining hits, the
/// same decides whether there are any such headers.
fn x_ratelimit<'s>(
    default: bool,
    statuses: impl Iterator<Item = ShownStatus<&'s str>>,
    x_options: impl Iterator<Item = Option<bool>>,
    headers: &mut HeaderList,
) {
    let mut tightest: Option<(ShownStatus<&str>, u32, bool)> = None;
    let mut policies = String::new();
    for (status, option) in statuses.zip(x_options) {
        let Some(limit) = status.limit else { continue };
        let is_shown = option.unwrap_or(default);
        if tightest.is_none_or(|(other, ..)| status.remaining < other.remaining) {
            tightest = Some((status, limit.requests, is_shown));
        }
        if let (Some(unit), true) = (limit.unit, is_shown) {
            // Writing to a text does not fail.
            let _ = write!(policies, ", {};w={}", limit.requests, unit.seconds());
            if !limit.name.is_empty() {
                let _ = write!(policies, ";name=\"{}\"", limit.name);
            }
        }
    }
    let Some((tightest, requests, true)) = tightest else { return };
    headers.push(added("x-ratelimit-limit", format!("{requests}{policies}").as_bytes()));
    headers.push(added("x-ratelimit-remaining", tightest.remaining.to_string().as_bytes()));
    headers.push(added("x-ratelimit-reset", tightest.reset_seconds.to_string().as_bytes()));
}

/// Adds the longest wait of the exceeded limits, at least a second, unless the rule has the header itself.
fn retry_after<'s>(statuses: impl Iterator<Item = ShownStatus<&'s str>>, headers: &mut HeaderList) {
    let over = statuses.filter(|status| status.is_over);
    let has_own = headers.iter().any(|(name, _)| &**name == "retry-after");
    if let Some(seconds) = over.map(|status| status.reset_seconds).max().filter(|_| !has_own) {
        headers.push(added("retry-after", seconds.max(1).to_string().as_bytes()));
    }
}

/// Whether a request is a gRPC call, as Envoy determines it.
fn is_grpc(host: &dyn Host) -> bool {
    let of_grpc = host
        .header(Headers::Request, "content-type", 0)
        .0
        .and_then(|text| text.strip_prefix(b"application/grpc"));
    of_grpc.is_some_and(|rest| rest.is_empty() || rest[0] == b'+')
}

/// Responds instead of the upstream. `grpc_status` is that of a gRPC call; none for the status that follows from the HTTP status.
pub(crate) fn respond(
    host: &mut dyn Host,
    status: u16,
    grpc_status: Option<u8>,
    headers: &HeaderList,
    body: &str,
    details: &str,
) {
    let listed = headers.iter().map(|(name, value)| (&**name, &**value));
    if !is_grpc(host) {
        let listed: SmallVec<[(&str, &[u8]); 8]> = listed.collect();
        return host.respond(status, &listed, body.as_bytes(), details);
    }
    // As headers: with a module's local reply, Envoy ends each gRPC call with OK.
    let grpc_status = grpc_status.unwrap_or_else(|| grpc_status_of(status)).to_string();
    let message = utf8_percent_encode(body, GRPC_MESSAGE).to_string();
    let mut all: SmallVec<[(&str, &[u8]); 8]> = SmallVec::new();
    all.push((":status", b"200"));
    all.push(("content-type", b"application/grpc"));
    all.push(("grpc-status", grpc_status.as_bytes()));
    let is_head = host.header(Headers::Request, ":method", 0).0 == Some(b"HEAD");
    if !body.is_empty() && !is_head {
        all.push(("grpc-message", message.as_bytes()));
    }
    all.extend(listed.filter(|(name, _)| *name != "content-type"));
    host.respond_with(&all);
}

/// The gRPC status of an HTTP status, by the table of gRPC.
fn grpc_status_of(status: u16) -> u8 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => 2,
    }
}

/// Merges `response_headers_to_add` as Envoy does: each is compared with the headers that were there before, then all that overwrite are
/// written, then all others are added.
fn merge(own: &[AddedHeader], headers: &mut HeaderList) {
    let has = |headers: &HeaderList, name: &str| headers.iter().any(|(other, _)| **other == *name);
    let applies = |header: &&AddedHeader| match header.merge {
        Merge::Append | Merge::Overwrite => true,
        Merge::AddIfAbsent => !has(headers, header.name.as_str()),
        Merge::OverwriteIfPresent => has(headers, header.name.as_str()),
    };
    let overwrites =
        |header: &&AddedHeader| matches!(header.merge, Merge::Overwrite | Merge::OverwriteIfPresent);
    let (overwriting, adding): (Vec<_>, Vec<_>) = own.iter().filter(applies).partition(overwrites);
    for header in overwriting {
        headers.retain(|(name, _)| **name != *header.name.as_str());
        headers.push(added(header.name.as_str(), header.value.as_bytes()));
    }
    headers.extend(adding.iter().map(|header| added(header.name.as_str(), header.value.as_bytes())));
}
