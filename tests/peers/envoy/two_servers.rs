//! Two servers behind one Envoy, and limits on connections, as the configurations of `deploy/envoy` have them.

use super::{FAIL_OPEN as LISTENER, application, early_in_a_minute, serve_rules};
use crate::{
    envoy_process::Envoy,
    support::{eventually, http1},
};
use http::Request;
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Calls after the end of a server: several per interval of the health checks, and more.
const CALLS_AFTER: usize = 200;

/// Without health checks, or with health checks that first run after a minute, a third of the calls failed here.
async fn a_server_that_ends_fails_no_call_beside_another() {
    let application = application();
    let args = ["--drain-delay", "3s"];
    let ending = serve_rules("rules.yaml", "127.0.0.1:0", &args);
    let staying = serve_rules("rules.yaml", "127.0.0.1:0", &args);
    let port =
        |address: &str| address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let given = [(8080, application), (8082, port(staying.address()))];
    let envoy = Envoy::start("two-servers.yaml", ending.address(), &given).await;
    let call = async || {
        let request = Request::get("/").header("x-api-key", new_key());
        let response = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(LISTENER), request).await;
        response.expect("Envoy responds").status().as_u16()
    };
    eventually("both servers are healthy", async || (call().await == 200).then_some(())).await;
    ending.signal(rustix::process::Signal::TERM);
    let mut ending = ending;
    let ended = tokio::task::spawn_blocking(move || ending.wait());
    let mut statuses = Vec::new();
    while !ended.is_finished() {
        statuses.push(call().await);
    }
    for _ in 0..CALLS_AFTER {
        statuses.push(call().await);
    }
    let failed = statuses.iter().filter(|status| **status != 200).count();
    assert!(statuses.len() > CALLS_AFTER, "the server ended at once");
    assert_eq!(failed, 0, "of {} calls", statuses.len());
}

/// A new key for each call.
fn new_key() -> String {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    format!("key-{}", CALLS.fetch_add(1, Ordering::Relaxed))
}

/// Whether a connection is kept for a moment: a connection over the limit is closed at once.
fn is_admitted(port: u16) -> bool {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("Envoy accepts");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").expect("it is written");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut first = [0; 1];
    stream.read(&mut first).is_ok_and(|length| length == 1)
}

async fn connections_over_their_limit_are_closed() {
    early_in_a_minute().await;
    let application = application();
    let server = serve_rules("tcp-rules.yaml", "127.0.0.1:0", &[]);
    let envoy = Envoy::start("tcp.yaml", server.address(), &[(8080, application)]).await;
    let port = envoy.port(LISTENER);
    let admitted = tokio::task::spawn_blocking(move || (0..8).map(|_| is_admitted(port)).collect::<Vec<_>>());
    let admitted = admitted.await.expect("no panic");
    assert_eq!(admitted, [true, true, true, true, true, false, false, false]);
}

crate::tests_with! {
    ENVOY:
    a_server_that_ends_fails_no_call_beside_another,
    connections_over_their_limit_are_closed,
}
