//! A program with the arguments of limitador-server, and the calls to it.

use crate::{
    limitador::limits::{Domain, KEYS, VALUES},
    rng::Rng,
    support::{descriptor, eventually, http1},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;
use tidegate::api::pb::{
    kuadrant_v1,
    service::{RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient},
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

/// The other program.
pub fn limitador() -> String {
    env::var("TIDEGATE_LIMITADOR").unwrap_or_else(|_| "limitador-server".to_owned())
}

/// A running server; killed when dropped.
pub struct LimitadorServer {
    child: Child,
    folder: TempDir,
    http: u16,
    channel: Channel,
}

/// A call, by one of the ways to call.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub way: Way,
    pub namespace: String,
    /// The entries of each descriptor; calls by HTTP have only the first descriptor.
    pub entries: Vec<BTreeMap<&'static str, &'static str>>,
    pub hits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    ShouldRateLimit,
    CheckRateLimit,
    Report,
    HttpCheck,
    HttpReport,
    HttpCheckAndReport,
}

/// An answer, whichever way the call was made.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Admitted(BTreeMap<String, String>),
    Denied(BTreeMap<String, String>),
    Failed(String),
}

impl Call {
    pub fn random(rng: &mut Rng, domain: &Domain) -> Self {
        use Way::*;
        let ways = [
            ShouldRateLimit,
            ShouldRateLimit,
            CheckRateLimit,
            Report,
            HttpCheck,
            HttpReport,
            HttpCheckAndReport,
        ];
        let way = rng.pick(&ways);
        let descriptors = if rng.once_in(6) { 2 } else { 1 };
        let mut entries = |_| {
            let mut entries: BTreeMap<_, _> = KEYS.iter().map(|key| (*key, rng.pick(&VALUES[..4]))).collect();
            entries.insert("user", rng.pick(&VALUES[4..]));
            if rng.once_in(4) {
                entries.remove(rng.pick(&KEYS));
            }
            entries
        };
        let entries = (0..descriptors).map(&mut entries).collect();
        Self { way, namespace: domain.name.clone(), entries, hits: rng.pick(&[1, 1, 1, 2, 3]) }
    }
}

impl LimitadorServer {
    pub async fn start(program: &Path, limits: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let ports = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        let [grpc, http] = ports.map(|port| port.local_addr().expect("an address").port());
        let child = Command::new(program)
            .args(["-b", "127.0.0.1", "-B", "127.0.0.1", "-p", &grpc.to_string(), "-P", &http.to_string()])
            .args(["--rate-limit-headers", "DRAFT_VERSION_03"])
            .arg(limits)
            .arg("memory")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{grpc}")).expect("an address");
        let server = Self { child, folder, http, channel: endpoint.connect_lazy() };
        let log = || fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
        let what = format!("{} serves", program.display());
        eventually(&what, async || server.page("/status").await.ok_or_else(log)).await;
        server
    }

    async fn text(&self, path: &str) -> Option<String> {
        let response = http1::fetch(Ipv4Addr::LOCALHOST, self.http, http::Request::get(path)).await.ok()?;
        (response.status() == 200).then(|| String::from_utf8(response.into_body()).ok())?
    }

    async fn page(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.text(path).await?).ok()
    }

    /// The samples of calls and hits of a namespace, sorted.
    pub async fn samples(&self, namespace: &str) -> Vec<String> {
        let page = self.text("/metrics").await.expect("metrics");
        let label = format!("limitador_namespace=\"{namespace}\"");
        let of_calls = |line: &&str| {
            let name = line.split('{').next().unwrap_or_default();
            ["authorized_calls", "authorized_hits", "limited_calls"].contains(&name) && line.contains(&label)
        };
        let mut lines: Vec<String> = page.lines().filter(of_calls).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Limits and counters of a namespace.
    pub async fn pages(&self, namespace: &str) -> [Vec<Value>; 2] {
        let mut pages = [const { Vec::new() }; 2];
        for (page, name) in pages.iter_mut().zip(["limits", "counters"]) {
            let found = self.page(&format!("/{name}/{namespace}")).await;
            *page = found.and_then(|found| found.as_array().cloned()).expect("a list");
        }
        pages
    }

    pub async fn answer(&self, call: &Call) -> Answer {
        let descriptors = call.entries.iter();
        let descriptors = descriptors.map(|entries| {
            descriptor(&entries.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>())
        });
        let request = RateLimitRequest {
            domain: call.namespace.clone(),
            descriptors: descriptors.collect(),
            hits_addend: call.hits,
        };
        let channel = self.channel.clone();
        let mut kuadrant =
            kuadrant_v1::rate_limit_service_client::RateLimitServiceClient::new(channel.clone());
        match call.way {
            Way::ShouldRateLimit => {
                of_grpc(RateLimitServiceClient::new(channel).should_rate_limit(request).await)
            }
            Way::CheckRateLimit => of_grpc(kuadrant.check_rate_limit(request).await),
            Way::Report => of_grpc(kuadrant.report(request).await),
            Way::HttpCheck => self.post("/check", call).await,
            Way::HttpReport => self.post("/report", call).await,
            Way::HttpCheckAndReport => self.post("/check_and_report", call).await,
        }
    }

    async fn post(&self, path: &str, call: &Call) -> Answer {
        let body = json!({
            "namespace": call.namespace,
            "values": call.entries[0],
            "delta": call.hits,
            "response_headers": "DraftVersion03",
        });
        let response = self.post_json(path, &body).await;
        let headers = response.headers().iter().filter_map(|(name, value)| {
            let name = name.as_str();
            name.starts_with("x-ratelimit")
                .then(|| (name.to_owned(), value.to_str().expect("text").to_owned()))
        });
        match response.status().as_u16() {
            200 => Answer::Admitted(headers.collect()),
            429 => Answer::Denied(headers.collect()),
            status => Answer::Failed(format!("{status}: {}", String::from_utf8_lossy(response.body()))),
        }
    }
}

impl LimitadorServer {
    pub async fn post_json(&self, path: &str, body: &Value) -> http::Response<Vec<u8>> {
        let body = body.to_string();
        let request =
            http::Request::post(path).header("content-type", "application/json").body(body.as_str());
        let request = request.expect("well-formed");
        http1::send(Ipv4Addr::LOCALHOST, self.http, request).await.expect("a response")
    }
}

fn of_grpc(response: Result<tonic::Response<RateLimitResponse>, Status>) -> Answer {
    use tidegate::api::pb::service::rate_limit_response::Code;
    let response = match response {
        Ok(response) => response.into_inner(),
        Err(status) => return Answer::Failed(status.to_string()),
    };
    let headers = response.response_headers_to_add.iter();
    let headers = headers.map(|header| (header.key.to_lowercase(), header.value.clone())).collect();
    match response.overall_code() {
        Code::Ok => Answer::Admitted(headers),
        Code::OverLimit => Answer::Denied(headers),
        Code::Unknown => Answer::Failed("the code UNKNOWN".to_owned()),
    }
}

impl Drop for LimitadorServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
