//! Clusters: the facts that calls to a rate limit server depend on.

use super::typed::Typed;
use crate::part::Part;

/// A cluster.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'d> {
    /// Its place.
    pub part: Part<'d>,
}

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

impl<'d> Cluster<'d> {
    /// Whether a value is a cluster, by the fields that it has.
    pub(crate) fn is_one(part: Part<'_>) -> bool {
        let fields = [
            "load_assignment",
            "connect_timeout",
            "cluster_type",
            "eds_cluster_config",
            "typed_extension_protocol_options",
            "http2_protocol_options",
        ];
        part.has("name") && fields.into_iter().any(|field| part.has(field))
    }

    /// Its name.
    pub fn name(self) -> &'d str {
        self.part.text("name")
    }

    /// Whether it speaks HTTP/2, which gRPC needs.
    pub fn is_http2(self) -> bool {
        let options = self
            .part
            .get("typed_extension_protocol_options")
            .and_then(|all| all.fields().find(|(name, _)| *name == HTTP_OPTIONS));
        let chosen = options.is_some_and(|(_, options)| {
            let options = Typed::of(options).fields;
            ["explicit_http_config", "use_downstream_protocol_config"]
                .iter()
                .any(|kind| options.get(kind).is_some_and(|config| config.has("http2_protocol_options")))
                || options.has("auto_config")
        });
        chosen || self.part.has("http2_protocol_options")
    }

    /// Number of endpoints that it lists.
    pub fn endpoints(self) -> usize {
        let localities = self.part.get("load_assignment").into_iter().flat_map(|all| all.list("endpoints"));
        localities.map(|locality| locality.list("lb_endpoints").count()).sum()
    }

    /// Why requests fail before Envoy leaves an endpoint that has ended; none if endpoints are checked often, even without traffic.
    pub(crate) fn why_unchecked(self) -> Option<&'static str> {
        let mut checks = self.part.list("health_checks").map(|check| check.has("no_traffic_interval"));
        match checks.next().map(|is_often| is_often || checks.any(|is_often| is_often)) {
            None => Some("no health checks"),
            Some(false) => Some("health checks without no_traffic_interval, which first run a minute later"),
            Some(true) => None,
        }
    }
}
