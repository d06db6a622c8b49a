//! Finds the parts of a configuration.

use super::{
    cluster::Cluster,
    entry::{Level, RateLimitEntry},
    manager::{HttpFilter, Manager, Routes},
    patches::{Addition, Patches, Scope},
    routes::{Route, RouteConfig, Target, VirtualHost},
    runtime::Runtime,
    typed::Typed,
};
use crate::{files::Files, part::Part, stream::Envoy};
use tidegate_core::rules::Origin;

/// The parts that were found in files.
#[derive(Debug, Default)]
pub struct Configuration<'d> {
    /// Connection managers.
    pub managers: Vec<Manager<'d>>,
    /// Route configurations that stand by themselves.
    pub route_configs: Vec<RouteConfig<'d>>,
    /// Clusters.
    pub clusters: Vec<Cluster<'d>>,
    /// Network filters `ratelimit`, which have no part in HTTP.
    pub network_filters: Vec<NetworkFilter<'d>>,
    /// Filters of API version 2, which Envoy does not read any more.
    pub of_version_2: Vec<Part<'d>>,
    /// The runtime, which may disable filters.
    pub runtime: Runtime<'d>,
    /// Documents without any of these.
    pub others: Vec<Origin>,
    /// The Envoy.
    pub(crate) envoy: Envoy,
}

/// A `ratelimit` filter of connections.
#[derive(Clone, Copy, Debug)]
pub struct NetworkFilter<'d> {
    /// Its message.
    pub settings: Part<'d>,
    /// Whether a filter before it ends the chain.
    pub is_after_last: bool,
}

/// States of a resource in a dump that is not in force.
const NOT_IN_FORCE: [&str; 3] = ["warming_state", "draining_state", "error_state"];

impl<'d> Configuration<'d> {
    /// Finds the parts of all files.
    pub fn of(files: &'d Files) -> Self {
        let roots: Vec<Part<'d>> =
            files.documents().map(|(source, root)| Part::new(&source.id, root)).collect();
        let node = roots.iter().find_map(|root| node_cluster(*root));
        let envoy =
            Envoy { source_cluster: Some(node.unwrap_or_default().to_owned()), matches_each_value: true };
        let found = Self { envoy: envoy.clone(), ..Self::default() };
        let mut finder = Finder { found, envoy, patches: Patches::default() };
        for root in roots {
            let before = finder.number();
            finder.found.runtime.add(root);
            finder.visit(root, "");
            if finder.number() == before {
                finder.found.others.push(root.origin());
            }
        }
        finder.found.managers.extend(finder.patches.managers());
        finder.found
    }

    /// The cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<Cluster<'d>> {
        self.clusters.iter().find(|cluster| cluster.name() == name).copied()
    }

    /// The routes of a connection manager, if they are in the files. None if several configurations have their name and differ.
    pub fn routes_of<'c>(&'c self, manager: &'c Manager<'d>) -> Option<&'c RouteConfig<'d>> {
        match &manager.routes {
            Routes::Inline(routes) => Some(routes),
            Routes::Named(name) => self.named_routes(name),
            Routes::Elsewhere => None,
        }
    }

    fn named_routes(&self, name: &str) -> Option<&RouteConfig<'d>> {
        let mut all = self.route_configs.iter().filter(|config| config.name == name && !config.is_copy);
        let first = all.next()?;
        all.all(|other| other.part.json() == first.part.json()).then_some(first)
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.managers.is_empty()
            && self.route_configs.is_empty()
            && self.network_filters.is_empty()
            && self.of_version_2.is_empty()
    }
}

/// The cluster of Envoy's node, in a bootstrap or in a dump of one.
fn node_cluster<'d>(root: Part<'d>) -> Option<&'d str> {
    let dumped = root.list("configs").find_map(|config| config.get_in(["bootstrap", "node", "cluster"]));
    Some(root.get_in(["node", "cluster"]).or(dumped)?.as_text())
}

struct Finder<'d> {
    found: Configuration<'d>,
    envoy: Envoy,
    /// The additions of Istio's patches to the listeners of a mesh.
    patches: Patches<'d>,
}

impl<'d> Finder<'d> {
    /// Number of parts found so far.
    fn number(&self) -> usize {
        let found = &self.found;
        found.managers.len()
            + found.route_configs.len()
            + found.clusters.len()
            + found.network_filters.len()
            + found.of_version_2.len()
            + self.patches.len()
    }

    fn visit(&mut self, part: Part<'d>, listener: &'d str) {
        if part.text("kind") == "EnvoyFilter" {
            return part
                .get("spec")
                .into_iter()
                .flat_map(|spec| spec.list("configPatches"))
                .for_each(|patch| self.patch(patch, &Scope::of(part, patch)));
        }
        let message = Typed::of(part).message;
        if message.contains("rate_limit.v2.")
            || message.contains("config.filter.") && message.contains("rate_limit")
        {
            return self.found.of_version_2.push(part);
        }
        if part.get("http_filters").is_some_and(|filters| filters.items().next().is_some()) {
            let manager = Manager::read(part, listener, &self.envoy);
            let old = manager.filters.iter().filter_map(|filter| filter.part.get("typed_config"));
            self.found
                .of_version_2
                .extend(old.filter(|config| Typed::of(*config).message.contains("rate_limit.v2.")));
            return self.found.managers.push(manager);
        }
        if part.has("virtual_hosts") {
            return self.found.route_configs.push(RouteConfig::read(part, &self.envoy));
        }
        if Cluster::is_one(part) {
            return self.found.clusters.push(Cluster { part });
        }
        // A listener: the parts below have its name.
        let listener = if part.has("filter_chains") { part.text("name") } else { listener };
        self.network_chain(part);
        let is_dump = part.list("configs").any(|config| config.message().ends_with("ListenersConfigDump"));
        for (name, value) in part.fields() {
            if NOT_IN_FORCE.iter().any(|state| crate::node::is_called(state, name)) {
                continue;
            }
            let before = self.found.route_configs.len();
            match is_dump && name == "configs" {
                // A dump repeats the bootstrap's listeners and clusters by themselves.
                true => value
                    .items()
                    .filter(|config| !config.message().ends_with("BootstrapConfigDump"))
                    .for_each(|config| self.visit(config, listener)),
                false => self.visit(value, listener),
            }
            if crate::node::is_called("static_route_configs", name) {
                self.found.route_configs[before..].iter_mut().for_each(|config| config.is_copy = true);
            }
        }
        part.items().for_each(|item| self.visit(item, listener));
    }

    /// The `ratelimit` filters of connections in the chain of a part.
    fn network_chain(&mut self, part: Part<'d>) {
        let mut is_after_last = false;
        for filter in part.list("filters") {
            let Some(config) = filter.get("typed_config") else { continue };
            let Typed { message, fields } = Typed::of(config);
            if message.ends_with("network.ratelimit.v3.RateLimit") {
                self.found.network_filters.push(NetworkFilter { settings: fields, is_after_last });
            }
            is_after_last |= message.ends_with(".TcpProxy") || message.ends_with(".HttpConnectionManager");
        }
    }

    fn patch(&mut self, patch: Part<'d>, scope: &Scope<'d>) {
        let Some(value) = patch.get_in(["patch", "value"]) else { return };
        let context = patch.get("match").and_then(|matched| matched.get("routeConfiguration"));
        let name = context
            .and_then(|context| context.get_in(["vhost", "name"]))
            .map_or("(every virtual host)", Part::as_text);
        let unknown_route = Route { part: value, entries: Vec::new(), target: Target::Unknown };
        match patch.text("applyTo") {
            "HTTP_FILTER" => {
                let filter = HttpFilter::read(value, &self.envoy);
                if filter
                    .part
                    .get("typed_config")
                    .is_some_and(|config| Typed::of(config).message.contains("rate_limit.v2."))
                {
                    self.found.of_version_2.push(value);
                }
                self.patches.add(patch, scope, Addition::Filter(filter));
            }
            "VIRTUAL_HOST" => {
                let mut host = VirtualHost::read(value, &self.envoy);
                host.name = name;
                if host.routes.is_empty() {
                    host.routes.push(unknown_route);
                }
                self.patches.add(patch, scope, Addition::Host(host));
            }
            "HTTP_ROUTE" => {
                let routes = vec![Route::read(value, &self.envoy)];
                let host = VirtualHost { part: patch, name, entries: Vec::new(), routes };
                self.patches.add(patch, scope, Addition::Host(host));
            }
            "ROUTE_CONFIGURATION" if !value.has("virtual_hosts") => {
                let entries = RateLimitEntry::list(value, Level::VirtualHost, &self.envoy);
                let host = VirtualHost { part: value, name, entries, routes: vec![unknown_route] };
                self.patches.add(patch, scope, Addition::Host(host));
            }
            "CLUSTER" => self.found.clusters.push(Cluster { part: value }),
            _ => self.visit(value, ""),
        }
    }
}
