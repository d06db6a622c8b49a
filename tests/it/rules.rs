//! Rule files: those in `tests/rules/` and `examples/`, and the examples of `docs/rules.md`.

use crate::support::limiter;
use std::{
    fs,
    path::{Path, PathBuf},
};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    rules::{LoadOptions, RuleSet, Semantics, Source, read},
};

pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn yaml_files(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(in_repository(directory)).expect("the directory is part of the repository");
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// The rules of one file, under the name that errors show.
fn parse(name: &str, text: &str) -> Result<RuleSet, String> {
    let source = Source::file(name, text);
    RuleSet::parse(&[source], &LoadOptions::default()).map_err(|errors| errors.to_string())
}

/// Beside each broken file, `NAME.expected` contains its errors, to the letter.
#[test]
fn every_broken_file_gets_all_its_errors_with_place_and_remedy() {
    let files = yaml_files("tests/rules/broken");
    assert!(files.len() >= 35, "{} files", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let errors = parse(name, &fs::read_to_string(&file).unwrap()).expect_err(name) + "\n";
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        assert_eq!(errors, expected, "the errors of {name} changed");
    }
}

/// Files in the reference server's grammar, with all of its features.
#[test]
fn files_of_the_reference_server_load_unchanged() {
    for semantics in [Semantics::Exact, Semantics::Reference] {
        let sources = read(&[in_repository("tests/rules/reference")]).unwrap();
        assert!(sources.len() >= 4);
        let options = LoadOptions { semantics, ..LoadOptions::default() };
        let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(rules.domains().count(), sources.len());
    }
}

#[test]
fn limits_that_a_shared_store_cannot_count_are_refused_with_the_reason() {
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let load = |counters: &str, limit: &str| {
        let text =
            format!("domain: d\n{counters}descriptors: [{{key: k, rate_limit: {{unit: day, {limit}}}}}]\n");
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &options);
        rules.map(|rules| rules.domain("d").unwrap().is_shared()).map_err(|errors| errors.to_string())
    };
    assert_eq!(load("", "requests_per_unit: 1"), Ok(true));
    assert_eq!(load("counters: local\n", "requests_per_unit: 1"), Ok(false));
    for (limit, reason) in [
        ("requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 1s", "cannot share a queue"),
        ("requests_per_unit: 1, algorithm: leaky_bucket, burst: 100000", "drains within 100 years"),
        ("requests_per_unit: 20000, algorithm: sliding_log", "at most 10000 hits"),
        ("requests_per_unit: 1, schedule: [{days: mon, unlimited: true}]", "has one number at all times"),
    ] {
        let error = load("", limit).unwrap_err();
        assert!(
            error.contains(reason)
                && error.contains("write `counters: local` beside")
                && error.contains("`domain`"),
            "{error}"
        );
        assert_eq!(load("counters: local\n", limit), Ok(false));
    }
}

#[test]
fn a_rule_with_local_counters_may_count_as_a_shared_store_cannot_but_may_not_queue() {
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let load = |limit: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n  - {{key: k, counters: local, rate_limit: {{unit: day, {limit}}}}}\n"
        );
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &options);
        rules
            .map(|rules| rules.domain("d").unwrap().features.local_rules)
            .map_err(|errors| errors.to_string())
    };
    assert_eq!(load("requests_per_unit: 20000, algorithm: sliding_log"), Ok(true));
    let error = load("requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 1s").unwrap_err();
    assert!(error.starts_with("rules.yaml:3:24: descriptors[0].counters: "), "{error}");
    assert!(error.contains("write it beside `domain`, or remove `max_wait`"), "{error}");
}

#[test]
fn every_example_loads() {
    for file in yaml_files("examples") {
        let sources = read(&[file]).unwrap();
        if let Err(errors) = RuleSet::parse(&sources, &LoadOptions::default()) {
            panic!("{errors}");
        }
    }
}

/// YAML that the parser of the reference server (libyaml's grammar) accepts, although not all of it is YAML 1.2.
#[test]
fn yaml_that_the_reference_server_reads_is_read_alike() {
    let limit_of = |text: &str| {
        let rules = parse("rules.yaml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let domain = rules.domains().next().expect("one domain");
        let rule = domain.rules()[0].clone();
        (domain.name().to_owned(), rule.info.path.to_string(), rule.limits[0].requests)
    };
    let file = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: second, requests_per_unit: 5}\n";
    let expected = ("d".to_owned(), "k".to_owned(), 5);
    assert_eq!(limit_of(file), expected);
    for (from, to) in [
        ("domain: d", "domain:\td"),
        ("key: k", "key:\t\tk"),
        ("requests_per_unit: 5", "requests_per_unit: !!int \"5\""),
        ("requests_per_unit: 5}\n", "requests_per_unit: 5}\n---\n"),
        ("requests_per_unit: 5}\n", "requests_per_unit: 5}\n---\n# the end\n"),
        ("requests_per_unit: 5}\n", "requests_per_unit: 5}\n...\n"),
        // The key `name` has no meaning; Envoy Gateway writes it.
        ("domain: d", "name: edge\ndomain: d"),
        // Comments that follow a token without a space.
        ("domain: d", "domain: \"d\"#comment"),
        ("key: k", "key: 'k'# comment"),
        ("key: k", "key: |-#comment\n      k"),
        ("5}\n", "5}#comment\n"),
        ("5}\n", "5}#\n#\n"),
        ("{unit: second,", "{unit: \"second\"#comment\n      ,"),
    ] {
        let text = file.replace(from, to);
        assert_ne!(text, file);
        assert_eq!(limit_of(&text), expected, "{text}");
    }
    for quoted in ["\"a\nb\"", "'a\nb'", "'a\n b'", "\"a\n\tb\""] {
        let text = file.replace("key: k", &format!("key: {quoted}"));
        assert_eq!(limit_of(&text).1, "\"a b\"", "{text}");
    }
}

/// Indenting lines for the parser must not change the positions of errors.
#[test]
fn an_error_after_an_attached_comment_has_its_place() {
    let text = "domain: 'd'#é\ndescriptors:\n  - key: \"#k\"#c: d\n    unit: second\n";
    let error = "r.yaml:4:5: descriptors[0].unit: the key is not known here; it belongs under `rate_limit`";
    assert_eq!(parse("r.yaml", text).unwrap_err(), error);
}

/// 34 of 70 public repositories write their rules like this.
#[test]
fn the_rules_within_a_config_map_are_read_at_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config-map.yaml");
    let rules = "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: rules\ndata:\n  envoy.yaml: |\n    \
                 static_resources: {}\n  rules.yaml: |\n    domain: d\n    descriptors:\n      - key: k\n        rate_limit: {unit: hour, \
                 requests_per_unit: ten}\n  more.yaml: 'domain: e'\n";
    let load = |text: &str| {
        fs::write(&file, text).expect("the file is written");
        let sources = read(std::slice::from_ref(&file)).expect("the file is read");
        RuleSet::parse(&sources, &LoadOptions::default()).map_err(|errors| errors.to_string())
    };
    let error = load(rules).unwrap_err();
    assert!(
        error.contains("config-map.yaml:15:53: descriptors[0].rate_limit.requests_per_unit: "),
        "{error}"
    );
    let loaded = load(&rules.replace("ten", "10")).expect("good rules");
    let domains: Vec<_> = loaded.domains().map(|domain| domain.name().to_owned()).collect();
    assert_eq!(domains, ["d", "e"]);
    let origin = loaded.domain("d").expect("the domain").rules()[0].declared_at();
    assert!(origin.ends_with("config-map.yaml:14:9"), "{origin}");
}

#[test]
fn an_error_after_under_indented_quoted_text_has_its_place() {
    let text = "domain: d\ndescriptors:\n  - {key: 'a\nb', unit: second}\n";
    let error = "r.yaml:4:5: descriptors[0].unit: the key is not known here; it belongs under `rate_limit`";
    assert_eq!(parse("r.yaml", text).unwrap_err(), error);
}

/// A named limit that was alone on its rule used to get another identity once the rule got a second limit: its counters were lost.
#[test]
fn a_limit_that_is_added_to_a_rule_leaves_the_counters_of_the_first_one() {
    let burst = "{name: burst, unit: second, requests_per_unit: 100}";
    for daily in ["{name: daily, unit: day, requests_per_unit: 10}", "{unit: day, requests_per_unit: 10}"] {
        let limiter = limiter(&format!("domain: d\ndescriptors: [{{key: k, rate_limit: {daily}}}]"));
        let remaining_after_a_hit = || {
            let mut request = Request::new("d");
            let entries = std::iter::once(Entry { key: "k", value: "a" }).collect();
            request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
            limiter.pin().decide(&request, Timestamp::from_millis(1_700_000_000_000)).statuses[0].remaining
        };
        assert_eq!(remaining_after_a_hit(), 9);
        let both = format!("domain: d\ndescriptors: [{{key: k, rate_limits: [{burst}, {daily}]}}]");
        let next = limiter.update_rules().build(&[Source::file("r.yaml", both)], &LoadOptions::default());
        drop(next.expect("good rules").put_in_force());
        assert_eq!(remaining_after_a_hit(), 8, "{daily}");
    }
}
