//! The path of a request through a connection manager, to the descriptors of its rate limit filters.

use super::{
    address,
    filter::{ExplainedFilter, of_filter},
    hosts,
    matching::{Match, matches},
    request::{HttpRequest, Routed},
};
use crate::{
    configuration::{Configuration, FilterKind, Manager, Route, RouteConfig, Target, VirtualHost},
    selection::OfRoute,
};
use tidegate_core::rules::Origin;

/// The effects of a connection manager on a request.
#[derive(Debug)]
pub struct Explained<'d> {
    /// Its listener.
    pub listener: String,
    /// The virtual host and its place.
    pub host: Option<(&'d str, Origin)>,
    /// The route and its place.
    pub route: Option<(String, Origin)>,
    /// Destination of the request: a cluster, or the field of the route by which Envoy responds itself.
    pub target: String,
    /// The address of the client, as Envoy determines it.
    pub client: String,
    /// Facts that are not known here and may change the result.
    pub unknown: Vec<String>,
    /// Its rate limit filters, in order.
    pub filters: Vec<ExplainedFilter<'d>>,
}

/// Explains a request at each connection manager that may have a virtual host for it and limits requests; all of them if none does.
pub fn explain<'d>(
    configuration: &Configuration<'d>,
    listener: Option<&str>,
    request: &HttpRequest,
) -> Vec<Explained<'d>> {
    let managers = configuration.managers.iter();
    let chosen = managers.filter(|manager| listener.is_none_or(|name| manager.name == name));
    let all: Vec<Explained<'d>> = chosen.map(|manager| of_manager(configuration, manager, request)).collect();
    let is_limiting = |one: &Explained<'_>| one.host.is_some() && !one.filters.is_empty();
    if all.iter().any(is_limiting) { all.into_iter().filter(is_limiting).collect() } else { all }
}

fn of_manager<'d>(
    configuration: &Configuration<'d>,
    manager: &Manager<'d>,
    request: &HttpRequest,
) -> Explained<'d> {
    let mut unknown = Vec::new();
    let client = address::client(manager.part, request).unwrap_or_else(|reason| {
        unknown.push(reason);
        request.from
    });
    unknown.extend(before_routing(manager, request));
    let request = &address::forwarded_on(manager.part, request);
    let mut explained = Explained {
        listener: manager.name.clone(),
        host: None,
        route: None,
        target: "no route: Envoy responds with 404".to_owned(),
        client: client.to_string(),
        unknown,
        filters: Vec::new(),
    };
    let Some(config) = configuration.routes_of(manager) else {
        let reason =
            "the routes of the listener are not in the files, or several configurations have their name";
        explained.unknown.push(reason.to_owned());
        return explained;
    };
    let client = if client.is_ipv6() { format!("[{client}]:1") } else { format!("{client}:1") };
    let mut routed = Routed { request, client, cluster: None, metadata: serde_json::Value::Null };
    let Some(host) = host_of(manager, config, request) else {
        if config.part.has("vhds") {
            explained.unknown.push("virtual hosts are discovered (vhds)".to_owned());
        }
        return explained;
    };
    explained.host = Some((host.name, host.part.origin()));
    if is_redirected(host, request) {
        explained.target = "redirect to https (require_tls)".to_owned();
        return explained;
    }
    let Some(route) = route_of(host, &routed, configuration, &mut explained.unknown) else {
        return explained;
    };
    explained.route = Some((route.title(), route.part.origin()));
    explained.target = target_text(&route.target);
    if let Target::Cluster(name) = route.target {
        routed.cluster = Some(name);
    }
    routed.metadata = route
        .part
        .get_in(["metadata", "filter_metadata"])
        .map_or(serde_json::Value::Null, |part| part.json());
    for (filter, settings) in manager.rate_limits() {
        let variants = route.variants(filter.name);
        if variants.len() > 1 {
            explained.unknown.push(format!(
                "the weighted clusters of the route differ in their configuration of {}",
                filter.name
            ));
        }
        let cluster = variants.first().copied().flatten();
        let of_route = OfRoute { filter, settings, config, host, route, cluster };
        explained.filters.push(of_filter(&of_route, configuration, &routed, &mut explained.unknown));
    }
    explained
}

/// Lists what changes a request before it is routed, or before the filter gets it.
fn before_routing(manager: &Manager<'_>, request: &HttpRequest) -> Vec<String> {
    let mut unknown = Vec::new();
    let path = request.plain_path();
    if manager.part.flag("normalize_path") && ["/.", "%", "\\"].iter().any(|part| path.contains(part)) {
        unknown.push("normalize_path changes the path before it is routed".to_owned());
    }
    if manager.part.flag("merge_slashes") && path.contains("//") {
        unknown.push("merge_slashes changes the path before it is routed".to_owned());
    }
    if manager.part.flag("strip_matching_host_port")
        && hosts::without_port(&request.authority) != request.authority
    {
        unknown.push(
            "strip_matching_host_port removes the port of the host if it is that of the listener".to_owned(),
        );
    }
    if manager.part.list("early_header_mutation_extensions").next().is_some() {
        unknown.push("early_header_mutation_extensions change headers".to_owned());
    }
    for filter in &manager.filters {
        match filter.kind {
            FilterKind::RateLimit(_) => break,
            FilterKind::Other(message) if changes_requests(message) => {
                unknown.push(format!(
                    "the filter {} runs before, and may change or answer the request",
                    filter.name
                ));
            }
            FilterKind::Unread(_) => {
                unknown.push(format!("the configuration of the filter {} is not read here", filter.name));
            }
            FilterKind::Unknown => {
                unknown.push(format!("the configuration of the filter {} is not in the files", filter.name));
            }
            _ => {}
        }
    }
    unknown
}

fn changes_requests(message: &str) -> bool {
    let names = [
        ".lua.",
        ".wasm.",
        ".ext_proc.",
        ".ext_authz.",
        ".header_mutation.",
        ".jwt_authn.",
        ".golang.",
        ".dynamic_modules.",
        ".set_metadata.",
        ".fault.",
        ".rbac.",
        ".oauth2.",
    ];
    names.iter().any(|name| message.contains(name))
}

fn host_of<'c, 'd>(
    manager: &Manager<'d>,
    config: &'c RouteConfig<'d>,
    request: &HttpRequest,
) -> Option<&'c VirtualHost<'d>> {
    let host = hosts::find(config, &request.authority);
    // A patch has no domains: it belongs to a virtual host that the files do not show.
    host.or_else(|| config.hosts.first().filter(|_| manager.is_patched))
}

fn is_redirected(host: &VirtualHost<'_>, request: &HttpRequest) -> bool {
    ["ALL", "EXTERNAL_ONLY"].contains(&host.part.text("require_tls")) && request.scheme != "https"
}

/// The first route that matches; a route that may or may not match is skipped, and named.
fn route_of<'c, 'd>(
    host: &'c VirtualHost<'d>,
    request: &Routed<'_>,
    configuration: &Configuration<'d>,
    unknown: &mut Vec<String>,
) -> Option<&'c Route<'d>> {
    if host.part.has("matcher") {
        unknown.push("the virtual host selects routes by a matcher".to_owned());
    }
    host.routes.iter().find(|route| {
        let Some(matched) = route.part.get("match") else { return true };
        match matches(matched, request, configuration) {
            Match::Yes => true,
            Match::No => false,
            Match::Unknown(reason) => {
                unknown.push(format!("whether the route {} matches depends on {reason}", route.title()));
                false
            }
        }
    })
}

fn target_text(target: &Target<'_>) -> String {
    match target {
        Target::Cluster(name) => format!("cluster {name}"),
        Target::Clusters(names) => format!("one of the clusters {}", names.join(", ")),
        Target::Computed => "a cluster that the request chooses".to_owned(),
        Target::Answered(by) => format!("Envoy responds itself ({by})"),
        Target::Unknown => "not in the files".to_owned(),
    }
}
