//! Everything that a server has received is done in the store, whatever becomes of the call, of its connection, and of the server: ends of
//! requests in flight and of reservations, renewals, hits given back.

use super::{
    RedisServer,
    process::free_port,
    slot_servers::{DENY, World, free, take, wait_until_free},
};
use crate::{
    support::{
        Client, Server, descriptor, eventually,
        frames::{
            CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, RawConnection, call_head,
        },
        http2,
    },
    tests_with,
};
use prost::Message;
use rustix::process::Signal;
use tidegate::api::pb::{
    common::RateLimitDescriptor,
    service::{RateLimitRequest, rate_limit_response::Code},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

tests_with! {
    REDIS:
    ends_that_were_received_are_made_however_their_calls_and_connections_end,
    renewals_and_give_backs_that_were_received_are_made_although_the_connection_ends,
    ends_that_were_received_are_made_before_a_draining_server_ends,
    ends_that_a_drain_does_not_wait_for_are_counted_and_logged,
    starts_that_are_received_after_ends_find_what_these_have_freed,
}

const SLOTS: u32 = 20;

/// Bytes of the preface and of empty SETTINGS.
const PREFACE_BYTES: usize = 24 + 9;

const RULES: &str = "
domain: d
descriptors:
  - {key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 20, max_hold: 1h}}
  - {key: now, rate_limit: {algorithm: concurrency, requests_in_flight: 20, max_hold: 1h, max_wait: 0s}}
  - {key: cost, rate_limit: {unit: day, requests_per_unit: 1000, reserve: 50}}
  - {key: window, rate_limit: {unit: day, requests_per_unit: 1000}}
";

/// The way in which the connection of the ends is ended, in the same read as the last end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Fin,
    Reset,
    /// RST_STREAM after each end.
    Streams,
    /// A frame that is a connection error.
    InvalidFrame,
}

/// The frames of calls with these descriptors, one call each, joined.
fn calls(descriptors: &[RateLimitDescriptor], head: &[u8], ended: Ended) -> Vec<u8> {
    let frame = |kind, flags, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for (descriptor, stream) in descriptors.iter().zip((1..).step_by(2)) {
        let request = RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![descriptor.clone()],
            ..RateLimitRequest::default()
        };
        bytes.extend(frame(HEADERS, END_HEADERS, stream, head));
        bytes.extend(frame(DATA, END_STREAM, stream, &http2::plain(&request.encode_to_vec())));
        if ended == Ended::Streams {
            bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }
    }
    if ended == Ended::InvalidFrame {
        bytes.extend(frame(PING, 0, 0, b"short"));
    }
    bytes
}

/// Makes the calls on a connection that ends at once.
async fn send(server: &Server, descriptors: &[RateLimitDescriptor], head: &[u8], ended: Ended) {
    let mut connection = TcpStream::connect(server.address()).await.expect("the server accepts");
    connection.write_all(&calls(descriptors, head, ended)).await.expect("they are written");
    match ended {
        Ended::Fin => connection.shutdown().await.expect("it is open"),
        Ended::Reset => connection.set_zero_linger().expect("an option of TCP"),
        // The connection stays until the client leaves, or the server ends it.
        Ended::Streams | Ended::InvalidFrame => {}
    }
}

/// Sends the calls on a connection that the server has accepted, and closes it.
async fn send_on_accepted(server: &Server, descriptors: &[RateLimitDescriptor]) {
    let mut connection = RawConnection::open(server.address()).await;
    connection.next().await.expect("SETTINGS");
    connection.send_bytes(&calls(descriptors, &call_head(), Ended::Fin)[PREFACE_BYTES..]).await;
}

async fn take_all(client: &mut Client, key: &str) -> Vec<String> {
    let mut tickets = Vec::new();
    for _ in 0..SLOTS {
        tickets.push(take(client, &[key]).await.expect("a slot"));
    }
    assert_eq!(free(client, key).await, 0);
    tickets
}

fn ends(tickets: &[String]) -> Vec<RateLimitDescriptor> {
    tickets.iter().map(|ticket| descriptor(&[("slot", ticket)])).collect()
}

/// The header block of a call that is routed to tonic.
fn routed_head() -> Vec<u8> {
    [&call_head()[..], b"\x00\x10tidegate-windows\x011"].concat()
}

/// 15 to 20 of 20 slots used to stay held when the connection was closed right after the ends, and 20 with RST_STREAM.
async fn ends_that_were_received_are_made_however_their_calls_and_connections_end() {
    let store = RedisServer::start();
    for policy in [&DENY[..], &["--on-store-failure", "error", "--counters-timeout", "2s"]] {
        let world = World::with_rules(RULES, 1, &store.url(), policy);
        let server = &world.servers[0];
        let mut client = server.client().await;
        for ended in [Ended::Fin, Ended::Reset, Ended::Streams, Ended::InvalidFrame] {
            for head in [call_head(), routed_head()] {
                println!("{policy:?} {ended:?}");
                let tickets = take_all(&mut client, "k").await;
                send(server, &ends(&tickets), &head, ended).await;
                wait_until_free(&mut client, "k", SLOTS).await;
                let left = free(&mut client, "cost").await;
                let mut reserved = Vec::new();
                for _ in 0..10 {
                    reserved.push(take(&mut client, &["cost"]).await.expect("an estimate"));
                }
                // The actual cost of each reservation is 1.
                let ends: Vec<_> = ends(&reserved)
                    .into_iter()
                    .map(|end| RateLimitDescriptor { hits_addend: Some(1), ..end })
                    .collect();
                send(server, &ends, &head, ended).await;
                wait_until_free(&mut client, "cost", left - 10).await;
            }
        }
        // `POST /json`, on a connection of HTTP/1 that is closed at once.
        for ticket in take_all(&mut client, "k").await {
            let body = format!(
                r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"slot","value":"{ticket}"}}]}}]}}"#
            );
            let mut connection =
                TcpStream::connect(("127.0.0.1", server.admin_port())).await.expect("a port");
            let request = format!(
                "POST /json HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            connection.write_all(request.as_bytes()).await.expect("it is written");
            connection.shutdown().await.expect("it is open");
        }
        wait_until_free(&mut client, "k", SLOTS).await;
        assert_eq!(world.metric(0, "tidegate_shared_store_lost_releases_total").await, 0);
        drop(client);
        let [server] = <[Server; 1]>::try_from(world.servers).unwrap_or_else(|_| panic!("one server"));
        assert!(server.terminate().success());
        let _: () = redis::cmd("FLUSHALL").query(&mut store.connection()).expect("emptied");
    }
}

async fn renewals_and_give_backs_that_were_received_are_made_although_the_connection_ends() {
    let store = RedisServer::start();
    let world = World::with_rules(RULES, 1, &store.url(), &DENY);
    let server = &world.servers[0];
    let mut client = server.client().await;
    let taken = RateLimitDescriptor { hits_addend: Some(500), ..descriptor(&[("window", "v")]) };
    let response = client.should_rate_limit("d", vec![taken]).await.expect("a decision");
    assert_eq!(response.overall_code(), Code::Ok);
    let given = RateLimitDescriptor {
        hits_addend: Some(20),
        is_negative_hits: true,
        ..descriptor(&[("window", "v")])
    };
    for (round, head) in (1..).zip([call_head(), routed_head()]) {
        send(server, &vec![given.clone(); 10], &head, Ended::Fin).await;
        wait_until_free(&mut client, "window", 500 + 200 * round).await;
    }
    let values = || -> Vec<Vec<u8>> {
        let mut connection = store.connection();
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
        keys.retain(|key| key.len() == "tidegate:".len() + 32);
        keys.sort();
        keys.iter().map(|key| redis::cmd("GET").arg(key).query(&mut connection).expect("a value")).collect()
    };
    let ticket = take(&mut client, &["k"]).await.expect("a slot");
    for head in [call_head(), routed_head()] {
        let before = values();
        let renewed = descriptor(&[("k", "v"), ("renew", &ticket)]);
        send(server, &[renewed], &head, Ended::Fin).await;
        // The deadline of the ticket is in the value of the counter.
        eventually("the ticket is renewed", async || if values() == before { Err(()) } else { Ok(()) }).await;
    }
}

fn signal(store: &RedisServer, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(store.pid() as i32).expect("a process");
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// A server whose store does not respond receives the ends of 20 requests, and then SIGTERM.
async fn ends_that_were_received_are_made_before_a_draining_server_ends() {
    let port = free_port();
    let store = RedisServer::start_on(port, &[]);
    let url = format!("redis://127.0.0.1:{port}");
    let args = ["--on-store-failure", "deny", "--counters-timeout", "300ms"];
    let mut world = World::with_rules(RULES, 1, &url, &args);
    let tickets = take_all(&mut world.servers[0].client().await, "k").await;
    signal(&store, Signal::STOP);
    send_on_accepted(&world.servers[0], &ends(&tickets)).await;
    world.servers[0].signal(Signal::TERM);
    eventually("the server drains", async || match world.servers[0].logged("draining").len() {
        0 => Err(()),
        _ => Ok(()),
    })
    .await;
    signal(&store, Signal::CONT);
    assert!(world.servers[0].wait().success());
    let after = World::with_rules(RULES, 1, &url, &DENY);
    assert_eq!(free(&mut after.servers[0].client().await, "k").await, SLOTS);
}

async fn ends_that_a_drain_does_not_wait_for_are_counted_and_logged() {
    let store = RedisServer::start();
    let args = ["--on-store-failure", "deny", "--counters-timeout", "300ms", "--drain-timeout", "200ms"];
    let mut world = World::with_rules(RULES, 1, &store.url(), &args);
    let tickets = take_all(&mut world.servers[0].client().await, "k").await;
    signal(&store, Signal::STOP);
    send_on_accepted(&world.servers[0], &ends(&tickets)).await;
    world.servers[0].signal(Signal::TERM);
    let status = world.servers[0].wait();
    signal(&store, Signal::CONT);
    assert!(status.success());
    let lost = world.servers[0].logged("ends of requests did not reach the shared store");
    assert!(lost.len() == 1 && lost[0].contains("20"), "{lost:?}");
}

/// Starts used to be decided before the ends of their predecessors, which the client had sent first on the same connection.
async fn starts_that_are_received_after_ends_find_what_these_have_freed() {
    let store = RedisServer::start();
    let world = World::with_rules(RULES, 1, &store.url(), &DENY);
    let mut client = world.servers[0].client().await;
    let tickets = take_all(&mut client, "now").await;
    let start = descriptor(&[("now", "v")]);
    let one_after_the_other: Vec<_> =
        ends(&tickets).into_iter().flat_map(|end| [end, start.clone()]).collect();
    let mut connection = RawConnection::open(world.servers[0].address()).await;
    connection.send_bytes(&calls(&one_after_the_other, &call_head(), Ended::Fin)[PREFACE_BYTES..]).await;
    let mut responses = 0;
    while responses < one_after_the_other.len() {
        let frame = connection.next().await.expect("a response");
        responses += usize::from(frame.kind == HEADERS && frame.flags & END_STREAM != 0);
    }
    assert_eq!(free(&mut client, "now").await, 0, "as many starts as ends");
}
