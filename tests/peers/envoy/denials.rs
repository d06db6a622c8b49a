//! Denials by a real Envoy as its client sees them, and the headers and metadata of decisions.

use super::*;

/// The listener of `silent-drop.yaml`.
const EDGE: u16 = 10000;

/// Envoy in front of an application, with the config and the rules of a silent drop.
struct Site {
    envoy: Envoy,
    /// The server ends with the site.
    _server: Server,
}

impl Site {
    async fn start() -> Self {
        let more = ["--dynamic-metadata", "--response-headers", "draft10,x,retry-after"];
        let server = serve_rules("silent-drop-rules.yaml", "127.0.0.1:0", &more);
        let given = [(APPLICATION, application())];
        let envoy = Envoy::start("silent-drop.yaml", server.address(), &given).await;
        Self { envoy, _server: server }
    }

    async fn send(&self, request: Builder) -> Response<String> {
        let response = http1::fetch(ALICE, self.envoy.port(EDGE), request).await.expect("Envoy responses");
        response.map(|body| String::from_utf8(body).expect("UTF-8"))
    }
}

/// Names of the headers about limits in the response.
fn rate_limit_headers<T>(response: &Response<T>) -> Vec<&str> {
    let names = response.headers().keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("limit") || *name == "retry-after").collect()
}

async fn marked_requests_are_dropped_silently() {
    let site = Site::start().await;
    for _ in 0..10 {
        let served = site.send(Request::post("/comments")).await;
        assert_eq!((served.status().as_u16(), served.body().as_str()), (200, ""));
        assert!(served.headers().contains_key("ratelimit"), "{served:?}");
    }
    for own in [None, Some("none"), Some("drop")] {
        let request = own.iter().fold(Request::post("/comments"), |r, own| r.header("x-rate-limited", *own));
        let dropped = site.send(request).await;
        assert_eq!(
            (dropped.status().as_u16(), dropped.body().as_str()),
            (200, "{\"status\": \"accepted\"}\n")
        );
        assert_eq!(dropped.headers()["content-type"], "application/json");
        assert!(rate_limit_headers(&dropped).is_empty(), "{dropped:?}");
    }
    let forged = site.send(Request::get("/").header("x-rate-limited", "drop")).await;
    assert_eq!(forged.body(), "", "the mark of a client marks nothing");
}

async fn requests_marked_as_slow_are_delayed() {
    let site = Site::start().await;
    early_in_a_minute().await;
    let clock = SystemClock::new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let asked_at = clock.now();
        let served = site.send(Request::get("/search")).await;
        assert_eq!((served.status().as_u16(), served.body().as_str()), (200, ""));
        waits.push(clock.now().since(asked_at));
    }
    assert!(waits[3] + TIMER_EARLY_MAX >= Duration::from_secs(1), "{waits:?}");
    // A busy machine may delay one request by as much.
    assert!(waits[..3].iter().any(|&wait| wait < Duration::from_millis(900)), "{waits:?}");
}

async fn a_denial_has_the_body_and_headers_of_its_rule() {
    let site = Site::start().await;
    early_in_a_minute().await;
    let keyed = || Request::get("/").header("x-api-key", "alice");
    for left in (0..5).rev() {
        let served = site.send(keyed()).await;
        assert_eq!(served.status(), 200);
        assert_eq!(header(&served, "ratelimit-policy"), Some("\"api-key\";q=5;w=60"));
        let service_limit = format!("\"api-key\";r={left};t=");
        assert!(header(&served, "ratelimit").is_some_and(|value| value.starts_with(&service_limit)));
        assert_eq!(header(&served, "x-ratelimit-remaining"), Some(left.to_string().as_str()));
        assert_eq!(header(&served, "retry-after"), None);
    }
    let denied = site.send(keyed()).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.body(), "{\"error\": \"more than 5 requests a minute\"}\n");
    assert_eq!(denied.headers().get_all("content-type").iter().count(), 1);
    assert_eq!(header(&denied, "content-type"), Some("application/json"));
    assert_eq!(header(&denied, "link"), Some("<https://example.com/limits>; rel=\"help\""));
    assert_eq!(header(&denied, "x-envoy-ratelimited"), Some("true"));
    let wait = seconds(&denied, "retry-after");
    assert!((1..=60).contains(&wait), "{denied:?}");
    assert_eq!(header(&denied, "ratelimit"), Some(format!("\"api-key\";r=0;t={wait}").as_str()));
}

/// Both send their headers, as docs/responses.md states.
async fn headers_of_envoy_and_tidegate_are_both_sent_except_retry_after() {
    let server = serve_rules("rules.yaml", "127.0.0.1:0", &["--response-headers", "x,retry-after"]);
    let envoy = Envoy::start("http.yaml", server.address(), &[]).await;
    let edge = Edge { server, envoy };
    early_in_a_minute().await;
    let request = || Request::get("/api/").header("x-api-key", "alice");
    let admitted = edge.send(ALICE, request()).await;
    let denied = edge.first_denied(FAIL_OPEN, ALICE, request).await.1;
    for response in [&admitted, &denied] {
        let limits: Vec<_> = response.headers().get_all("x-ratelimit-limit").iter().collect();
        assert_eq!(limits, ["20", "20, 20;w=60;name=\"api-key\""]);
    }
    assert_eq!(denied.headers().get_all("retry-after").iter().count(), 1);
}

async fn envoys_logs_can_format_dynamic_metadata() {
    let server = serve_rules("silent-drop-rules.yaml", "127.0.0.1:0", &["--dynamic-metadata"]);
    let config = std::fs::read_to_string(deployed("silent-drop.yaml")).expect("a config of deploy/envoy");
    // The formatter of log lines formats headers too, which a test can read.
    let metadata = "\"%DYNAMIC_METADATA(envoy.filters.http.ratelimit:tidegate)%\"";
    let route = format!(
        "name: edge\n                  response_headers_to_add: [{{ header: {{ key: x-denial, value: {metadata} }} }}]\n                  virtual_hosts"
    );
    let with_header = config.replace("name: edge\n                  virtual_hosts", &route);
    assert_ne!(with_header, config, "the config is no longer written as this test has it");
    let envoy = Envoy::start_with(&with_header, server.address(), &[(APPLICATION, application())]).await;
    let edge = Edge { server, envoy };
    let keyed = || Request::get("/").header("x-api-key", "alice");
    let (_, denied) = edge.first_denied(EDGE, ALICE, keyed).await;
    let denial: serde_json::Value = serde_json::from_str(header(&denied, "x-denial").unwrap()).unwrap();
    assert_eq!(denial["marked"], false);
    let over = &denial["over_limit"][0];
    assert_eq!((&over["rule"], &over["limit"]["name"]), (&"api_key".into(), &"api-key".into()));
    assert!(over["reset_seconds"].as_f64().is_some_and(|wait| wait > 0.0 && wait <= 60.0), "{denial}");
}

/// Envoy has one status for all denials of its filter; `docs/rules.md` has the mapper.
async fn a_response_mapper_gives_the_denials_of_one_rule_a_status_of_their_own() {
    const RULES: &str = "
domain: demo
descriptors:
  - { key: api_key, rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: api_key
    value: alice
    rate_limit: { unit: day, requests_per_unit: 1 }
    on_deny: { headers: { x-denied-by: plan } }
";
    let mut page = include_str!("../../../docs/rules.md").split("```yaml\n");
    let mapper = page.find(|block| block.trim_start().starts_with("local_reply_config:"));
    let mapper = mapper.and_then(|block| block.split("```").next()).expect("the mapper of the page");
    let manager = "stat_prefix: http\n";
    let indented: String = mapper.lines().map(|line| format!("              {line}\n")).collect();
    let config = include_str!("../../../deploy/envoy/quickstart.yaml");
    let config = config.replacen(manager, &format!("{manager}{indented}"), 1);
    let rules = crate::support::rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let envoy = Envoy::start_with(&config, server.address(), &[(APPLICATION, application())]).await;
    let edge = Edge { server, envoy };
    for (key, denied) in [("alice", 402), ("bob", 429)] {
        let keyed = || Request::get("/").header("x-api-key", key);
        assert_eq!(edge.send_to(SIDECAR, ALICE, keyed()).await.status(), 200);
        assert_eq!(edge.send_to(SIDECAR, ALICE, keyed()).await.status(), denied, "{key}");
    }
}

crate::tests_with! { ENVOY:
    marked_requests_are_dropped_silently,
    requests_marked_as_slow_are_delayed,
    a_denial_has_the_body_and_headers_of_its_rule,
    headers_of_envoy_and_tidegate_are_both_sent_except_retry_after,
    envoys_logs_can_format_dynamic_metadata,
    a_response_mapper_gives_the_denials_of_one_rule_a_status_of_their_own,
}
