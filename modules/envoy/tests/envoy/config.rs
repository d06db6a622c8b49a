//! Configurations of Envoy: listeners with one filter, in front of an application that is part of the same Envoy.

use serde_json::{Value as Json, json};

/// A message with the type of this name.
pub fn typed(name: &str, mut message: Json) -> Json {
    message["@type"] = format!("type.googleapis.com/{name}").into();
    message
}

const RATE_LIMIT: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const PER_ROUTE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
const MODULE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const MODULE_PER_ROUTE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";

/// The filter under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    RateLimit,
    Module,
    /// The module, configured by JSON.
    ModuleByJson,
}

impl Filter {
    /// The name of its entry in the chain, which routes refer to.
    fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "envoy.filters.http.ratelimit",
            _ => "tidegate",
        }
    }

    /// The filter with a message of the ratelimit filter.
    fn entry(self, settings: &Json) -> Json {
        let typed_config = match self {
            Self::RateLimit => typed(RATE_LIMIT, settings.clone()),
            _ => self.wrapped(MODULE, RATE_LIMIT, settings),
        };
        json!({"name": self.name(), "typed_config": typed_config})
    }

    /// The configuration of a route with a message of the ratelimit filter.
    pub fn per_route(self, settings: &Json) -> Json {
        let config = match self {
            Self::RateLimit => typed(PER_ROUTE, settings.clone()),
            _ => self.wrapped(MODULE_PER_ROUTE, PER_ROUTE, settings),
        };
        json!({ self.name(): config })
    }

    fn wrapped(self, wrapper: &str, message: &str, settings: &Json) -> Json {
        let filter_config = match self {
            Self::ModuleByJson => typed("google.protobuf.Struct", json!({"value": settings})),
            _ => typed(message, settings.clone()),
        };
        typed(
            wrapper,
            json!({
                "dynamic_module_config": {"name": "tidegate", "do_not_close": true},
                "filter_name": "ratelimit",
                "filter_config": filter_config,
            }),
        )
    }
}

/// A listener with the filter and routes. The client's address is the last in `x-forwarded-for`.
pub fn listener(name: &str, filter: Filter, settings: &Json, routes: Vec<Json>) -> Json {
    let manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": name,
            "use_remote_address": true,
            "xff_num_trusted_hops": 1,
            "http_filters": [
                metadata_filter(),
                filter.entry(settings),
                {"name": "envoy.filters.http.router", "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", json!({}))},
            ],
            "route_config": {
                "name": name,
                "virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}],
            },
        }),
    );
    json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

/// Has a listener write a line of metadata for each request to the file `access` of Envoy's folder.
pub fn with_access_log(mut listener: Json, format: &str) -> Json {
    let log = json!({
        "path": "FOLDER/access",
        "log_format": {"text_format_source": {"inline_string": format!("{format}\n")}},
    });
    let name = "envoy.extensions.access_loggers.file.v3.FileAccessLog";
    listener["filter_chains"][0]["filters"][0]["typed_config"]["access_log"] =
        json!([{"name": "envoy.access_loggers.file", "typed_config": typed(name, log)}]);
    listener
}

/// A filter that copies the headers `x-meta-text` and `x-meta-number` of a request to the stream's metadata.
fn metadata_filter() -> Json {
    let rule = |header: &str, kind: &str| {
        let key = header.strip_prefix("x-meta-").unwrap();
        json!({
            "header": header,
            "on_header_present": {"metadata_namespace": "test", "key": key, "type": kind},
            "remove": false,
        })
    };
    let config = json!({"request_rules": [rule("x-meta-text", "STRING"), rule("x-meta-number", "NUMBER")]});
    let name = "envoy.extensions.filters.http.header_to_metadata.v3.Config";
    json!({"name": "envoy.filters.http.header_to_metadata", "typed_config": typed(name, config)})
}

/// A route below a prefix to the application.
pub fn route(prefix: &str, per_route: Option<Json>) -> Json {
    let mut route = json!({
        "match": {"prefix": prefix},
        "route": {"cluster": "application"},
        "metadata": {"filter_metadata": {"test": {"route": "of-the-route"}}},
    });
    if let Some(per_route) = per_route {
        route["typed_per_filter_config"] = per_route;
    }
    route
}

/// A configuration with these listeners, an application and a server's socket.
pub fn bootstrap(mut listeners: Vec<Json>, server: Option<&str>) -> Json {
    listeners.push(application());
    json!({
        "node": {"id": "test", "cluster": "node-cluster"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"listeners": listeners, "clusters": clusters(server)},
    })
}

/// The clusters of a configuration.
pub fn clusters(server: Option<&str>) -> Json {
    let cluster = |name: &str, path: &str| {
        json!({
            "name": name,
            "type": "STATIC",
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": {"pipe": {"path": path}}}},
            ]}]},
        })
    };
    let mut application = cluster("application", "FOLDER/application");
    application["metadata"] = json!({"filter_metadata": {"test": {"cluster": "of-the-cluster"}}});
    let mut tidegate = cluster("tidegate", server.unwrap_or("FOLDER/nothing"));
    tidegate["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            json!({"explicit_http_config": {"http2_protocol_options": {}}}),
        ),
    });
    json!([application, tidegate])
}

/// The application: responds with a header for the cost of the request, and with headers that a client has forged.
pub fn application() -> Json {
    let manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "application",
            "http_filters": [
                {"name": "envoy.filters.http.router", "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", json!({}))},
            ],
            "route_config": {"virtual_hosts": [{
                "name": "application",
                "domains": ["*"],
                "routes": [{
                    "match": {"prefix": "/"},
                    "direct_response": {"status": 200, "body": {"inline_string": "served"}},
                    "response_headers_to_add": [
                        {"header": {"key": "x-cost", "value": "%REQ(x-cost)%"}},
                        {"header": {"key": "x-seen", "value": "%REQ(x-marked)%"}},
                        {"header": {"key": "x-ratelimit-limit", "value": "%REQ(x-upstream-limit)%"}},
                    ],
                }],
            }]},
        }),
    );
    json!({
        "name": "application",
        "address": {"pipe": {"path": "FOLDER/application"}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

/// `rate_limit_service`, which Envoy requires of either filter.
pub fn service() -> Json {
    json!({"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "tidegate"}}})
}
