//! The filter at its hooks, with a stand-in for Envoy.

pub(crate) mod sequences;

use crate::{
    fake::Fake,
    filter::{Config, RateLimit, Stream},
    metrics::{Event, Outcome},
    rng::Rng,
    settings::{RouteSettings, route},
};
use allocation_counter::measure;
use proptest::prelude::*;
use sequences::{Sequences, Switches};
use serde_json::{Value as Json, json};
use std::sync::{Arc, atomic::Ordering};
use tidegate_envoy_abi::{ConfigHost, Flow, Module};

/// A filter with these entries, and a limit of three hits a year for any value of the keys `k` and `limited`.
fn filter(name: &str, settings: Json, rate_limits: Json) -> Config {
    let mut settings = settings;
    // Counters are shared by the rules of a domain, so each test has its own.
    settings["domain"] = name.into();
    settings["rate_limits"] = rate_limits;
    let limit = json!({"unit": "year", "requests_per_unit": 3});
    settings["tidegate"] = json!({"rules": {"domain": name, "descriptors": [
        {"key": "k", "rate_limit": limit},
        {"key": "marked", "rate_limit": limit, "on_deny": {"mark": {"header": "x-mark", "value": "slow"}}},
        {"key": "flying", "rate_limit": {"algorithm": "concurrency", "requests_in_flight": 2, "max_hold": "24h"}},
        {"key": "flown", "rate_limit": {"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "24h"},
         "on_deny": {"mark": {"header": "x-mark", "value": "slow"}}},
        {"key": "spent", "rate_limit": {"unit": "year", "requests_per_unit": 100, "reserve": 40, "algorithm": "fixed_window"}},
        {"key": "told", "rate_limit": limit, "on_deny": {"body": "no", "headers": {"x-why": "told"}}},
    ]}});
    RateLimit::configure(&ConfigHost::of_test(), settings.to_string().as_bytes()).unwrap()
}

fn by(key: &str) -> Json {
    json!([{"actions": [{"request_headers": {"header_name": "x-key", "descriptor_key": key}}]}])
}

/// Runs the hooks of a request. Returns whether it went on, and the stream as it ended.
fn run(config: &Config, route: Option<&Arc<RouteSettings>>, mut host: Fake) -> (Flow, Fake) {
    let mut stream = Stream::default();
    let flow = RateLimit::request_headers(config, route, &mut stream, &mut host);
    if flow == Flow::Continue {
        RateLimit::response_headers(config, &mut stream, &mut host);
    }
    RateLimit::complete(config, &mut stream, &mut host);
    (flow, host)
}

/// The number of requests, of ten, that go on before the first that does not.
fn admitted(config: &Config, route: Option<&Arc<RouteSettings>>, host: &Fake) -> usize {
    (0..10).take_while(|_| run(config, route, host.clone()).0 == Flow::Continue).count()
}

#[test]
fn a_request_is_admitted_up_to_the_limit_of_its_descriptor() {
    let config = filter("limit", json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"}), by("k"));
    for left in ["2", "1", "0"] {
        let (_, host) = run(&config, None, Fake::new("/").with("x-key", "a"));
        assert_eq!(host.added("x-ratelimit-remaining").as_deref(), Some(left));
    }
    let (flow, host) = run(&config, None, Fake::new("/").with("x-key", "a"));
    assert_eq!(flow, Flow::Responded);
    assert_eq!(host.responses, ["429 request_rate_limited "]);
    assert_eq!(host.added("x-envoy-ratelimited").as_deref(), Some("true"));
    assert_eq!(admitted(&config, None, &Fake::new("/").with("x-key", "b")), 3);
    assert_eq!(admitted(&config, None, &Fake::new("/")), 10, "without the header there is no descriptor");
    assert_eq!(config.metrics.pending(Event::Decision(Outcome::Ok)), 6);
    assert_eq!(config.metrics.pending(Event::Decision(Outcome::OverLimit)), 2);
}

#[test]
fn a_value_of_any_bytes_and_any_length_is_limited() {
    let config = filter("any-bytes", json!({}), by("k"));
    let long = |last: u8| [&[b'a'; 60_000][..], &[last]].concat();
    for value in
        [b"\xff".to_vec(), b"\xfe".to_vec(), b"\\xff".to_vec(), b"\0".to_vec(), long(b'a'), long(b'b')]
    {
        assert_eq!(admitted(&config, None, &Fake::new("/").with("x-key", value)), 3, "a counter of its own");
    }
    assert_eq!(config.metrics.pending(Event::Decision(Outcome::Error)), 0);
}

#[test]
fn a_request_without_room_for_its_counter_has_an_outcome_of_its_own() {
    let limit = json!({"unit": "year", "requests_per_unit": 3});
    let descriptors = json!([{"key": "k", "rate_limit": limit}, {"key": "other", "rate_limit": limit}]);
    let settings = json!({
        "domain": "full", "rate_limits": [by("k")[0], {"actions": [
            {"request_headers": {"header_name": "x-other", "descriptor_key": "other"}},
        ]}],
        "tidegate": {"rules": {"domain": "full", "descriptors": descriptors}, "max_counters": 1, "dynamic_metadata": true},
    });
    let config = RateLimit::configure(&ConfigHost::of_test(), settings.to_string().as_bytes()).unwrap();
    let a = Fake::new("/").with("x-key", "a");
    assert_eq!(admitted(&config, None, &a), 3);
    let (flow, host) = run(&config, None, Fake::new("/").with("x-key", "b"));
    assert_eq!((flow, &*host.responses[0]), (Flow::Responded, "429 request_rate_limited "));
    assert_eq!(host.texts["Dynamic/envoy.filters.http.ratelimit/outcome"], b"counters_full");
    // A limit is exceeded as well.
    assert_eq!(run(&config, None, a.with("x-other", "c")).0, Flow::Responded);
    let outcomes = [Outcome::OverLimit, Outcome::CountersFull];
    assert_eq!(outcomes.map(|outcome| config.metrics.pending(Event::Decision(outcome))), [2, 1]);
}

#[test]
fn a_request_is_in_flight_until_its_stream_is_complete_or_gone() {
    let config = filter("flying", json!({}), by("flying"));
    let start = || {
        let (mut stream, mut host) = (Stream::default(), Fake::new("/").with("x-key", "a"));
        let flow = RateLimit::request_headers(&config, None, &mut stream, &mut host);
        (flow, stream, host)
    };
    let ((_, mut first, mut host), (_, second, _)) = (start(), start());
    let (flow, mut denied, mut denied_host) = start();
    assert_eq!(flow, Flow::Responded);
    RateLimit::complete(&config, &mut denied, &mut denied_host);
    assert_eq!(start().0, Flow::Responded, "a denied request frees no slot");
    RateLimit::complete(&config, &mut first, &mut host);
    drop(second);
    assert_eq!([start().0, start().0], [Flow::Continue; 2], "each is dropped at once");
    assert_eq!(admitted(&config, None, &Fake::new("/").with("x-key", "a")), 10, "one after the other");
}

#[test]
fn a_request_that_is_let_through_above_the_limit_has_no_slot_to_free() {
    let unenforced = json!({"filter_enforced": {"default_value": {"numerator": 0}}});
    for (name, settings, key) in
        [("let-through", json!({}), "flown"), ("let-through-2", unenforced, "flying")]
    {
        let config = filter(name, settings, by(key));
        let metrics = || {
            [Outcome::Ok, Outcome::OverLimit].map(|outcome| config.metrics.pending(Event::Decision(outcome)))
        };
        let start = || {
            let (mut stream, mut host) = (Stream::default(), Fake::new("/").with("x-key", "a"));
            let flow = RateLimit::request_headers(&config, None, &mut stream, &mut host);
            assert_eq!(flow, Flow::Continue);
            (stream, host)
        };
        let in_flight: Vec<_> = (0..if key == "flown" { 1 } else { 2 }).map(|_| start()).collect();
        let admitted = in_flight.len() as u64;
        for above in 1..=3 {
            let (mut stream, mut host) = start();
            RateLimit::complete(&config, &mut stream, &mut host);
            assert_eq!(metrics(), [admitted, above], "{key}");
        }
        drop(in_flight);
        start();
        assert_eq!(metrics(), [admitted + 1, 3], "{key}");
    }
}

/// Entries for an estimate, and for the cost, which have the ticket in metadata of this namespace.
fn with_costs(namespace: &str) -> serde_json::Value {
    let slot = json!({"metadata": {
        "descriptor_key": "slot",
        "metadata_key": {"key": namespace, "path": [{"key": "slot"}]},
    }});
    json!([
        by("spent")[0],
        {"actions": [slot], "hits_addend": {"format": "%RESP(x-cost)%"}, "apply_on_stream_done": true},
    ])
}

#[test]
fn the_end_of_a_stream_charges_its_cost_in_the_place_of_the_estimate() {
    let config = filter(
        "spent",
        json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"}),
        with_costs("envoy.filters.http.ratelimit"),
    );
    let run = |cost: Option<&str>| {
        let mut host = Fake::new("/").with("x-key", "a");
        host.response.extend(cost.map(|cost| ("x-cost".to_owned(), cost.as_bytes().to_vec())));
        let (flow, host) = run(&config, None, host);
        (flow, host.added("x-ratelimit-remaining"))
    };
    assert_eq!(run(Some("10")), (Flow::Continue, Some("60".to_owned())));
    assert_eq!(run(Some("0")), (Flow::Continue, Some("50".to_owned())));
    // Without a cost, the estimate stays.
    assert_eq!(run(None), (Flow::Continue, Some("50".to_owned())));
    assert_eq!(run(Some("200")), (Flow::Continue, Some("10".to_owned())));
    assert_eq!(run(Some("0")).0, Flow::Responded, "a debt");
}

/// As in Envoy, whose `ratelimit` filter writes the ticket to `metadata_namespace` only.
#[test]
fn the_ticket_is_in_the_metadata_namespace_of_the_filter() {
    for (own, read, left) in [
        ("edge.slots", "edge.slots", ["60", "50"]),
        ("edge.slots", "envoy.filters.http.ratelimit", ["60", "20"]),
        ("", "envoy.filters.http.ratelimit", ["60", "50"]),
        ("", "edge.slots", ["60", "20"]),
    ] {
        let settings = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03", "metadata_namespace": own});
        let config = filter(&format!("namespace-{own}-{read}"), settings, with_costs(read));
        let remaining = [0, 1].map(|_| {
            let mut host = Fake::new("/").with("x-key", "a");
            host.response.push(("x-cost".to_owned(), b"10".to_vec()));
            run(&config, None, host).1.added("x-ratelimit-remaining").unwrap()
        });
        assert_eq!(remaining, left, "a filter of {own:?} whose entry reads {read}");
    }
}

#[test]
fn a_route_replaces_entries_and_domain() {
    let config = filter("route", json!({}), by("k"));
    let other = Arc::new(route(json!({"domain": "without-rules"}).to_string().as_bytes()).unwrap());
    let host = Fake::new("/").with("x-key", "a");
    assert_eq!(admitted(&config, Some(&other), &host), 10);
    let entries = json!({"rate_limits": [{"actions": [{"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}}]}]});
    let own = Arc::new(route(entries.to_string().as_bytes()).unwrap());
    assert_eq!(admitted(&config, Some(&own), &host), 3);
    assert_eq!(admitted(&config, None, &host), 3);
}

#[test]
fn a_mark_goes_to_the_upstream_and_a_reply_to_the_client() {
    let config = filter("on-deny", json!({}), by("marked"));
    let request = || Fake::new("/").with("x-key", "a");
    assert_eq!(admitted(&config, None, &request()), 10);
    let (_, host) = run(&config, None, request());
    assert!(host.request.contains(&("x-mark".to_owned(), b"slow".to_vec())), "{host:?}");
    let config = filter("on-deny-2", json!({}), by("told"));
    assert_eq!(admitted(&config, None, &request()), 3);
    let (_, host) = run(&config, None, request());
    assert_eq!(
        (&*host.responses[0], host.added("x-why").as_deref()),
        ("429 request_rate_limited no", Some("told"))
    );
}

#[test]
fn a_denied_grpc_call_ends_with_the_status_of_the_filter() {
    for (exhausted, status) in [(true, "8"), (false, "14")] {
        let name = format!("grpc-{exhausted}");
        let config = filter(&name, json!({"rate_limited_as_resource_exhausted": exhausted}), by("k"));
        let request = Fake::new("/").with("x-key", "a").with("content-type", "application/grpc+proto");
        assert_eq!(admitted(&config, None, &request), 3);
        let (_, host) = run(&config, None, request);
        assert_eq!((&*host.responses[0], host.added("grpc-status").as_deref()), ("by headers", Some(status)));
    }
}

#[test]
fn a_request_that_cannot_be_decided_follows_the_failure_mode() {
    let request = Fake::new("/").with("x-key", "a");
    // More entries than a descriptor may have, which the configuration decides.
    let invalid = json!([{"actions": vec![by("k")[0]["actions"][0].clone(); 33]}]);
    let open = filter("open", json!({}), invalid.clone());
    assert_eq!(admitted(&open, None, &request), 10);
    assert_eq!(open.metrics.pending(Event::Decision(Outcome::FailureModeAllowed)), 10);
    let closed = json!({"failure_mode_deny": true, "status_on_error": {"code": "ServiceUnavailable"}});
    let (flow, host) = run(&filter("closed", closed, invalid), None, request);
    assert_eq!((flow, host.responses), (Flow::Responded, vec!["503 rate_limiter_error ".to_owned()]));
}

#[test]
fn a_request_to_a_server_that_is_away_follows_the_failure_mode() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/nobody", folder.path().display());
    let filter = |closed: bool| {
        let settings = json!({
            "domain": "away", "failure_mode_deny": closed, "timeout": "60s", "rate_limits": by("k"),
            "tidegate": {"server": {"address": address}},
        });
        RateLimit::configure(&ConfigHost::of_test(), settings.to_string().as_bytes()).unwrap()
    };
    let (open, closed) = (filter(false), filter(true));
    let (mut stream, mut host) = (Stream::default(), Fake::new("/").with("x-key", "a"));
    // It waits only until the thread has failed to connect.
    if RateLimit::request_headers(&open, None, &mut stream, &mut host) == Flow::Wait {
        while host.wakes.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(RateLimit::resumed(&open, &mut stream, &mut host), Flow::Continue);
    }
    assert_eq!(open.metrics.pending(Event::Decision(Outcome::FailureModeAllowed)), 1);
    assert_eq!(run(&open, None, host.clone()).0, Flow::Continue, "nothing waits any more");
    let (flow, host) = run(&closed, None, host);
    assert_eq!((flow, host.responses), (Flow::Responded, vec!["500 rate_limiter_error ".to_owned()]));
    assert_eq!(closed.metrics.pending(Event::Decision(Outcome::Error)), 1);
}

#[test]
fn runtime_replaces_fractions() {
    let settings = json!({"filter_enabled": {"default_value": {"numerator": 0}, "runtime_key": "own.key"}});
    let config = filter("runtime", settings, by("k"));
    let mut host = Fake::new("/").with("x-key", "a");
    assert_eq!(admitted(&config, None, &host), 10);
    host.runtime.insert("own.key".to_owned(), 100);
    assert_eq!(admitted(&config, None, &host), 3);
    host.runtime.insert("ratelimit.http_filter_enforcing".to_owned(), 0);
    assert_eq!(admitted(&config, None, &host), 10);
}

#[test]
fn a_request_without_a_cluster_or_of_the_other_origin_is_not_limited() {
    let config = filter("origin", json!({"request_type": "internal"}), by("k"));
    let mut host = Fake::new("/").with("x-key", "a");
    assert_eq!(admitted(&config, None, &host), 10);
    host = host.with("x-envoy-internal", "true");
    assert_eq!(admitted(&config, None, &host), 3);
    host.cluster = None;
    assert_eq!(admitted(&config, None, &host), 10);
}

#[test]
fn hits_are_those_of_the_entry_else_of_the_filter_state() {
    let entry = |hits: Json| {
        json!([{"actions": [{"remote_address": {}}, {"generic_key": {"descriptor_value": "v"}}]}, {
            "actions": [{"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}}], "hits_addend": hits,
        }])
    };
    let mut host = Fake::new("/").with("x-cost", "3");
    assert_eq!(admitted(&filter("hits-1", json!({}), entry(json!({"number": 3}))), None, &host), 1);
    assert_eq!(
        admitted(&filter("hits-2", json!({}), entry(json!({"format": "%REQ(X-Cost)%"}))), None, &host),
        1
    );
    assert_eq!(
        admitted(&filter("hits-3", json!({}), entry(json!({"format": "%REQ(none)%"}))), None, &host),
        10
    );
    // A client that repeats the header makes a descriptor, with the first value, as in Envoy.
    let repeated = host.clone().with("x-cost", "many");
    let by_header = entry(json!({"format": "%REQ(none?x-cost)%"}));
    assert_eq!(admitted(&filter("hits-6", json!({}), by_header), None, &repeated), 1);
    let metadata = json!({"format": "%DYNAMIC_METADATA(ns:cost)%"});
    host.numbers.insert("Dynamic/ns/cost".to_owned(), 2.9);
    assert_eq!(admitted(&filter("hits-4", json!({}), entry(metadata)), None, &host), 1, "floored");
    let by_state = json!([{"actions": [{"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}}]}]);
    host.filter_state = Some("3".to_owned());
    assert_eq!(admitted(&filter("hits-5", json!({}), by_state), None, &host), 1);
}

#[test]
fn an_entry_at_the_end_reads_the_response_and_counts_after_it() {
    let key = json!({"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}});
    let entries = json!([
        {"actions": [key], "hits_addend": {"number": 0}},
        {"actions": [key], "hits_addend": {"format": "%RESP(x-cost)%"}, "apply_on_stream_done": true},
    ]);
    let config = filter("at-the-end", json!({}), entries);
    let mut host = Fake::new("/");
    host.response.push(("x-cost".to_owned(), b"1".to_vec()));
    assert_eq!(admitted(&config, None, &host), 3);
}

#[test]
fn configurations_with_rules_of_one_domain_share_counters() {
    let host = Fake::new("/").with("x-key", "a");
    let first = filter("shared", json!({}), by("k"));
    assert_eq!(run(&first, None, host.clone()).0, Flow::Continue);
    let second = filter("shared", json!({"stat_prefix": "second"}), by("k"));
    drop(first);
    assert_eq!(admitted(&second, None, &host), 2);
}

/// As when another filter of the same update of a listener is invalid.
#[test]
fn rules_of_a_configuration_that_ends_are_in_force_no_longer() {
    let with = |limit: u32| {
        let rules = json!({"domain": "rejected", "descriptors": [
            {"key": "k", "rate_limit": {"unit": "year", "requests_per_unit": limit}},
        ]});
        let settings = json!({"domain": "rejected", "rate_limits": by("k"), "tidegate": {"rules": rules}});
        RateLimit::configure(&ConfigHost::of_test(), settings.to_string().as_bytes()).unwrap()
    };
    let of = |value: &str| Fake::new("/").with("x-key", value);
    let first = with(3);
    let rejected = with(1);
    assert_eq!(admitted(&first, None, &of("a")), 1);
    drop(rejected);
    assert_eq!(admitted(&first, None, &of("a")), 2, "its counters stay");
    let (second, third) = (with(2), with(4));
    drop((first, second));
    assert_eq!(admitted(&third, None, &of("b")), 4, "the end of an earlier configuration changes nothing");
}

/// Texts that headers, paths and addresses may have or may not have.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"/?q=1&q=%41%".to_vec()),
        Just(b"[2001:db8::1]:1".to_vec()),
        Just(b"1.5".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever input arrives, and in whatever order hooks are called: no panic, and no more than the limit.
    #[test]
    fn no_sequence_of_hooks_panics_or_admits_beyond_the_limit(
        values in proptest::collection::vec((0..7_usize, text()), 0..8),
        address in proptest::option::of(text()),
        hooks in proptest::collection::vec(0..3_u8, 0..12),
        number in any::<f64>(),
    ) {
        let name = "sequences";
        let constant = json!({"generic_key": {"descriptor_key": "k", "descriptor_value": "v"}});
        let entries = json!([
            {"actions": [constant]},
            {"actions": [{"request_headers": {"header_name": "a", "descriptor_key": "k", "skip_if_absent": true}},
                {"query_parameters": {"query_parameter_name": "q", "descriptor_key": "k", "skip_if_absent": true}}, constant]},
            {"actions": [{"masked_remote_address": {"v4_prefix_mask_len": 0}}]},
            {"actions": [{"header_value_match": {"descriptor_value": "v", "headers": [
                {"name": "a", "range_match": {"start": 1, "end": 9}},
                {"name": "b", "string_match": {"safe_regex": {"regex": "(a|b)*"}}, "invert_match": true},
            ]}}]},
            {"actions": [constant], "hits_addend": {"format": "%DYNAMIC_METADATA(ns:n)%"}, "apply_on_stream_done": true},
        ]);
        let config = filter(name, json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"}), entries);
        let mut host = Fake::new("/");
        host.request.clear();
        host.address = address.map(|text| String::from_utf8_lossy(&text).into_owned());
        let names = [":path", "a", "b", "x-envoy-internal", "content-type", ":method", "x"];
        host.request.extend(values.into_iter().map(|(name, value)| (names[name].to_owned(), value)));
        host.numbers.insert("Dynamic/ns/n".to_owned(), number);
        let mut stream = Stream::default();
        let mut passed = 0;
        for hook in hooks {
            match hook {
                0 => passed += usize::from(RateLimit::request_headers(&config, None, &mut stream, &mut host) == Flow::Continue),
                1 => RateLimit::response_headers(&config, &mut stream, &mut host),
                _ => RateLimit::complete(&config, &mut stream, &mut host),
            }
        }
        let errors = usize::try_from(config.metrics.pending(Event::Decision(Outcome::FailureModeAllowed))).unwrap();
        prop_assert!(passed <= 3 + errors, "{passed} passed, {errors} of them undecided");
    }
}

/// Streams of one filter.
const STREAMS: u64 = 2_000;
const HEADERS: &[&str] = &["k", "flying", "spent", "marked", "told"];

/// Calls hooks of some streams until none is left.
fn run_sequences(config: &Config, rng: &mut Rng) -> u64 {
    let mut sequences = Sequences::new(config, HEADERS);
    while sequences.begun < STREAMS {
        sequences.step(rng);
    }
    sequences.finish();
    sequences.passed.values().copied().max().unwrap_or(0)
}

#[test]
fn no_sequence_of_hooks_of_several_streams_panics_leaks_or_passes_the_limit() {
    for seed in 0..sequences::count().div_ceil(2 * STREAMS) {
        let settings = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03", "failure_mode_deny": true});
        let config = filter("several", settings, sequences::entries(HEADERS));
        let mut rng = Rng::of_seed(seed);
        let most = run_sequences(&config, &mut rng);
        assert!((1..=3).contains(&most), "seed {seed}: {most} requests went on");
        // All counters exist.
        let allocated = measure(|| _ = run_sequences(&config, &mut rng));
        assert!(allocated.count_current < 50, "seed {seed}: {} objects not freed", allocated.count_current);
        let host = Fake::new("/").with("flying", "0");
        let mut streams: Vec<Stream> = (0..3).map(|_| Stream::default()).collect();
        let flows: Vec<Flow> = streams
            .iter_mut()
            .map(|stream| RateLimit::request_headers(&config, None, stream, &mut host.clone()))
            .collect();
        assert_eq!(
            flows,
            [Flow::Continue, Flow::Continue, Flow::Responded],
            "seed {seed}: slots of the past"
        );
    }
}

#[test]
fn hooks_wait_for_nothing_beside_the_thread_that_sweeps() {
    let settings = json!({"enable_x_ratelimit_headers": "DRAFT_VERSION_03"});
    assert_hooks_wait_for_nothing(&filter("switches", settings, sequences::entries(HEADERS)), HEADERS);
}

/// Calls hooks of one worker, of which hardly any may block. A hook blocks for a lock whose owner was preempted; with more workers than
/// processors that is about one of a thousand hooks. A hook that waited for anything else would block each time.
pub(crate) fn assert_hooks_wait_for_nothing(config: &Config, headers: &[&str]) {
    let mut rng = Rng::of_seed(0);
    let mut sequences = Sequences::new(config, headers);
    sequences.switches = Some(Switches::new());
    while sequences.begun < STREAMS {
        sequences.step(&mut rng);
    }
    sequences.finish();
    let Switches { hooks, blocked, .. } = sequences.switches.unwrap();
    assert!(blocked * 1_000 <= hooks, "{blocked} of {hooks} hooks blocked");
}
