//! Routes: virtual hosts, their routes, and what these configure for filters.

use super::{
    entry::{Level, RateLimitEntry},
    typed::{Content, Role},
};
use crate::{part::Part, stream::Envoy};
use std::rc::Rc;

/// A `RouteConfiguration`, or what a patch adds to one.
#[derive(Debug)]
pub struct RouteConfig<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Its name; empty for none.
    pub name: &'d str,
    /// Its virtual hosts.
    pub hosts: Vec<VirtualHost<'d>>,
    /// Whether it is a dump's copy of routes that a connection manager has itself.
    pub is_copy: bool,
}

/// A virtual host.
#[derive(Clone, Debug)]
pub struct VirtualHost<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Its name.
    pub name: &'d str,
    /// Its `rate_limits`.
    pub entries: Vec<Rc<RateLimitEntry<'d>>>,
    /// Its routes, in order.
    pub routes: Vec<Route<'d>>,
}

/// A route.
#[derive(Clone, Debug)]
pub struct Route<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Its `rate_limits`.
    pub entries: Vec<Rc<RateLimitEntry<'d>>>,
    /// Destination of its requests.
    pub target: Target<'d>,
}

/// The target of a route's requests.
#[derive(Clone, Debug)]
pub enum Target<'d> {
    /// To a cluster.
    Cluster(&'d str),
    /// To one of several.
    Clusters(Vec<&'d str>),
    /// To a cluster that is known when the request arrives.
    Computed,
    /// Nowhere: Envoy itself responds, because of this field of the route.
    Answered(&'static str),
    /// Not visible in the configuration: a patch is only a part of a route.
    Unknown,
}

impl<'d> RouteConfig<'d> {
    pub(crate) fn read(part: Part<'d>, envoy: &Envoy) -> Self {
        let hosts = part.list("virtual_hosts").map(|host| VirtualHost::read(host, envoy)).collect();
        Self { part, name: part.text("name"), hosts, is_copy: false }
    }

    /// Stands for routes that are not in the files. The part has no field of a route.
    pub(crate) fn not_shown(part: Part<'d>) -> Self {
        let route = Route { part, entries: Vec::new(), target: Target::Unknown };
        let host = VirtualHost { part, name: "(not shown)", entries: Vec::new(), routes: vec![route] };
        Self { part, name: "", hosts: vec![host], is_copy: false }
    }

    /// All parts that may configure filters for the host's requests.
    pub fn configuring(&self) -> impl Iterator<Item = Part<'d>> {
        let hosts = self.hosts.iter();
        let of_routes = |host: &VirtualHost<'d>| {
            let routes = host.routes.iter();
            routes.flat_map(|route| route.clusters().chain([route.part])).collect::<Vec<_>>()
        };
        hosts.flat_map(move |host| of_routes(host).into_iter().chain([host.part])).chain([self.part])
    }
}

impl<'d> VirtualHost<'d> {
    pub(crate) fn read(part: Part<'d>, envoy: &Envoy) -> Self {
        Self {
            part,
            name: part.text("name"),
            entries: RateLimitEntry::list(part, Level::VirtualHost, envoy),
            routes: part.list("routes").map(|route| Route::read(route, envoy)).collect(),
        }
    }

    /// The domains that it serves.
    pub fn domains(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        self.part.list("domains").map(Part::as_text)
    }
}

impl<'d> Route<'d> {
    pub(crate) fn read(part: Part<'d>, envoy: &Envoy) -> Self {
        let action = part.get("route");
        let entries =
            action.map_or_else(Vec::new, |action| RateLimitEntry::list(action, Level::Route, envoy));
        Self { part, entries, target: target(part) }
    }

    /// Its weighted clusters.
    fn clusters(&self) -> impl Iterator<Item = Part<'d>> + use<'d> {
        let weighted = self.part.get_in(["route", "weighted_clusters"]);
        weighted.into_iter().flat_map(|weighted| weighted.list("clusters"))
    }

    /// The weighted clusters that configure the filter of this name for their own requests. `None` goes first if some requests have no such
    /// cluster.
    pub fn variants(&self, filter: &str) -> Vec<Option<Part<'d>>> {
        let mut own: Vec<_> =
            self.clusters().filter(|part| PerRoute::of(*part, filter).is_some()).map(Some).collect();
        if own.is_empty() || own.len() < self.clusters().count() {
            own.insert(0, None);
        }
        own
    }

    /// Its name, or its match: `/api/`, `/login (exact)`.
    pub fn title(&self) -> String {
        let name = self.part.text("name");
        if !name.is_empty() {
            return name.to_owned();
        }
        let Some(matched) = self.part.get("match") else { return "(every route)".to_owned() };
        let path = [("prefix", ""), ("path", " (exact)"), ("path_separated_prefix", " (and below)")];
        let path = path
            .into_iter()
            .find_map(|(field, after)| Some(format!("{}{after}", matched.get(field)?.as_text())));
        path.or_else(|| Some(format!("{} (regex)", matched.get_in(["safe_regex", "regex"])?.as_text())))
            .unwrap_or_else(|| "(other match)".to_owned())
    }

    /// Whether the `rate_limits` of the virtual host apply in any case.
    pub fn includes_host(&self) -> bool {
        self.part.get_in(["route", "include_vh_rate_limits"]).is_some_and(|flag| flag.as_text() == "true")
    }
}

fn target(part: Part<'_>) -> Target<'_> {
    if let Some(action) = part.get("route") {
        if let Some(clusters) = action.get("weighted_clusters") {
            let names: Vec<&str> = clusters.list("clusters").map(|cluster| cluster.text("name")).collect();
            // A `cluster_header` names the cluster of a request.
            return if names.contains(&"") { Target::Computed } else { Target::Clusters(names) };
        }
        return match action.text("cluster") {
            "" if action.has("cluster_header")
                || action.has("cluster_specifier_plugin")
                || action.has("inline_cluster_specifier_plugin") =>
            {
                Target::Computed
            }
            "" => Target::Unknown,
            name => Target::Cluster(name),
        };
    }
    let answers = ["direct_response", "redirect", "non_forwarding_action"];
    answers.into_iter().find(|name| part.has(name)).map_or(Target::Unknown, Target::Answered)
}

/// The configuration of a part for one filter, after Envoy's wrappers.
#[derive(Clone, Copy, Debug)]
pub struct PerRoute<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Whether the filter is disabled there.
    pub is_disabled: bool,
    /// What it sets.
    pub config: PerRouteConfig<'d>,
}

/// What the configuration of a part sets for a filter.
#[derive(Clone, Copy, Debug)]
pub enum PerRouteConfig<'d> {
    /// Nothing: what a less specific part sets applies.
    Nothing,
    /// A `RateLimitPerRoute`, for the module or for the `ratelimit` filter.
    RateLimit {
        /// Its message.
        settings: Part<'d>,
        /// Whether it is within the message of a module. Only the filter of the same kind reads it.
        is_module: bool,
    },
    /// Possibly a `RateLimitPerRoute`, in this message, which is not read here.
    Unread(&'d str),
    /// Another message. Neither filter reads it, and it hides what less specific parts set.
    Other,
}

impl<'d> PerRoute<'d> {
    /// The configuration at this part (a weighted cluster, a route, a virtual host or a route configuration) for the filter of this name.
    pub fn of(part: Part<'d>, filter: &str) -> Option<Self> {
        Self::all(part).find(|(name, _)| *name == filter).map(|(_, own)| own)
    }

    /// All configurations at a part, with the names of their filters.
    pub fn all(part: Part<'d>) -> impl Iterator<Item = (&'d str, Self)> {
        part.get("typed_per_filter_config")
            .into_iter()
            .flat_map(Part::fields)
            .map(|(name, own)| (name, Self::read(own)))
    }

    /// Its `RateLimitPerRoute`, for whichever filter.
    pub fn settings(&self) -> Option<Part<'d>> {
        match self.config {
            PerRouteConfig::RateLimit { settings, .. } => Some(settings),
            _ => None,
        }
    }

    fn read(part: Part<'d>) -> Self {
        if !part.message().ends_with(".FilterConfig") {
            return Self { part, is_disabled: false, config: PerRouteConfig::of(part) };
        }
        // An empty `config` enables the filter and sets nothing.
        let config = part.get("config").filter(|config| config.fields().next().is_some());
        let config = config.map_or(PerRouteConfig::Nothing, PerRouteConfig::of);
        Self { part, is_disabled: part.flag("disabled"), config }
    }
}

impl<'d> PerRouteConfig<'d> {
    fn of(config: Part<'d>) -> Self {
        match Content::of(config, Role::Route) {
            Content::RateLimit { settings, is_module } => Self::RateLimit { settings, is_module },
            Content::Unread(message) => Self::Unread(message),
            Content::Other(_) => Self::Other,
        }
    }
}
