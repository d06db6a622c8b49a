//! Behaviours that users of Limitador rely on, one after another: behaviours of its limiter, of each service, and of the files that its
//! sandbox and the Kuadrant operator write. Each call has one verdict, from both servers, with the same headers, counters and metrics.

use crate::limitador::{
    comparison::Tally,
    process::{self, Answer, Call, LimitadorServer, Way},
    tidegate,
};
use Way::{
    CheckRateLimit as Check, HttpCheck, HttpCheckAndReport as HttpBoth, HttpReport, Report,
    ShouldRateLimit as Limit,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, future::Future, io::Write as _, path::Path, time::Duration};

/// Limits of a namespace, and calls to it with their verdicts.
struct Scenario {
    /// The name of the scenario and of the namespace.
    name: &'static str,
    /// The keys of each limit except the namespace, as the items of a list in YAML.
    limits: &'static [&'static str],
    calls: &'static [(Way, &'static str, u32, bool)],
}

const ADMITTED: bool = true;
const DENIED: bool = false;

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "no-limits-elsewhere",
        limits: &[],
        calls: &[
            (Limit, "method=GET", 9, ADMITTED),
            (Check, "method=GET", 9, ADMITTED),
            (Report, "method=GET", 9, ADMITTED),
            (HttpCheck, "method=GET", 9, ADMITTED),
            (HttpBoth, "method=GET", 9, ADMITTED),
        ],
    },
    Scenario {
        name: "each-value-of-a-variable-has-its-own-counter",
        limits: &[
            r#"max_value: 3, seconds: 3600, conditions: ['descriptors[0].method == "GET"'], variables: ['descriptors[0].user']"#,
        ],
        calls: &[
            (Limit, "method=GET user=ann", 1, ADMITTED),
            (Limit, "method=GET user=ann", 1, ADMITTED),
            (Limit, "method=GET user=ann", 1, ADMITTED),
            (Limit, "method=GET user=ann", 1, DENIED),
            (Limit, "method=GET user=7", 1, ADMITTED),
            // Other entries are not part of the counter, in any order.
            (Limit, "plan=free method=GET user=7", 1, ADMITTED),
            (Limit, "user=7 path=/img method=GET", 2, DENIED),
            (Limit, "user=7 path=/img method=GET", 1, ADMITTED),
        ],
    },
    Scenario {
        name: "a-limit-that-does-not-apply-limits-nothing",
        limits: &[
            r#"max_value: 0, seconds: 3600, conditions: ['descriptors[0].method == "GET"', 'descriptors[0].path == "/api/v1"'], variables: ['descriptors[0].user']"#,
        ],
        calls: &[
            (Limit, "method=POST path=/api/v1 user=ann", 1, ADMITTED),
            (Limit, "method=GET path=/img user=ann", 1, ADMITTED),
            // A limit does not apply if its variable has no value.
            (Limit, "method=GET path=/api/v1", 1, ADMITTED),
            (Limit, "method=GET path=/api/v1 user=ann", 1, DENIED),
        ],
    },
    Scenario {
        name: "without-conditions-and-variables-all-requests-share-one-counter",
        limits: &["max_value: 2, seconds: 3600"],
        calls: &[
            (Limit, "method=GET", 1, ADMITTED),
            (Limit, "user=ann", 1, ADMITTED),
            (Limit, "path=/img", 1, DENIED),
            (Check, "path=/img", 1, DENIED),
        ],
    },
    Scenario {
        name: "the-tightest-of-several-limits-denies-and-the-others-count-nothing",
        limits: &[
            "name: all, max_value: 5, seconds: 3600, variables: ['descriptors[0].user']",
            r#"name: reads, max_value: 2, seconds: 3600, conditions: ['descriptors[0].method == "GET"'], variables: ['descriptors[0].user']"#,
            r#"name: writes, max_value: 2, seconds: 3600, conditions: ['descriptors[0].method == "POST"'], variables: ['descriptors[0].user']"#,
        ],
        calls: &[
            (Limit, "method=GET user=ann", 2, ADMITTED),
            (Limit, "method=GET user=ann", 1, DENIED),
            (Limit, "method=POST user=ann", 2, ADMITTED),
            (Limit, "user=ann", 1, ADMITTED),
            (Limit, "user=ann", 1, DENIED),
        ],
    },
    Scenario {
        name: "several-hits-are-admitted-as-a-whole-or-not-at-all",
        limits: &["max_value: 10, seconds: 3600, variables: ['descriptors[0].user']"],
        calls: &[
            (Limit, "user=ann", 11, DENIED),
            (Limit, "user=ann", 10, ADMITTED),
            (Limit, "user=ann", 1, DENIED),
            (HttpBoth, "user=7", 11, DENIED),
            (HttpBoth, "user=7", 4, ADMITTED),
            (HttpBoth, "user=7", 7, DENIED),
            (HttpBoth, "user=7", 6, ADMITTED),
        ],
    },
    Scenario {
        name: "conditions-know-name-and-id-of-their-limit",
        limits: &[
            r#"id: i1, name: gold, max_value: 1, seconds: 3600, conditions: ['limit.name == "gold"', 'limit.id == "i1"']"#,
            r#"id: i2, name: iron, max_value: 0, seconds: 3600, conditions: ['limit.name == "gold"']"#,
        ],
        calls: &[(Limit, "user=ann", 1, ADMITTED), (Limit, "user=ann", 1, DENIED)],
    },
    Scenario {
        name: "conditions-are-cel",
        limits: &[
            r#"max_value: 1, seconds: 3600, conditions: ['descriptors[0].path.startsWith("/api") && !(descriptors[0].method in ["HEAD", "OPTIONS"])'], variables: ['descriptors[0].user + "-" + descriptors[0].method']"#,
        ],
        calls: &[
            (Limit, "path=/api/v1 method=GET user=ann", 1, ADMITTED),
            (Limit, "path=/api/v1 method=GET user=ann", 1, DENIED),
            (Limit, "path=/api/v1 method=POST user=ann", 1, ADMITTED),
            (Limit, "path=/api/v1 method=HEAD user=ann", 9, ADMITTED),
            (Limit, "path=/img method=GET user=ann", 9, ADMITTED),
        ],
    },
    Scenario {
        name: "limits-see-every-descriptor",
        limits: &[
            r#"max_value: 2, seconds: 3600, conditions: ['descriptors[0].method == "GET"'], variables: ['descriptors[1].user']"#,
        ],
        calls: &[
            (Limit, "method=GET; user=ann", 2, ADMITTED),
            (Limit, "method=GET; user=ann", 1, DENIED),
            (Check, "method=GET; user=ann", 1, DENIED),
            (Limit, "method=GET; user=7", 1, ADMITTED),
            (Limit, "user=ann; method=GET", 9, ADMITTED),
        ],
    },
    Scenario {
        name: "checks-count-nothing-and-reports-count-beyond-the-limit",
        limits: &["max_value: 2, seconds: 3600, variables: ['descriptors[0].user']"],
        calls: &[
            (Check, "user=ann", 1, ADMITTED),
            (Check, "user=ann", 1, ADMITTED),
            (Check, "user=ann", 1, ADMITTED),
            (Report, "user=ann", 1, ADMITTED),
            (Check, "user=ann", 1, ADMITTED),
            (Report, "user=ann", 5, ADMITTED),
            (Check, "user=ann", 1, DENIED),
            (Report, "user=ann", 1, ADMITTED),
            (HttpCheck, "user=7", 2, ADMITTED),
            (HttpCheck, "user=7", 3, DENIED),
            (HttpReport, "user=7", 2, ADMITTED),
            (HttpCheck, "user=7", 1, DENIED),
            (HttpReport, "user=7", 1, ADMITTED),
        ],
    },
    // Limits of the sandbox: methods and paths, and one path with a limit of its own.
    Scenario {
        name: "sandbox",
        limits: &[
            r#"max_value: 4, seconds: 3600, conditions: ["descriptors[0]['method'] == 'GET'", "descriptors[0]['path'] != '/json'"], variables: []"#,
            r#"max_value: 2, seconds: 3600, conditions: ["descriptors[0]['method'] == 'POST'", "descriptors[0]['path'] != '/json'"], variables: []"#,
            r#"max_value: 500, seconds: 3600, conditions: ["descriptors[0]['method'] == 'GET'", "descriptors[0]['path'] == '/json'"], variables: []"#,
        ],
        calls: &[
            (Limit, "method=GET path=/get", 4, ADMITTED),
            (Limit, "method=GET path=/other", 1, DENIED),
            (Limit, "method=GET path=/json", 400, ADMITTED),
            (Limit, "method=POST path=/json", 9, ADMITTED),
            (Limit, "method=POST path=/", 2, ADMITTED),
            (Limit, "method=POST path=/", 1, DENIED),
        ],
    },
    // Limits that the Kuadrant operator writes for a RateLimitPolicy.
    Scenario {
        name: "default/toystore",
        limits: &[
            r#"conditions: ['descriptors[0]["limit.ann__1f2a"] == "1"'], max_value: 2, seconds: 3600, variables: ['descriptors[0]["auth.identity.userid"]'], name: ann"#,
            r#"conditions: ['descriptors[0]["limit.all__9c3e"] == "1"'], max_value: 3, seconds: 3600, variables: [], name: all"#,
        ],
        calls: &[
            (Limit, "limit.ann__1f2a=1 limit.all__9c3e=1 auth.identity.userid=ann", 2, ADMITTED),
            (Limit, "limit.ann__1f2a=1 limit.all__9c3e=1 auth.identity.userid=ann", 1, DENIED),
            (Limit, "limit.all__9c3e=1", 1, ADMITTED),
            (Limit, "limit.ann__1f2a=1 limit.all__9c3e=1 auth.identity.userid=bob", 1, DENIED),
            (Limit, "limit.ann__1f2a=1 auth.identity.userid=bob", 1, ADMITTED),
        ],
    },
];

/// An item of a file of limits. Limitador refuses an item without either list.
fn limit_of(namespace: &str, limit: &str) -> String {
    let missing = ["conditions", "variables"]
        .map(|list| if limit.contains(list) { String::new() } else { format!(", {list}: []") });
    format!("- {{ namespace: {namespace}, {limit}{} }}\n", missing.concat())
}

impl Scenario {
    fn yaml(&self) -> String {
        self.limits.iter().map(|limit| limit_of(self.name, limit)).collect()
    }

    /// `key=value key=value; key=value`: the entries of each descriptor.
    fn call(&self, way: Way, descriptors: &'static str, hits: u32) -> Call {
        let entry = |text: &'static str| text.split_once('=').expect("an entry");
        let entries =
            descriptors.split("; ").map(|entries| entries.split(' ').map(entry).collect::<BTreeMap<_, _>>());
        Call { way, namespace: self.name.to_owned(), entries: entries.collect(), hits }
    }
}

pub(super) async fn each_scenario_has_the_same_verdicts_counters_and_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.yaml");
    fs::write(&file, SCENARIOS.iter().map(Scenario::yaml).collect::<String>()).expect("a file");
    let there = LimitadorServer::start(Path::new(&process::limitador()), &file).await;
    let here = LimitadorServer::start(&tidegate(&folder), &file).await;
    let mut tally = Tally::default();
    for scenario in SCENARIOS {
        let name = scenario.name;
        for (step, &(way, descriptors, hits, is_admitted)) in scenario.calls.iter().enumerate() {
            let call = scenario.call(way, descriptors, hits);
            let (theirs, ours) = (there.answer(&call).await, here.answer(&call).await);
            assert_eq!(
                matches!(theirs, Answer::Admitted(_)),
                is_admitted,
                "{name}, call {step} there: {theirs:?}"
            );
            assert_eq!(
                matches!(ours, Answer::Admitted(_)),
                is_admitted,
                "{name}, call {step} here: {ours:?}"
            );
            tally
                .compare(&call, &theirs, &ours)
                .unwrap_or_else(|error| panic!("{name}, call {step}: {error}"));
        }
        // Documented: calls of `/check` and `/report` are in no metric there.
        let is_http = |(way, ..): &(Way, _, _, _)| matches!(way, HttpCheck | HttpReport);
        if !scenario.calls.iter().any(is_http) {
            let [theirs, ours] = [there.samples(name).await, here.samples(name).await];
            assert_eq!(ours, theirs, "metrics of {name}");
            assert!(!ours.is_empty(), "no metrics of {name}");
        }
        let path = name.replace('/', "%2F");
        let pages = [there.pages(&path).await, here.pages(&path).await];
        tally.compare_pages(&pages[0], &pages[1]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(pages[1][0].len(), scenario.limits.len(), "limits of {name}");
    }
    println!("{} scenarios; {tally}", SCENARIOS.len());
}

/// A file that changes while the servers run: limits that stay keep their counters, also under another `max_value`, and limits that are
/// gone limit no more. A window that has ended leaves no counter.
pub(super) async fn a_changed_file_keeps_the_counters_of_limits_that_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.yaml");
    let text = |max_value: u32, rest: &str| {
        limit_of("a", &format!("max_value: {max_value}, seconds: 3600, name: kept")) + rest
    };
    let gone = limit_of("b", "max_value: 1, seconds: 3600") + &limit_of("c", "max_value: 1, seconds: 1");
    fs::write(&file, text(3, &gone)).expect("a file");
    let there = LimitadorServer::start(Path::new(&process::limitador()), &file).await;
    let here = LimitadorServer::start(&tidegate(&folder), &file).await;
    let call = |namespace: &str, hits| {
        let entries = vec![BTreeMap::from([("user", "ann")])];
        Call { way: Limit, namespace: namespace.to_owned(), entries, hits }
    };
    for server in [&there, &here] {
        for (namespace, hits, is_admitted) in
            [("a", 2, true), ("a", 2, false), ("b", 1, true), ("b", 1, false)]
        {
            let answer = server.answer(&call(namespace, hits)).await;
            assert_eq!(matches!(answer, Answer::Admitted(_)), is_admitted, "{namespace}: {answer:?}");
        }
        assert!(matches!(server.answer(&call("c", 1)).await, Answer::Admitted(_)));
        until("the window of c has ended", || async { server.pages("c").await[1].is_empty() }).await;
        assert!(matches!(server.answer(&call("c", 1)).await, Answer::Admitted(_)));
    }
    // Overwritten in one call, with spaces up to the former length: if the file were empty for a moment, no limit would stay, and Limitador
    // does not follow a file that is moved into its place.
    let next = text(4, &limit_of("new", "max_value: 0, seconds: 60"));
    let length = text(3, &gone).len();
    assert!(next.len() <= length);
    let opened = fs::File::options().write(true).open(&file).expect("a file");
    (&opened).write_all(format!("{next:<length$}").as_bytes()).expect("written");
    // The file is read again here once its writer has closed it.
    drop(opened);
    for server in [&there, &here] {
        until("the new limits apply", || async { server.pages("new").await[0].len() == 1 }).await;
        for (namespace, hits, is_admitted) in
            [("a", 3, false), ("a", 2, true), ("a", 1, false), ("b", 9, true), ("new", 1, false)]
        {
            let answer = server.answer(&call(namespace, hits)).await;
            assert_eq!(matches!(answer, Answer::Admitted(_)), is_admitted, "{namespace}: {answer:?}");
        }
        let [limits, counters] = server.pages("b").await;
        assert!(limits.is_empty() && counters.is_empty(), "{limits:?} {counters:?}");
        assert_eq!(server.pages("a").await[0][0]["max_value"], Value::from(4));
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..1_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// Documented: an empty domain has the code UNKNOWN there; here the status UNKNOWN. Neither counts.
pub(super) async fn an_empty_domain_is_refused_by_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.yaml");
    fs::write(&file, limit_of("a", "max_value: 1, seconds: 60")).expect("a file");
    for program in [Path::new(&process::limitador()).to_owned(), tidegate(&folder)] {
        let server = LimitadorServer::start(&program, &file).await;
        for way in [Limit, Check, Report] {
            let entries = vec![BTreeMap::from([("user", "ann")])];
            let call = Call { way, namespace: String::new(), entries, hits: 1 };
            let answer = server.answer(&call).await;
            assert!(
                matches!(&answer, Answer::Failed(reason) if reason.to_lowercase().contains("unknown")),
                "{answer:?}"
            );
        }
        let missing = server.post_json("/check", &json!({ "namespace": "a", "delta": 1 })).await;
        assert_eq!(missing.status(), 400, "a body without values");
    }
}
