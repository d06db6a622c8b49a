//! Rules from a control plane: a state-of-the-world server in this process, and a real `tidegate serve`.

use crate::{
    admin,
    metrics::{documented, metrics_when},
    support::{Client, Server, eventually},
};
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tidegate::api::pb::{
    discovery::{
        DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
    rules::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy},
};
use tokio::{net::TcpListener, runtime, sync::watch};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream, wrappers::TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};

const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A limit of this many requests a day for each value of `k`; the unit is a number of the enum.
fn limit(requests_per_unit: u32, unit: i32) -> Vec<RateLimitConfig> {
    let rate_limit = Some(RateLimitPolicy { requests_per_unit, unit, ..RateLimitPolicy::default() });
    let descriptor = RateLimitDescriptor { key: "k".into(), rate_limit, ..RateLimitDescriptor::default() };
    vec![RateLimitConfig { name: "first".into(), domain: "d".into(), descriptors: vec![descriptor] }]
}

const DAY: i32 = 4;

/// Answers each stream with the resources of the newest version, unless the client has accepted it.
#[derive(Clone)]
pub struct ControlPlane {
    newest: watch::Sender<DiscoveryResponse>,
    requests: Arc<Mutex<Vec<DiscoveryRequest>>>,
}

impl ControlPlane {
    pub fn new(resources: Vec<RateLimitConfig>) -> Self {
        let plane =
            Self { newest: watch::Sender::new(DiscoveryResponse::default()), requests: Arc::default() };
        plane.set("1", resources);
        plane
    }

    fn set(&self, version: &str, resources: Vec<RateLimitConfig>) {
        let any = |resource: RateLimitConfig| prost_types::Any {
            type_url: TYPE_URL.into(),
            value: resource.encode_to_vec(),
        };
        self.newest.send_replace(DiscoveryResponse {
            version_info: version.into(),
            resources: resources.into_iter().map(any).collect(),
            type_url: TYPE_URL.into(),
            nonce: format!("nonce {version}"),
        });
    }

    /// Serves on a port, 0 for any. A runtime of its own ends all connections when it is shut down.
    pub fn serve(&self, port: u16) -> (u16, Serving) {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        // A control plane that has ended releases its port a little later.
        let mut tries = (0..1_000).map(|_| {
            std::net::TcpListener::bind(("127.0.0.1", port))
                .inspect_err(|_| thread::sleep(Duration::from_millis(10)))
        });
        let listener = tries.find_map(Result::ok).expect("a port");
        listener.set_nonblocking(true).expect("it is set");
        let port = listener.local_addr().expect("its address").port();
        let service = AggregatedDiscoveryServiceServer::new(self.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
        });
        (port, Serving(Some(runtime)))
    }

    fn count(&self, is_it: impl Fn(&DiscoveryRequest) -> bool) -> usize {
        self.requests.lock().expect("no panic").iter().filter(|request| is_it(request)).count()
    }

    fn accepted(&self, version: &str) -> bool {
        self.count(|request| request.version_info == version && request.error_detail.is_none()) > 0
    }

    /// The messages of refusals.
    fn refusals(&self) -> Vec<String> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter_map(|request| Some(request.error_detail.as_ref()?.message.clone())).collect()
    }
}

/// A control plane that serves; ended when dropped.
pub struct Serving(Option<runtime::Runtime>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.take().expect("dropped once").shutdown_background();
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for ControlPlane {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let (mut requests, plane) = (request.into_inner(), self.clone());
        let mut newest = self.newest.subscribe();
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                plane.requests.lock().expect("no panic").push(request.clone());
                let is_new = |response: &DiscoveryResponse| {
                    let is_refused =
                        request.error_detail.is_some() && request.response_nonce == response.nonce;
                    response.version_info != request.version_info && !is_refused
                };
                let Ok(response) = newest.wait_for(is_new).await.map(|response| response.clone()) else {
                    return;
                };
                if sender.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

pub fn start(port: u16, args: &[&str]) -> Server {
    let rules = format!("xds://127.0.0.1:{port}?node=test");
    let xds =
        ["--rules", &rules, "--xds-backoff", "20ms", "--xds-backoff-max", "100ms", "--drain-timeout", "1s"];
    Server::start(&[&xds[..], args].concat())
}

/// The limit in force for `k`; none if there is no rule.
async fn limit_in_force(client: &mut Client) -> Option<u32> {
    let response = client.hit("d", &[("k", "probe")]).await.expect("a decision");
    response.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit)
}

#[tokio::test]
async fn rules_follow_the_control_plane_and_stay_when_it_errs_or_ends() {
    let plane = ControlPlane::new(limit(1_000_001, DAY));
    let (port, serving) = plane.serve(0);
    let server = start(port, &["--xds-node-metadata", "zone=a"]);
    let mut client = server.client().await;
    assert_eq!(limit_in_force(&mut client).await, Some(1_000_001));
    let node = plane.requests.lock().expect("no panic")[0].node.clone().expect("the first request has it");
    assert_eq!((node.id.as_str(), node.user_agent_name.as_str()), ("test", "tidegate"));
    assert!(node.metadata.expect("metadata").fields.contains_key("zone"));
    eventually("an ACK", async || plane.accepted("1")).await;

    // Calls continue throughout; none may fail.
    let (is_over, mut other) = (Arc::new(AtomicBool::new(false)), client.clone());
    let calls = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let mut calls = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                other.hit("d", &[("k", "load")]).await.expect("no call fails");
                calls += 1;
            }
            calls
        }
    });

    plane.set("2", limit(1_000_002, DAY));
    eventually("an update", async || limit_in_force(&mut client).await == Some(1_000_002)).await;

    plane.set("3", limit(1_000_003, 0));
    eventually("a NACK", async || !plane.refusals().is_empty()).await;
    let refusal = plane.refusals().remove(0);
    assert!(
        refusal.contains("xds:first:") && refusal.contains("descriptors[0].rate_limit.unit"),
        "{refusal}"
    );
    assert_eq!(limit_in_force(&mut client).await, Some(1_000_002));
    assert_eq!(plane.count(|request| request.error_detail.is_some() && request.version_info != "2"), 0);

    plane.set("4", limit(1_000_004, DAY));
    eventually("the next update", async || limit_in_force(&mut client).await == Some(1_000_004)).await;

    drop(serving);
    assert_eq!(limit_in_force(&mut client).await, Some(1_000_004));
    plane.set("5", limit(1_000_005, DAY));
    let (_, serving) = plane.serve(port);
    eventually("an update after a restart", async || limit_in_force(&mut client).await == Some(1_000_005))
        .await;
    // The first request of a stream never has a version, or a nonce of another stream.
    let is_first = |request: &DiscoveryRequest| request.node.is_some();
    let is_bare = |request: &DiscoveryRequest| {
        is_first(request) && request.version_info.is_empty() && request.response_nonce.is_empty()
    };
    assert!(plane.count(is_first) > 1 && plane.count(is_bare) == plane.count(is_first));

    plane.set("6", Vec::new());
    eventually("the removal", async || limit_in_force(&mut client).await.is_none()).await;
    is_over.store(true, Ordering::Relaxed);
    println!("{} calls, failed 0", calls.await.expect("no call failed"));
    drop((serving, client));
    assert!(server.terminate().success());
}

#[tokio::test]
async fn a_response_without_resources_removes_the_rules_with_a_warning() {
    const WARNING: &str = "the control plane sent no resources: none of its rules stay in force";
    let plane = ControlPlane::new(limit(7, DAY));
    let (port, serving) = plane.serve(0);
    let server = start(port, &[]);
    let mut client = server.client().await;
    assert_eq!(limit_in_force(&mut client).await, Some(7));
    assert!(!server.log().iter().any(|line| line.contains(WARNING)));
    plane.set("2", Vec::new());
    eventually("the removal", async || limit_in_force(&mut client).await.is_none()).await;
    assert_eq!(server.logged(WARNING).len(), 1);
    drop(serving);
}

/// The message has no field for the algorithm.
#[tokio::test]
async fn rules_of_a_control_plane_have_the_default_algorithm() {
    let plane = ControlPlane::new(limit(4, DAY));
    let (port, _serving) = plane.serve(0);
    let server = start(port, &["--default-algorithm", "leaky_bucket", "--test-clock"]);
    let mut client = server.client().await;
    let response = client.hit("d", &[("k", "a")]).await.expect("a decision");
    // A bucket of 4 per day is full again a quarter of a day after one hit; a window has to end first.
    let reset = response.statuses[0].duration_until_reset.expect("a reset");
    assert_eq!(reset.seconds, 21_600);
}

/// The file is read and checked before the control plane declares the rules that it extends, and is read again when it changes.
#[tokio::test]
async fn a_rule_file_extends_the_rules_of_a_control_plane() {
    let plane = ControlPlane::new(limit(4, DAY));
    let (port, _serving) = plane.serve(0);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("extensions.yaml");
    let write = |keys: &str| {
        let text = format!("domain: d\nextensions: [{{key: k, rate_limit: {{{keys}}}}}, {{key: other}}]\n");
        std::fs::write(&file, text).expect("it is written");
    };
    write("algorithm: leaky_bucket");
    let path = file.display().to_string();
    let server = start(port, &["--rules", &path, "--rules-watch", "poll", "--test-clock"]);
    let mut client = server.client().await;
    let reset_of = |response: tidegate::api::pb::service::RateLimitResponse| {
        response.statuses[0].duration_until_reset.as_ref().map(|reset| reset.seconds)
    };
    // A bucket of 4 per day is full again a quarter of a day after one hit, and a window after a day at the earliest.
    let first = client.hit("d", &[("k", "a")]).await.expect("a decision");
    assert_eq!(reset_of(first), Some(21_600));
    let warned = server.logged("extensions[1]: has no effect");
    assert!(warned[0].contains("WARN"), "{warned:#?}");

    // An update to which the extension does not apply is refused, with the place in the file.
    write("algorithm: fixed_window, calendar: true");
    let is_read = |line: &String| line.contains("rules reloaded") && line.contains("\"feed\":\"files\"");
    eventually("the changed file", async || server.log().iter().any(is_read)).await;
    plane.set("2", limit(5, 2));
    eventually("a NACK", async || !plane.refusals().is_empty()).await;
    let refusal = plane.refusals().remove(0);
    let place = format!("{path}:2:");
    assert!(refusal.contains(&place) && refusal.contains("extensions[0].rate_limit.calendar"), "{refusal}");
    plane.set("3", Vec::new());
    eventually("the removal", async || limit_in_force(&mut client).await.is_none()).await;
}

#[tokio::test]
async fn metrics_count_connections_and_responses_of_the_control_plane() {
    let plane = ControlPlane::new(limit(7, DAY));
    let (port, serving) = plane.serve(0);
    let rules = format!("xds://127.0.0.1:{port}?node=test");
    let backoff = ["--xds-backoff", "20ms", "--xds-backoff-max", "100ms"];
    let (_server, http) = admin::start_from(Path::new(&rules), &backoff);
    let is = |name: &'static str, value: f64| {
        move |found: &BTreeMap<String, f64>| found[&format!("tidegate_xds_{name}")] >= value
    };
    let found = metrics_when(http, is("updates_total{result=\"accepted\"}", 1.0)).await;
    assert!(is("connected", 1.0)(&found) && is("connects_total{result=\"succeeded\"}", 1.0)(&found));
    let time = found["tidegate_xds_last_success_timestamp_seconds"];
    assert!(time > 1.7e9, "{time}");
    let names = found.keys().filter(|name| name.starts_with("tidegate_xds_"));
    let names: BTreeSet<&str> = names.filter_map(|name| name.split('{').next()).collect();
    let documented = documented();
    let documented = documented.keys().filter(|name| name.starts_with("tidegate_xds_"));
    assert_eq!(names, documented.map(String::as_str).collect());

    plane.set("2", limit(8, 0));
    let found = metrics_when(http, is("updates_total{result=\"refused\"}", 1.0)).await;
    assert_eq!(found["tidegate_xds_last_success_timestamp_seconds"], time);
    drop(serving);
    let found = metrics_when(http, is("connects_total{result=\"failed\"}", 1.0)).await;
    assert_eq!(found["tidegate_xds_connected"], 0.0, "{found:#?}");
    plane.set("3", limit(9, DAY));
    let (_, _serving) = plane.serve(port);
    let found = metrics_when(http, is("updates_total{result=\"accepted\"}", 2.0)).await;
    assert!(is("connected", 1.0)(&found) && is("connects_total{result=\"succeeded\"}", 2.0)(&found));
}

/// Envoy Gateway numbers its versions from 1 at each start. A client that claims to have version 1 gets nothing.
#[tokio::test]
async fn a_restarted_control_plane_that_counts_versions_again_is_followed() {
    let plane = ControlPlane::new(limit(7, DAY));
    let (port, serving) = plane.serve(0);
    let server = start(port, &[]);
    let mut client = server.client().await;
    assert_eq!(limit_in_force(&mut client).await, Some(7));
    drop(serving);
    plane.set("1", limit(8, DAY));
    let (_, _serving) = plane.serve(port);
    eventually("the new rules", async || limit_in_force(&mut client).await == Some(8)).await;
}

#[tokio::test]
async fn a_response_beyond_the_bound_ends_the_stream_and_the_rules_stay() {
    let plane = ControlPlane::new(limit(7, DAY));
    let (port, _serving) = plane.serve(0);
    let server = start(port, &["--xds-max-message-bytes", "10000"]);
    let mut client = server.client().await;
    let long = RateLimitConfig { name: "x".repeat(20_000), ..limit(8, DAY).remove(0) };
    plane.set("2", vec![long]);
    let is_ended =
        async || server.log().iter().any(|line| line.contains("the stream of the control plane ended"));
    eventually("the end of the stream", is_ended).await;
    assert_eq!(limit_in_force(&mut client).await, Some(7));
    plane.set("3", limit(9, DAY));
    eventually("a good response", async || limit_in_force(&mut client).await == Some(9)).await;
}

#[tokio::test]
async fn requests_are_refused_until_the_first_rules_arrive() {
    let unused = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = unused.local_addr().expect("its address").port();
    drop(unused);
    let folder = tempfile::tempdir().expect("a folder");
    let [socket, extensions, log] = ["socket", "extensions.yaml", "log"].map(|name| folder.path().join(name));
    std::fs::write(&extensions, "domain: d\nextensions: []\n").expect("a file");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--rules", &format!("xds://127.0.0.1:{port}?node=n"), "--xds-backoff", "20ms"])
        .args(["--rules", &extensions.display().to_string(), "--rules-watch", "poll"])
        .args([
            "--healthy-without-rules",
            "--drain-timeout",
            "1s",
            "--listen",
            &format!("unix:{}", socket.display()),
        ])
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("it starts");
    let endpoint =
        tonic::transport::Endpoint::from_shared(format!("unix:{}", socket.display())).expect("a path");
    // The file of the socket exists before the server listens.
    let channel = eventually("a connection", async || endpoint.connect().await).await;
    let mut client = Client(
        tidegate::api::pb::service::rate_limit_service_client::RateLimitServiceClient::new(channel.clone()),
    );
    let mut health = tidegate::api::pb::health::health_client::HealthClient::new(channel);
    eventually("health", async || {
        let checked =
            health.check(tidegate::api::pb::health::HealthCheckRequest { service: String::new() }).await;
        checked.is_ok_and(|answer| answer.into_inner().status == 1)
    })
    .await;
    let refused = client.hit("d", &[("k", "a")]).await.expect_err("there are no rules yet");
    assert_eq!(refused.code(), Code::Unavailable);

    // A changed file is no replacement for the rules of the control plane.
    std::fs::write(&extensions, "domain: d\nextensions: [{key: k}]\n").expect("a file");
    let is_read = || std::fs::read_to_string(&log).expect("a log").contains("rules reloaded");
    eventually("the changed file", async || is_read()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = client.hit("d", &[("k", "a")]).await.expect_err("there are no rules yet");
    assert_eq!(refused.code(), Code::Unavailable);
    let plane = ControlPlane::new(limit(7, DAY));
    let (_, _serving) = plane.serve(port);
    eventually("the first rules", async || client.hit("d", &[("k", "a")]).await.is_ok()).await;
    assert_eq!(limit_in_force(&mut client).await, Some(7));
    drop((client, health));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    assert!(child.wait().expect("it ends").success());
}

#[tokio::test]
async fn a_start_without_the_control_plane_serves_the_rules_that_it_sent_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let args = ["--data", data.to_str().expect("UTF-8")];
    let plane = ControlPlane::new(limit(10, DAY));
    let (port, serving) = plane.serve(0);
    let server = start(port, &args);
    eventually("the rules are kept", async || {
        let kept = std::fs::read_to_string(data.join("last-valid-rules.json")).unwrap_or_default();
        if kept.contains("\"xds\"") { Ok(()) } else { Err(kept) }
    })
    .await;
    drop((server, serving));

    let server = start(port, &args);
    server.logged("starting with the rules that the control plane sent last, until it responds");
    let mut client = server.client().await;
    assert_eq!(limit_in_force(&mut client).await, Some(10));
    plane.set("2", limit(20, DAY));
    let (_, _serving) = plane.serve(port);
    eventually("its rules", async || limit_in_force(&mut client).await == Some(20)).await;
}
