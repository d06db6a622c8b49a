//! Rules for which a server grants no credits: two Envoys send every request to it, and admit no more than it does.

use crate::{
    client::{Connection, Request, Response},
    leased::{Application, elapsed, envoy, rules, send, settings},
    process::{Binary, Envoy, Server, eventually},
};
use serde_json::{Value as Json, json};
use std::thread;
use tempfile::TempDir;
use tidegate_core::clock::since_boot;

/// A server with rules, and two Envoys that it decides for.
struct World {
    application: Application,
    envoys: [Envoy; 2],
    edges: [String; 2],
    _server: Server,
    _folder: TempDir,
}

impl World {
    /// Starts with a rule for each of these values of `path`, and an entry for the end of a request with its cost.
    fn start(binary: &Binary, limits: Json) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = limits.as_object().unwrap();
        let descriptors: Json = limits
            .iter()
            .map(|(path, limit)| json!({"key": "path", "value": path, "rate_limit": limit}))
            .collect();
        let rules = rules(&folder, &descriptors);
        let (server, application) = (Server::granting(&rules), Application::start());
        let mut settings = settings(&server.socket());
        settings["rate_limits"].as_array_mut().unwrap().push(json!({
            "actions": [{"metadata": {
                "descriptor_key": "slot",
                "metadata_key": {"key": "envoy.filters.http.ratelimit", "path": [{"key": "slot"}]},
            }}],
            "hits_addend": {"format": "%RESP(x-cost)%"},
            "apply_on_stream_done": true,
        }));
        let envoys = [(); 2].map(|()| envoy(binary, &settings, application.port));
        let edges = envoys.each_ref().map(|envoy| envoy.listener("edge"));
        Self { application, envoys, edges, _server: server, _folder: folder }
    }

    /// Sends requests to the two Envoys in turn; returns how many are admitted.
    fn admitted(&self, request: &Request, count: usize) -> usize {
        let mut connections = self.edges.each_ref().map(|edge| Connection::open(edge).unwrap());
        (0..count).filter(|turn| connections[turn % 2].send(request).unwrap().status == 200).count()
    }

    /// Asserts that the server decided each of these requests.
    fn assert_decided_by_server(&self, requests: usize) {
        let decided = |place: &str| {
            self.envoys.iter().map(|envoy| envoy.figure(&format!("place=\"{place}\""))).sum::<u64>()
        };
        eventually("decisions of the server", || (decided("server") >= requests as u64).then_some(()));
        assert_eq!(decided("envoy"), 0);
    }
}

fn remaining(response: &Response) -> &str {
    response.header("x-ratelimit-remaining").unwrap()
}

pub fn reserved(binary: &Binary) {
    let budget =
        json!({"unit": "year", "requests_per_unit": 2_000, "reserve": 500, "algorithm": "fixed_window"});
    let world = World::start(binary, json!({"/": budget, "/held": budget}));

    // One by one: each request's cost of 100 replaces its estimate before the next request starts.
    let mut connection = Connection::open(&world.edges[0]).unwrap();
    let mut send_one = || connection.send(&Request::get("/")).unwrap();
    let admitted: Vec<Response> = (0..17).map(|_| send_one()).take_while(|one| one.status == 200).collect();
    assert_eq!((admitted.len(), remaining(admitted.last().unwrap())), (16, "0"));
    let denied = [send_one(), send(&world.edges[1], &Request::get("/"))];
    assert_eq!(denied.each_ref().map(|one| (one.status, remaining(one))), [(429, "400"); 2]);

    // All at once: the estimates of four requests are the whole budget.
    let gate = world.application.hold();
    let held = Request::get("/held");
    let statuses: Vec<u16> = thread::scope(|scope| {
        let send = |client: usize| send(&world.edges[client % 2], &held).status;
        let clients: Vec<_> = (0..8).map(|client| scope.spawn(move || send(client))).collect();
        eventually("denials", || {
            (clients.iter().filter(|client| client.is_finished()).count() == 4).then_some(())
        });
        assert_eq!(world.application.count("/held"), 4);
        drop(gate);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 4);
    // They cost 400 in all.
    let last = eventually("the ends of four requests", || {
        Some(send(&world.edges[0], &held)).filter(|response| response.status == 200)
    });
    assert_eq!(remaining(&last).parse::<u32>().unwrap() % 100, 0);
    world.assert_decided_by_server(28);
}

pub fn others(binary: &Binary) {
    let world = World::start(
        binary,
        json!({
            "/scheduled": {"unit": "year", "requests_per_unit": 100_000, "algorithm": "fixed_window",
                "schedule": [{"days": "mon-sun", "requests_per_unit": 600}]},
            "/conditional": {"unit": "year", "requests_per_unit": 600, "algorithm": "fixed_window",
                "when": "descriptors.exists(d, \"also\" in d && d.also == \"yes\")"},
            "/banned": {"unit": "minute", "requests_per_unit": 500,
                "ban": {"after": 2, "within": "1h", "for": "24h"}},
            "/queued": {"unit": "second", "requests_per_unit": 500, "algorithm": "leaky_bucket", "burst": 1,
                "max_wait": "400ms"},
        }),
    );
    assert_eq!(world.admitted(&Request::get("/scheduled"), 610), 600);
    let limited = Request::get("/conditional").header("x-also", "yes");
    assert_eq!(world.admitted(&limited, 610), 600);
    assert_eq!(world.admitted(&Request::get("/conditional"), 10), 10, "the condition does not hold");

    // The second denial is the first of the ban.
    let banned = Request::get("/banned");
    let admitted = world.admitted(&banned, 502);
    let resets = world.edges.each_ref().map(|edge| {
        let denied = send(edge, &banned);
        let reset = denied.header("x-ratelimit-reset").unwrap().parse::<u64>().unwrap();
        (denied.status, reset > 3_600)
    });
    assert_eq!((admitted, resets), (500, [(429, true); 2]));

    // One request every 2 ms, however many the server gets at once.
    let begun = since_boot();
    thread::scope(|scope| {
        let clients = (0..4).map(|client| {
            let edge = &world.edges[client % 2];
            scope.spawn(move || {
                let mut connection = Connection::open(edge).unwrap();
                (0..25).filter(|_| connection.send(&Request::get("/queued")).unwrap().status == 200).count()
            })
        });
        let clients: Vec<_> = clients.collect();
        let admitted: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert_eq!(admitted, 100);
    });
    assert!(elapsed(begun).as_millis() >= 198);
    assert_eq!(world.application.count("/queued"), 100);
    world.assert_decided_by_server(1_800);
}
