//! What a client of a real Envoy gets of a denial, and of the headers and metadata that go with a decision.

use super::*;

/// The listener of `silent-drop.yaml`.
const EDGE: u16 = 10000;

/// Envoy before an application, with the config and the rules of a silent drop.
struct Site {
    envoy: Envoy,
    /// Ends with the site.
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

    async fn ask(&self, request: Builder) -> Response<String> {
        let answer = http1::fetch(ALICE, self.envoy.port(EDGE), request).await.expect("Envoy answers");
        answer.map(|body| String::from_utf8(body).expect("UTF-8"))
    }
}

/// The answer's headers that say anything of limits.
fn telling<T>(answer: &Response<T>) -> Vec<&str> {
    let names = answer.headers().keys().map(http::HeaderName::as_str);
    names.filter(|name| name.contains("limit") || *name == "retry-after").collect()
}

async fn what_is_marked_is_dropped_silently() {
    let site = Site::start().await;
    for _ in 0..10 {
        let served = site.ask(Request::post("/comments")).await;
        assert_eq!((served.status().as_u16(), served.body().as_str()), (200, ""));
        assert!(served.headers().contains_key("ratelimit"), "{served:?}");
    }
    for own in [None, Some("none"), Some("drop")] {
        let request = own.iter().fold(Request::post("/comments"), |r, own| r.header("x-rate-limited", *own));
        let dropped = site.ask(request).await;
        assert_eq!(
            (dropped.status().as_u16(), dropped.body().as_str()),
            (200, "{\"status\": \"accepted\"}\n")
        );
        assert_eq!(dropped.headers()["content-type"], "application/json");
        assert!(telling(&dropped).is_empty(), "{dropped:?}");
    }
    let forged = site.ask(Request::get("/").header("x-rate-limited", "drop")).await;
    assert_eq!(forged.body(), "", "the mark of a client marks nothing");
}

async fn what_is_marked_to_be_slow_is_served_late() {
    let site = Site::start().await;
    early_in_a_minute().await;
    let clock = SystemClock::new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let asked_at = clock.now();
        let served = site.ask(Request::get("/search")).await;
        assert_eq!((served.status().as_u16(), served.body().as_str()), (200, ""));
        waits.push(clock.now().since(asked_at));
    }
    assert!(waits[3] + TIMER_EARLY_MAX >= Duration::from_secs(1), "{waits:?}");
    assert!(waits[..3].iter().all(|&wait| wait < Duration::from_millis(900)), "{waits:?}");
}

async fn a_denial_is_in_the_rules_words() {
    let site = Site::start().await;
    early_in_a_minute().await;
    let keyed = || Request::get("/").header("x-api-key", "alice");
    for left in (0..5).rev() {
        let served = site.ask(keyed()).await;
        assert_eq!(served.status(), 200);
        assert_eq!(header(&served, "ratelimit-policy"), Some("\"api-key\";q=5;w=60"));
        let service_limit = format!("\"api-key\";r={left};t=");
        assert!(header(&served, "ratelimit").is_some_and(|value| value.starts_with(&service_limit)));
        assert_eq!(header(&served, "x-ratelimit-remaining"), Some(left.to_string().as_str()));
        assert_eq!(header(&served, "retry-after"), None);
    }
    let denied = site.ask(keyed()).await;
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

/// As docs/answers.md says.
async fn headers_of_envoy_and_of_tidegate_stand_side_by_side_but_for_retry_after() {
    let server = serve_rules("rules.yaml", "127.0.0.1:0", &["--response-headers", "x,retry-after"]);
    let envoy = Envoy::start("http.yaml", server.address(), &[]).await;
    let edge = Edge { server, envoy };
    early_in_a_minute().await;
    let request = || Request::get("/api/").header("x-api-key", "alice");
    let admitted = edge.ask(ALICE, request()).await;
    let denied = edge.first_denied(FAIL_OPEN, ALICE, request).await.1;
    for answer in [&admitted, &denied] {
        let limits: Vec<_> = answer.headers().get_all("x-ratelimit-limit").iter().collect();
        assert_eq!(limits, ["20", "20, 20;w=60;name=\"api-key\""]);
    }
    assert_eq!(denied.headers().get_all("retry-after").iter().count(), 1);
}

async fn dynamic_metadata_is_there_for_envoys_logs() {
    let server = serve_rules("silent-drop-rules.yaml", "127.0.0.1:0", &["--dynamic-metadata"]);
    let config = std::fs::read_to_string(deployed("silent-drop.yaml")).expect("a config of deploy/envoy");
    // What formats a log line formats a header too, which a test can read.
    let metadata = "\"%DYNAMIC_METADATA(envoy.filters.http.ratelimit:tidegate)%\"";
    let told = format!(
        "name: edge\n                  response_headers_to_add: [{{ header: {{ key: x-told, value: {metadata} }} }}]\n                  virtual_hosts"
    );
    let with_header = config.replace("name: edge\n                  virtual_hosts", &told);
    assert_ne!(with_header, config, "the config is no longer written as this test has it");
    let envoy = Envoy::start_with(&with_header, server.address(), &[(APPLICATION, application())]).await;
    let edge = Edge { server, envoy };
    let keyed = || Request::get("/").header("x-api-key", "alice");
    let (_, denied) = edge.first_denied(EDGE, ALICE, keyed).await;
    let told: serde_json::Value = serde_json::from_str(header(&denied, "x-told").unwrap()).unwrap();
    assert_eq!(told["marked"], false);
    let over = &told["over_limit"][0];
    assert_eq!((&over["rule"], &over["limit"]["name"]), (&"api_key".into(), &"api-key".into()));
    assert!(over["reset_seconds"].as_f64().is_some_and(|wait| wait > 0.0 && wait <= 60.0), "{told}");
}

crate::tests_with! { ENVOY:
    what_is_marked_is_dropped_silently,
    what_is_marked_to_be_slow_is_served_late,
    a_denial_is_in_the_rules_words,
    headers_of_envoy_and_of_tidegate_stand_side_by_side_but_for_retry_after,
    dynamic_metadata_is_there_for_envoys_logs,
}
