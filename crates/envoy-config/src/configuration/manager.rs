//! HTTP connection managers: their filters and their routes.

use super::{
    entry::{Level, RateLimitEntry},
    routes::{RouteConfig, is_of_module, unwrapped},
};
use crate::{part::Part, stream::Envoy};
use std::rc::Rc;

/// An HTTP connection manager, or what patches add to those of a mesh.
#[derive(Debug)]
pub struct Manager<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Name of its listener, or its `stat_prefix`.
    pub name: String,
    /// Its filters, in order.
    pub filters: Vec<HttpFilter<'d>>,
    /// Its routes.
    pub routes: Routes<'d>,
    /// Whether only a part of it is known: that of patches.
    pub is_patched: bool,
}

/// The routes of a connection manager.
#[derive(Debug)]
pub enum Routes<'d> {
    /// These.
    Inline(RouteConfig<'d>),
    /// Routes of a configuration with this name.
    Named(&'d str),
    /// Others, such as scoped routes.
    Elsewhere,
}

/// A filter of a chain.
#[derive(Debug)]
pub struct HttpFilter<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Its name, by which routes refer to it.
    pub name: &'d str,
    /// Its kind.
    pub kind: FilterKind<'d>,
}

/// The filters that matter here.
#[derive(Debug)]
pub enum FilterKind<'d> {
    /// The `ratelimit` filter, or Tidegate's module with its configuration.
    RateLimit(RateLimitFilter<'d>),
    /// The router.
    Router,
    /// A filter whose configuration is not shown here.
    Unknown,
    /// Another, by its message.
    Other(&'d str),
}

/// The settings of a `ratelimit` filter.
#[derive(Debug)]
pub struct RateLimitFilter<'d> {
    /// Its message.
    pub settings: Part<'d>,
    /// Its own `rate_limits`.
    pub entries: Vec<Rc<RateLimitEntry<'d>>>,
    /// Whether it is Tidegate's module, which calls no server through a cluster.
    pub is_module: bool,
}

impl<'d> Manager<'d> {
    pub(crate) fn read(part: Part<'d>, listener: &str, envoy: &Envoy) -> Self {
        let routes = match (part.get("route_config"), part.get_in(["rds", "route_config_name"])) {
            (Some(config), _) => Routes::Inline(RouteConfig::read(config, envoy)),
            (None, Some(name)) => Routes::Named(name.as_text()),
            (None, None) => Routes::Elsewhere,
        };
        let name = [listener, part.text("stat_prefix")].into_iter().find(|name| !name.is_empty());
        Self {
            part,
            name: name.unwrap_or("(unnamed listener)").to_owned(),
            filters: part.list("http_filters").map(|filter| HttpFilter::read(filter, envoy)).collect(),
            routes,
            is_patched: false,
        }
    }

    /// The filters that limit, in order.
    pub fn rate_limits(&self) -> impl Iterator<Item = (&HttpFilter<'d>, &RateLimitFilter<'d>)> {
        self.filters.iter().filter_map(|filter| match &filter.kind {
            FilterKind::RateLimit(own) => Some((filter, own)),
            _ => None,
        })
    }
}

impl<'d> HttpFilter<'d> {
    pub(crate) fn read(part: Part<'d>, envoy: &Envoy) -> Self {
        let name = part.text("name");
        let config = part.get("typed_config").or_else(|| part.get_in(["config_discovery", "default_config"]));
        let kind = match config {
            None if name == "envoy.filters.http.router" => FilterKind::Router,
            None => FilterKind::Unknown,
            Some(config) => {
                let inner = unwrapped(config);
                match inner.message() {
                    _ if RateLimitFilter::is_one(config) => FilterKind::RateLimit(RateLimitFilter {
                        settings: inner,
                        entries: RateLimitEntry::list(inner, Level::Filter, envoy),
                        is_module: is_of_module(config),
                    }),
                    message if message.ends_with("http.router.v3.Router") => FilterKind::Router,
                    message => FilterKind::Other(message),
                }
            }
        };
        Self { part, name, kind }
    }

    /// Whether routes have to enable it.
    pub fn is_disabled(&self) -> bool {
        self.part.flag("disabled")
    }
}

impl<'d> RateLimitFilter<'d> {
    /// Whether a filter has this configuration.
    pub(crate) fn is_one(config: Part<'_>) -> bool {
        unwrapped(config).message().ends_with("http.ratelimit.v3.RateLimit")
    }

    /// The domain of its requests; empty if it is not set.
    pub fn domain(&self) -> &'d str {
        self.settings.text("domain")
    }

    /// The stage of the entries of routes that it applies.
    pub fn stage(&self) -> u64 {
        self.settings.number("stage").unwrap_or(0)
    }
}
