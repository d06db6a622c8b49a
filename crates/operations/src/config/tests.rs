use super::*;
use tidegate_core::{
    clock::{Clock, ManualClock},
    limit::{Code, Descriptor, Entry, Hits, Request},
    rules::{RuleFilePaths, RuleSet, SourceId},
    store::{OnFull, Seed, StoreSettings},
};

fn rule(key: &str, requests: u32) -> String {
    format!(
        "domain: d\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, requests_per_unit: {requests}}}}}]"
    )
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

fn config(text: &str, merge_domains: bool) -> Config {
    let options = LoadOptions { merge_domains, ..LoadOptions::default() };
    let sources = vec![Source::file("a.yaml", text)];
    let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let store = StoreSettings { seed: Seed::from_bytes([3; 16]), counters_max: 100, on_full: OnFull::Deny };
    let limiter = Arc::new(Limiter::new(rules, store, false));
    Config::new(limiter, options, BTreeMap::from([(Feed::Files, sources)]), at(0))
}

/// The remaining hits of `key=value`, or none if no limit applies.
fn hit(config: &Config, key: &str, value: &str) -> Option<u32> {
    let mut request = Request::new("d");
    let entries = std::iter::once(Entry { key, value }).collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    let pinned = config.limiter.pin();
    let decision = pinned.decide(&request, at(0));
    assert_eq!(decision.code, Code::Ok);
    decision.statuses[0].limit.map(|_| decision.statuses[0].remaining)
}

#[test]
fn a_feed_replaces_all_of_its_declarations_and_none_of_another_feeds() {
    let config = config(&rule("k", 10), true);
    assert_eq!(hit(&config, "k", "a"), Some(9));
    let id = SourceId::Xds("17".into());
    let own = Source::new(id, rule("o", 5));
    let changes = config.replace(Feed::Xds, vec![own.clone()], at(1)).unwrap().unwrap().changes;
    assert_eq!(changes.added, ["d: o"]);
    assert_eq!((hit(&config, "k", "a"), hit(&config, "o", "a")), (Some(8), Some(4)));
    let replacement =
        config.replace(Feed::Files, vec![Source::file("b.yaml", rule("k", 20))], at(2)).unwrap();
    let changes = replacement.unwrap().changes;
    assert_eq!((changes.changed, changes.removed), (vec!["d: k".to_owned()], vec![]));
    assert_eq!((hit(&config, "k", "a"), hit(&config, "o", "a")), (Some(17), Some(3)));
    let status = config.status();
    assert_eq!((status.generation, status.succeeded, status.limits), (3, 2, 2));
    assert_eq!(status.sources.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b.yaml", "xds:17"]);
    assert_eq!(config.replace(Feed::Xds, vec![own], at(3)).unwrap(), None);
    assert_eq!((config.status().generation, config.status().unchanged), (3, 1));
}

#[test]
fn rules_of_much_text_are_replaced_on_another_thread_with_the_same_result() {
    let config = config(&rule("k", 10), true);
    let long = |requests| rule("k", requests) + &format!("\n# {}", "-".repeat(QUICKLY_BUILT_MAX));
    let changes = config.replace(Feed::Files, vec![Source::file("a.yaml", long(20))], at(1)).unwrap();
    assert_eq!(changes.unwrap().changes.changed, ["d: k"]);
    assert_eq!(hit(&config, "k", "a"), Some(19));
    let errors = config.replace(Feed::Files, vec![Source::file("a.yaml", long(30) + "\nkey: x")], at(2));
    assert_eq!(errors.unwrap_err().iter().count(), 1);
    assert_eq!(hit(&config, "k", "a"), Some(18));
}

#[test]
fn after_an_error_the_rules_and_the_last_good_declarations_stay() {
    let config = config(&rule("k", 10), true);
    let bad = vec![Source::file("a.yaml", rule("k", 20)), Source::file("b.yaml", "domain: d\nkey: x")];
    let errors = config.replace(Feed::Files, bad, at(5)).unwrap_err();
    assert_eq!(errors.iter().count(), 1);
    assert_eq!(hit(&config, "k", "a"), Some(9), "the good file of a bad load has no effect either");
    let status = config.status();
    assert_eq!((status.generation, status.failed, status.loaded_at), (1, 1, at(0)));
    assert!(matches!(status.last, Some(Attempt { result: LoadResult::Failed(_), .. })));
    // The next feed is merged with the last good files.
    let id = SourceId::Xds("edge".into());
    config.replace(Feed::Xds, vec![Source::new(id, rule("x", 5))], at(6)).unwrap();
    assert_eq!((hit(&config, "k", "a"), hit(&config, "x", "a")), (Some(8), Some(4)));
}

/// Rules were built upon whatever was in force when a feed began to read them. If two feeds changed, one lost its rules.
#[test]
fn two_feeds_at_once_both_take_effect() {
    let config = config(&rule("k", 10), true);
    std::thread::scope(|scope| {
        for (feed, key) in [(Feed::Xds, "x"), (Feed::Files, "o")] {
            let config = &config;
            scope.spawn(move || {
                for round in 1..=100 {
                    let id = SourceId::Xds(key.into());
                    config.replace(feed, vec![Source::new(id, rule(key, round))], at(0)).unwrap();
                    config.free_unused();
                }
            });
        }
    });
    assert_eq!((hit(&config, "x", "a"), hit(&config, "o", "a")), (Some(99), Some(99)));
    assert_eq!(config.status().generation, 201);
}

/// The log line of a reload had the generation of another feed's rules, if these took effect while the files were read.
#[test]
fn files_that_did_not_change_are_no_reload_even_if_another_feed_takes_effect_meanwhile() {
    let text = rule("k", 10);
    let config = config(&text, true);
    let id = SourceId::Xds("x".into());
    let read = || {
        config.replace(Feed::Xds, vec![Source::new(id, rule("x", 5))], at(1)).unwrap();
        Ok(vec![Source::file("a.yaml", &*text)])
    };
    let clock = ManualClock::new(at(2));
    assert_eq!(load(&config, Feed::Files, read, &clock, false).unwrap(), None);
    let read = || Ok(vec![Source::file("a.yaml", rule("k", 20))]);
    let replacement = load(&config, Feed::Files, read, &clock, false).unwrap().unwrap();
    assert_eq!((replacement.generation, replacement.rules, replacement.limits), (3, 2, 2));
    assert_eq!(replacement.changes.changed, ["d: k"]);
}

#[test]
fn replaced_rules_are_kept_until_no_decision_refers_to_them() {
    let config = config(&rule("k", 10), false);
    let pinned = config.limiter.pin();
    config.replace(Feed::Files, vec![Source::file("a.yaml", rule("k", 20))], at(1)).unwrap();
    assert!(config.free_unused(), "a decision still refers to the former rules");
    drop(pinned);
    assert!(!config.free_unused());
}

/// Ten reloads a second for ten days are nine million. The table of limits must not grow with their number.
#[test]
fn reloads_without_end_take_bounded_memory() {
    let config = config(&rule("k", 1), false);
    hit(&config, "k", "a");
    for requests in 2..12_000 {
        config.replace(Feed::Files, vec![Source::file("a.yaml", rule("k", requests))], at(1)).unwrap();
        config.free_unused();
    }
    let known = config.limiter.rules().limits().to_vec().len();
    assert!(known <= 4_200, "{known} limits are known");
    assert_eq!(hit(&config, "k", "a"), Some(11_999 - 2), "the first counter was carried over");
}

/// A stop waited for the rules: 39 s for a file of 21 MB.
#[test]
fn a_stop_does_not_wait_for_rules_that_are_being_loaded() {
    use std::sync::mpsc;
    let config = Arc::new(config(&rule("k", 10), true));
    let ((blocked, is_blocked), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let (released, calls) = (std::sync::Mutex::new(released), std::sync::atomic::AtomicUsize::new(0));
    // Blocks when rules are put in force for the second time, until the sender is dropped.
    let block = move |_: RulesInForce<'_>| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            blocked.send(()).expect("the test waits");
            let _ = released.lock().expect("no other thread has it").recv();
        }
    };
    config.observe(Box::new(block), at(0));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rules.yaml"), rule("k", 20)).expect("written");
    let paths = RuleFilePaths::from(vec![folder.path().into()]);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let settings = watch::WatchSettings::default();
    let files = RuleFiles::start(&config, (Feed::Files, paths), settings, &clock, &ReloadRequests::default());
    is_blocked.recv().expect("a load begins");
    files.expect("a thread starts").stop(std::time::Duration::ZERO);
    drop(release);
}

/// The file was not in force until it changed.
#[test]
fn a_file_refused_beside_the_control_plane_is_read_again_when_that_has_other_rules() {
    use std::{thread, time::Duration};
    use watch::{WatchMode, WatchSettings};
    let config = Arc::new(config("domain: other", false));
    config.replace(Feed::Xds, vec![Source::new(SourceId::Xds("17".into()), rule("k", 10))], at(1)).unwrap();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rules.yaml"), rule("k", 20)).expect("written");
    let paths = RuleFilePaths::from(vec![folder.path().into()]);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let settings =
        WatchSettings { mode: WatchMode::Poll, poll_interval: Duration::ZERO, ..WatchSettings::default() };
    let files = RuleFiles::start(&config, (Feed::Files, paths), settings, &clock, &ReloadRequests::default());
    let becomes = |is_failing: bool| {
        let is_there = || config.status().failing.contains_key(&Feed::Files) == is_failing;
        (0..60_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            is_there()
        })
    };
    assert!(becomes(true), "a domain in both is an error");
    config.replace(Feed::Xds, Vec::new(), at(2)).unwrap();
    assert!(becomes(false), "the file is put in force");
    files.expect("a thread starts").stop(Duration::ZERO);
    assert_eq!(hit(&config, "k", "a"), Some(19));
}
