//! Who may hold credits over TLS, and the metrics of holders.

use super::{Fate, MILLI, Node};
use crate::{
    admin::{page_with_token, start_from},
    control::token,
    support::{PATIENCE, Server, eventually, rules_file},
    tls::Pki,
};
use rustix::process::Signal;
use std::{fs, process::Command, time::Duration};
use tidegate::api::pb::leases::{ExchangeRequest, leases_client::LeasesClient};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_shared::lease::Monotonic;
use tonic::{
    Code, Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

const HOLDER: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

async fn channel(server: &Server, pki: &Pki, san: &str) -> Channel {
    let pair = pki.authority.issue(&[san]);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&pki.authority.pem))
        .identity(Identity::from_pem(pair.cert, pair.key))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address())).expect("host:port");
    endpoint.tls_config(tls).expect("PEM").connect().await.expect("the server accepts")
}

/// The status of a call without claims and decisions.
async fn called(channel: &Channel, token: Option<&str>) -> Option<Code> {
    let mut request = Request::new(ExchangeRequest { node: 1, ..ExchangeRequest::default() });
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    let called = LeasesClient::new(channel.clone()).exchange(request).await;
    called.err().map(|status| status.code())
}

#[tokio::test]
async fn a_name_in_a_client_certificate_or_a_token_over_tls_gives_the_role() {
    let pki = Pki::new();
    let file = pki.path("roles");
    let holder = token(&file, "holder", &["--role", "lease"]);
    let reader = token(&file, "reader", &["--role", "read"]);
    let tokens = fs::read_to_string(&file).expect("it was written");
    let roles = |of_holder: &str| format!("{tokens}\nsan={HOLDER}:{of_holder}\nsan=bob.test:read\n");
    fs::write(&file, roles("lease")).expect("written");
    let args = ["--leases", "any", "--control", "any", "--http-token-file", file.to_str().expect("UTF-8")];
    let server = pki.start_mutual(&args);
    let by_name = channel(&server, &pki, HOLDER).await;
    let (of_bob, unknown) =
        (channel(&server, &pki, "bob.test").await, channel(&server, &pki, "eve.test").await);
    assert_eq!(called(&by_name, None).await, None);
    assert_eq!(called(&of_bob, None).await, Some(Code::PermissionDenied));
    assert_eq!(called(&unknown, None).await, Some(Code::Unauthenticated));
    // If a token is sent, it applies instead of the certificate.
    assert_eq!(called(&unknown, Some(&holder)).await, None);
    assert_eq!(called(&by_name, Some(&reader)).await, Some(Code::PermissionDenied));
    // The file is watched: the role ends while the connection is open.
    fs::write(&file, roles("read")).expect("written");
    server.logged("HTTP tokens reloaded");
    let mut status = None;
    for _ in 0..100 {
        status = called(&by_name, None).await;
        if status.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, Some(Code::PermissionDenied));
}

fn ctl_leases(address: &str, token: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["ctl", "leases", "--addr", address]).env("TIDEGATE_TOKEN", token);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn leases_and_their_hits_are_in_the_metrics_and_shown_by_ctl() {
    const RULES: &str =
        "{ domain: d, descriptors: [{ key: a, rate_limit: { unit: hour, requests_per_unit: 100000 } }] }";
    let (folder, rules) = (tempfile::tempdir().expect("a temporary folder"), rules_file(RULES));
    let file = folder.path().join("tokens");
    let (holder, reader) = (token(&file, "h", &["--role", "lease"]), token(&file, "r", &["--role", "read"]));
    let args = ["--leases", "--control", "loopback", "--http-token-file", file.to_str().expect("UTF-8")];
    let (server, port) = start_from(rules.path(), &args);
    let clock = SystemClock::new();
    let began = clock.now();
    let now = || Monotonic::from_nanos(u64::try_from(clock.now().since(began).as_nanos()).unwrap() + MILLI);
    let mut node = Node::new(7, server.channel().await);
    node.token = Some(holder);
    // Leases last 200 ms: they are renewed while the command runs.
    let mut shown = String::new();
    while clock.now().since(began) < PATIENCE {
        let (address, token) = (server.address().to_owned(), reader.clone());
        let shows = tokio::task::spawn_blocking(move || ctl_leases(&address, &token));
        while !shows.is_finished() {
            for _ in 0..20 {
                node.decide("x", now()).await.unwrap();
            }
            node.exchange(now(), Fate::Answered).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        shown = shows.await.unwrap();
        if shown.contains("1 node, 1 lease, ") && !shown.contains(" 0 credits outstanding") {
            break;
        }
    }
    assert!(shown.contains("1 node, 1 lease, ") && !shown.contains(" 0 credits outstanding"), "{shown}");
    assert!(shown.contains("token:h") && shown.contains("0000000000000007"), "{shown}");
    let page = loop {
        // Several exchanges in a row: on a busy machine, a lease ends while a page is fetched.
        for _ in 0..10 {
            for _ in 0..20 {
                node.decide("x", now()).await.unwrap();
            }
            node.exchange(now(), Fate::Answered).await.unwrap();
        }
        let page = page_with_token(port, &reader).await;
        if page["tidegate_lease_spent_hits_total"] > 0.0 && page["tidegate_granted_leases"] == 1.0 {
            break page;
        }
        assert!(clock.now().since(began) < 2 * PATIENCE, "{page:?}");
    };
    let value = |name: &str| page.get(name).copied().unwrap_or_else(|| panic!("no {name} in {page:?}"));
    assert!(value("tidegate_lease_granted_hits_total") > 0.0);
    assert!(value("tidegate_lease_claims_total{rules=\"current\"}") >= 1.0);
    assert_eq!(value("tidegate_lease_claims_total{rules=\"former\"}"), 0.0);
    // The last report is under the former rules. On a busy machine the lease may end before the report: then another one is taken.
    let page = loop {
        while node.credits(now()) == 0 {
            for _ in 0..20 {
                node.decide("x", now()).await.unwrap();
            }
            node.exchange(now(), Fate::Answered).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        node.spend("x", now());
        let reloads = server.log().iter().filter(|line| line.contains("rules reloaded")).count();
        fs::write(rules.path(), RULES.replace("100000", &format!("{}", 90_000 + reloads))).unwrap();
        server.signal(Signal::HUP);
        eventually("rules reloaded", async || server.logged("rules reloaded").len() > reloads).await;
        node.release(now()).await.unwrap();
        let page = page_with_token(port, &reader).await;
        if page["tidegate_lease_claims_total{rules=\"former\"}"] > 0.0 {
            break page;
        }
        assert!(clock.now().since(began) < 3 * PATIENCE, "{page:?}");
    };
    assert_eq!(page["tidegate_granted_leases"], 0.0);
    let shown = ctl_leases(server.address(), &reader);
    assert!(shown.contains("0 nodes, 0 leases, 0 credits outstanding"), "{shown}");
}
