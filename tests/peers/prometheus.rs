//! The alerts and the dashboard of `deploy/`, against a real Prometheus that scrapes a server under load.

use crate::{
    dashboard::{self, Panel},
    support::{Client, Server, rules_file},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Prometheus and its tool.
pub fn is_here() -> bool {
    let tools = ["prometheus", "promtool"];
    tools.iter().all(|tool| crate::peer::runs(Command::new(tool).arg("--version")))
}

/// Rules for which every outcome exists.
const RULES: &str = "
domain: shop
descriptors:
  - key: client
    rate_limit: { name: per-client, unit: minute, requests_per_unit: 40 }
  - key: path
    shadow_mode: true
    rate_limit: { name: per-path, unit: minute, requests_per_unit: 20 }
  - key: job
    rate_limit: { name: per-job, unit: second, requests_per_unit: 200, algorithm: leaky_bucket, burst: 1, max_wait: 5s }
  - key: export
    rate_limit: { name: exports, algorithm: concurrency, requests_in_flight: 50, max_hold: 1s, max_wait: 0s }
  - key: login
    rate_limit: { name: logins, per: 1s, requests_per_unit: 1, ban: { after: 1, within: 1s, for: 1s } }
";
/// Rounds of load for the picture, at half a second each.
const PICTURE_ROUNDS: u32 = 100;
/// Rounds of load before counters fill up.
const ROUNDS_WITH_ROOM: u32 = 10;
/// Attempts, at half a second each, within which a query has to return data.
const ATTEMPTS: u32 = 80;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// A running Prometheus; killed when dropped.
struct Prometheus {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes `target` every half a second, over `http` or `https`, as the job `tidegate`.
    fn start(scheme: &str, target: &str) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - job_name: tidegate\n  \
               scheme: {scheme}\n  \
               tls_config: {{ insecure_skip_verify: true }}\n  \
               static_configs: [{{ targets: ['{target}'] }}]\n",
            deploy("prometheus/alerts.yaml").display()
        );
        fs::write(&config, text).expect("the config");
        let mut process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Prometheus runs");
        let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let mut log = Vec::new();
        let url = lines.find_map(|line| {
            let address =
                line.split_once("msg=\"Listening on\" address=").map(|(_, address)| address.to_owned());
            log.push(line);
            address
        });
        let Some(address) = url else { panic!("Prometheus does not listen: {log:#?}") };
        // Prometheus would end if it could not write its log.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url: format!("http://{address}"), _folder: folder }
    }

    /// The present samples of an expression, without samples that are not numbers.
    fn query(&self, expression: &str) -> Vec<Value> {
        let output = Command::new("promtool")
            .args(["query", "instant", "-o", "json", &self.url, expression])
            .output()
            .expect("promtool runs");
        if !output.status.success() {
            // Prometheus is still starting.
            return Vec::new();
        }
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let samples = found.as_array().cloned().unwrap_or_default();
        samples.into_iter().filter(|sample| sample["value"][1] != "NaN").collect()
    }
}

impl Prometheus {
    /// The samples of an expression since the start.
    fn range(&self, expression: &str) -> Value {
        let output = Command::new("promtool")
            .args(["query", "range", "-o", "json", "--step", "1s", &self.url, expression])
            .output()
            .expect("promtool runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The value that each alert compares with its threshold.
fn alerts() -> BTreeMap<String, String> {
    let text = fs::read_to_string(deploy("prometheus/alerts.yaml")).expect("the alerts");
    let file: Value = serde_saphyr::from_str(&text).expect("YAML");
    let rules = file["groups"].as_array().into_iter().flatten().flat_map(|group| group["rules"].as_array());
    let value = |rule: &Value| {
        let (name, expression) = (rule["alert"].as_str()?, rule["expr"].as_str()?);
        let at = expression.rfind([' ']).and_then(|threshold| expression[..threshold].rfind(' '))?;
        assert!(["<", ">"].contains(&expression[at..].split_whitespace().next()?), "{expression}");
        Some((name.to_owned(), expression[..at].to_owned()))
    };
    rules.flatten().map(|rule| value(rule).expect("an alert with a comparison at its end")).collect()
}

fn panels() -> Vec<Panel> {
    let text = fs::read_to_string(deploy("grafana/tidegate.json")).expect("the dashboard");
    dashboard::panels(&serde_json::from_str(&text).expect("JSON"))
}

/// The queries of all panels, by title and number.
fn queries() -> BTreeMap<String, String> {
    let of_panel = |panel: Panel| {
        let title = panel.title;
        panel.queries.into_iter().map(move |query| (format!("{title} {}", query.id), query.expression))
    };
    panels().into_iter().flat_map(of_panel).collect()
}

/// A server with every feature that has metrics, and the address of its HTTP port.
fn server(folder: &tempfile::TempDir) -> (Server, String) {
    let certificate = rcgen::generate_simple_self_signed(["localhost".into()]).expect("a certificate");
    let path = |name: &str| folder.path().join(name).to_str().expect("temporary paths are UTF-8").to_owned();
    let (cert, key, data, log) = (path("cert.pem"), path("key.pem"), path("data"), path("log"));
    fs::write(&cert, certificate.cert.pem()).expect("the certificate");
    fs::write(&key, certificate.signing_key.serialize_pem()).expect("the key");
    let rules = rules_file(RULES);
    let server = Server::with_rules(
        rules.path(),
        &[
            ["--http-listen", "127.0.0.1:0"],
            ["--http-tls-cert", &cert],
            ["--http-tls-key", &key],
            ["--data", &data],
            ["--snapshot-interval", "1s"],
            ["--decision-log", &log],
            ["--max-counters", "200"],
        ]
        .concat(),
    );
    let line = server.log().into_iter().find(|line| line.contains("HTTP port listening"));
    let line: Value = serde_json::from_str(&line.expect("it is logged")).expect("JSON");
    let address = line["address"].as_str().expect("an address").to_owned();
    (server, address)
}

/// Some requests of every kind.
async fn load(client: &mut Client, round: u32) {
    for hit in 0..30 {
        let (user, path) = (format!("{}", hit % 3), format!("/{}", round % 3));
        client.hit("shop", &[("client", &user)]).await.expect("a response");
        client.hit("shop", &[("path", &path)]).await.expect("a response");
        client.hit("shop", &[("job", "")]).await.expect("a response");
        client.hit("shop", &[("login", "ann")]).await.expect("a response");
    }
    client.hit("shop", &[("export", "")]).await.expect("a response");
    // Soon there is no room for more counters.
    for new in 0..if round < ROUNDS_WITH_ROOM { 0 } else { 30 } {
        let user = format!("{round} {new}");
        client.hit("shop", &[("client", &user)]).await.expect("a response");
    }
    client.hit("elsewhere", &[("client", "a")]).await.expect("a response");
    client.hit("", &[("client", "a")]).await.expect_err("a domain is required");
}

/// Draws the dashboard after some more load, to the path in `TIDEGATE_DASHBOARD_PICTURE` if it is set.
async fn picture(prometheus: &Prometheus, server: &Server, client: &mut Client) {
    let Some(path) = std::env::var_os("TIDEGATE_DASHBOARD_PICTURE") else { return };
    for round in 0..PICTURE_ROUNDS {
        let others = (0..round % 5).map(|_| server.client());
        for other in others {
            load(&mut other.await, round).await;
        }
        load(client, round).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let drawn = panels().into_iter().map(|panel| {
        let lines = panel.queries.iter().flat_map(|query| query.lines(&prometheus.range(&query.expression)));
        let lines = lines.collect();
        (panel, lines)
    });
    fs::write(&path, dashboard::svg(&drawn.collect::<Vec<_>>())).expect("the picture can be written");
}

async fn every_panel_and_every_alert_has_data_of_a_server_under_load() {
    let folder = tempfile::tempdir().expect("a directory");
    let (server, address) = server(&folder);
    let prometheus = Prometheus::start("https", &address);
    let mut client = server.client().await;
    let mut queries: BTreeMap<String, String> = alerts().into_iter().chain(queries()).collect();
    // This server has no control plane; tests/it/xds.rs reads those metrics. tests/peers/shared_store reads the metrics of a store. There
    // is no data of the day before.
    let is_elsewhere = |query: &str| {
        ["tidegate_xds_", "tidegate_shared_", "tidegate_lease_", "offset 1d"]
            .iter()
            .any(|of| query.contains(of))
    };
    queries.retain(|_, query| !is_elsewhere(query));
    assert!(queries.len() > 30, "only {} queries", queries.len());
    let mut silent: Vec<&String> = queries.keys().collect();
    for round in 0..ATTEMPTS {
        load(&mut client, round).await;
        silent.retain(|name| prometheus.query(&queries[*name]).is_empty());
        if silent.is_empty() {
            picture(&prometheus, &server, &mut client).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let silent: Vec<_> = silent.into_iter().map(|name| format!("{name}: {}", queries[name])).collect();
    panic!("no data for\n{}", silent.join("\n"));
}

/// 2,397 of 2,399 requests were denied, and the only alert was that a limit denies most of its hits.
async fn an_outage_of_the_store_has_an_alert_that_names_the_store() {
    let redis = crate::shared_store::RedisServer::start();
    let (url, rules) = (
        redis.url(),
        rules_file("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9}}]\n"),
    );
    let args = ["--counters", &url, "--on-store-failure", "deny", "--http-listen", "127.0.0.1:0"];
    let server = Server::with_rules(rules.path(), &args);
    let prometheus = Prometheus::start("http", &format!("127.0.0.1:{}", server.admin_port()));
    let mut client = server.client().await;
    let alerts = r#"ALERTS{alertname=~"TidegateSharedStore.*"}"#;
    let mut redis = Some(redis);
    for _ in 0..ATTEMPTS {
        client.hit("d", &[("k", "v")]).await.expect("a decision");
        if redis.is_some() && !prometheus.query("tidegate_shared_store_up == 1").is_empty() {
            assert_eq!(prometheus.query(alerts).len(), 0, "the store decides");
            redis = None;
        }
        let firing = prometheus.query(alerts);
        // Both alerts wait for a minute before they fire.
        if redis.is_none()
            && firing.len() == 2
            && firing.iter().all(|alert| alert["metric"]["severity"] == "critical")
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("{:?} after the outage", prometheus.query("ALERTS"));
}

async fn each_alert_fires_for_the_series_that_it_is_meant_for() {
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let ran = Command::new("promtool").args(args).current_dir(deploy("prometheus")).output();
        let ran = ran.expect("promtool runs");
        let output = String::from_utf8_lossy(&[&*ran.stdout, &*ran.stderr].concat()).into_owned();
        assert!(ran.status.success() && output.contains("SUCCESS"), "{output}");
    }
    let text = fs::read_to_string(deploy("prometheus/alerts_test.yaml")).expect("the tests of alerts");
    for alert in alerts().keys() {
        assert!(text.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
    }
}

crate::tests_with! {
    PROMETHEUS:
    every_panel_and_every_alert_has_data_of_a_server_under_load,
    each_alert_fires_for_the_series_that_it_is_meant_for,
}

/// Prometheus, beside a store.
pub mod store {
    use super::an_outage_of_the_store_has_an_alert_that_names_the_store;

    crate::tests_with! { PROMETHEUS, REDIS: an_outage_of_the_store_has_an_alert_that_names_the_store }
}
