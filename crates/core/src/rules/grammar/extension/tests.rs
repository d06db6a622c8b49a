//! Extensions of descriptors that a control plane declares.

use crate::{
    limit::OnDeny,
    rules::{LoadOptions, RuleSet, Source, SourceId},
};

const DECLARED: &str = "domain: d\ndescriptors:\n\
    - key: route\n  value: a\n  descriptors:\n  - {key: user, rate_limit: {unit: second, requests_per_unit: 5}}\n\
    - {key: route, rate_limit: {unit: second, requests_per_unit: 7, name: n}}\n\
    - {key: free, rate_limit: {unlimited: true}}\n";

fn parse(declared: &str, extensions: &[&str], options: LoadOptions) -> Result<RuleSet, Vec<String>> {
    let resource = Source::new(SourceId::Xds("r".into()), declared);
    let files = extensions.iter().enumerate().map(|(index, text)| {
        Source::file(format!("{index}.yaml"), format!("domain: d\nextensions:\n{text}"))
    });
    let sources: Vec<Source> = files.chain([resource]).collect();
    RuleSet::parse(&sources, &options).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn rules(extension: &str) -> RuleSet {
    parse(DECLARED, &[extension], LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// `path: requests per window algorithm` of every limit.
fn limits(rules: &RuleSet) -> Vec<String> {
    let shown = |(rule, limit): (&crate::rules::Rule, &crate::rules::RuleLimit)| {
        format!("{}: {} per {} {}", rule.info.path, limit.requests, limit.window, limit.algorithm.name())
    };
    rules.rule_limits().map(shown).collect()
}

#[test]
fn an_extension_adds_keys_to_the_descriptor_of_the_same_path() {
    let extended = rules(
        "- key: route\n  value: a\n  descriptors:\n  - key: user\n    on_deny: {body: later}\n\
         \x20   rate_limit: {algorithm: leaky_bucket, burst: 2, max_wait: 1s}\n\
         - key: route\n  rate_limit: {per: 90s}\n",
    );
    assert_eq!(
        limits(&extended),
        ["route=a → user: 5 per 1s leaky_bucket", "route: 7 per 90s sliding_window"]
    );
    let rules = extended.domain("d").unwrap().rules();
    let user = rules.iter().find(|rule| rule.info.path.ends_with("user")).unwrap();
    assert!(user.may_queue() && matches!(user.info.on_deny.as_deref(), Some(OnDeny::Reply(_))));
    assert_eq!(user.declared_at(), "xds:r:6:5, extended at 0.yaml:6:5");
    assert_eq!(&*user.info.declared_at, user.declared_at());
    assert_eq!(rules.iter().filter(|rule| rule.extended_at.is_some()).count(), 3);
    assert!(extended.extensions_without_effect().is_empty());
}

#[test]
fn several_limits_take_the_place_of_the_only_one() {
    let extended = rules(
        "- key: route\n  rate_limits:\n  - {per: 1s, requests_per_unit: 1}\n  - {unit: day, requests_per_unit: 9}",
    );
    assert_eq!(limits(&extended)[1..], ["route: 1 per 1s sliding_window", "route: 9 per 1d sliding_window"]);
}

#[test]
fn counters_of_a_domain_can_be_local() {
    let queue = "- {key: route, rate_limit: {algorithm: leaky_bucket, max_wait: 1s}}";
    let shared = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let errors = parse(DECLARED, &[queue], shared).unwrap_err();
    assert!(errors[0].contains("cannot be counted in a shared store"), "{errors:#?}");
    let local = Source::file("0.yaml", format!("domain: d\ncounters: local\nextensions:\n{queue}"));
    let resource = Source::new(SourceId::Xds("r".into()), DECLARED);
    assert!(RuleSet::parse(&[local, resource], &shared).is_ok());
}

#[test]
fn errors_of_an_extension_are_located_in_it_whether_its_descriptor_exists_or_not() {
    let wrong = "- key: route\n  value: a\n  rate_limit: {algorithm: leaky_buckett, requests_per_unit: 5}\n\
                 \x20 on_deny: {bodi: x}\n- key: gone\n  shadow_mode: true\n  rate_limit: {precision: 0}\n\
                 - key: gone\n  calendar: true";
    for declared in [DECLARED, "domain: other"] {
        let errors = parse(declared, &[wrong], LoadOptions::default()).unwrap_err();
        assert_eq!(
            errors,
            [
                "0.yaml:5:61: extensions[0].rate_limit.requests_per_unit: is set by the document that declares the \
                 descriptor; remove it here",
                "0.yaml:8:16: extensions[1].shadow_mode: is set by the document that declares the descriptor; remove it \
                 here",
                "0.yaml:10:3: extensions[2]: the same key and value as at 0.yaml:7:3; write all keys of an extension \
                 there",
            ]
        );
        let wrong = "- key: route\n  rate_limit: {algorithm: leaky_buckett}\n  on_deny: {bodi: x}\n\
                     - key: gone\n  rate_limit: {precision: 0}\n  calendar: true";
        let errors = parse(declared, &[wrong], LoadOptions::default()).unwrap_err();
        assert_eq!(errors.len(), 5, "{errors:#?}");
        let begins = [
            "0.yaml:4:27: extensions[0].rate_limit.algorithm: \"leaky_buckett\" is not an algorithm; did you mean",
            "0.yaml:5:12: extensions[0].on_deny: is empty",
            "0.yaml:5:13: extensions[0].on_deny.bodi: the key is not known; did you mean `body`?",
            "0.yaml:7:27: extensions[1].rate_limit.precision: a window has 1 to 255",
            "0.yaml:8:3: extensions[1].calendar: the key is not known here; it belongs under `rate_limit`",
        ];
        for begin in begins {
            let count = errors.iter().filter(|error| error.starts_with(begin)).count();
            assert!(count >= 1, "{begin}: {errors:#?}");
        }
    }
}

#[test]
fn an_extension_that_does_not_fit_its_descriptor_is_a_located_error() {
    let calendar = "- {key: route, rate_limit: {algorithm: fixed_window, calendar: true}}";
    let errors = parse(DECLARED, &[calendar], LoadOptions::default()).unwrap_err();
    assert!(
        errors.len() == 1
            && errors[0].starts_with("0.yaml:3:64: extensions[0].rate_limit.calendar: the calendar has days"),
        "{errors:#?}"
    );
    let twice = ["- {key: route, log: hash}", "- {key: route, log: hash}"];
    let errors = parse(DECLARED, &twice, LoadOptions::default()).unwrap_err();
    assert!(errors[0].starts_with("1.yaml:3:3: extensions[0]: the same key and value as at 0.yaml:3:3"));
}

/// A control plane adds and removes rules at any time: an extension without a rule must not refuse its resources.
#[test]
fn an_extension_of_nothing_has_no_effect_and_is_no_error() {
    let text = "- {key: gone, rate_limit: {algorithm: sliding_log}}\n- {key: free, rate_limit: {algorithm: sliding_log}}\n\
                - {key: route, value: a, on_deny: {body: x}}";
    let of = |declared| {
        let rules = parse(declared, &[text], LoadOptions::default()).unwrap();
        rules.extensions_without_effect().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let without_limit =
        "`rate_limit` and `on_deny` have no effect: the descriptor has no `rate_limit`, or is unlimited";
    assert_eq!(
        of(DECLARED),
        [
            "0.yaml:3:3: extensions[0]: has no effect: no descriptor there has this key and value".to_owned(),
            format!("0.yaml:4:3: extensions[1]: {without_limit}"),
            format!("0.yaml:5:3: extensions[2]: {without_limit}"),
        ]
    );
    assert_eq!(
        of("domain: other"),
        ["0.yaml:3:3: extensions: has no effect: no rules are declared for the domain \"d\""]
    );
}

#[test]
fn a_document_declares_descriptors_or_extends_others() {
    let both = Source::file("both.yaml", "domain: d\nextensions: [{key: a}]\ndescriptors: [{key: a}]");
    let errors = RuleSet::parse(&[both], &LoadOptions::default()).unwrap_err().to_string();
    assert!(
        errors.contains("both.yaml:3:1: descriptors: ") && errors.contains("write two documents"),
        "{errors}"
    );
    let unnamed = Source::file("unnamed.yaml", "extensions: [{key: a}]");
    let errors = RuleSet::parse(&[unnamed], &LoadOptions::default()).unwrap_err().to_string();
    assert!(errors.contains("unnamed.yaml:1:1: domain: is missing"), "{errors}");
}

#[test]
fn an_extension_sets_values_in_the_place_of_the_one_that_is_declared() {
    let declared = "domain: d\ndescriptors:\n\
        - {key: ip, value: office, rate_limit: {unit: second, requests_per_unit: 5}}\n\
        - {key: path, value: /API/*, rate_limit: {unit: second, requests_per_unit: 6}}\n";
    let extension = "- {key: ip, value: office, value_network: [10.0.0.0/8, 192.0.2.0/24]}\n\
        - {key: path, value: /API/*, value_ignore_case: true}\n";
    let rules =
        parse(declared, &[extension], LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    assert_eq!(
        limits(&rules),
        [
            "ip=(network 10.0.0.0/8): 5 per 1s sliding_window",
            "path=(value /api/*, any case): 6 per 1s sliding_window"
        ]
    );
    assert!(rules.extensions_without_effect().is_empty());
}

/// Keys that the messages of a control plane cannot express, all in one extension.
#[test]
fn an_extension_adds_lists_patterns_schedules_bans_and_conditions() {
    let declared = "domain: d\ndescriptors:\n\
        - {key: plan, value: free, rate_limit: {unit: second, requests_per_unit: 5}}\n\
        - {key: path, value: export, rate_limit: {unit: second, requests_per_unit: 6}}\n";
    let extension = "- {key: plan, value: free, values: [free, trial], rate_limit: {when: 'true', \
        schedule: [{days: sun, requests_per_unit: 9}], time_zone: Europe/Berlin}}\n\
        - {key: path, value: export, value_regex: '^/v[0-9]+', rate_limit: {ban: {after: 2, within: 1m, for: 5m}}}\n";
    let rules =
        parse(declared, &[extension], LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let paths =
        ["plan=(list free): 5 per 1s sliding_window", "path=(regex ^/v[0-9]+): 6 per 1s sliding_window"];
    assert_eq!(limits(&rules), paths);
    let limits: Vec<_> = rules.rule_limits().map(|(_, limit)| limit).collect();
    let schedule = limits[0].schedule.as_ref().expect("a schedule");
    let entries: Vec<String> = schedule.entries().map(|entry| entry.to_string()).collect();
    assert_eq!(entries, ["9 sun 00:00-24:00 Europe/Berlin"]);
    assert!(limits[0].when.is_some());
    assert_eq!(limits[1].ban().map(|ban| ban.to_string()).as_deref(), Some("5m after 2 denials within 1m"));
    assert!(rules.extensions_without_effect().is_empty());
}

/// A control plane's messages have no field for them.
#[test]
fn an_extension_states_how_limits_count_that_requests_bring() {
    let stated = |document: &str| {
        let resource = Source::new(SourceId::Xds("r".into()), DECLARED);
        let file = Source::file("0.yaml", format!("domain: d\n{document}"));
        let rules = RuleSet::parse(&[file, resource], &LoadOptions::default());
        rules
            .map(|rules| rules.domain("d").unwrap().request_limits().map(ToString::to_string))
            .map_err(|errors| errors.to_string())
    };
    let always = "request_limits: {charge: always}\nextensions: [{key: route, on_deny: {body: x}}]";
    assert_eq!(stated(always), Ok(Some("sliding_window, charge: always".to_owned())));
    let error = stated(&always.replace("always", "never")).unwrap_err();
    assert!(error.starts_with("0.yaml:2:26: request_limits.charge: "), "{error}");
}

#[test]
fn a_key_that_narrows_an_extended_descriptor_is_an_error_without_a_value() {
    for declared in [DECLARED, "domain: other"] {
        for (extension, place) in [
            ("- {key: route, rate_limit: {when: }}", "3:29: extensions[0].rate_limit.when: "),
            ("- {key: route, value: a, value_network: }", "3:26: extensions[0].value_network: "),
        ] {
            let errors = parse(declared, &[extension], LoadOptions::default()).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:#?}");
            assert!(errors[0].starts_with(&format!("0.yaml:{place}has no value")), "{errors:#?}");
        }
    }
}
