//! The names of the reference server's variables: those that are read, and those that have no effect.

use super::PROGRAM;
use crate::cli::serve::settings::Environment;
use std::collections::BTreeMap;

/// Variables that are read.
pub(in crate::cli) const READ: &[&str] = &[
    "BACKEND_TYPE",
    "CACHE_KEY_PREFIX",
    "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
    "CONFIG_GRPC_XDS_NODE_ID",
    "CONFIG_GRPC_XDS_NODE_METADATA",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
    "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
    "CONFIG_GRPC_XDS_SERVER_URL",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    "CONFIG_TYPE",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "DISABLE_STATS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_CLIENT_TLS_CACERT",
    "GRPC_CLIENT_TLS_SAN",
    "GRPC_HOST",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "GRPC_PORT",
    "GRPC_SERVER_TLS_CERT",
    "GRPC_SERVER_TLS_KEY",
    "GRPC_SERVER_USE_TLS",
    "GRPC_UDS",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "HOST",
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "MERGE_DOMAIN_CONFIG",
    "NEAR_LIMIT_RATIO",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "PORT",
    "PROMETHEUS_ADDR",
    "PROMETHEUS_PATH",
    "QUOTA_MODE",
    "REDIS_AUTH",
    "REDIS_SENTINEL_AUTH",
    "REDIS_SOCKET_TYPE",
    "REDIS_TIMEOUT",
    "REDIS_TLS",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    "REDIS_TYPE",
    "REDIS_URL",
    "RESPONSE_DYNAMIC_METADATA",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "SHADOW_MODE",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATSD_PROTOCOL",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "TRACING_ENABLED",
    "TRACING_EXPORTER_PROTOCOL",
    "TRACING_SAMPLING_RATE",
    "TRACING_SERVICE_INSTANCE_ID",
    "TRACING_SERVICE_NAME",
    "TRACING_SERVICE_NAMESPACE",
    "USE_DOG_STATSD",
    "USE_PROMETHEUS",
    "USE_STATSD",
    "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
    "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
    "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
];

/// Beginnings of names that belong to the reference server; such a variable that is not read is reported.
const PREFIXES: [&str; 21] = [
    "BACKEND_TYPE",
    "CACHE_",
    "CONFIG_",
    "DEBUG_",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_",
    "EXTRA_TAGS",
    "GRPC_",
    "LIMIT_",
    "LOCAL_CACHE_",
    "MEMCACHE_",
    "MERGE_DOMAIN_",
    "PROMETHEUS_",
    "QUOTA_MODE",
    "REDIS_",
    "RUNTIME_",
    "STATS",
    "STOP_CACHE_KEY_",
    "TRACING_",
    "USE_",
    "XDS_CLIENT_",
];

/// A variable of gRPC's libraries, which other programs may need.
const GRPC_LIBRARY_ROOTS: &str = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH";

/// Warnings about variables that have no effect.
pub(in crate::cli) fn warnings(variables: &BTreeMap<String, String>) -> Vec<String> {
    let environment = Environment(variables);
    let ignored = variables.keys().map(String::as_str).filter(|name| {
        let is_read = READ.contains(name) || *name == GRPC_LIBRARY_ROOTS;
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_read && environment.has_any(&[name])
    });
    let ignored: Vec<&str> = ignored.collect();
    let mut warnings = Vec::new();
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        warnings.push(format!("variables of the reference server without effect here: {names}"));
    }
    if environment.text("BACKEND_TYPE").is_some_and(|backend| backend != "redis") {
        let message = "BACKEND_TYPE is not redis: counters are kept in the memory of this process. Set TIDEGATE_COUNTERS to \
                       share them between replicas";
        warnings.push(message.to_owned());
    }
    warnings
}

/// Variables that only the reference server has. Where they are set, its mode was probably meant.
const DISTINCTIVE: [&str; 8] = [
    "BACKEND_TYPE",
    "CONFIG_GRPC_XDS_SERVER_URL",
    "GRPC_SERVER_USE_TLS",
    "REDIS_SOCKET_TYPE",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "USE_STATSD",
];

/// A warning where variables of the reference server are set, but not selected.
pub(in crate::cli) fn overlooked(variables: &BTreeMap<String, String>) -> Option<String> {
    let environment = Environment(variables);
    let set: Vec<&str> = DISTINCTIVE.into_iter().filter(|name| environment.has_any(&[name])).collect();
    (!set.is_empty()).then(|| {
        format!(
            "variables of the reference server are set, but not read: {}. Add --env reference, or start the program as \
             {PROGRAM}, to be configured by them",
            set.join(", ")
        )
    })
}
