//! Limitador's arguments and variables, and the flags that they become.

use super::*;

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The flags of the command, without those of bounds.
fn flags_of(args: &[&str], pairs: &[(&str, &str)]) -> Result<String, String> {
    let args: Vec<String> =
        ["/bin/limitador-server"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    let made = command(&args, &variables(pairs)).map_err(|failure| failure.to_string())?;
    let made = made.expect("the program is Limitador's");
    let bounds = |flag: &&String| {
        !flag.starts_with("--max-descr") && !flag.starts_with("--max-e") && !flag.ends_with("4194304")
    };
    Ok(made[1..].iter().filter(bounds).map(String::as_str).collect::<Vec<_>>().join(" "))
}

const DEFAULTS: &str = "serve --env=limitador --listen=0.0.0.0:8081 --http-listen=0.0.0.0:8080 --limitador-api=namespace --log=error \
                        --rules=l.yaml";

#[test]
fn arguments_and_variables_become_flags() {
    assert_eq!(flags_of(&["l.yaml"], &[]), Ok(DEFAULTS.to_owned()));
    assert_eq!(flags_of(&["l.yaml", "memory"], &[]), Ok(DEFAULTS.to_owned()));
    assert_eq!(flags_of(&[], &[("LIMITS_FILE", "l.yaml")]), Ok(DEFAULTS.to_owned()));
    // As the Kuadrant operator writes it.
    let operator = [
        "--rate-limit-headers",
        "DRAFT_VERSION_03",
        "--limit-name-in-labels",
        "--http-port",
        "8082",
        "--rls-port",
        "8083",
        "-vvv",
        "/home/limitador/etc/limitador-config.yaml",
        "redis_cached",
        "redis://r:6379",
        "--response-timeout",
        "9",
    ];
    assert_eq!(
        flags_of(&operator, &[("ENVOY_RLS_HOST", "::1"), ("HTTP_API_PORT", "1")]).unwrap(),
        "serve --env=limitador --listen=[::1]:8083 --http-listen=0.0.0.0:8082 --limitador-api=limit-name --log=debug \
         --rules=/home/limitador/etc/limitador-config.yaml --response-headers=draft03 --counters=redis://r:6379 --lease=auto \
         --counters-timeout=9ms"
    );
    let disk = flags_of(&["l.yaml", "disk", "/data"], &[]).unwrap();
    assert!(disk.ends_with("--data=/data"), "{disk}");
    let memory = flags_of(&["l.yaml", "memory", "-c", "77"], &[]).unwrap();
    assert!(memory.ends_with("--max-counters=77"), "{memory}");
    let redis = flags_of(&["l.yaml", "redis"], &[("REDIS_URL", "redis://r")]).unwrap();
    assert!(redis.ends_with("--counters=redis://r --lease=off"), "{redis}");
    let cached =
        flags_of(&["l.yaml"], &[("REDIS_URL", "redis://r"), ("REDIS_LOCAL_CACHE_ENABLED", "1")]).unwrap();
    assert!(cached.ends_with("--counters=redis://r --lease=auto"), "{cached}");
    assert_eq!(flags_of(&["--validate", "l.yaml"], &[]).as_deref(), Ok("check l.yaml"));
}

#[test]
fn what_is_missing_or_not_supported_is_refused() {
    for (args, pairs, reason) in [
        (&[][..], &[][..], "LIMITS_FILE is missing"),
        (&["l.yaml", "redis"], &[], "URL is missing"),
        (&["l.yaml", "disk"], &[], "PATH is missing"),
        (&["l.yaml", "distributed", "a", "0.0.0.0:1"], &[], "`distributed` is not supported"),
        (&["l.yaml"], &[("ENVOY_RLS_PORT", "x")], "write a port"),
        (&["l.yaml"], &[("RATE_LIMIT_HEADERS", "DRAFT")], "write NONE or DRAFT_VERSION_03"),
        (&["-vvvvv", "l.yaml"], &[], "more than 4 times"),
    ] {
        let refused = flags_of(args, pairs).expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn what_has_no_effect_is_named() {
    let args = [
        "limitador-server",
        "-L",
        "labels.yaml",
        "l.yaml",
        "redis_cached",
        "redis://r",
        "--flush-period",
        "1",
    ];
    let args = args.map(str::to_owned);
    let warnings = warnings(&args, &variables(&[("REDIS_LOCAL_CACHE_BATCH_SIZE", "1")])).join("\n");
    for name in ["--custom-metric-labels", "--flush-period", "REDIS_LOCAL_CACHE_BATCH_SIZE", "not read"] {
        assert!(warnings.contains(name), "{name}: {warnings}");
    }
    let args = ["limitador-server", "l.yaml", "disk", "data"].map(str::to_owned);
    let pairs = [("DISK_OPTIMIZE", "disk"), ("RUST_LOG", "limitador=debug")];
    let warnings = super::warnings(&args, &variables(&pairs)).join("\n");
    for name in ["DISK_OPTIMIZE", "RUST_LOG"] {
        assert!(warnings.contains(name), "{name}: {warnings}");
    }
    assert!(
        super::warnings(&["tidegate".to_owned(), "serve".to_owned()], &variables(&[("REDIS_URL", "x")]))
            .is_empty()
    );
}

#[test]
fn with_the_variables_alone_flags_of_the_user_take_precedence() {
    let variables = variables(&[
        ("LIMITS_FILE", "l.yaml"),
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:1"),
        ("TIDEGATE_LISTEN", "0.0.0.0:8081"),
        ("ENVOY_RLS_PORT", "9"),
    ]);
    let args = ["tidegate", "serve", "--env", "limitador", "--rules=own.yaml"].map(str::to_owned);
    let given = Given { own: &args[2..], variables: &variables };
    let flags = flags(&args, &given, |_| false).unwrap().expect("it is selected");
    let of =
        |name: &str| flags.iter().find(|(flag, _)| *flag == name).and_then(|(_, value)| value.as_deref());
    assert_eq!((of("--rules"), of("--http-listen"), of("--listen")), (None, None, Some("0.0.0.0:9")));
    let given = Given { own: &[], variables: &variables };
    assert!(super::flags(&args[..2], &given, |_| false).unwrap().is_none());
}

#[test]
fn the_endpoint_of_traces_is_that_of_open_telemetry() {
    let endpoint = |pairs: &[(&str, &str)]| {
        let variables = variables(pairs);
        Settings { arguments: LimitadorServer::default(), environment: Environment(&variables) }
            .tracing_endpoint()
    };
    assert_eq!(endpoint(&[("TRACING_ENDPOINT", "rpc://c:4317")]).as_deref(), Some("http://c:4317"));
    assert_eq!(endpoint(&[("TRACING_ENDPOINT", "grpc://c:4317")]).as_deref(), Some("http://c:4317"));
    assert_eq!(endpoint(&[("TRACING_ENDPOINT", "")]), None);
    assert_eq!(
        endpoint(&[("TRACING_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://d")]),
        None
    );
}
