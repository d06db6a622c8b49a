//! Variables as flags, and the page about them.

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn expanded(args: &[&str], pairs: &[(&str, &str)]) -> Result<String, String> {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    expand(args, &map(pairs)).map(|args| args.join(" ")).map_err(|failure| failure.to_string())
}

#[test]
fn without_variables_the_defaults_are_those_of_the_reference_server() {
    let expected = "tidegate serve --env=reference --compat=reference --listen=0.0.0.0:8081 \
                    --http-listen=0.0.0.0:8080,0.0.0.0:6070 --rules=/srv/runtime_data/current/config \
                    --rules-every-file --wait-for-rules --rules-dot-files --healthy-without-rules \
                    --max-descriptors=4194304 --max-entries=4194304 --max-text-bytes=4194304 \
                    --max-message-bytes=4194304 --log=warn --log-format=text";
    assert_eq!(expanded(&["/bin/ratelimit"], &[]).as_deref(), Ok(expected));
    let own = ["tidegate", "serve", "--env=reference"];
    let last = format!("{} --env=reference", expected.replace(" --env=reference", ""));
    assert_eq!(expanded(&own, &[]), Ok(last));
    assert_eq!(expanded(&["tidegate", "serve"], &[("PORT", "1")]).as_deref(), Ok("tidegate serve"));
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
    assert!(warned(&[("PATH", "/bin"), ("PORT", "8080"), ("REDIS_URL", "unused:")]).is_empty());
    let [ignored] = &warned(&[("REDIS_POOL_SIZE", "5"), ("USE_STATSD", "false")])[..] else {
        panic!("one line")
    };
    assert!(ignored.ends_with("REDIS_POOL_SIZE, USE_STATSD"), "{ignored}");
    assert!(warned(&[("REDIS_URL", "redis:6379")])[0].contains("memory of this process"));
}

/// Every variable that is read has a row in the page, and the page has no others.
#[test]
fn the_page_lists_the_variables_that_are_read() {
    let page = include_str!("../../../docs/reference-environment.md");
    let (read, _) = page.split_once("## Without effect").expect("two parts");
    let rows = read.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_cells = rows.filter_map(|row| row.split(" | ").next());
    let mut listed: Vec<&str> =
        first_cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`')).collect();
    listed.sort_unstable();
    assert_eq!(listed, READ);
}
