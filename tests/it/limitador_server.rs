//! A server that runs instead of Limitador: its command line, its HTTP API and its metrics.

use crate::support::{Client, descriptor, eventually, http1};
use serde_json::{Value, json};
use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;
use tidegate::api::pb::service::{
    RateLimitRequest, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::Endpoint;

const LIMITS: &str = "
- namespace: shop
  max_value: 3
  seconds: 60
  name: reads
  id: r
  conditions: ['descriptors[0].method == \"GET\"']
- { namespace: shop, max_value: 2, seconds: 60, name: users, variables: ['descriptors[0].user'] }
";

/// A running server; killed when dropped.
struct Limitador {
    child: Child,
    folder: TempDir,
    grpc: u16,
    http: u16,
}

impl Drop for Limitador {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|bound| bound.local_addr()).expect("a port").port()
}

/// `FOLDER/limitador-server`, and the file of limits beside it.
fn program(limits: &str) -> (TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("limits.yaml"), limits).expect("a file");
    let program = folder.path().join("limitador-server");
    symlink(env!("CARGO_BIN_EXE_tidegate"), &program).expect("a link");
    let mut command = Command::new(program);
    command.env_clear().current_dir(folder.path());
    (folder, command)
}

impl Limitador {
    async fn start(args: &[&str]) -> Self {
        let (folder, mut command) = program(LIMITS);
        let (grpc, http) = (free_port(), free_port());
        command.args([
            "-b",
            "127.0.0.1",
            "-B",
            "127.0.0.1",
            "-p",
            &grpc.to_string(),
            "-P",
            &http.to_string(),
            "-vv",
        ]);
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let child = command
            .args(args)
            .arg("limits.yaml")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let server = Self { child, folder, grpc, http };
        eventually("it serves", async || server.get("/status").await.ok_or_else(|| server.log())).await;
        server
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    async fn get(&self, path: &str) -> Option<String> {
        let response = http1::fetch(Ipv4Addr::LOCALHOST, self.http, http::Request::get(path)).await.ok()?;
        (response.status() == 200).then(|| String::from_utf8(response.into_body()).expect("UTF-8"))
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await.expect("a page")).expect("JSON")
    }

    /// Status, body, and headers that begin with `x-`.
    async fn post(&self, path: &str, body: &Value) -> (u16, String, Vec<String>) {
        let body = body.to_string();
        let request =
            http::Request::post(path).header("content-type", "application/json").body(body.as_str());
        let response = http1::send(Ipv4Addr::LOCALHOST, self.http, request.expect("well-formed"))
            .await
            .expect("a response");
        let headers = response.headers().iter().filter(|(name, _)| name.as_str().starts_with("x-ratelimit"));
        let headers =
            headers.map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        (response.status().as_u16(), String::from_utf8(response.into_body()).expect("UTF-8"), headers)
    }
}

fn info(values: &Value, delta: u64) -> Value {
    json!({ "namespace": "shop", "values": values, "delta": delta, "response_headers": "DraftVersion03" })
}

#[tokio::test]
async fn its_http_api_and_metrics_are_those_of_limitador() {
    let server =
        Limitador::start(&["--limit-name-in-labels", "--rate-limit-headers", "DRAFT_VERSION_03"]).await;
    let limits = server.json("/limits/shop").await;
    let reads = json!({
        "id": "r", "namespace": "shop", "max_value": 3, "seconds": 60, "name": "reads",
        "conditions": ["descriptors[0].method == \"GET\""], "variables": [],
    });
    assert_eq!((&limits[0], limits.as_array().map(Vec::len)), (&reads, Some(2)));
    assert_eq!(server.json("/limits/other").await, json!([]));
    assert_eq!(server.json("/counters/shop").await, json!([]));

    let get = json!({ "method": "GET" });
    assert_eq!(server.post("/check", &info(&get, 3)).await.0, 200);
    let (status, body, _) = server.post("/check", &info(&get, 4)).await;
    assert_eq!((status, body.as_str()), (429, "Too many requests"));
    let (status, body, headers) = server.post("/check_and_report", &info(&get, 2)).await;
    assert_eq!((status, body.as_str()), (200, "null"));
    let expected =
        ["x-ratelimit-limit: 3, 3;w=60;name=\"reads\"", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 60"];
    assert_eq!(headers, expected);
    assert_eq!(server.post("/check_and_report", &info(&get, 2)).await.0, 429);
    assert_eq!(server.post("/report", &info(&get, 1)).await.1, "null");
    assert_eq!(server.post("/check", &info(&get, 1)).await.0, 429);
    let counters = server.json("/counters/shop").await;
    assert_eq!((&counters[0]["limit"], &counters[0]["remaining"]), (&reads, &json!(0)));
    assert!(counters[0]["expires_in_seconds"].as_u64().is_some_and(|seconds| seconds <= 60), "{counters}");
    let (status, reason, _) = server.post("/check", &json!({ "namespace": "shop" })).await;
    assert!(status == 400 && reason.contains("missing field `values`"), "{reason}");
    eventually("the refusal in the log", async || match server.log() {
        log if log.contains("request refused without a decision") && log.contains("undecodable_message") => {
            Ok(())
        }
        log => Err(log),
    })
    .await;

    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", server.grpc)).expect("an address");
    let mut client = Client(RateLimitServiceClient::new(endpoint.connect().await.expect("it listens")));
    let descriptors = vec![descriptor(&[("user", "ann"), ("x", "y")])];
    let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 2 };
    let response = client.0.should_rate_limit(request.clone()).await.expect("a decision").into_inner();
    assert_eq!(response.overall_code(), Code::Ok);
    let response = client.0.should_rate_limit(request).await.expect("a decision").into_inner();
    assert_eq!(response.overall_code(), Code::OverLimit);

    let metrics = server.get("/metrics").await.expect("metrics");
    for line in [
        "# TYPE authorized_calls counter",
        "authorized_hits{limitador_namespace=\"shop\"} 5",
        "limited_calls{limitador_namespace=\"shop\",limit_name=\"users\"} 1",
        "limitador_up 1",
        "datastore_partitioned 0",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    }
    let status = server.json("/status").await;
    assert_eq!((&status["config_version"], &status["config_err_since"]), (&json!(0), &json!(0)));
    assert!(
        status["started_at"].as_str().is_some_and(|time| time.len() == "2026-01-01T00:00:00.000000000".len()),
        "{status}"
    );
}

#[tokio::test]
async fn a_changed_file_of_limits_is_in_force_soon_and_a_bad_one_is_not() {
    let server = Limitador::start(&["-L", "labels.yaml"]).await;
    assert!(server.log().contains("--custom-metric-labels has no effect"), "{}", server.log());
    let file = server.folder.path().join("limits.yaml");
    let replace = |text: &str| {
        let new = server.folder.path().join(".new");
        fs::write(&new, text).expect("written");
        fs::rename(new, &file).expect("renamed");
    };
    let until = async |field: &str, value: u64| {
        eventually(&format!("{field} is {value}"), async || match server.json("/status").await {
            status if status[field] == value => Ok(()),
            _ => Err(server.log()),
        })
        .await;
    };
    replace(&LIMITS.replace("max_value: 3", "max_value: 9"));
    until("config_version", 1).await;
    assert_eq!(server.json("/limits/shop").await[0]["max_value"], 9);
    replace("- { namespace: shop, max_value: x, seconds: 1 }\n");
    until("config_err_since", 1).await;
    assert_eq!(server.json("/limits/shop").await[0]["max_value"], 9);
}

#[tokio::test]
async fn metrics_have_the_labels_that_an_expression_makes() {
    let server =
        Limitador::start(&["--metric-labels-default", "{'user.id': descriptors[0].user, 'n': 1}"]).await;
    for user in ["ann", "ann", "bob", "ann"] {
        let (_, _, headers) = server.post("/check_and_report", &info(&json!({ "user": user }), 1)).await;
        // The request names them: `--rate-limit-headers` is of gRPC alone.
        assert_eq!(headers.len(), 3, "{headers:?}");
    }
    server.post("/check_and_report", &info(&json!({ "other": "x" }), 1)).await;
    let metrics = server.get("/metrics").await.expect("metrics");
    for line in [
        "authorized_calls{limitador_namespace=\"shop\",user_id=\"ann\"} 2",
        "authorized_calls{limitador_namespace=\"shop\",user_id=\"bob\"} 1",
        "authorized_calls{limitador_namespace=\"shop\"} 1",
        "limited_calls{limitador_namespace=\"shop\",user_id=\"ann\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    }
}

/// A volume of a ConfigMap: the file is a link through a link to a directory, and the directory is replaced as a whole.
fn config_map(volume: &Path, version: &str, limits: &str) {
    let versioned = volume.join(format!("..{version}"));
    fs::create_dir(&versioned).expect("a directory");
    fs::write(versioned.join("limitador-config.yaml"), limits).expect("a file");
    let next = volume.join("..data_tmp");
    symlink(format!("..{version}"), &next).expect("a link");
    fs::rename(next, volume.join("..data")).expect("renamed");
    let file = volume.join("limitador-config.yaml");
    if !file.is_symlink() {
        symlink("..data/limitador-config.yaml", file).expect("a link");
    }
}

/// With the arguments that the Kuadrant operator writes, in its order, for a resource with all options, and with the limits that it writes:
/// none at first, then the limits of a policy.
#[tokio::test]
async fn the_deployment_of_the_kuadrant_operator_gets_ready_and_follows_its_config_map() {
    let options = [
        "--rate-limit-headers",
        "DRAFT_VERSION_03",
        "--limit-name-in-labels",
        "--tracing-endpoint",
        "rpc://127.0.0.1:9",
        "-vvv",
    ];
    let labels = ["--metric-labels-default", "{'user': descriptors[0]['auth.identity.userid']}"];
    let policy = "- conditions:\n  - descriptors[0][\"limit.all__1f2a\"] == \"1\"\n  max_value: 2\n  name: all\n  \
                  namespace: default/toystore\n  seconds: 3600\n  variables:\n  - descriptors[0][\"auth.identity.userid\"]\n";
    for storage in [&["memory"][..], &["disk", "--optimize", "throughput", "data"], &["disk", "data"]] {
        let (folder, mut command) = program("");
        config_map(folder.path(), "1", "[]\n");
        let [http, grpc] = [free_port(), free_port()];
        let ports = ["--http-port".to_owned(), http.to_string(), "--rls-port".to_owned(), grpc.to_string()];
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        command.args(options).args(ports).args(labels).arg("limitador-config.yaml").args(storage);
        let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("it starts");
        let server = Limitador { child, folder, grpc, http };
        // The probes of the Deployment.
        eventually("it serves", async || server.get("/status").await.is_some()).await;
        assert_eq!(server.json("/limits/default%2Ftoystore").await, json!([]));
        config_map(server.folder.path(), "2", policy);
        let has_limits = async || server.json("/limits/default%2Ftoystore").await != json!([]);
        eventually("the limits of the policy", has_limits).await;
        let values = json!({ "limit.all__1f2a": "1", "auth.identity.userid": "ann" });
        let body = json!({ "namespace": "default/toystore", "values": values, "delta": 2 });
        assert_eq!(server.post("/check_and_report", &body).await.0, 200, "{storage:?}");
        assert_eq!(server.post("/check_and_report", &body).await.0, 429, "{storage:?}");
        let metrics = server.get("/metrics").await.expect("metrics");
        let sample = "authorized_hits{limitador_namespace=\"default/toystore\",user=\"ann\"} 2";
        assert!(metrics.contains(sample), "{metrics}");
    }
}

#[test]
fn validate_and_wrong_arguments_end_the_program() {
    let run = |limits: &str, args: &[&str]| -> Output {
        let (_folder, mut command) = program(limits);
        command.args(args).output().expect("it runs")
    };
    assert_eq!(run(LIMITS, &["--validate", "limits.yaml"]).status.code(), Some(0));
    let bad = run("- { namespace: a }\n", &["--validate", "limits.yaml"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&bad.stderr).contains("limits.yaml:1:3: [0].max_value: is missing"),
        "{bad:?}"
    );
    let refused = run(LIMITS, &["limits.yaml", "distributed", "a", "b"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Use `redis_cached URL`"), "{refused:?}");
    assert_eq!(run(LIMITS, &["--no-such-flag"]).status.code(), Some(2));
}
