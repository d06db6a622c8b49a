//! HTTP connection managers: their filters and their routes.

use super::{
    entry::{Level, RateLimitEntry},
    routes::RouteConfig,
    typed::{Content, Role, Typed},
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
#[derive(Clone, Debug)]
pub struct HttpFilter<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// Its name, by which routes refer to it.
    pub name: &'d str,
    /// Its kind.
    pub kind: FilterKind<'d>,
}

/// The filters that matter here.
#[derive(Clone, Debug)]
pub enum FilterKind<'d> {
    /// The `ratelimit` filter, or Tidegate's module with its configuration.
    RateLimit(RateLimitFilter<'d>),
    /// The router.
    Router,
    /// A filter whose configuration is not shown here.
    Unknown,
    /// A filter whose configuration is in this message, which is not read here.
    Unread(&'d str),
    /// Another, by its message.
    Other(&'d str),
}

/// The settings of a `ratelimit` filter.
#[derive(Clone, Debug)]
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
        let kind = match Self::config_of(part).map(|config| Content::of(config, Role::Filter)) {
            None if name == "envoy.filters.http.router" => FilterKind::Router,
            None => FilterKind::Unknown,
            Some(Content::RateLimit { settings, is_module }) => FilterKind::RateLimit(RateLimitFilter {
                settings,
                entries: RateLimitEntry::list(settings, Level::Filter, envoy),
                is_module,
            }),
            Some(Content::Unread(message)) => FilterKind::Unread(message),
            Some(Content::Other(message)) if message.ends_with("http.router.v3.Router") => FilterKind::Router,
            Some(Content::Other(message)) => FilterKind::Other(message),
        };
        Self { part, name, kind }
    }

    fn config_of(part: Part<'d>) -> Option<Part<'d>> {
        part.get("typed_config").or_else(|| part.get_in(["config_discovery", "default_config"]))
    }

    /// The fields of its configuration; those of the filter itself if it is not shown.
    pub(crate) fn settings(&self) -> Part<'d> {
        Self::config_of(self.part).map_or(self.part, |config| Typed::of(config).fields)
    }

    /// Whether routes have to enable it.
    pub fn is_disabled(&self) -> bool {
        self.part.flag("disabled")
    }
}

impl<'d> RateLimitFilter<'d> {
    /// Whether a filter with this configuration may be one.
    pub(crate) fn may_be_one(config: Part<'_>) -> bool {
        !matches!(Content::of(config, Role::Filter), Content::Other(_))
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
