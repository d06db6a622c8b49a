//! A bootstrap of Envoy for tests: a listener with filters in front of an application in Envoy itself, and a server.

/// The port of the listener in the bootstrap.
pub const LISTENER: u16 = 10000;

const BOOTSTRAP: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }
static_resources:
  listeners:
    - name: edge
      address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                SETTINGS
                http_filters:
                  FILTER
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: application } }] }
    - name: application
      address: { socket_address: { address: 127.0.0.1, port_value: 8080 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: application
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        ROUTES
  clusters:
    - name: application
      load_assignment: { cluster_name: application, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8080 } } } }] }] }
    - name: tidegate
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment: { cluster_name: tidegate, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8081 } } } }] }] }
"#;

const RATE_LIMIT: &str = r#"
- name: envoy.filters.http.ratelimit
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    timeout: 5s
    rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: tidegate } } }
    SETTINGS
"#;

/// Routes of an application that serves every request.
pub const SERVED: &str = "- { match: { prefix: / }, direct_response: { status: 200 } }";

/// A bootstrap with these blocks of YAML: settings of the connection manager of the listener, its filter, and the routes of the application.
pub fn bootstrap(settings: &str, filter: &str, routes: &str) -> String {
    let config = with_block(BOOTSTRAP, "SETTINGS", settings);
    with_block(&with_block(&config, "FILTER", filter), "ROUTES", routes)
}

/// The filter that calls the server, with these additional settings.
pub fn rate_limit(settings: &str) -> String {
    with_block(RATE_LIMIT, "SETTINGS", settings)
}

/// Replaces a line that consists of this name by a block with the indentation of the name.
fn with_block(config: &str, name: &str, block: &str) -> String {
    let replaced = config.lines().map(|line| match line.strip_suffix(name) {
        Some(indentation) if indentation.trim().is_empty() => {
            block.lines().map(|line| format!("{indentation}{line}\n")).collect()
        }
        _ => format!("{line}\n"),
    });
    replaced.collect()
}
