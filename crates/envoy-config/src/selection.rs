//! Which entries of `rate_limits` a filter applies to the requests of a route.

use crate::{
    configuration::{
        HttpFilter, Level, PerRoute, PerRouteConfig, RateLimitEntry, RateLimitFilter, Route, RouteConfig,
        Target, VirtualHost,
    },
    part::Part,
    stream::Envoy,
};
use std::{fmt, rc::Rc};

/// A filter, and the route of a request.
#[derive(Clone, Copy, Debug)]
pub struct OfRoute<'c, 'd> {
    /// The filter's place in the chain.
    pub filter: &'c HttpFilter<'d>,
    /// The filter.
    pub settings: &'c RateLimitFilter<'d>,
    /// The route configuration with the route.
    pub config: &'c RouteConfig<'d>,
    /// Its virtual host.
    pub host: &'c VirtualHost<'d>,
    /// The route.
    pub route: &'c Route<'d>,
    /// The weighted cluster of the request, if it configures the filter.
    pub cluster: Option<Part<'d>>,
}

/// The entries for the requests of a route.
#[derive(Debug)]
pub struct Selection<'d> {
    /// The domain of the calls.
    pub domain: &'d str,
    /// The entries that apply, in the order of their descriptors.
    pub applied: Vec<Rc<RateLimitEntry<'d>>>,
    /// The others, and why.
    pub left_out: Vec<(Rc<RateLimitEntry<'d>>, LeftOut)>,
    /// The `RateLimitPerRoute` that applies.
    pub settings: Option<Part<'d>>,
    /// The configuration that would apply, and why it does not.
    pub ignored: Option<(Part<'d>, LeftOut)>,
    /// The place where a part of the route disables the filter.
    pub disabled: Option<Part<'d>>,
}

impl Selection<'_> {
    /// Whether other entries may apply: those of a configuration that is not read here.
    pub(crate) fn is_unknown(&self) -> bool {
        self.ignored.is_some_and(|(_, why)| why == LeftOut::Unread)
    }
}

/// The reason why an entry does not apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Envoy responds by itself.
    Answered(&'static str),
    /// The filter is disabled, or not enabled, for the route.
    Disabled,
    /// It is of a `RateLimitPerRoute` for the other kind of filter: for a module if this is true.
    OtherKind(bool),
    /// What a part of the route sets for the filter is not read here.
    Unread,
    /// A `RateLimitPerRoute` has entries of its own.
    PerRoute,
    /// The filter has entries of its own.
    Filter,
    /// The filter is a module, and the entry is of a route or virtual host.
    Module,
    /// It is of another stage than the filter.
    Stage(u64, u64),
    /// The route has entries of its own, and does not include those of its virtual host.
    RouteHasOwn,
    /// `vh_rate_limits: IGNORE`.
    Ignored,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(by) => write!(f, "the route has a {by}: Envoy limits only routes to a cluster"),
            Self::Disabled => f.write_str("the filter is disabled for the route"),
            Self::OtherKind(true) => f.write_str(
                "its RateLimitPerRoute is wrapped for a module, and the filter is the ratelimit filter",
            ),
            Self::OtherKind(false) => {
                f.write_str("its RateLimitPerRoute is not wrapped for a module, and the filter is a module")
            }
            Self::Unread => f.write_str("it depends on a configuration of the route that is not read here"),
            Self::PerRoute => f.write_str("a RateLimitPerRoute with rate_limits applies instead"),
            Self::Filter => f.write_str("the rate_limits of the filter apply instead"),
            Self::Module => f.write_str("a module does not see the rate_limits of routes and virtual hosts"),
            Self::Stage(own, filter) => write!(f, "it is of stage {own}, and the filter of stage {filter}"),
            Self::RouteHasOwn => f.write_str(
                "the route has rate_limits of its own; set include_vh_rate_limits: true on it to have both",
            ),
            Self::Ignored => f.write_str("vh_rate_limits is IGNORE"),
        }
    }
}

impl<'d> OfRoute<'_, 'd> {
    /// The parts that may configure filters for the requests, the most specific first.
    pub(crate) fn configuring(&self) -> Vec<Part<'d>> {
        let parts = [self.route.part, self.host.part, self.config.part];
        self.cluster.into_iter().chain(parts).collect()
    }

    /// The configurations for the filter, the most specific first.
    fn per_route(&self) -> impl Iterator<Item = PerRoute<'d>> {
        self.configuring().into_iter().filter_map(|part| PerRoute::of(part, self.filter.name))
    }

    /// The entries that apply to the requests of the route, and the others.
    pub fn select(&self, envoy: &Envoy) -> Selection<'d> {
        let own = self.per_route().next();
        let is_disabled = own.map_or(self.filter.is_disabled(), |own| own.is_disabled);
        let set = self.per_route().find(|own| !matches!(own.config, PerRouteConfig::Nothing));
        let (mut settings, mut ignored) = (None, None);
        match set.map(|own| own.config) {
            Some(PerRouteConfig::RateLimit { settings: own, is_module })
                if is_module == self.settings.is_module =>
            {
                settings = Some(own);
            }
            Some(PerRouteConfig::RateLimit { settings: own, is_module }) => {
                ignored = Some((own, LeftOut::OtherKind(is_module)));
            }
            Some(PerRouteConfig::Unread(_)) => ignored = set.map(|own| (own.part, LeftOut::Unread)),
            Some(PerRouteConfig::Other | PerRouteConfig::Nothing) | None => {}
        }
        let domain = settings.map(|settings| settings.text("domain")).filter(|domain| !domain.is_empty());
        let entries = settings
            .or(ignored.map(|(part, _)| part))
            .map_or_else(Vec::new, |part| RateLimitEntry::list(part, Level::PerRoute, envoy));
        let has_own = settings.is_some() && !entries.is_empty();
        let mut selection = Selection {
            domain: domain.unwrap_or(self.settings.domain()),
            applied: Vec::new(),
            left_out: Vec::new(),
            settings,
            ignored: ignored.filter(|_| !is_disabled),
            disabled: own.filter(|own| own.is_disabled).map(|own| own.part),
        };
        let host_option = settings.map_or("", |settings| settings.text("vh_rate_limits"));
        let all =
            entries.iter().chain(&self.settings.entries).chain(&self.route.entries).chain(&self.host.entries);
        for entry in all {
            let why = match (&self.route.target, entry.level) {
                (Target::Answered(by), _) => Some(LeftOut::Answered(by)),
                _ if is_disabled => Some(LeftOut::Disabled),
                (_, Level::PerRoute) => ignored.map(|(_, why)| why),
                _ if ignored.is_some_and(|(_, why)| why == LeftOut::Unread) => Some(LeftOut::Unread),
                _ if has_own => Some(LeftOut::PerRoute),
                (_, Level::Filter) => None,
                _ if self.settings.is_module => Some(LeftOut::Module),
                _ if !self.settings.entries.is_empty() => Some(LeftOut::Filter),
                _ if entry.stage() != self.settings.stage() => {
                    Some(LeftOut::Stage(entry.stage(), self.settings.stage()))
                }
                (_, Level::Route) => None,
                (_, Level::VirtualHost) if self.route.includes_host() || host_option == "INCLUDE" => None,
                (_, Level::VirtualHost) if host_option == "IGNORE" => Some(LeftOut::Ignored),
                (_, Level::VirtualHost) if !self.route.entries.is_empty() => Some(LeftOut::RouteHasOwn),
                (_, Level::VirtualHost) => None,
            };
            match why {
                None => selection.applied.push(Rc::clone(entry)),
                Some(why) => selection.left_out.push((Rc::clone(entry), why)),
            }
        }
        selection
    }
}
