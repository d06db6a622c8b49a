//! The whole check: every filter and route of a configuration.

use super::{
    chain,
    collected::{Collected, SentDescriptor, Shapes},
    descriptors,
    finding::{Finding, Kind},
    hints, routes,
    routes::Without,
    runtime, server, unsent,
};
use crate::{
    configuration::{
        Configuration, FilterKind, HttpFilter, Manager, NetworkFilter, RateLimitFilter, RouteConfig,
    },
    part::Part,
    selection::{LeftOut, OfRoute, Selection},
};
use std::slice;
use tidegate_core::rules::RuleSet;

/// The result of a check.
#[derive(Debug)]
pub struct Checked<'r> {
    /// The descriptors that the configuration sends, in the order of its parts.
    pub sent: Vec<SentDescriptor<'r>>,
    /// The findings, the gravest first.
    pub findings: Vec<Finding>,
}

/// Checks a configuration against rules.
pub fn check<'r>(configuration: &Configuration<'_>, rules: &'r RuleSet) -> Checked<'r> {
    let mut collected = Collected::new(rules);
    for part in &configuration.of_version_2 {
        let message = "this is a filter of Envoy's API version 2, which Envoy has not read since 1.18; write \
                       envoy.extensions.filters.http.ratelimit.v3.RateLimit";
        collected.findings.add(Kind::FilterVersion2, *part, "", message);
    }
    for manager in &configuration.managers {
        of_manager(configuration, manager, &mut collected);
    }
    if configuration.managers.is_empty() {
        for config in &configuration.route_configs {
            without_filter(config, None, &mut collected);
        }
    }
    for filter in &configuration.network_filters {
        of_network_filter(configuration, *filter, &mut collected);
    }
    runtime::check(configuration, &mut collected.findings);
    unsent::check(&mut collected);
    let Collected { sent, mut findings, charges, incomplete, .. } = collected;
    charges.check(&incomplete, &mut findings);
    Checked { sent, findings: findings.into_sorted() }
}

fn of_manager<'d>(configuration: &Configuration<'d>, manager: &Manager<'d>, collected: &mut Collected<'_>) {
    let config = configuration.routes_of(manager);
    chain::check(manager, config, &mut collected.findings);
    quotas(manager, collected);
    collected.has_unread |= manager.filters.iter().any(|filter| matches!(filter.kind, FilterKind::Unread(_)));
    if manager.rate_limits().next().is_none() {
        config.into_iter().for_each(|config| without_filter(config, Some(manager), collected));
        return;
    }
    let mut without = Without::of(config);
    for filter in manager.rate_limits() {
        of_filter(configuration, manager, filter, &mut without, collected);
    }
    if let Some(config) = config {
        routes::check_order(config, &manager.name, &mut collected.findings);
        without.check(config, manager, &mut collected.findings);
    }
}

/// Notes the domains of the quota service's filter, whose buckets are not compared with rules here.
fn quotas(manager: &Manager<'_>, collected: &mut Collected<'_>) {
    for filter in &manager.filters {
        let FilterKind::Other(message) = filter.kind else { continue };
        let settings = filter.settings();
        if message.ends_with("RateLimitQuotaFilterConfig") {
            domain(settings, settings.text("domain"), &manager.name, collected);
            collected.incomplete.insert(settings.text("domain").to_owned());
            let message = "the buckets of this filter are not held against the rules here; `tidegate rlqs envoy-config` writes them by rules";
            collected.findings.add(Kind::NotEvaluated, filter.part, &manager.name, message);
        }
    }
}

fn of_filter<'d>(
    configuration: &Configuration<'d>,
    manager: &Manager<'d>,
    (filter, settings): (&HttpFilter<'d>, &RateLimitFilter<'d>),
    without: &mut Without,
    collected: &mut Collected<'_>,
) {
    // A module calls its server itself.
    if !settings.is_module {
        server::check(configuration, settings.settings, &mut collected.findings, &manager.name);
    }
    domain(settings.settings, settings.domain(), &manager.name, collected);
    let shown =
        configuration.routes_of(manager).filter(|config| !manager.is_patched || !config.hosts.is_empty());
    let mut has_entries = false;
    if let Some((part, message)) = missing_routes(manager, shown) {
        collected.findings.add(Kind::RoutesNotShown, part, &manager.name, message);
        collected.incomplete.insert(settings.domain().to_owned());
        has_entries = true;
    }
    // The filter's own entries apply to routes that set none for it.
    let not_shown = RouteConfig::not_shown(settings.settings);
    let config = shown.unwrap_or(&not_shown);
    for host in &config.hosts {
        if let Some(part) = host.part.get("matcher") {
            let message = "only Envoy knows which routes this matcher chooses";
            let place = place(&manager.name, host.name, "");
            collected.findings.add(Kind::NotEvaluated, part, &place, message);
            collected.incomplete.insert(settings.domain().to_owned());
            has_entries = true;
        }
        for route in &host.routes {
            for cluster in route.variants(filter.name) {
                let of_route = OfRoute { filter, settings, config, host, route, cluster };
                let name = cluster.map_or("", |cluster| cluster.text("name"));
                let place = [&*place(&manager.name, host.name, &route.title()), name].join(" › ");
                let place = place.trim_end_matches(" › ");
                let selection = of_route.select(&configuration.envoy);
                let is_seen = |why: &LeftOut| *why != LeftOut::Module;
                has_entries |=
                    !selection.applied.is_empty() || selection.left_out.iter().any(|(_, why)| is_seen(why));
                without.note(&of_route, &selection);
                if selection.is_unknown() {
                    has_entries = true;
                    collected.incomplete.insert(settings.domain().to_owned());
                }
                own_domain(&selection, place, collected);
                routes::check_selection(&selection, &of_route, manager, place, &mut collected.findings);
                routes::check_request(&selection, &of_route, manager, place, &mut collected.findings);
                descriptors::check(&selection, &of_route, place, collected);
            }
        }
    }
    if !has_entries {
        let message = match settings.is_module {
            true => {
                "neither this module nor a RateLimitPerRoute for it has rate_limits, so it limits nothing; add an entry of rate_limits"
            }
            false => {
                "no route, virtual host or filter here has rate_limits, so this filter limits nothing; add an entry of rate_limits"
            }
        };
        collected.findings.add(Kind::FilterWithoutEntries, filter.part, &manager.name, message);
    }
}

/// The part that stands for routes that are not in the files, and what to do about it.
fn missing_routes<'d>(
    manager: &Manager<'d>,
    shown: Option<&RouteConfig<'d>>,
) -> Option<(Part<'d>, &'static str)> {
    let Some(config) = shown else {
        let message = "the routes of this filter are not in the files, or several configurations have their name, so the descriptors are \
                       unknown; add the file of its routes, or check the dump of one Envoy: curl http://127.0.0.1:9901/config_dump | \
                       tidegate envoy check --rules … -";
        return Some((manager.part, message));
    };
    let message = "Envoy discovers virtual hosts of this filter when requests for them arrive (vhds), so their descriptors are unknown; a dump \
                   has those discovered so far: curl http://127.0.0.1:9901/config_dump | tidegate envoy check --rules … -";
    Some((config.part.get("vhds")?, message))
}

/// The domain of a `RateLimitPerRoute`.
fn own_domain(selection: &Selection<'_>, place: &str, collected: &mut Collected<'_>) {
    let own = selection.settings.filter(|settings| settings.has("domain") && !selection.applied.is_empty());
    own.into_iter().for_each(|settings| domain(settings, selection.domain, place, collected));
}

/// `listener/virtual host/route`.
fn place(manager: &str, host: &str, route: &str) -> String {
    [manager, host, route].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" › ")
}

/// Notes entries of routes without a filter that applies them, for a connection manager if there is one.
fn without_filter(config: &RouteConfig<'_>, manager: Option<&Manager<'_>>, collected: &mut Collected<'_>) {
    let is_not_shown = manager.is_none_or(|manager| manager.is_patched || chain::has_unknown(manager));
    let name = manager.map_or("", |manager| &manager.name);
    for host in &config.hosts {
        let of_routes = host.routes.iter().flat_map(|route| {
            let entries = route.entries.iter();
            entries.map(move |entry| (entry, slice::from_ref(route)))
        });
        let of_host = host.entries.iter().map(|entry| (entry, &*host.routes));
        for (entry, routes) in of_routes.chain(of_host) {
            let is_local = |manager: &Manager<'_>| {
                let mut routes = routes.iter();
                routes.any(|route| manager.limits_locally(entry, &[route.part, host.part, config.part]))
            };
            if manager.is_some_and(is_local) {
                continue;
            }
            let (kind, message) = match is_not_shown {
                true => (
                    Kind::FilterNotShown,
                    "the filter that applies this entry is not in the files, so its domain is unknown; add the file that has it",
                ),
                false => (
                    Kind::FilterAbsent,
                    "no filter applies this entry: the http_filters of its listener have no envoy.filters.http.ratelimit; add it before the \
                     router",
                ),
            };
            collected.findings.add(kind, entry.part, &place(name, host.name, ""), message);
        }
    }
}

/// Checks that a filter has a domain, and that the rules have it too.
fn domain(settings: Part<'_>, name: &str, place: &str, collected: &mut Collected<'_>) {
    if name.is_empty() {
        let message = "this filter has no domain; set `domain`";
        collected.findings.add(Kind::DomainMissing, settings, place, message);
    } else if collected.rules.domain(name).is_none() {
        let message = hints::unknown_domain(name, collected.rules);
        collected.findings.add(Kind::DomainWithoutRules, settings.at("domain"), place, message);
    }
    collected.shapes.entry(name.to_owned()).or_default();
}

/// Notes the descriptors of a network filter, which it sends as written.
fn of_network_filter(
    configuration: &Configuration<'_>,
    filter: NetworkFilter<'_>,
    collected: &mut Collected<'_>,
) {
    let settings = filter.settings;
    let name = settings.text("domain");
    let place = "(connections)";
    if filter.is_after_last {
        let message =
            "this filter is behind another that ends the chain, so it is never asked; move it to the front";
        collected.findings.add(Kind::NetworkFilterAfterLast, settings, place, message);
    }
    server::check(configuration, settings, &mut collected.findings, place);
    domain(settings, name, place, collected);
    let entries: Vec<_> = settings.list("descriptors").collect();
    for part in entries {
        let shape = descriptors::written(part);
        let shapes = Shapes { domain: name, place };
        let reach = collected.add(&shapes, &shape, part.origin(), false, None);
        collected.charges.add(name, &shape);
        descriptors::judge(&reach, &shape, part, &shapes, collected);
    }
}
