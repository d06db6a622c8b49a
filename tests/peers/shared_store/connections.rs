//! The ways to reach a store: TLS with client certificates, users and passwords, sockets, and the default time limit.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisServer,
    process::{Sentinel, free_port},
    proxy::Proxy,
};
use crate::{
    support::{Client, Server, certificates::Authority, rules_file},
    tests_with,
};
use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! {
    REDIS:
    a_store_with_tls_demands_the_certificate_of_the_server,
    a_self_signed_certificate_of_the_store_is_accepted_as_an_authority,
    a_certificate_without_the_name_of_the_store_is_accepted_if_wanted,
    servers_authenticate_as_a_user_with_a_password,
    servers_at_a_socket_and_at_a_port_share_counters,
    a_slow_store_is_given_ten_milliseconds_by_default,
    a_server_with_many_threads_has_few_connections_to_its_store,
    a_dead_connection_of_one_worker_is_made_again_while_those_of_others_respond,
    sentinels_that_name_a_dead_store_or_a_replica_are_passed_over,
}

const RULES: &str = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]";

/// A server with these arguments, for the store of a test that is not about time.
fn server(args: &[&str]) -> (Server, tempfile::NamedTempFile) {
    let rules = rules_file(RULES);
    let patient = ["--counters-timeout", "2s", "--on-store-failure", "deny"];
    (Server::with_rules(rules.path(), &[args, &patient].concat()), rules)
}

/// The error of a server that does not start.
fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(args)
        .output()
        .expect("it runs");
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn codes(server: &Server, calls: usize) -> Vec<Code> {
    let mut client = server.client().await;
    let mut codes = Vec::new();
    for _ in 0..calls {
        let response = client.hit("d", &[("k", "v")]).await.expect("a decision");
        assert!(response.statuses[0].duration_until_reset.is_some(), "the store decides");
        codes.push(response.overall_code());
    }
    codes
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

async fn a_store_with_tls_demands_the_certificate_of_the_server() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new("stores"));
    let (cert, key) = authority.issue(&["127.0.0.1"]).write(folder.path(), "store");
    let (own_cert, own_key) = authority.issue(&["tidegate.example"]).write(folder.path(), "server");
    let [ca, other] =
        [("ca.pem", &authority), ("other.pem", &Authority::new("others"))].map(|(name, authority)| {
            let path = folder.path().join(name);
            fs::write(&path, &authority.pem).expect("the file is written");
            path
        });
    let port = free_port().to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", text(&cert), "--tls-key-file", text(&key)];
    let tls = [&tls[..], &["--tls-ca-cert-file", text(&ca), "--tls-auth-clients", "yes"]].concat();
    let _store = RedisServer::start_with(&tls);
    let url = format!("rediss://127.0.0.1:{port}");
    let certificate = ["--counters-cert", text(&own_cert), "--counters-key", text(&own_key)];
    let with_ca = |ca| [&["--counters", &url, "--counters-ca", ca], &certificate[..]].concat();
    let (server, _rules) = server(&with_ca(text(&ca)));
    assert_eq!(codes(&server, 3).await, [Code::Ok, Code::Ok, Code::OverLimit]);

    let error = refused(&["--counters", &url, "--counters-ca", text(&ca)]);
    assert!(error.contains(&port), "without the certificate: {error}");
    let error = refused(&with_ca(text(&other)));
    assert!(error.contains("certificate"), "another authority: {error}");
    // The store closes connections without TLS, as a proxy before a dead store does.
    let without_tls = format!("redis://127.0.0.1:{port}");
    let started = Server::start(&["--counters", &without_tls]);
    let logged = started.logged("shared store not joined; trying again").join("\n");
    assert!(logged.contains("does the store expect TLS (rediss://)"), "{logged}");
}

/// `openssl req -x509` makes a certificate whose extensions make it an authority.
async fn a_self_signed_certificate_of_the_store_is_accepted_as_an_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "9",
        ])
        .args(["-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", text(&key), "-out"])
        .arg(&cert)
        .output();
    assert!(made.expect("it runs").status.success());
    let port = free_port().to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", text(&cert), "--tls-key-file", text(&key)];
    let _store = RedisServer::start_with(&[&tls[..], &["--tls-auth-clients", "no"]].concat());
    let url = format!("rediss://127.0.0.1:{port}");
    let (accepted, _rules) = server(&["--counters", &url, "--counters-ca", text(&cert)]);
    assert_eq!(codes(&accepted, 3).await, [Code::Ok, Code::Ok, Code::OverLimit]);
    // An authority that the machine trusts is accepted too.
    let rules = rules_file(RULES);
    let args = ["--counters", &url, "--counters-timeout", "2s", "--on-store-failure", "deny"];
    let of_system = Server::with_variables(rules.path(), &args, &[("SSL_CERT_FILE", text(&cert))]);
    assert_eq!(codes(&of_system, 1).await, [Code::OverLimit]);
    // The name is verified nevertheless.
    let by_name = format!("rediss://localhost:{port}");
    let error = refused(&["--counters", &by_name, "--counters-ca", text(&cert)]);
    assert!(error.contains("certificate"), "another name: {error}");
}

async fn a_certificate_without_the_name_of_the_store_is_accepted_if_wanted() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new("stores"));
    let (cert, key) = authority.issue(&["store.example"]).write(folder.path(), "store");
    let [ca, other] =
        [("ca.pem", &authority), ("other.pem", &Authority::new("others"))].map(|(name, authority)| {
            let path = folder.path().join(name);
            fs::write(&path, &authority.pem).expect("the file is written");
            path
        });
    let port = free_port().to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", text(&cert), "--tls-key-file", text(&key)];
    let _store = RedisServer::start_with(&[&tls[..], &["--tls-auth-clients", "no"]].concat());
    let url = format!("rediss://127.0.0.1:{port}");
    let error = refused(&["--counters", &url, "--counters-ca", text(&ca)]);
    assert!(error.contains("certificate"), "{error}");
    let (accepted, _rules) = server(&["--counters", &url, "--counters-ca", text(&ca), "--counters-any-name"]);
    assert_eq!(codes(&accepted, 3).await, [Code::Ok, Code::Ok, Code::OverLimit]);
    let error = refused(&["--counters", &url, "--counters-ca", text(&other), "--counters-any-name"]);
    assert!(error.contains("certificate"), "another authority: {error}");
}

async fn servers_authenticate_as_a_user_with_a_password() {
    let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
    let store = RedisServer::start_on(port, &[]);
    let mut connection = store.connection();
    for rule in [&["tide", "on", ">open-sesame", "~tidegate:*", "+@all"][..], &["default", "off"]] {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg(rule);
        let () = command.query(&mut connection).expect("the rule is set");
    }
    let file = folder.path().join("password");
    fs::write(&file, "open-sesame\n").expect("the file is written");
    let (in_url, in_file) =
        (format!("redis://tide:open-sesame@127.0.0.1:{port}"), format!("redis://tide@127.0.0.1:{port}"));
    let (first, _rules) = server(&["--counters", &in_url]);
    let (second, _other) = server(&["--counters", &in_file, "--counters-password-file", text(&file)]);
    assert_eq!(codes(&first, 1).await, [Code::Ok]);
    assert_eq!(codes(&second, 2).await, [Code::Ok, Code::OverLimit]);
    for server in [&first, &second] {
        assert!(!server.log().join("\n").contains("open-sesame"), "passwords are not logged");
    }
    let wrong = format!("redis://tide:let-me-in@127.0.0.1:{port}");
    let error = refused(&["--counters", &wrong]);
    assert!(!error.contains("let-me-in"), "{error}");
}

async fn servers_at_a_socket_and_at_a_port_share_counters() {
    let port = free_port();
    let store = RedisServer::start_on(port, &[]);
    let socket = store.url();
    let (at_socket, _rules) = server(&["--counters", &socket]);
    let (at_port, _other) = server(&["--counters", &format!("redis://127.0.0.1:{port}/0")]);
    assert_eq!(codes(&at_socket, 1).await, [Code::Ok]);
    assert_eq!(codes(&at_port, 2).await, [Code::Ok, Code::OverLimit]);
    let (elsewhere, _third) = server(&["--counters", &format!("redis://127.0.0.1:{port}/1")]);
    assert_eq!(codes(&elsewhere, 1).await, [Code::Ok], "another database");
}

async fn a_slow_store_is_given_ten_milliseconds_by_default() {
    let port = free_port();
    let _store = RedisServer::start_on(port, &[]);
    let (proxy, rules) = (Proxy::start(port).await, rules_file(RULES));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let server = Server::with_rules(
        rules.path(),
        &["--counters", &url, "--lease", "off", "--on-store-failure", "deny"],
    );
    let mut client = server.client().await;
    // Only calls that were sent count: the connection has to be open. On a loaded machine the first call may be late.
    let mut is_open = false;
    while !is_open {
        let response = client.hit("d", &[("k", "opens")]).await.expect("a decision");
        is_open = response.statuses[0].duration_until_reset.is_some();
    }
    let delay = Duration::from_secs(5);
    proxy.delay(delay);
    for _ in 0..6 {
        let began = Instant::now();
        let response = client.hit("d", &[("k", "v")]).await.expect("a decision");
        assert!(response.statuses[0].duration_until_reset.is_none(), "the store has not decided");
        assert!(began.elapsed() < delay / 2, "the decision has waited {:?}", began.elapsed());
    }
    let logged = server.logged("shared store unavailable").join("\n");
    assert!(logged.contains("in 10 ms"), "{logged}");
}

/// 64 threads used to have 67 connections.
async fn a_server_with_many_threads_has_few_connections_to_its_store() {
    let store = RedisServer::start();
    let socket = format!("unix:{}", store.socket().display());
    let (server, _rules) = server(&["--counters", &socket, "--threads", "32", "--lease", "auto"]);
    // Each thread gets at least one of these 64 connections.
    for caller in 0..64 {
        let mut client = server.client().await;
        client.hit("d", &[("k", &caller.to_string())]).await.expect("a decision");
    }
    let mut own = store.connection();
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut own).expect("a text");
    // One connection for each worker, up to eight; those that find the node and renew leases; and the test's own.
    let connections = clients.lines().count();
    assert!((2..=12).contains(&connections), "{connections}: {clients}");
}

/// A firewall that forgets an idle connection drops its packets. Each response to another worker used to set back the count of calls without
/// a response, so that the store decided nothing for this worker until the kernel gave up, after a quarter of an hour.
async fn a_dead_connection_of_one_worker_is_made_again_while_those_of_others_respond() {
    let port = free_port();
    let _store = RedisServer::start_on(port, &[]);
    let (proxy, rules) = (Proxy::start(port).await, rules_file(RULES));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let args = ["--counters", &url, "--lease", "off", "--on-store-failure", "deny", "--threads", "2"];
    let server = Server::with_rules(rules.path(), &[&args[..], &["--counters-timeout", "500ms"]].concat());
    let mut key = 0;
    let mut is_decided = async |client: &mut Client| {
        key += 1;
        let response = client.hit("d", &[("k", &key.to_string())]).await.expect("a decision");
        response.statuses[0].duration_until_reset.is_some()
    };
    // Clients of different workers.
    let mut first = server.client().await;
    assert!(is_decided(&mut first).await);
    let connection = proxy.deciding();
    let mut second = server.client().await;
    while !is_decided(&mut second).await || proxy.deciding() == connection {
        second = server.client().await;
    }
    proxy.silence(connection);
    let mut undecided = 0;
    while !is_decided(&mut first).await {
        undecided += 1;
        assert!(undecided < 10, "{undecided} calls without the store");
        is_decided(&mut second).await;
    }
    println!("dead connection of one worker: {undecided} calls without the store");
    assert!(undecided > 0, "the connection was not silenced");
    server.logged("a connection to the shared store had no responses");
    assert!(!server.log().join("\n").contains("shared store unavailable"));
}

/// Only the first Sentinel that responded was believed. After a restart with an old configuration it may name a former primary.
async fn sentinels_that_name_a_dead_store_or_a_replica_are_passed_over() {
    let (primary_port, replica_port) = (free_port(), free_port());
    let _primary = RedisServer::start_on(primary_port, &["--repl-diskless-sync-delay", "0"]);
    let _replica =
        RedisServer::start_on(replica_port, &["--replicaof", &format!("127.0.0.1 {primary_port}")]);
    let sentinels = [free_port(), replica_port, primary_port].map(Sentinel::start);
    let ports = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
    let (server, _rules) = server(&["--counters", &format!("redis+sentinel://{}/main", ports.join(","))]);
    assert_eq!(codes(&server, 3).await, [Code::Ok, Code::Ok, Code::OverLimit]);
    // From then on, the server begins with the third.
    server.logged("a Sentinel names no reachable primary");
    let log = server.log().join("\n");
    for passed_over in &ports[..2] {
        assert_eq!(log.matches(&format!("\"sentinel\":\"{passed_over}\"")).count(), 1, "{log}");
    }
}
