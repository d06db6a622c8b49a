//! A server that is configured by the environment variables of the reference server alone.

use crate::support::{Client, eventually, http1};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
};
use tidegate::api::pb::{
    health::{HealthCheckRequest, health_client::HealthClient},
    service::{rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient},
};
use tonic::transport::Endpoint;

const RULES: &str = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: 2}\n\
     \x20 - {key: w, value: 'c \"d\"', rate_limit: {unlimited: true}}\n  - {key: w, value: 'e**', rate_limit: {unit: day, requests_per_unit: 1}}\n";

/// A running server; killed when dropped.
struct Ratelimit {
    child: Child,
    grpc: u16,
    http: u16,
    debug: u16,
}

impl Drop for Ratelimit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that are free now.
fn free_ports<const N: usize>() -> [u16; N] {
    let bound = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    bound.map(|listener| listener.local_addr().expect("its address").port())
}

impl Ratelimit {
    /// Starts `FOLDER/ratelimit` with these variables and the variables of its ports, and no others.
    fn start(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let program = folder.join("ratelimit");
        symlink(env!("CARGO_BIN_EXE_tidegate"), &program).expect("a link");
        let [grpc, http, debug] = free_ports();
        let child = Command::new(program)
            .env_clear()
            .envs([("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1"), ("DEBUG_HOST", "127.0.0.1")])
            .envs(
                [("PORT", http), ("GRPC_PORT", grpc), ("DEBUG_PORT", debug)]
                    .map(|(name, port)| (name, port.to_string())),
            )
            .envs(variables.iter().copied())
            .stderr(fs::File::create(folder.join("log")).expect("a log"))
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { child, grpc, http, debug }
    }

    async fn status(&self, port: u16, path: &str) -> Option<u16> {
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, port, http::Request::get(path)).await;
        answer.ok().map(|answer| answer.status().as_u16())
    }
}

#[tokio::test]
async fn the_variables_of_the_reference_server_alone_configure_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("data/ratelimit/config");
    fs::create_dir_all(&config).expect("a folder");
    fs::write(config.join("rules.conf"), "domain: d\ndescriptors: [{key: k, rate_limit: 5}]\n")
        .expect("a file");
    let root = folder.path().join("data");
    let server = Ratelimit::start(
        folder.path(),
        &[
            ("RUNTIME_ROOT", root.to_str().expect("UTF-8")),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("LOG_LEVEL", "info"),
            ("USE_STATSD", "false"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "unused:0"),
            ("REDIS_POOL_SIZE", "5"),
            ("SOMETHING_ELSE", "1"),
        ],
    );
    // The file is bad: the server starts, and refuses requests.
    eventually("the health check", async || server.status(server.http, "/healthcheck").await == Some(200))
        .await;
    assert_eq!(server.status(server.debug, "/metrics").await, Some(200));
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", server.grpc)).expect("an address");
    let channel = endpoint.connect().await.expect("it listens");
    let mut client = Client(RateLimitServiceClient::new(channel.clone()));
    let refused = client.hit("d", &[("k", "a")]).await.expect_err("there are no rules");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    let mut health = HealthClient::new(channel);
    let named = HealthCheckRequest { service: "ratelimit".into() };
    assert_eq!(health.check(named).await.expect("the name is known").into_inner().status, 1);

    // The file is good, whatever its extension.
    fs::write(config.join("rules.conf"), RULES).expect("a file");
    eventually("the rules", async || client.hit("d", &[("other", "a")]).await.is_ok()).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(client.hit("d", &[("k", "a")]).await.expect("a decision").overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);

    assert_eq!(server.status(server.debug, "/stats").await, Some(200));
    let limits = http1::fetch(Ipv4Addr::LOCALHOST, server.debug, http::Request::get("/rlconfig")).await;
    let limits = String::from_utf8(limits.expect("an answer").into_body()).expect("UTF-8");
    // Values as they are written.
    let expected = "d.k: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false\n\
                    d.w_c \"d\": unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n\
                    d.w_e**: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false\n";
    assert_eq!(limits, expected);

    drop((client, health));
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("it is there");
    eventually("its end", async || server.status(server.http, "/healthcheck").await.is_none()).await;
    let log = fs::read_to_string(folder.path().join("log")).expect("a log");
    let ignored = log.lines().filter(|line| line.contains("without effect here")).collect::<Vec<_>>();
    assert!(matches!(&ignored[..], [line] if line.ends_with(": REDIS_POOL_SIZE")), "{ignored:?}");
    assert!(log.contains("rate_limit"), "{log}");
}

#[tokio::test]
async fn the_variables_of_prometheus_set_the_port_and_the_path_of_the_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    fs::create_dir_all(&config).expect("a folder");
    fs::write(config.join("rules.yaml"), RULES).expect("a file");
    let [prometheus] = free_ports();
    let address = format!("127.0.0.1:{prometheus}");
    let server = Ratelimit::start(
        folder.path(),
        &[
            ("RUNTIME_ROOT", folder.path().to_str().expect("UTF-8")),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", &address),
            ("PROMETHEUS_PATH", "/stats/prometheus"),
        ],
    );
    let page = async |port: u16, path: &str| {
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, port, http::Request::get(path)).await.ok();
        answer.map(|answer| String::from_utf8(answer.into_body()).expect("UTF-8")).unwrap_or_default()
    };
    let name = "\nratelimit_service_config_load_success 1\n";
    eventually("the metrics", async || page(prometheus, "/stats/prometheus").await.contains(name)).await;
    assert!(page(server.debug, "/").await.contains("\n/stats/prometheus\n"));
    assert_eq!(server.status(server.debug, "/rlconfig").await, Some(200));
}

/// Without rules the text and the figures used to be those of counters that are being restored, and health stayed OK when the last file was
/// removed.
#[tokio::test]
async fn without_rules_calls_are_errors_and_counted_and_health_follows_the_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    fs::create_dir_all(&config).expect("a folder");
    fs::write(config.join("rules.yaml"), "domain: d\ndescriptors: [{key: k, rate_limit: 5}]\n")
        .expect("a file");
    let [prometheus] = free_ports();
    let server = Ratelimit::start(
        folder.path(),
        &[
            ("RUNTIME_ROOT", folder.path().to_str().expect("UTF-8")),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", &format!("127.0.0.1:{prometheus}")),
            ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
        ],
    );
    let page = async || {
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, prometheus, http::Request::get("/metrics")).await.ok();
        answer.map(|answer| String::from_utf8(answer.into_body()).expect("UTF-8")).unwrap_or_default()
    };
    eventually("the failed load", async || {
        page().await.contains("\nratelimit_service_config_load_error 1\n")
    })
    .await;
    assert_eq!(server.status(server.http, "/healthcheck").await, Some(500));
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", server.grpc)).expect("an address");
    let mut client = Client(RateLimitServiceClient::new(endpoint.connect().await.expect("it listens")));
    let refused = client.hit("d", &[("k", "a")]).await.expect_err("there are no rules");
    assert!(refused.message().starts_with("no rate limit configuration loaded"), "{refused}");
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k"}]}]}"#;
    let request = http::Request::post("/json").body(body).expect("a request");
    let json = http1::send(Ipv4Addr::LOCALHOST, server.http, request).await.expect("an answer");
    assert_eq!(json.status(), 503);
    let figures = page().await;
    for line in [
        "ratelimit_service_config_load_success 0",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 2",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line:?} is not in {figures}");
    }
    fs::write(config.join("rules.yaml"), RULES).expect("a file");
    eventually("health", async || server.status(server.http, "/healthcheck").await == Some(200)).await;
    assert!(page().await.contains("\nratelimit_service_config_load_success 1\n"));
    fs::remove_file(config.join("rules.yaml")).expect("it is there");
    eventually("no health", async || server.status(server.http, "/healthcheck").await == Some(500)).await;
    assert_eq!(client.hit("d", &[("k", "a")]).await.expect("an answer").overall_code(), Code::Ok);
}

/// The absence of rules is no error: requests are admitted from the start. A file beside the directory is read with it.
#[tokio::test]
async fn an_empty_directory_admits_everything_and_a_file_beside_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("config")).expect("a folder");
    let root = ("RUNTIME_ROOT", folder.path().to_str().expect("UTF-8"));
    let server = Ratelimit::start(folder.path(), &[root]);
    eventually("health", async || server.status(server.http, "/healthcheck").await == Some(200)).await;
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", server.grpc)).expect("an address");
    let mut client = Client(RateLimitServiceClient::new(endpoint.connect().await.expect("it listens")));
    assert_eq!(client.hit("d", &[("k", "a")]).await.expect("an answer").overall_code(), Code::Ok);
    fs::write(folder.path().join("config.yaml"), RULES).expect("a file");
    eventually("the file's rules", async || {
        let answer = client.hit("d", &[("k", "a")]).await.expect("an answer");
        answer.overall_code() == Code::OverLimit
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.yaml"), RULES).expect("a file");
    let root = ("RUNTIME_ROOT", folder.path().to_str().expect("UTF-8"));
    let server = Ratelimit::start(folder.path(), &[root]);
    eventually("health without the directory", async || {
        server.status(server.http, "/healthcheck").await == Some(200)
    })
    .await;
}

/// The variables of the manifest for Istio, without the variables for the deployment's folders, and the rules of its ConfigMap.
fn istio() -> (Vec<(String, String)>, String) {
    let manifest = include_str!("../../deploy/kubernetes/istio.yaml");
    let documents: Vec<Value> = manifest
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("a document"))
        .collect();
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).expect("a kind");
    let rules = of_kind("ConfigMap")["data"]["config.yaml"].as_str().expect("rules").to_owned();
    let container = &of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["/bin/ratelimit"]));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/data/ratelimit/config");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let variables = container["env"].as_array().expect("variables");
    let pairs = variables.iter().map(|variable| (text(&variable["name"]), text(&variable["value"])));
    (pairs.filter(|(name, _)| name != "RUNTIME_ROOT").collect(), rules)
}

/// Without IPv6 the server listens on IPv4 only.
#[tokio::test]
async fn the_variables_of_istios_manifest_configure_a_server_that_listens_on_ipv6() {
    let (mut variables, rules) = istio();
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    if !has_ipv6 {
        println!("this machine has no IPv6: HOST and GRPC_HOST are left out");
        variables.retain(|(_, value)| value != "::");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("data");
    let config = root.join("ratelimit/config");
    fs::create_dir_all(&config).expect("a folder");
    fs::write(config.join("config.yaml"), rules).expect("a file");
    let root = root.to_str().expect("UTF-8");
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .chain([("RUNTIME_ROOT", root)])
        .collect();
    let server = Ratelimit::start(folder.path(), &variables);
    let host = if has_ipv6 { "[::1]" } else { "127.0.0.1" };
    let is_listening =
        async || tokio::net::TcpStream::connect(format!("{host}:{}", server.http)).await.is_ok();
    eventually("the HTTP port", is_listening).await;
    let endpoint = Endpoint::from_shared(format!("http://{host}:{}", server.grpc)).expect("an address");
    let mut client = Client(RateLimitServiceClient::new(endpoint.connect_lazy()));
    let page = [("PATH", "/productpage")];
    eventually("a decision", async || client.hit("ratelimit", &page).await.is_ok()).await;
    let second = client.hit("ratelimit", &page).await.expect("a decision").overall_code();
    let third = client.hit("ratelimit", &page).await.expect("a decision").overall_code();
    assert!([second, third].contains(&Code::OverLimit), "one per minute, even where a minute ends between");
}
