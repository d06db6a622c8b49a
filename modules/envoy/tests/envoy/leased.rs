//! Several Envoys that share the limits of one server, by credits and by its decisions.
//!
//! The application behind all of them counts the admitted requests.

use crate::{
    client::{Connection, Request, Response},
    config::{Filter, bootstrap, listener, route, service},
    process::{Binary, Envoy, Server, eventually},
};
use serde_json::{Value as Json, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tidegate_core::clock::since_boot;

/// An application that records the paths of requests. Each request costs 100.
pub struct Application {
    pub port: u16,
    shared: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    paths: Mutex<Vec<String>>,
    /// Locked to hold the responses to `/held`.
    gate: Mutex<()>,
}

impl Application {
    pub fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, shared) = (socket.local_addr().unwrap().port(), Arc::<Seen>::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in socket.incoming().map_while(Result::ok) {
                let own = Arc::clone(&own);
                thread::spawn(move || serve(stream, &own));
            }
        });
        Self { port, shared }
    }

    /// Requests to a path since the beginning.
    pub fn count(&self, path: &str) -> usize {
        self.shared.paths.lock().unwrap().iter().filter(|own| *own == path).count()
    }

    /// Holds the responses to `/held` until this is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.shared.gate.lock().unwrap()
    }
}

fn serve(stream: TcpStream, seen: &Seen) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut path = None;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line if path.is_none() => path = Some(line.split(' ').nth(1)?.to_owned()),
                _ => {}
            }
        }
        let path = path?;
        let is_held = path == "/held";
        seen.paths.lock().unwrap().push(path);
        if is_held {
            drop(seen.gate.lock());
        }
        let response = b"HTTP/1.1 200 OK\r\nx-cost: 100\r\ncontent-length: 0\r\n\r\n";
        reader.get_mut().write_all(response).ok()?;
    }
}

/// The filter's configuration, with an entry for the path and an entry for a header.
pub fn settings(server: &str) -> Json {
    json!({
        "domain": "edge",
        "rate_limit_service": service(),
        "timeout": "0.5s",
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "enable_retry_after_header": true,
        "rate_limits": [
            {"actions": [{"request_headers": {"header_name": ":path", "descriptor_key": "path"}}]},
            {"actions": [{"request_headers": {"header_name": "x-also", "descriptor_key": "also"}}]},
        ],
        "tidegate": {"server": {"address": format!("unix:{server}")}},
    })
}

pub fn envoy(binary: &Binary, settings: &Json, port: u16) -> Envoy {
    let listeners = vec![listener("edge", Filter::ModuleByJson, settings, vec![route("/", None)])];
    Envoy::start(binary, &with_application(listeners, port), &[])
}

/// A configuration whose application is at a port.
fn with_application(listeners: Vec<Json>, port: u16) -> Json {
    let mut config = bootstrap(listeners, None);
    let address =
        &mut config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
    address["endpoint"]["address"] = json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    config
}

pub fn rules(folder: &TempDir, descriptors: &Json) -> PathBuf {
    let path = folder.path().join("rules.yaml");
    fs::write(&path, json!({"domain": "edge", "descriptors": descriptors}).to_string()).unwrap();
    path
}

pub fn elapsed(since: u64) -> Duration {
    Duration::from_nanos(since_boot() - since)
}

pub fn send(edge: &str, request: &Request) -> Response {
    Connection::open(edge).unwrap().send(request).unwrap()
}

pub fn decisions(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(
        &folder,
        &json!([
            {"key": "path", "value": "/small", "rate_limit": {"unit": "hour", "requests_per_unit": 3, "name": "small"}},
            {"key": "path", "value": "/large", "rate_limit": {"unit": "hour", "requests_per_unit": 1000, "algorithm": "fixed_window"}},
            {"key": "path", "value": "/told", "rate_limit": {"unit": "hour", "requests_per_unit": 1},
                "on_deny": {"body": "no", "headers": {"x-why": "told"}}},
            {"key": "path", "value": "/marked", "rate_limit": {"unit": "hour", "requests_per_unit": 1},
                "on_deny": {"mark": {"header": "x-marked", "value": "slow"}}},
            {"key": "also", "rate_limit": {"unit": "hour", "requests_per_unit": 2}},
        ]),
    );
    let (server, application) = (Server::granting(&rules), Application::start());
    let envoys = [(); 2].map(|()| envoy(binary, &settings(&server.socket()), application.port));
    let edges = envoys.each_ref().map(|envoy| envoy.listener("edge"));
    let request = |edge: usize, path: &str| send(&edges[edge], &Request::get(path));

    // Small limits: the server decides, and both Envoys share them.
    let statuses = [0, 1, 0, 1, 0, 0].map(|edge| request(edge, "/small").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    let denied = request(0, "/small");
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("3, 3;w=3600;name=\"small\""));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    let reset: u64 = denied.header("x-ratelimit-reset").unwrap().parse().unwrap();
    let after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(reset > 0 && reset == after, "{denied:?}");

    // The additions that rules declare for denials: first by the server, then by the kept denial.
    assert_eq!([request(0, "/told").status, request(0, "/marked").status], [200; 2]);
    for _ in 0..5 {
        let told = request(0, "/told");
        assert_eq!((told.status, &*told.body, told.header("x-why")), (429, &b"no"[..], Some("told")));
        assert_eq!(request(0, "/marked").status, 200);
    }

    // A request is charged to all of its limits or to none.
    let both = Request::get("/large").header("x-also", "a");
    let statuses = [0, 1, 0, 1].map(|edge| send(&edges[edge], &both).status);
    assert_eq!(statuses, [200, 200, 429, 429]);
    let mut connections = edges.each_ref().map(|edge| Connection::open(edge).unwrap());
    let mut statuses = Vec::new();
    for turn in 0..1_200 {
        statuses.push(connections[turn % 2].send(&Request::get("/large")).unwrap().status);
    }
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert!((970..=998).contains(&admitted), "{admitted} of 998 are left");
    assert_eq!(application.count("/large"), admitted + 2);
    let free: Vec<u16> = (0..20).map(|_| request(0, "/free").status).collect();
    assert_eq!(free, [200; 20]);
    let by_credits = eventually("decisions by credits", || {
        Some(envoys[0].figure("decided_in{place=\"envoy\"")).filter(|count| *count > 100)
    });
    let by_server = envoys[0].figure("decided_in{place=\"server\"");
    assert!(by_credits > by_server, "{by_credits} in Envoy and {by_server} by the server");
}

pub fn in_flight(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let limit =
        json!({"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "1h", "max_wait": "0s"});
    let rules = rules(&folder, &json!([{"key": "path", "value": "/", "rate_limit": limit}]));
    let server = Server::granting(&rules);
    // An application that does not respond.
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = application.local_addr().unwrap().port();
    let envoys = [(); 2].map(|()| envoy(binary, &settings(&server.socket()), port));
    let edges = envoys.each_ref().map(|envoy| envoy.listener("edge"));
    let start = |edge: usize| {
        let mut client = TcpStream::connect(&edges[edge]).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        client
    };
    let first = start(0);
    let (_at_application, _) = application.accept().unwrap();
    assert_eq!([1, 0, 1].map(|edge| send(&edges[edge], &Request::get("/")).status), [429; 3]);
    drop(first);
    // The end of the stream frees the slot, and another Envoy takes it.
    eventually("a free slot", || {
        let client = start(1);
        let mut byte = [0];
        application.set_nonblocking(true).unwrap();
        eventually("a decision", || match application.accept() {
            Ok(accepted) => Some(Some(accepted)),
            Err(_) => {
                client.set_nonblocking(true).unwrap();
                client.peek(&mut byte).is_ok().then_some(None)
            }
        })
    });
}

/// Slots with a hold of less than a second: a WebSocket, a response that takes long, and a request that has ended.
pub fn renewed(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let limit =
        json!({"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "900ms", "max_wait": "0s"});
    let rules = rules(&folder, &json!([{"key": "path", "rate_limit": limit}]));
    let server = Server::granting(&rules);
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut edge_listener =
        listener("edge", Filter::ModuleByJson, &settings(&server.socket()), vec![route("/", None)]);
    edge_listener["filter_chains"][0]["filters"][0]["typed_config"]["upgrade_configs"] =
        json!([{"upgrade_type": "websocket"}]);
    let port = application.local_addr().unwrap().port();
    let envoy = Envoy::start(binary, &with_application(vec![edge_listener], port), &[]);
    let edge = envoy.listener("edge");
    let start = |path: &str, headers: &str| {
        let mut client = TcpStream::connect(&edge).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n").as_bytes()).unwrap();
        (client, application.accept().unwrap().0)
    };
    let (_client, _at_application) = start("/long", "");
    let (socket, mut upgraded) = start("/socket", "connection: upgrade\r\nupgrade: websocket\r\n");
    upgraded
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    BufReader::new(&socket).read_line(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 101"), "{response}");

    // Each is renewed every 300 ms: after four times it has been held for longer than a ticket without renewals.
    let renewals = |event: &str| envoy.figure(&format!("renewals{{event=\"{event}\""));
    let status = |path: &str| send(&edge, &Request::get(path)).status;
    eventually("renewals", || {
        // Envoy 1.38 updates figures at the end of a request.
        assert_eq!([status("/long"), status("/socket")], [429, 429]);
        (renewals("renewed") >= 10).then_some(())
    });
    assert_eq!(renewals("not_held"), 0);
    // The end of the WebSocket frees its slot; the long response keeps its slot.
    drop(socket);
    application.set_nonblocking(true).unwrap();
    eventually("a free slot", || {
        let mut client = TcpStream::connect(&edge).unwrap();
        client.write_all(b"GET /socket HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        eventually("a decision", || match application.accept() {
            Ok(_) => Some(Some(())),
            Err(_) => client.peek(&mut [0]).is_ok().then_some(None),
        })
    });
    assert_eq!(status("/long"), 429);
}

pub fn lost(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let limit = json!({"unit": "hour", "requests_per_unit": 3});
    let rules = rules(&folder, &json!([{"key": "path", "rate_limit": limit}]));
    let (mut server, application) = (Server::granting(&rules), Application::start());
    let mut closed = settings(&server.socket());
    closed["failure_mode_deny"] = true.into();
    closed["status_on_error"] = json!({"code": "ServiceUnavailable"});
    let envoys =
        [settings(&server.socket()), closed].map(|settings| envoy(binary, &settings, application.port));
    let edges = envoys.each_ref().map(|envoy| envoy.listener("edge"));
    let request = |edge: usize, path: &str| send(&edges[edge], &Request::get(path)).status;
    assert_eq!([request(0, "/a"), request(1, "/a")], [200; 2]);
    server.kill();
    for _ in 0..20 {
        assert_eq!([request(0, "/b"), request(1, "/b")], [200, 503]);
    }
    let begun = since_boot();
    assert_eq!(request(1, "/b"), 503);
    assert!(elapsed(begun) < Duration::from_millis(400), "nothing waits for a server that is away");
    eventually("figures", || (envoys[0].figure("outcome=\"failure_mode_allowed\"") == 20).then_some(()));
    assert!(envoys[0].log().contains("requests follow the failure mode"));
    server.start_again(&rules);
    eventually("decisions by the server that is back", || (request(0, "/c") == 429).then_some(()));
}

/// Addresses of ports that nothing else uses.
fn ports<const COUNT: usize>() -> [u16; COUNT] {
    let sockets = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

pub fn hung(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let limit = json!({"unit": "hour", "requests_per_unit": 100});
    let rules = rules(&folder, &json!([{"key": "path", "rate_limit": limit}]));
    let application = Application::start();
    // The system accepts connections to the first port, and nothing responds.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports: [u16; 2] = ports();
    let [tokens, token] = ["tokens", "token"].map(|name| folder.path().join(name));
    fs::write(&token, Server::token(&tokens)).unwrap();
    let servers = ports.map(|port| Server::granting_at(&rules, port, &tokens));
    let mut settings = settings("");
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let address = format!("{},{}", mute.local_addr().unwrap(), addresses.join(","));
    settings["tidegate"] = json!({"server": {"address": address, "token_file": token}});
    settings["timeout"] = "0.05s".into();
    settings["failure_mode_deny"] = true.into();
    settings["status_on_error"] = json!({"code": "ServiceUnavailable"});
    let envoy = envoy(binary, &settings, application.port);
    let edge = envoy.listener("edge");
    let is_decided = || send(&edge, &Request::get("/")).status == 200;
    eventually("a decision beside a port that is mute", || is_decided().then_some(()));

    // The server of the connection: the first, or another that the log names, if the first was late on a busy machine.
    let connected = || {
        let log = envoy.log();
        let last = log.rsplit_once("connected to the server at ").map_or("", |(_, last)| last);
        usize::from(last.lines().next().is_some_and(|line| line.contains(&format!("({})", addresses[1]))))
    };
    let told = |what: &str| envoy.log().matches(what).count();
    let connections = |event: &str| envoy.figure(&format!("connections{{event=\"{event}\""));
    for _ in 0..2 {
        let own = connected();
        let lost = format!("{}: no response for a second", addresses[own]);
        let before = told(&lost);
        servers[own].signal("STOP");
        let stopped = since_boot();
        // The timeout decides each request by the failure mode, until the other server decides.
        eventually("decisions of another server", || is_decided().then_some(()));
        let undecided = elapsed(stopped);
        assert!(undecided < Duration::from_secs(2), "no decision for {undecided:?}");
        servers[own].signal("CONT");
        assert_ne!(connected(), own);
        assert_eq!(told(&lost), before + 1, "{}", envoy.log());
    }
    eventually("figures of connections", || {
        // Envoy 1.38 updates them at the end of a request.
        is_decided();
        let [connected, unresponsive] = ["connected", "unresponsive"].map(connections);
        (connected == unresponsive + 1 && unresponsive >= 2).then_some(())
    });
    assert_eq!([connections("lost"), connections("failed")], [0, 0]);
}

/// The time for which one Envoy has most of the load.
const SHARE: Duration = Duration::from_millis(700);
/// A quarter of the run.
const QUARTER: Duration = Duration::from_millis(1_500);
/// The limit, per second, and the most hits at once.
const LIMIT: f64 = 600.0;

pub fn shared(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let limit = json!({"unit": "second", "requests_per_unit": LIMIT as u32, "algorithm": "token_bucket"});
    let rules = rules(&folder, &json!([{"key": "path", "value": "/", "rate_limit": limit}]));
    let (mut server, application) = (Server::granting(&rules), Application::start());
    let mut settings = settings(&server.socket());
    settings["failure_mode_deny"] = true.into();
    let mut envoys = [(); 4].map(|()| envoy(binary, &settings, application.port));
    let edges = envoys.each_ref().map(|envoy| envoy.listener("edge"));
    let (is_over, sent) = (AtomicBool::new(false), Mutex::default());
    let begun = since_boot();
    thread::scope(|scope| {
        for (own, edge) in edges.iter().enumerate() {
            let (is_over, sent) = (&is_over, &sent);
            scope.spawn(move || load(edge, own, begun, is_over, sent));
        }
        thread::sleep(2 * QUARTER);
        let (wanted, admitted) = (by_one_bucket(&sent), application.count("/"));
        assert!(admitted as f64 >= 0.97 * wanted, "{admitted} were admitted, {wanted} by one bucket");
        envoys[3].kill();
        thread::sleep(QUARTER);
        server.kill();
        server.start_again(&rules);
        thread::sleep(QUARTER);
        is_over.store(true, Ordering::Relaxed);
    });
    // A server without a snapshot begins with a full bucket.
    let most = 2.0 * LIMIT + elapsed(begun).as_secs_f64() * LIMIT;
    let admitted = application.count("/");
    assert!(admitted as f64 <= most, "{admitted} were admitted, at most {most} should be");
    let wanted = by_one_bucket(&sent);
    assert!(
        admitted as f64 > 0.8 * wanted,
        "{admitted} were admitted, {wanted} by one bucket, with a short absence of the server"
    );
}

/// The requests that one bucket admits, from the times at which they were sent.
fn by_one_bucket(sent: &Mutex<Vec<Duration>>) -> f64 {
    let mut sent = sent.lock().unwrap().clone();
    sent.sort_unstable();
    let (mut tokens, mut last, mut admitted) = (LIMIT, Duration::ZERO, 0.0);
    for time in sent {
        tokens = (tokens + (time - last).as_secs_f64() * LIMIT).min(LIMIT);
        last = time;
        if tokens >= 1.0 {
            tokens -= 1.0;
            admitted += 1.0;
        }
    }
    admitted
}

/// Sends requests: as fast as they are decided while this Envoy is busy, otherwise a few.
fn load(edge: &str, own: usize, begun: u64, is_over: &AtomicBool, sent: &Mutex<Vec<Duration>>) {
    let mut connection = Connection::open(edge).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        if own != (elapsed(begun).as_millis() / SHARE.as_millis()) as usize % 4 {
            thread::sleep(Duration::from_millis(4));
        }
        sent.lock().unwrap().push(elapsed(begun));
        // It fails if the Envoy is killed.
        let Ok(response) = connection.send(&Request::get("/")) else { return };
        assert!([200, 429, 500].contains(&response.status), "{response:?}");
    }
}
