//! Loads, and the servers that each is applied to.

use super::server::Server;
use std::fmt::Write as _;

/// One load, for one or several servers.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) servers: &'static [Server],
    /// Arguments of `tidegate bench`.
    pub(super) load: &'static [&'static str],
    /// Number of sibling rules in the rule file.
    pub(super) sibling_rules: u32,
    /// A limit of each plan in a file of limits, instead of a rule file: its condition, with the plan as `PLAN`.
    pub(super) condition: Option<&'static str>,
    /// Whether the servers have TLS; the load then needs `--tls-insecure`.
    pub(super) tls: bool,
    /// Other work of the server during the load.
    pub(super) beside: Beside,
    /// Number of counters created before the measurement.
    pub(super) counters_before: u64,
    /// Further arguments of `tidegate serve`.
    pub(super) serve: &'static [&'static str],
}

/// Work of the server beside a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// It has an HTTP port, whose metrics are scraped.
    Scrapes,
    /// A page of the same length is scraped from a port of this program, on the server's core: what is left is the effect of sending and
    /// of receiving it.
    ScrapesElsewhere,
    /// Clients keep TLS handshakes open that they never complete.
    HalfHandshakes,
    /// The same clients do so with a port of this program, which accepts them and does nothing else: what is left is their own effect.
    HalfHandshakesElsewhere,
    /// The rule file changes.
    Reloads,
    /// A program reads the stream of decisions, with these arguments of `tidegate ctl tail`.
    Tail(&'static [&'static str]),
    /// Decisions are recorded for What-if.
    Recording,
}

impl Beside {
    /// The work beside the control of a pair: nothing, unless its clients alone delay the load.
    pub(super) fn of_control(self) -> Self {
        match self {
            Self::Scrapes => Self::ScrapesElsewhere,
            other => other.of_clients(),
        }
    }

    /// The work beside the periods without it: nothing, unless its clients alone delay the load. Those of an attack are on other
    /// machines, where they do not.
    pub(super) fn of_clients(self) -> Self {
        match self {
            Self::HalfHandshakes => Self::HalfHandshakesElsewhere,
            _ => Self::Nothing,
        }
    }
}

pub(super) const SATURATED: &str = "saturated";
pub(super) const TLS: &str = "saturated, TLS 1.3";
pub(super) const UNLOADED: &str = "unloaded";
pub(super) const OPEN: &str = "open 20,000/s";
pub(super) const FOUR_DESCRIPTORS: &str = "4 descriptors";
pub(super) const MANY_RULES: &str = "10,000 rules";
pub(super) const THOUSAND_LIMITS: &str = "1,000 limits";
pub(super) const METRICS: &str = "1,000 limits, metrics";
pub(super) const SERIES: &str = "10,000 series, metrics";
pub(super) const MANY_SERIES: &str = "10,000 limits, metrics";
/// Limits with six series each: 10,000 series.
const LIMITS_OF_SERIES: u32 = 1_667;
pub(super) const OPEN_FEWER_RULES: &str = "open, 1,667 rules";
pub(super) const OPEN_SERIES: &str = "open, 10,000 series, metrics";
pub(super) const OPEN_RULES: &str = "open, 10,000 rules";
pub(super) const OPEN_SCRAPES: &str = "open, 10,000 limits, metrics";
pub(super) const OPEN_TLS: &str = "open, half handshakes elsewhere";
pub(super) const HALF_HANDSHAKES: &str = "open, 5,000 half handshakes";
pub(super) const HUNDRED_THOUSAND_RULES: &str = "open, 100,000 rules";
pub(super) const RELOADS: &str = "open, 100,000 rules, reloads";
pub(super) const TRACEPARENT: &str = "traceparent";
pub(super) const DECISION_LOG: &str = "decision log at 1 %";
pub(super) const CONTROL: &str = "control API";
const TAIL: &str = "control API, tail";
const TAIL_FILTERED: &str = "control API, tail of a key";
const TAIL_SAMPLED: &str = "control API, tail of 0.1 %";
const RECORDING: &str = "control API, What-if";
pub(super) const EQUALITY: &str = "limits by equality";
pub(super) const EVALUATED: &str = "limits by CEL";
pub(super) const FEW_KEYS: &str = "1,000 keys";
pub(super) const MANY_KEYS: &str = "1 M keys";

const ALL: &[Server] = &[Server::Tidegate, Server::Tonic, Server::Hyper];
const OURS_AND_TONIC: &[Server] = &[Server::Tidegate, Server::Tonic];
const OURS: &[Server] = &[Server::Tidegate];
const OURS_AND_LIMITADOR: &[Server] = &[Server::Tidegate, Server::Limitador];
const FOUR_BY_SIXTEEN: [&str; 4] = ["--connections", "4", "--streams", "16"];

/// One descriptor of two entries, uniform over the rules.
const TWO_ENTRIES: [&str; 2] = ["--descriptor", "plan=plan-{key%10},remote_address={ip}"];

/// The same at a fixed rate, uniform over ten thousand rules.
const OPEN_TEN_THOUSAND_PLANS: [&str; 6] =
    ["--connections", "4", "--rate", "20000", "--descriptor", "plan=plan-{key%10000},remote_address={ip}"];

const OPEN_FEWER_PLANS: [&str; 6] =
    ["--connections", "4", "--rate", "20000", "--descriptor", "plan=plan-{key%1667},remote_address={ip}"];

const OPEN_OVER_TLS: [&str; 7] =
    ["--connections", "4", "--rate", "20000", "--tls-insecure", TWO_ENTRIES[0], TWO_ENTRIES[1]];

/// The same, uniform over a thousand rules.
const THOUSAND_PLANS: [&str; 2] = ["--descriptor", "plan=plan-{key%1000},remote_address={ip}"];

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: SATURATED, servers: ALL, load: &saturated(TWO_ENTRIES, "100000"), ..TEN_RULES },
    Scenario {
        name: TLS,
        servers: OURS_AND_TONIC,
        load: &[
            "--connections",
            "4",
            "--streams",
            "16",
            "--keys",
            "100000",
            "--tls-insecure",
            TWO_ENTRIES[0],
            TWO_ENTRIES[1],
        ],
        tls: true,
        ..TEN_RULES
    },
    Scenario {
        name: UNLOADED,
        servers: ALL,
        load: &["--connections", "1", "--streams", "1", "--busy", TWO_ENTRIES[0], TWO_ENTRIES[1]],
        ..TEN_RULES
    },
    Scenario {
        name: OPEN,
        servers: ALL,
        load: &["--connections", "4", "--rate", "20000", TWO_ENTRIES[0], TWO_ENTRIES[1]],
        ..TEN_RULES
    },
    Scenario {
        name: FOUR_DESCRIPTORS,
        load: &[
            "--connections",
            "4",
            "--streams",
            "16",
            "--keys",
            "100000",
            TWO_ENTRIES[0],
            TWO_ENTRIES[1],
            "--descriptor",
            "method=GET,remote_address={ip}",
            "--descriptor",
            "region=north,remote_address={ip}",
            "--descriptor",
            "route=checkout,remote_address={ip}",
        ],
        ..TEN_RULES
    },
    Scenario {
        name: MANY_RULES,
        load: &saturated(["--descriptor", "plan=plan-{key%10000},remote_address={ip}"], "100000"),
        sibling_rules: 10_000,
        ..TEN_RULES
    },
    Scenario {
        name: THOUSAND_LIMITS,
        load: &saturated(THOUSAND_PLANS, "100000"),
        sibling_rules: 1_000,
        ..TEN_RULES
    },
    Scenario {
        name: METRICS,
        load: &saturated(THOUSAND_PLANS, "100000"),
        sibling_rules: 1_000,
        beside: Beside::Scrapes,
        ..TEN_RULES
    },
    Scenario {
        name: SERIES,
        load: &saturated(["--descriptor", "plan=plan-{key%1667},remote_address={ip}"], "100000"),
        sibling_rules: LIMITS_OF_SERIES,
        beside: Beside::Scrapes,
        ..TEN_RULES
    },
    Scenario {
        name: MANY_SERIES,
        load: &saturated(["--descriptor", "plan=plan-{key%10000},remote_address={ip}"], "100000"),
        sibling_rules: 10_000,
        beside: Beside::Scrapes,
        ..TEN_RULES
    },
    Scenario {
        name: TRACEPARENT,
        load: &[
            "--connections",
            "4",
            "--streams",
            "16",
            "--keys",
            "100000",
            TWO_ENTRIES[0],
            TWO_ENTRIES[1],
            "--traceparent",
        ],
        ..TEN_RULES
    },
    Scenario {
        name: DECISION_LOG,
        load: &saturated(TWO_ENTRIES, "100000"),
        // A file system would be measured as well.
        serve: &["--decision-log", "/dev/null", "--decision-log-sample", "0.01"],
        ..TEN_RULES
    },
    Scenario {
        name: CONTROL,
        load: &saturated(TWO_ENTRIES, "100000"),
        // The keys with most hits are collected; decisions have no reader.
        serve: CONTROLLED,
        ..TEN_RULES
    },
    with_control(TAIL, Beside::Tail(&[])),
    with_control(TAIL_FILTERED, Beside::Tail(&["--entry", "remote_address=10.0.0.7"])),
    with_control(TAIL_SAMPLED, Beside::Tail(&["--sample", "0.001"])),
    with_control(RECORDING, Beside::Recording),
    Scenario {
        name: EQUALITY,
        servers: OURS_AND_LIMITADOR,
        load: &saturated(TWO_ENTRIES, "1000"),
        condition: Some("descriptors[0].plan == \"PLAN\""),
        ..TEN_RULES
    },
    Scenario {
        name: EVALUATED,
        servers: OURS_AND_LIMITADOR,
        load: &saturated(TWO_ENTRIES, "1000"),
        condition: Some("descriptors[0].plan.startsWith(\"PLAN\") && size(descriptors) == 1"),
        ..TEN_RULES
    },
    Scenario { name: FEW_KEYS, load: &saturated(TWO_ENTRIES, "1000"), counters_before: 1_000, ..TEN_RULES },
    Scenario {
        name: MANY_KEYS,
        load: &saturated(TWO_ENTRIES, "1000000"),
        counters_before: 1_000_000,
        ..TEN_RULES
    },
];

/// An open loop with work beside it, and the name of the same without.
pub(super) struct Pair {
    pub(super) without: &'static str,
    /// Length of a period.
    pub(super) seconds: u32,
    pub(super) scenario: Scenario,
}

pub(super) const PAIRS: &[Pair] = &[
    Pair {
        without: OPEN_FEWER_RULES,
        seconds: 2,
        scenario: Scenario {
            name: OPEN_SERIES,
            load: &OPEN_FEWER_PLANS,
            sibling_rules: LIMITS_OF_SERIES,
            beside: Beside::Scrapes,
            ..TEN_RULES
        },
    },
    Pair {
        without: OPEN_RULES,
        seconds: 2,
        scenario: Scenario {
            name: OPEN_SCRAPES,
            load: &OPEN_TEN_THOUSAND_PLANS,
            sibling_rules: 10_000,
            beside: Beside::Scrapes,
            ..TEN_RULES
        },
    },
    Pair {
        without: OPEN_TLS,
        seconds: 2,
        scenario: Scenario {
            name: HALF_HANDSHAKES,
            load: &OPEN_OVER_TLS,
            tls: true,
            beside: Beside::HalfHandshakes,
            // All of them stay open.
            serve: &["--tls-max-handshakes", "6000"],
            ..TEN_RULES
        },
    },
    Pair {
        without: HUNDRED_THOUSAND_RULES,
        seconds: 2,
        scenario: Scenario {
            name: RELOADS,
            load: &OPEN_TEN_THOUSAND_PLANS,
            sibling_rules: 100_000,
            beside: Beside::Reloads,
            ..TEN_RULES
        },
    },
];

const CONTROLLED: &[&str] = &["--control", "loopback"];

/// The load of [`CONTROL`] beside calls of that API.
const fn with_control(name: &'static str, beside: Beside) -> Scenario {
    const LOAD: [&str; 8] = saturated(TWO_ENTRIES, "100000");
    Scenario { name, load: &LOAD, serve: CONTROLLED, beside, ..TEN_RULES }
}

const TEN_RULES: Scenario = Scenario {
    name: "",
    servers: OURS,
    load: &[],
    sibling_rules: 10,
    condition: None,
    tls: false,
    beside: Beside::Nothing,
    counters_before: 0,
    serve: &[],
};

const fn saturated(descriptor: [&'static str; 2], keys: &'static str) -> [&'static str; 8] {
    let [c, connections, s, streams] = FOUR_BY_SIXTEEN;
    [c, connections, s, streams, descriptor[0], descriptor[1], "--keys", keys]
}

impl Scenario {
    /// Whether the server has the control API, which needs somebody who could call it: a token.
    pub(super) fn has_control(&self) -> bool {
        self.serve == CONTROLLED
    }

    /// The rule file: a plan per sibling, and a rule for each further descriptor. No request is denied, as the comparators deny
    /// none.
    pub(super) fn rules(&self) -> String {
        if let Some(condition) = self.condition {
            return self.limits(condition);
        }
        let mut yaml = "domain: edge\ndescriptors:\n".to_owned();
        let mut rule = |key: &str, value: &str| {
            let limit = "rate_limit: { unit: day, requests_per_unit: 4000000000 }";
            writeln!(
                yaml,
                "  - key: {key}\n    value: {value}\n    descriptors:\n      - key: remote_address\n        {limit}"
            )
            .expect("writing to a string cannot fail");
        };
        for plan in 0..self.sibling_rules {
            rule("plan", &format!("plan-{plan}"));
        }
        for (key, value) in [("method", "GET"), ("region", "north"), ("route", "checkout")] {
            rule(key, value);
        }
        yaml
    }

    /// A file of limits, in the form of Limitador's.
    fn limits(&self, condition: &str) -> String {
        let limit = |plan: u32| {
            let condition = condition.replace("PLAN", &format!("plan-{plan}"));
            format!(
                "- {{ namespace: edge, max_value: 4000000000, seconds: 86400, conditions: ['{condition}'], \
                 variables: ['descriptors[0].remote_address'] }}\n"
            )
        };
        (0..self.sibling_rules).map(limit).collect()
    }
}
