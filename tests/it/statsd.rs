//! Metrics that a real server pushes to statsd.

use crate::support::{PATIENCE, Server, eventually_blocking, rules_file};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::{TcpListener, UdpSocket},
};

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: per_user, unit: day, requests_per_unit: 4 } }
";

/// A statsd server that adds up counters, and keeps the last value of each gauge.
struct Receiver {
    socket: UdpSocket,
    sums: BTreeMap<String, f64>,
}

impl Receiver {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self { socket, sums: BTreeMap::new() }
    }

    fn address(&self) -> String {
        self.socket.local_addr().expect("it is bound").to_string()
    }

    /// Receives packets until the line with this name and tags has this value.
    fn receive_until(&mut self, name: &str, value: f64) {
        // Gauges are sent at every push, so packets arrive even if the value does not.
        let mut packets = 0;
        while self.sums.get(name) != Some(&value) {
            packets += 1;
            assert!(packets < 2_000, "{name} is not {value}: {:#?}", self.sums);
            let mut packet = [0; 4096];
            let bytes = self.socket.recv(&mut packet);
            let bytes = bytes.unwrap_or_else(|error| panic!("{name} {value}: {error}; {:#?}", self.sums));
            assert!(bytes <= 1432, "longer than a frame: {bytes}");
            std::str::from_utf8(&packet[..bytes]).expect("UTF-8").lines().for_each(|line| self.line(line));
        }
    }

    fn line(&mut self, line: &str) {
        let (name, rest) = line.split_once(':').expect("name:value");
        let parts: Vec<&str> = rest.split('|').collect();
        let value: f64 = parts[0].parse().unwrap_or_else(|_| panic!("a number: {line}"));
        let part = |start: &str| parts.iter().find_map(|part| part.strip_prefix(start));
        let name = part("#").map_or(name.to_owned(), |tags| format!("{name} {tags}"));
        match parts[1] {
            "c" => *self.sums.entry(name).or_default() += value,
            "g" => _ = self.sums.insert(name, value),
            // The number of values.
            "h" | "ms" => {
                let rate: f64 = part("@").map_or(1.0, |rate| rate.parse().expect("a rate"));
                *self.sums.entry(name).or_default() += (1.0 / rate).round();
            }
            other => panic!("{other}: {line}"),
        }
    }
}

const REFERENCE_RULES: &str = "
domain: shop
descriptors:
  - key: plan
    value: gold
    descriptors:
      - key: user
        descriptors:
          - { key: path, value: /pay, rate_limit: { unit: day, requests_per_unit: 4 } }
  - { key: trial, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";

async fn hit(server: &Server, times: usize) {
    let mut client = server.client().await;
    for _ in 0..times {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
    }
}

fn start(receiver: &Receiver, args: &[&str]) -> Server {
    let pushed = ["--statsd", &receiver.address(), "--statsd-interval", "50ms"];
    Server::with_rules(rules_file(RULES).path(), &[&pushed, args].concat())
}

#[tokio::test]
async fn statsd_receives_growth_of_counters_gauges_and_histograms() {
    let mut receiver = Receiver::new();
    let server = start(&receiver, &[]);
    hit(&server, 6).await;
    let denied = "tidegate.limit_hits.domain.shop.limit.per_user.outcome.denied";
    receiver.receive_until(denied, 2.0);
    receiver.receive_until("tidegate.decision_duration_seconds.code.ok", 4.0);
    hit(&server, 3).await;
    receiver.receive_until(denied, 5.0);
    receiver.receive_until("tidegate.decision_duration_seconds.code.over_limit", 5.0);
    receiver.receive_until("tidegate.limit_max_hits.domain.shop.limit.per_user", 4.0);
    assert!(receiver.sums["tidegate.process_resident_memory_bytes"] > 1e6);
}

#[tokio::test]
async fn statsd_receives_the_names_of_the_reference_server_with_all_keys() {
    let mut receiver = Receiver::new();
    let pushed = ["--statsd", &receiver.address(), "--statsd-interval", "50ms", "--statsd-prefix", "own"];
    let args = [&pushed[..], &["--compat", "reference", "--reference-metrics"]].concat();
    let server = Server::with_rules(rules_file(REFERENCE_RULES).path(), &args);
    let mut client = server.client().await;
    for _ in 0..6 {
        let paid = [("plan", "gold"), ("user", "ann"), ("path", "/pay")];
        client.hit("shop", &paid).await.expect("a response");
    }
    for _ in 0..3 {
        client.hit("shop", &[("trial", "7")]).await.expect("a response");
    }
    client.hit("", &[("trial", "7")]).await.expect_err("the domain is empty");
    for (name, value) in [
        ("ratelimit.service.rate_limit.shop.plan_gold.user.path_/pay.total_hits", 6.0),
        ("ratelimit.service.rate_limit.shop.plan_gold.user.path_/pay.over_limit", 2.0),
        ("ratelimit.service.rate_limit.shop.plan_gold.user.path_/pay.near_limit", 1.0),
        ("ratelimit.service.rate_limit.shop.plan_gold.user.path_/pay.within_limit", 4.0),
        ("ratelimit.service.rate_limit.shop.trial.shadow_mode", 2.0),
        ("ratelimit.service.call.should_rate_limit.service_error", 1.0),
        ("ratelimit.service.config_load_success", 1.0),
        ("ratelimit_server.ShouldRateLimit.total_requests", 10.0),
        ("ratelimit_server.ShouldRateLimit.response_time", 9.0),
        ("own.requests.code.over_limit", 2.0),
    ] {
        receiver.receive_until(name, value);
    }
    let mut names = receiver.sums.keys();
    assert!(
        names.all(|name| name.starts_with("own.") || name.starts_with("ratelimit")),
        "{:#?}",
        receiver.sums
    );
    assert!(!receiver.sums.keys().any(|name| name.contains("ratelimit_service")), "{:#?}", receiver.sums);
}

#[tokio::test]
async fn dogstatsd_receives_labels_as_tags_and_the_last_values_at_the_stop() {
    let mut receiver = Receiver::new();
    let args = [
        ["--statsd-format", "dogstatsd"],
        ["--statsd-tags", "env:test,zone:b"],
        ["--statsd-prefix", "limits"],
        ["--statsd-interval", "1h"],
    ];
    let address = receiver.address();
    let args = [&["--statsd", &address], &*args.concat()].concat();
    let server = Server::with_rules(rules_file(RULES).path(), &args);
    hit(&server, 6).await;
    assert_eq!(server.terminate().code(), Some(0));
    receiver.receive_until("limits.requests env:test,zone:b,code:over_limit", 2.0);
    let name = "limits.limit_hits env:test,zone:b,domain:shop,limit:per_user,outcome:denied";
    receiver.receive_until(name, 2.0);
}

#[tokio::test]
async fn a_server_whose_statsd_cannot_be_resolved_serves() {
    // The name is too long, so that no resolver is called.
    let host = format!("{}.invalid:8125", "x".repeat(70));
    let args = ["--statsd", &host, "--statsd-interval", "10ms"];
    let server = Server::with_rules(rules_file(RULES).path(), &args);
    hit(&server, 1).await;
    assert_eq!(server.logged("were not pushed to statsd").len(), 1);
}

/// The reference server pushes over TCP.
#[test]
fn metrics_are_pushed_over_tcp_with_tags_at_the_end_of_names() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let rules = rules_file(RULES);
    let push = [
        "--statsd",
        &address,
        "--statsd-transport",
        "tcp",
        "--statsd-tags",
        "env:test",
        "--statsd-interval",
        "50ms",
    ];
    let _server = Server::with_rules(rules.path(), &push);
    // Each push is a connection. The first may be before the server has rules.
    eventually_blocking("tidegate.rules", || {
        let (stream, _) = listener.accept().expect("a push");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let lines: Vec<String> = BufReader::new(stream).lines().map(|line| line.expect("UTF-8")).collect();
        if lines.iter().any(|line| line == "tidegate.rules.__env=test:1|g") { Ok(()) } else { Err(lines) }
    });
}
