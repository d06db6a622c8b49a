//! Limits as format 1 has them, in records and in the exported file.

use std::{num::NonZeroU32, time::Duration};
use tidegate_core::{
    algorithm::{
        Algorithm, Anchor, Ban, Calendar, Concurrency, FixedWindow, LeakyBucket, Period, Queue, Rate,
        Schedule, SlidingLog, SlidingWindow, SubWindows, TokenBucket, Zone,
    },
    limit::Window,
    rules::{LimitIdentity, LimitInfo},
};

/// Every algorithm and every variant of its parameters, as format 1 writes it. These lines never change, because a change would make
/// existing snapshots unreadable.
const FORMAT_1: [&str; 19] = [
    r#"{"sliding_window":{"limit":100,"window":60000000000}}"#,
    r#"{"sub_windows":{"limit":100,"precision":4,"length":15000000000}}"#,
    r#"{"sliding_log":{"limit":100,"window":60000000000}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"clock":60000000000}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"first_hit":60000000000}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"day","zone":"UTC"}}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"week","zone":"Europe/Berlin"}}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"month","zone":"UTC"}}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"year","zone":"UTC"}}}}"#,
    r#"{"token_bucket":{"size":100,"refill":{"greedy":{"hits":1,"nanos":600000000}}}}"#,
    r#"{"token_bucket":{"size":100,"refill":{"intervals":{"tokens":7,"interval":60000000000}}}}"#,
    r#"{"leaky_bucket":{"burst":100,"rate":{"hits":1,"nanos":600000000},"queue":null}}"#,
    r#"{"leaky_bucket":{"burst":1,"rate":{"hits":1,"nanos":600000000},"queue":{"wait_max":{"secs":2,"nanos":500000000},"hits_max":8}}}"#,
    r#"{"ban":{"after":100,"within":60000000000,"lasts":60000000000}}"#,
    r#"{"ban":{"after":100,"within":60000000000,"lasts":60000000000,"epoch":3}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"week","zone":"UTC","anchor":{"at":"thursday 09:00"}}}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"month","zone":"UTC","anchor":{"at":"31"}}}}}"#,
    r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"month","zone":"UTC","anchor":"of_entry"}}}}"#,
    r#"{"concurrency":{"limit":100,"max_hold":60000000000,"queue":null}}"#,
];

fn algorithms() -> Vec<Algorithm> {
    let (limit, window) = (100, Window::from_secs(60).unwrap());
    let (hundred, seven) = (NonZeroU32::new(100).unwrap(), NonZeroU32::new(7).unwrap());
    let calendar = |period, zone: &str| {
        let schedule = Schedule::Calendar(Calendar::new(period, Zone::named(zone).unwrap()));
        Algorithm::FixedWindow(FixedWindow { limit, schedule })
    };
    let anchored = |period, anchor| {
        Algorithm::fixed_window(limit, Schedule::Calendar(Calendar::anchored(period, anchor, Zone::UTC)))
    };
    let rate = Rate::new(hundred, window);
    let queue = Queue { wait_max: Duration::from_millis(2500), hits_max: 8 };
    vec![
        Algorithm::SlidingWindow(SlidingWindow { limit, window }),
        Algorithm::SubWindows(SubWindows::new(limit, window, 4)),
        Algorithm::SlidingLog(SlidingLog { limit, window }),
        Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
        Algorithm::FixedWindow(FixedWindow { limit, schedule: Schedule::FirstHit(window) }),
        calendar(Period::Day, "UTC"),
        calendar(Period::Week, "Europe/Berlin"),
        calendar(Period::Month, "UTC"),
        calendar(Period::Year, "UTC"),
        Algorithm::TokenBucket(TokenBucket::greedy(limit, hundred, window)),
        Algorithm::TokenBucket(TokenBucket::by_intervals(limit, seven, window)),
        Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate, queue: None }),
        Algorithm::LeakyBucket(LeakyBucket { burst: 1, rate, queue: Some(queue) }),
        Algorithm::Ban(Ban { after: limit, within: window, lasts: window, epoch: 0 }),
        Algorithm::Ban(Ban { after: limit, within: window, lasts: window, epoch: 3 }),
        anchored(Period::Week, Anchor::parse(Period::Week, "thursday 09:00").unwrap()),
        anchored(Period::Month, Anchor::parse(Period::Month, "31").unwrap()),
        anchored(Period::Month, Anchor::OF_ENTRY),
        Algorithm::Concurrency(Concurrency { limit, max_hold: window, queue: None }),
    ]
}

#[test]
fn format_1_of_every_algorithm_is_written_and_read_unchanged() {
    assert_eq!(algorithms().len(), FORMAT_1.len());
    for (algorithm, text) in algorithms().into_iter().zip(FORMAT_1) {
        assert_eq!(serde_json::to_string(&algorithm).unwrap(), text);
        assert_eq!(serde_json::from_str::<Algorithm>(text).unwrap(), algorithm);
    }
}

#[test]
fn a_limit_is_written_with_its_identity_and_read_unchanged() {
    let identity = LimitIdentity { domain: "d".into(), path: "key=value → key".into(), tag: 7 };
    let info = LimitInfo { identity, algorithm: algorithms().remove(0) };
    let text = format!(r#"{{"domain":"d","path":"key=value → key","tag":7,"algorithm":{}}}"#, FORMAT_1[0]);
    assert_eq!(serde_json::to_string(&info).unwrap(), text);
    assert_eq!(serde_json::from_str::<LimitInfo>(&text).unwrap(), info);
}

#[test]
fn parameters_out_of_bounds_are_refused() {
    for (index, from, to, problem) in [
        (0, "60000000000", "0", "a window is at least 1ms long"),
        (1, r#""precision":4"#, r#""precision":0"#, "0 sub-windows of 15000000000 ns are out of bounds"),
        (5, "UTC", "Mars", "there is no time zone \"Mars\""),
        (9, r#""hits":1"#, r#""hits":0"#, "a rate of 0 hits in 600000000 ns is out of bounds"),
        (15, "thursday", "someday", "a week does not begin at \"someday 09:00\""),
        (13, r#""after":100"#, r#""after":0"#, "a ban after 0 denials is out of bounds"),
    ] {
        let text = FORMAT_1[index].replace(from, to);
        let refused = serde_json::from_str::<Algorithm>(&text).unwrap_err().to_string();
        assert!(refused.starts_with(problem), "{text}: {refused}");
    }
}
