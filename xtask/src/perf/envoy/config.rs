//! The configurations of Envoy: one filter in front of an application in the same process, without access logs.

use super::Row;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// One limit that no load reaches.
pub(super) const RULES: &str = "domain: edge
descriptors:
  - key: api_key
    rate_limit: { unit: day, requests_per_unit: 4000000000 }
";

/// The address of a socket, as Envoy writes it.
pub(super) fn pipe(path: &str) -> Json {
    json!({"pipe": {"path": path}})
}

/// The configuration of a row: Envoy listens on `listen`, the application on a socket, and the server on an address.
pub(super) fn bootstrap(row: Row, listen: SocketAddr, application: &str, server: &Json) -> Json {
    let filters = filter(row, server).into_iter().chain([router()]).collect();
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "application"}});
    let response = json!({"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "served"}}});
    let http2 = typed(
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        json!({"explicit_http_config": {"http2_protocol_options": {}}}),
    );
    let mut of_server = cluster("server", server.clone());
    of_server["typed_extension_protocol_options"] =
        json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2});
    let pipe = pipe(application);
    json!({
        "static_resources": {
            "listeners": [
                listener("edge", address(listen), filters, &route),
                listener("application", pipe.clone(), vec![router()], &response),
            ],
            "clusters": [cluster("application", pipe), of_server],
        },
    })
}

fn filter(row: Row, server: &Json) -> Option<Json> {
    let mut settings = json!({
        "domain": "edge",
        "timeout": "1s",
        // A request that is not decided fails the measurement.
        "failure_mode_deny": true,
        "rate_limit_service": {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "server"}}},
        "rate_limits": [{"actions": [{"request_headers": {"header_name": "x-api-key", "descriptor_key": "api_key"}}]}],
    });
    let of_filter = |settings| typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", settings);
    match row {
        Row::None => None,
        Row::Filter | Row::Reference => {
            Some(json!({"name": "ratelimit", "typed_config": of_filter(settings)}))
        }
        Row::Module => Some(module(of_filter(settings))),
        Row::Leased => {
            let path = server["pipe"]["path"].as_str().unwrap_or_default();
            settings["tidegate"] = json!({"server": {"address": format!("unix:{path}")}});
            Some(module(typed("google.protobuf.Struct", json!({"value": settings}))))
        }
    }
}

fn module(settings: Json) -> Json {
    let filter = json!({
        "dynamic_module_config": {"name": "tidegate", "do_not_close": true},
        "filter_name": "ratelimit",
        "filter_config": settings,
    });
    let name = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
    json!({"name": "tidegate", "typed_config": typed(name, filter)})
}

fn typed(name: &str, mut message: Json) -> Json {
    message["@type"] = format!("type.googleapis.com/{name}").into();
    message
}

fn router() -> Json {
    let router = typed("envoy.extensions.filters.http.router.v3.Router", json!({}));
    json!({"name": "router", "typed_config": router})
}

pub(super) fn address(of: SocketAddr) -> Json {
    json!({"socket_address": {"address": of.ip().to_string(), "port_value": of.port()}})
}

fn cluster(name: &str, address: Json) -> Json {
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

fn listener(name: &str, address: Json, filters: Vec<Json>, route: &Json) -> Json {
    let manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": name,
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}]},
        }),
    );
    json!({
        "name": name,
        "address": address,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    })
}
