//! Routes, and entries that they leave out.

use super::finding::{Findings, Kind};
use crate::{
    actions::Sent,
    configuration::{Level, Manager, PerRoute, Route, RouteConfig, Target},
    part::Part,
    policy::Policy,
    selection::{LeftOut, OfRoute, Selection},
};
use std::collections::BTreeSet;
use tidegate_core::{limit::RequestLimits, rules::Origin};

/// Checks entries that do not apply to a route although their place suggests it.
pub(super) fn check_selection(
    selection: &Selection<'_>,
    of_route: &OfRoute<'_, '_>,
    manager: &Manager<'_>,
    place: &str,
    findings: &mut Findings,
) {
    for (entry, why) in &selection.left_out {
        let is_for_others =
            matches!(why, LeftOut::Stage(..) | LeftOut::Filter | LeftOut::Module | LeftOut::PerRoute);
        if is_for_others && manager.limits_locally(entry, &of_route.configuring()) {
            continue;
        }
        let is_of_route = matches!(entry.level, Level::Route | Level::PerRoute);
        // Modules do not see the entries of routes, whatever their stage.
        let mut seeing = manager.rate_limits().map(|(_, settings)| settings).filter(|own| !own.is_module);
        let (kind, message) = match why {
            LeftOut::Stage(own, _) if !seeing.any(|settings| settings.stage() == *own) => {
                let message = format!(
                    "this entry is of stage {own}, which no filter of the listener has: it is never applied; set `stage: {own}` on a filter, or \
                     remove it here"
                );
                (Kind::StageWithoutFilter, message)
            }
            LeftOut::Answered(_) if is_of_route => (Kind::RouteAnswered, why.to_string()),
            LeftOut::PerRoute if is_of_route => {
                let message = "this entry is replaced by the rate_limits of the RateLimitPerRoute of the same route; list all of them there";
                (Kind::EntryReplaced, message.to_owned())
            }
            LeftOut::Filter => {
                let message = "this entry is ignored, since the filter has rate_limits of its own; move those to the routes, or this one to the filter";
                (Kind::EntryReplaced, message.to_owned())
            }
            LeftOut::Module if seeing.next().is_none() => {
                let message = "a module does not see the rate_limits of routes and virtual hosts, so this entry is never applied; move it to the \
                               rate_limits of the filter, or to a RateLimitPerRoute within a DynamicModuleFilterPerRoute in \
                               typed_per_filter_config";
                (Kind::NotSeenByModule, message.to_owned())
            }
            LeftOut::RouteHasOwn => {
                let message = "this entry does not apply to every route: those with rate_limits of their own leave it out; set include_vh_rate_limits: true on them to have both";
                (Kind::HostReplaced, message.to_owned())
            }
            _ => continue,
        };
        findings.add(kind, entry.part, place, message);
    }
}

/// Checks what a route does to its requests: calls that are too large, the address of a header, a disabled filter.
pub(super) fn check_request(
    selection: &Selection<'_>,
    of_route: &OfRoute<'_, '_>,
    manager: &Manager<'_>,
    place: &str,
    findings: &mut Findings,
) {
    if let Some(part) = selection.disabled {
        let message = format!("{} is disabled here: it limits none of these requests", of_route.filter.name);
        findings.add(Kind::DisabledHere, part, place, message);
    }
    if let Some((part, why)) = selection.ignored {
        let (kind, message) = not_applied(why, of_route.filter.name);
        findings.add(kind, part, place, message);
    }
    let at_start = selection.applied.iter().filter(|entry| !entry.is_at_end());
    let policies: Vec<&Policy> = at_start.filter_map(|entry| entry.policy.as_ref().ok()).collect();
    let namespace = of_route.settings.metadata_namespace();
    let has = |policy: &Policy, is_one: fn(&Sent) -> bool| {
        policy.actions.iter().any(|action| is_one(&action.possible(namespace).value))
    };
    let is_address = |value: &Sent| matches!(value, Sent::Address | Sent::Network);
    if !manager.part.flag("use_remote_address")
        && !manager.part.has("original_ip_detection_extensions")
        && !manager.is_patched
        && policies.iter().any(|policy| has(policy, is_address))
    {
        let message = "without use_remote_address, remote_address is an address of x-forwarded-for: a client that connects directly \
                       chooses it, and with it the counter; write use_remote_address: true, unless a proxy before this listener appends \
                       the header";
        findings.add(Kind::AddressOfHeader, manager.part, &manager.name, message);
    }
    let of_client = |value: &Sent| matches!(value, Sent::Text(what) if what.starts_with("header ") || what.starts_with("query "));
    let headers = manager.part.number("max_request_headers_kb").unwrap_or(HEADERS_KIB);
    let lists = policies.iter().filter(|policy| has(policy, of_client)).count() as u64;
    let kib = headers.saturating_mul(lists);
    if kib > MESSAGE_KIB {
        let message = format!(
            "a client with {headers} KiB of headers makes a message of up to {kib} KiB on this route, and Tidegate refuses messages above \
             {MESSAGE_KIB} KiB, so that none of the limits applies; lower max_request_headers_kb, or raise --max-message-bytes of Tidegate"
        );
        findings.add(Kind::RequestTooLarge, of_route.route.part, place, message);
    }
    let bound = RequestLimits::default().descriptors_max;
    if policies.len() > bound {
        let message = format!(
            "this route sends {} descriptors, and Tidegate refuses requests with more than {bound}; divide them among stages",
            policies.len()
        );
        findings.add(Kind::RequestTooLarge, of_route.route.part, place, message);
    }
}

/// The finding for what a part of a route sets for a filter and does not apply.
fn not_applied(why: LeftOut, name: &str) -> (Kind, String) {
    match why {
        LeftOut::OtherKind(true) => (
            Kind::PerRouteOfOtherKind,
            format!(
                "{name} is the ratelimit filter, which does not see what is wrapped for a module, so Envoy ignores this RateLimitPerRoute; \
                 write it without the DynamicModuleFilterPerRoute"
            ),
        ),
        LeftOut::OtherKind(false) => (
            Kind::PerRouteOfOtherKind,
            format!(
                "{name} is a module, which does not see a RateLimitPerRoute by itself, so Envoy ignores this one; wrap it in a \
                 DynamicModuleFilterPerRoute"
            ),
        ),
        _ => (
            Kind::NotEvaluated,
            format!(
                "this configuration for {name} is not read here, so the descriptors are unknown; write a RateLimitPerRoute"
            ),
        ),
    }
}

/// Envoy's default of `max_request_headers_kb`.
const HEADERS_KIB: u64 = 60;

/// The default of `--max-message-bytes`.
const MESSAGE_KIB: u64 = 1024;

/// The routes to a cluster that no entry of any filter applies to.
pub(super) struct Without {
    routes: BTreeSet<Origin>,
    /// Whether other routes have entries.
    are_others: bool,
}

/// Routes that a finding names.
const NAMED_MAX: usize = 5;

impl Without {
    /// Begins with all routes, until a filter is known to limit them.
    pub(super) fn of(config: Option<&RouteConfig<'_>>) -> Self {
        let routes = config.into_iter().flat_map(|config| &config.hosts).flat_map(|host| &host.routes);
        let to_cluster = routes.filter(|route| {
            matches!(route.target, Target::Cluster(_) | Target::Clusters(_) | Target::Computed)
        });
        Self { routes: to_cluster.map(|route| route.part.origin()).collect(), are_others: false }
    }

    /// Removes a route if a filter limits some of its requests or may do so, or is disabled for it.
    pub(super) fn note(&mut self, of_route: &OfRoute<'_, '_>, selection: &Selection<'_>) {
        if !selection.applied.is_empty() || selection.disabled.is_some() || selection.is_unknown() {
            self.routes.remove(&of_route.route.part.origin());
            self.are_others |= !selection.applied.is_empty();
        }
    }

    /// Reports one finding for each virtual host, if other routes of the listener have limits.
    pub(super) fn check(&self, config: &RouteConfig<'_>, manager: &Manager<'_>, findings: &mut Findings) {
        if manager.is_patched || !self.are_others {
            return;
        }
        for host in &config.hosts {
            let routes: Vec<&Route<'_>> =
                host.routes.iter().filter(|route| self.routes.contains(&route.part.origin())).collect();
            if routes.is_empty() {
                continue;
            }
            let more = if routes.len() > NAMED_MAX { ", …" } else { "" };
            let named: Vec<String> = routes
                .iter()
                .take(NAMED_MAX)
                .map(|route| format!("{} ({})", route.title(), route.part.origin()))
                .collect();
            let message = format!(
                "no entry applies to {} of the {} routes here, so their requests have no limit: {}{more}",
                routes.len(),
                host.routes.len(),
                named.join(", ")
            );
            let place = format!("{} › {}", manager.name, host.name);
            findings.add(Kind::RouteWithoutEntries, host.part, &place, message);
        }
    }
}

/// Checks for routes behind a route that matches every request.
pub(super) fn check_order(config: &RouteConfig<'_>, manager: &str, findings: &mut Findings) {
    for host in &config.hosts {
        let Some(all) = host.routes.iter().position(|route| matches_all(route.part)) else { continue };
        for route in host.routes.iter().skip(all + 1).filter(|route| has_limits(route)) {
            let message = format!(
                "this route is never reached: the route at {} matches every request; move it before that route",
                host.routes[all].part.origin()
            );
            let place = format!("{manager} › {} › {}", host.name, route.title());
            findings.add(Kind::RouteNeverReached, route.part, &place, message);
        }
    }
}

fn matches_all(route: Part<'_>) -> bool {
    let Some(matched) = route.get("match") else { return false };
    let mut names = matched.fields().map(|(name, _)| name);
    matched.text("prefix") == "/"
        && names.all(|name| ["prefix", "case_sensitive", "caseSensitive"].contains(&name))
}

fn has_limits(route: &Route<'_>) -> bool {
    let mut settings = PerRoute::all(route.part).filter_map(|(_, own)| own.settings());
    !matches!(route.target, Target::Unknown)
        && (!route.entries.is_empty() || settings.any(|settings| settings.has("rate_limits")))
}
