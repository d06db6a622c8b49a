//! Connections to a store that responds as each test wants.

use super::{
    SharedSettings,
    connect::connect,
    failure::Failure,
    nodes::Node,
    shared_store::{SharedStore, WITHOUT_RESPONSE_MAX},
};
use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The commands to which a store responds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Responds {
    /// None.
    Never,
    /// None: it closes connections.
    Closing,
    /// All but scripts.
    Connecting,
}

/// A primary, and a Sentinel that names it.
struct Peer {
    port: u16,
    responds: watch::Sender<Responds>,
    connections: watch::Sender<u32>,
    scripts: Arc<AtomicU32>,
}

impl Peer {
    async fn start(responds: Responds) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (responds, connections) = (watch::Sender::new(responds), watch::Sender::new(0));
        let peer = Self { port, responds, connections, scripts: Arc::default() };
        let (states, connections) = (peer.responds.clone(), peer.connections.clone());
        let scripts = Arc::clone(&peer.scripts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.send_modify(|connections| *connections += 1);
                if *states.borrow() != Responds::Closing {
                    tokio::spawn(respond(stream, port, states.subscribe(), Arc::clone(&scripts)));
                }
            }
        });
        peer
    }

    fn store(&self, timeout: Duration) -> Arc<SharedStore> {
        let settings = SharedSettings::of_tests(&format!("redis://127.0.0.1:{}", self.port), Duration::ZERO);
        Arc::new(SharedStore::new(SharedSettings { timeout, ..settings }).expect("settings of one store"))
    }
}

async fn respond(
    stream: TcpStream,
    port: u16,
    mut states: watch::Receiver<Responds>,
    scripts: Arc<AtomicU32>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        stream.readable().await?;
        let length = match stream.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(0) => return Ok(()),
            length => length?,
        };
        if states.wait_for(|responds| *responds == Responds::Connecting).await.is_err() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&buffer[..length]);
        let mut replies = String::new();
        for word in text.split("\r\n") {
            match word {
                "CLIENT" => replies += "+OK\r\n",
                "INFO" => replies += "$11\r\nrole:master\r\n",
                "SENTINEL" => {
                    let port = port.to_string();
                    replies += &format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
                }
                "EVALSHA" => _ = scripts.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
        }
        stream.writable().await?;
        // So few bytes are written at once.
        stream.try_write(replies.as_bytes())?;
    }
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let in_time = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(in_time).expect("the test ends");
}

fn only_node(store: &SharedStore) -> Arc<Node> {
    store.nodes.of(0).expect("one node has all counters")
}

fn limiter() -> Limiter {
    let rules = "domain: d\ndescriptors: [{key: k, rate_limit: {per: 10s, requests_per_unit: 10}}]\n";
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let rules = RuleSet::parse(&[Source::file("r.yaml", rules.to_owned())], &options).expect("rules");
    let seed = Seed::from_bytes([5; 16]);
    Limiter::new(rules, StoreSettings { seed, counters_max: 100, on_full: OnFull::Deny }, false)
}

/// The failure of one request.
async fn failure(store: &Arc<SharedStore>, limiter: &Limiter) -> Failure {
    let (owned, now) = (limiter.pin_owned(), Timestamp::from_millis(1_700_006_400_000));
    let mut request = Request::new("d");
    let entries = [Entry { key: "k", value: "v" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::new(Some(1), 0, false) });
    let request = owned.remote(&request, now).expect("the domain is shared");
    let peer = store.peer_id("192.0.2.1");
    store.decide(&request, peer, now, Duration::MAX).await.expect_err("the store decides nothing")
}

/// A Sentinel that did not respond delayed each connection by a second. Calls that waited for it took the node away, and the connection was
/// stale when it was ready: the store never decided again.
#[test]
fn calls_without_a_response_count_only_if_they_were_sent() {
    block_on(async {
        let peer = Peer::start(Responds::Never).await;
        let (store, limiter) = (peer.store(Duration::from_millis(1)), limiter());
        let node = only_node(&store);
        for _ in 0..=WITHOUT_RESPONSE_MAX {
            assert_eq!(failure(&store, &limiter).await, Failure::Timeout);
        }
        assert_eq!((node.is_available(), node.outages()), (true, 0));
        peer.responds.send_replace(Responds::Connecting);
        while node.is_available() {
            failure(&store, &limiter).await;
        }
        let sent = peer.scripts.load(Ordering::Relaxed);
        assert!(sent >= WITHOUT_RESPONSE_MAX, "the node was taken away after {sent} calls");
        assert_eq!(*peer.connections.borrow(), 1);
        assert_eq!(failure(&store, &limiter).await, Failure::Unavailable);
    });
}

#[test]
fn outages_before_the_response_of_a_node_leave_its_new_connection_usable() {
    block_on(async {
        let peer = Peer::start(Responds::Never).await;
        let store = peer.store(Duration::from_millis(1));
        let node = only_node(&store);
        let opening = store.open(&node, Duration::from_secs(60));
        let outage = async {
            let mut connections = peer.connections.subscribe();
            connections.wait_for(|connections| *connections > 0).await.expect("the peer lives");
            assert!(node.fail() && node.recover());
            peer.responds.send_replace(Responds::Connecting);
        };
        let (opened, ()) = tokio::join!(opening, outage);
        let connection = opened.expect("it is opened");
        assert!(node.is_of_present(&connection));
        assert!(node.fail() && node.recover() && !node.is_of_present(&connection));
    });
}

#[test]
fn the_sentinel_that_named_the_primary_is_queried_first() {
    block_on(async {
        let (dead, good) = (Peer::start(Responds::Closing).await, Peer::start(Responds::Connecting).await);
        let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", dead.port, good.port);
        let settings = SharedSettings::of_tests(&url, Duration::ZERO);
        let store = SharedStore::new(settings).expect("settings of Sentinels");
        let node = only_node(&store);
        for _ in 0..3 {
            connect(&store.settings, &node, Duration::from_secs(60)).await.expect("the second responds");
        }
        assert_eq!((*dead.connections.borrow(), node.first_sentinel()), (1, 1));
    });
}
