//! Variables as flags, and the page about them.

use super::{names::READ, *};
use crate::cli::{Cli, serve::settings};
use clap::CommandFactory as _;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn expanded(args: &[&str], pairs: &[(&str, &str)]) -> Result<String, String> {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let expanded = settings::expand(&Cli::command(), args, &map(pairs));
    expanded.map(|(args, _)| args.join(" ")).map_err(|failure| failure.to_string())
}

#[test]
fn without_variables_the_defaults_are_those_of_the_reference_server() {
    let expected = "tidegate serve --env=reference --compat=reference --listen=0.0.0.0:8081 \
                    --http-listen=0.0.0.0:8080,0.0.0.0:6070 --rules=/srv/runtime_data/current/config:/srv/runtime_data/current/config.* \
                    --rules-every-file --wait-for-rules --rules-dot-files --healthy-without-rules \
                    --max-descriptors=4194304 --max-entries=4194304 --max-text-bytes=4194304 \
                    --max-message-bytes=4194304 --log=warn --log-format=text";
    assert_eq!(expanded(&["/bin/ratelimit"], &[]).as_deref(), Ok(expected));
    let own = ["tidegate", "serve", "--env=reference"];
    let last = format!("{} --env=reference", expected.replace(" --env=reference", ""));
    assert_eq!(expanded(&own, &[]), Ok(last));
    assert_eq!(expanded(&["tidegate", "serve"], &[("PORT", "1")]).as_deref(), Ok("tidegate serve"));
}

/// A container's command, which is an argument of the entry point, was refused as an unknown command.
#[test]
fn the_programs_name_as_the_first_argument_selects_the_variables() {
    let named = expanded(&["/bin/ratelimit", "--threads=2"], &[("PORT", "1")]);
    assert_eq!(expanded(&["tidegate", "/bin/ratelimit", "--threads=2"], &[("PORT", "1")]), named);
    assert_eq!(expanded(&["tidegate", "ratelimit", "--threads=2"], &[("PORT", "1")]), named);
}

#[test]
fn variables_of_the_reference_server_that_are_not_selected_are_a_warning() {
    assert_eq!(overlooked(&map(&[("PORT", "1"), ("REDIS_URL", "redis:1"), ("RUNTIME_ROOT", "")])), None);
    let warning = overlooked(&map(&[("RUNTIME_ROOT", "/data"), ("USE_STATSD", "false")])).unwrap();
    assert!(warning.contains("RUNTIME_ROOT, USE_STATSD. Add --env reference"), "{warning}");
}

/// The server once served plaintext, without a warning.
#[test]
fn tls_without_the_files_of_a_certificate_is_refused() {
    let tls = ("GRPC_SERVER_USE_TLS", "true");
    let (cert, key) = (("GRPC_SERVER_TLS_CERT", "/c"), ("GRPC_SERVER_TLS_KEY", "/k"));
    let refused = |pairs: &[(&str, &str)]| expanded(&["ratelimit"], pairs).unwrap_err();
    assert!(
        refused(&[tls]).contains("GRPC_SERVER_TLS_CERT is not set; name the file"),
        "{}",
        refused(&[tls])
    );
    assert!(refused(&[tls, cert, ("GRPC_SERVER_TLS_KEY", "")]).contains("GRPC_SERVER_TLS_KEY is not set"));
    assert!(expanded(&["ratelimit"], &[tls, cert, key]).is_ok());
    assert!(expanded(&["ratelimit", "--tls-cert=/c", "--tls-key=/k"], &[tls]).is_ok(), "flags name them too");
}

#[test]
fn own_flags_and_variables_take_precedence() {
    let args = ["ratelimit", "--listen", "127.0.0.1:0", "--log=info"];
    let expanded = expanded(&args, &[("TIDEGATE_RULES", "/r"), ("LOG_LEVEL", "debug")]).unwrap();
    assert!(expanded.ends_with("--log-format=text --listen 127.0.0.1:0 --log=info"), "{expanded}");
    assert!(!expanded.contains("--rules=") && !expanded.contains("debug"), "{expanded}");
}

#[test]
fn a_port_of_the_environment_overrides_that_of_an_image() {
    let listen = ("TIDEGATE_LISTEN", "0.0.0.0:8081");
    assert!(!expanded(&["ratelimit"], &[listen]).unwrap().contains("--listen="));
    let named = expanded(&["ratelimit"], &[listen, ("GRPC_PORT", "9000")]).unwrap();
    assert!(named.contains("--listen=0.0.0.0:9000 "), "{named}");
}

#[test]
fn addresses_may_be_ipv6_and_a_unix_socket() {
    let addresses = |pairs: &[(&str, &str)]| expanded(&["ratelimit"], pairs).unwrap();
    let six = addresses(&[("HOST", "::"), ("GRPC_HOST", "::")]);
    assert!(six.contains("--listen=[::]:8081 --http-listen=[::]:8080,0.0.0.0:6070"), "{six}");
    assert!(addresses(&[("GRPC_UDS", "/run/r.sock")]).contains("--listen=unix:/run/r.sock "));
}

#[test]
fn malformed_variables_are_errors_with_a_remedy() {
    for (name, value) in [
        ("CONFIG_TYPE", "ETCD"),
        ("LOG_LEVEL", "loud"),
        ("SHADOW_MODE", "maybe"),
        ("NEAR_LIMIT_RATIO", "2"),
        ("GRPC_MAX_CONNECTION_AGE", "1 fortnight"),
    ] {
        let error = expanded(&["ratelimit"], &[(name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(value) && error.contains("; write "), "{error}");
    }
}

#[test]
fn variables_without_effect_are_named_once_and_others_not_at_all() {
    let warned = |pairs: &[(&str, &str)]| warnings(&map(pairs));
    let with_effect = [("PATH", "/bin"), ("PORT", "8080"), ("REDIS_URL", "unused:"), ("REDIS_POOL_SIZE", "")];
    assert!(warned(&with_effect).is_empty());
    let [ignored] =
        &warned(&[("REDIS_POOL_SIZE", "5"), ("REDIS_PERSECOND", "true"), ("USE_STATSD", "false")])[..]
    else {
        panic!("one line")
    };
    assert!(ignored.ends_with(": REDIS_PERSECOND, REDIS_POOL_SIZE"), "{ignored}");
    assert!(warned(&[("BACKEND_TYPE", "memcache")])[0].contains("memory of this process"));
}

/// Values that Go's servers read in their own way were errors, or had another meaning.
#[test]
fn values_of_go_programs_have_the_same_meaning() {
    let value =
        |pair: (&str, &str), flag: &str| flags(&[("CONFIG_TYPE", "GRPC_XDS_SOTW"), pair], [flag])[0].clone();
    let url = |target| value(("CONFIG_GRPC_XDS_SERVER_URL", target), "--rules=").unwrap();
    for target in [
        "plane:18000",
        "dns:///plane:18000",
        "dns://1.1.1.1/plane:18000",
        "dns:plane:18000",
        "passthrough:///plane:18000",
    ] {
        assert_eq!(url(target), "xds://plane:18000?node=default", "{target}");
    }
    assert_eq!(value(("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0"), "--xds-max-message-bytes="), None);
    assert_eq!(value(("GRPC_MAX_CONNECTION_AGE", "0s"), "--max-connection-age=").as_deref(), Some(UNBOUNDED));
    let http = |address| {
        flags(&[("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", address)], ["--http-listen="])[0].clone()
    };
    assert!(http(":19001").unwrap().ends_with(&format!(",{}:19001", any_address())));
}

#[test]
fn health_needs_rules_where_the_variable_says_so() {
    let has = |pairs: &[(&str, &str)], flag: &str| expanded(&["ratelimit"], pairs).unwrap().contains(flag);
    let needed = [("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")];
    assert!(has(&needed, "--health-needs-rules") && !has(&needed, "--healthy-without-rules"));
    assert!(!has(&[], "--health-needs-rules"));
}

/// The values of these flags; none if a flag is absent.
fn flags<const N: usize>(pairs: &[(&str, &str)], names: [&str; N]) -> [Option<String>; N] {
    let expanded = expanded(&["ratelimit"], pairs).unwrap();
    names.map(|name| {
        let of = |word: &str| word.strip_prefix(name).map(|value| value.trim_start_matches('=').to_owned());
        expanded.split(' ').find_map(of)
    })
}

#[test]
fn the_store_of_the_reference_server_is_that_of_shared_counters() {
    let url = |pairs: &[(&str, &str)]| flags(pairs, ["--counters="])[0].clone();
    let one = ("REDIS_URL", "redis:6379");
    for (pairs, expected) in [
        (&[("REDIS_URL", "unused:0")][..], None),
        (&[one, ("BACKEND_TYPE", "memcache")], None),
        (&[one, ("REDIS_SOCKET_TYPE", "tcp")], Some("redis://redis:6379")),
        (
            &[("REDIS_URL", "redis://redis:6379/2"), ("REDIS_AUTH", "a/b")],
            Some("redis://:a%2Fb@redis:6379/2"),
        ),
        (&[one, ("REDIS_TLS", "true"), ("REDIS_AUTH", "u:p")], Some("rediss://u:p@redis:6379")),
        (&[("REDIS_URL", "/run/redis.sock")], Some("unix:/run/redis.sock")),
        (&[("REDIS_URL", "main,a:1,b:2"), ("REDIS_TYPE", "SENTINEL")], Some("redis+sentinel://a:1,b:2/main")),
        (
            &[("REDIS_URL", "main,a:1"), ("REDIS_TYPE", "sentinel"), ("REDIS_SENTINEL_AUTH", "u:p@")],
            Some("redis+sentinel://a:1/main?sentinel_auth=u:p%40"),
        ),
        (&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "cluster")], Some("redis+cluster://a:1,b:2")),
    ] {
        assert_eq!(url(pairs).as_deref(), expected, "{pairs:?}");
    }
    let tls = [one, ("REDIS_TLS_CACERT", "/ca"), ("CACHE_KEY_PREFIX", "p:"), ("REDIS_TLS_CLIENT_CERT", "/c")];
    let tls =
        flags(&tls, ["--counters-ca", "--counters-prefix", "--counters-cert", "--counters-allow-eviction"]);
    assert_eq!(tls.map(Option::unwrap), ["/ca", "p:", "/c", ""]);
    let timeout = |pairs: &[(&str, &str)]| flags(pairs, ["--counters-timeout="])[0].clone();
    assert_eq!(timeout(&[one]).as_deref(), Some("10s"));
    assert_eq!(timeout(&[one, ("REDIS_TIMEOUT", "500ms")]).as_deref(), Some("500ms"));
    assert_eq!(flags(&[one], ["--on-store-failure="]), [Some("error".to_owned())]);
    let own = expanded(&["ratelimit"], &[one, ("TIDEGATE_COUNTERS", "redis://other:1")]).unwrap();
    assert!(!own.contains("--counters"), "{own}");
    assert_eq!(url(&[one, ("TIDEGATE_COUNTERS", "")]).as_deref(), Some("redis://redis:6379"), "it is unset");
    let error = expanded(&["ratelimit"], &[("REDIS_URL", "a:1"), ("REDIS_TYPE", "sentinel")]).unwrap_err();
    assert!(error.contains("REDIS_URL") && error.contains("; write group,host:port"), "{error}");
}

#[test]
fn metrics_are_pushed_where_a_variable_requests_it() {
    let names = ["--statsd=", "--statsd-interval", "--statsd-format", "--statsd-tags"];
    let pushed = |pairs: &[(&str, &str)]| flags(pairs, names).map(|value| value.unwrap_or_default());
    assert_eq!(pushed(&[]), [""; 4]);
    assert_eq!(pushed(&[("USE_STATSD", "false"), ("STATSD_HOST", "h")]), [""; 4]);
    assert_eq!(pushed(&[("USE_STATSD", "true"), ("DISABLE_STATS", "true")]), [""; 4]);
    let tagged = pushed(&[("USE_STATSD", "true"), ("EXTRA_TAGS", "a:b")]);
    assert_eq!(tagged, ["localhost:8125", "10s", "", "a:b"]);
    let transport = |pairs: &[(&str, &str)]| flags(pairs, ["--statsd-transport="])[0].clone();
    assert_eq!(
        transport(&[("USE_STATSD", "true")]).as_deref(),
        Some("tcp"),
        "the default of the reference server"
    );
    assert_eq!(transport(&[("USE_STATSD", "true"), ("STATSD_PROTOCOL", "udp")]).as_deref(), Some("udp"));
    assert_eq!(pushed(&[("STATSD_HOST", "h"), ("STATSD_PORT", "9")]), ["h:9", "10s", "", ""]);
    let dog = [
        ("USE_DOG_STATSD", "true"),
        ("USE_STATSD", "false"),
        ("EXTRA_TAGS", "a:b,c:d"),
        ("STATS_FLUSH_INTERVAL", "5s"),
    ];
    assert_eq!(pushed(&dog), ["localhost:8125", "5s", "dogstatsd", "a:b,c:d"]);
}

#[test]
fn the_path_of_the_metrics_is_a_flag_unless_it_is_the_usual_one() {
    let path = |pairs: &[(&str, &str)]| flags(pairs, ["--metrics-path="])[0].clone();
    let prometheus = ("USE_PROMETHEUS", "true");
    assert_eq!(path(&[prometheus, ("PROMETHEUS_PATH", "/metrics")]), None);
    assert_eq!(path(&[("PROMETHEUS_PATH", "/prom")]), None);
    assert_eq!(path(&[prometheus, ("PROMETHEUS_PATH", "/prom")]).as_deref(), Some("/prom"));
}

#[test]
fn the_figures_of_the_reference_server_are_requested_once_where_they_are_read() {
    let times = |pairs: &[(&str, &str)]| {
        expanded(&["ratelimit"], pairs).unwrap().matches(" --reference-metrics").count()
    };
    assert_eq!(times(&[]), 0);
    let (statsd, prometheus) = (("USE_STATSD", "true"), ("USE_PROMETHEUS", "true"));
    assert_eq!([times(&[statsd]), times(&[prometheus]), times(&[statsd, prometheus])], [1; 3]);
}

#[test]
fn traces_have_the_service_and_the_rate_of_the_reference_servers_variables() {
    let derived = |pairs: &[(&str, &str)]| {
        let derived = Environment(&map(pairs)).open_telemetry().map_err(|failure| failure.to_string());
        derived
            .map(|derived| derived.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    assert_eq!(derived(&[("TRACING_ENABLED", "true")]).unwrap(), [""; 0]);
    assert_eq!(derived(&[endpoint]).unwrap(), ["OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=none"]);
    let of_envoy_gateway = [
        endpoint,
        ("TRACING_ENABLED", "true"),
        ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
        ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
        ("TRACING_SERVICE_INSTANCE_ID", "pod-1"),
        ("TRACING_SAMPLING_RATE", "0.6"),
    ];
    let mut expected = vec![
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        "OTEL_METRICS_EXPORTER=none",
        "OTEL_PROPAGATORS=b3,b3multi,tracecontext",
        "OTEL_RESOURCE_ATTRIBUTES=service.namespace=envoy-gateway-system,service.instance.id=pod-1",
        "OTEL_SERVICE_NAME=envoy-ratelimit",
        "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG=0.6",
    ];
    assert_eq!(derived(&of_envoy_gateway).unwrap(), expected);
    let own = [&of_envoy_gateway[..], &[("OTEL_SERVICE_NAME", "mine")]].concat();
    expected.remove(4);
    assert_eq!(derived(&own).unwrap(), expected);
    let wrong = [endpoint, ("TRACING_ENABLED", "true"), ("TRACING_SAMPLING_RATE", "all")];
    assert!(derived(&wrong).unwrap_err().contains("TRACING_SAMPLING_RATE"));
}

/// Every variable that is read has a row in the page, and the page has no others.
#[test]
fn the_page_lists_the_variables_that_are_read() {
    let page = include_str!("../../../../docs/reference-environment.md");
    let (read, _) = page.split_once("## Without effect").expect("two parts");
    let rows = read.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_cells = rows.filter_map(|row| row.split(" | ").next());
    let mut listed: Vec<&str> =
        first_cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`')).collect();
    listed.sort_unstable();
    assert_eq!(listed, READ);
}
