use super::*;
use crate::rules::{LoadOptions, Outcome, RuleChanges, RuleSet, Semantics, Source, SourceId};
use proptest::prelude::*;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1 } }]
  - { key: user, value: ann, rate_limit: { unit: day, requests_per_unit: 9 } }
";

fn overridden(id: &str, entries: &[(&str, &str)], action: OverrideAction) -> Source {
    let entries = entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Source::of_override(OverrideRule { id: id.into(), domain: "shop".into(), entries, action })
}

fn block(id: &str, key: &str, values: BlockedValues) -> Block {
    Block { id: id.into(), domain: None, key: key.into(), values, is_in_file: false }
}

fn rules(overlaid: &[Source]) -> RuleSet {
    let sources = [&[Source::file("shop.yaml", RULES)], overlaid].concat();
    RuleSet::parse(&sources, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The path of the rule, and the number of hits of its limit; -1 if it is unlimited.
fn found(rules: &RuleSet, entries: &[(&str, &str)]) -> (String, i64) {
    let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
    let domain = rules.domain("shop").expect("declared");
    let rule = domain.find(&entries).map(|found| found.rule);
    let explained = match domain.explain(&entries).outcome {
        Outcome::Reached(rule) => Some(rule),
        _ => None,
    };
    assert_eq!(rule, explained, "an explanation agrees with the decision");
    rule.map_or((String::new(), 0), |rule| {
        (rule.info.path.to_string(), rule.limits.first().map_or(-1, |limit| i64::from(limit.requests)))
    })
}

#[test]
fn overrides_win_over_rules_for_descriptors_that_match_as_a_whole() {
    let ten = OverrideAction::Limits(vec![OverrideLimit::new(10, "hour", None, None).unwrap()]);
    let rules = rules(&[
        overridden("a", &[("user", "a*")], OverrideAction::Unlimited),
        overridden("b", &[("user", "ann")], ten),
        overridden("c", &[("user", "*"), ("path", "/login")], OverrideAction::Denied),
    ]);
    for (entries, path, hits) in [
        (&[("user", "ann")][..], "(override b)", 10),
        (&[("user", "amy")], "(override a)", -1),
        (&[("user", "bob")], "user", 3),
        (&[("user", "ann"), ("path", "/login")], "(override c)", 0),
        (&[("user", "bob"), ("path", "/")], "user → path", 1),
        (&[("path", "/login")], "", 0),
    ] {
        assert_eq!(found(&rules, entries), (path.to_owned(), hits), "{entries:?}");
    }
    let listed: Vec<_> =
        rules.domain("shop").unwrap().rules().iter().map(|rule| rule.origin.to_string()).collect();
    assert_eq!(listed[3..], ["override:a", "override:b", "override:c"]);
}

/// An override of the limit per minute dropped the limit per day without a word.
#[test]
fn limits_of_the_rule_that_an_override_does_not_replace_are_found() {
    let text = "{ domain: shop, descriptors: [{ key: user, rate_limits: [
        { name: per-minute, unit: minute, requests_per_unit: 10 }, { name: per-day, unit: day, requests_per_unit: 1000 }] }] }";
    let rules =
        RuleSet::parse(&[Source::file("shop.yaml", text)], &LoadOptions::default()).expect("good rules");
    for (windows, expected) in [
        (&["minute"][..], &["per-day"][..]),
        (&["day"], &["per-minute"]),
        // The first limit of an override replaces the first of the rule if no window is the same.
        (&["hour"], &["per-day"]),
        (&["hour", "second"], &[]),
        (&["minute", "day"], &[]),
        (&["day", "minute"], &[]),
        (&["day", "hour"], &["per-minute"]),
    ] {
        let limits: Vec<_> =
            windows.iter().map(|window| OverrideLimit::new(5, window, None, None).unwrap()).collect();
        let windows: Vec<_> = limits.iter().map(OverrideLimit::window).collect();
        let action = OverrideAction::Limits(limits);
        let entries = vec![("user".to_owned(), "ann".to_owned())];
        let declared = OverrideRule { id: "o".into(), domain: "shop".into(), entries, action };
        let rule = rules.domain("shop").and_then(|domain| domain.rule_behind(&declared)).expect("a rule");
        let dropped: Vec<&str> = rule.limits_not_overridden(&windows).map(|limit| &*limit.name).collect();
        assert_eq!(dropped, expected, "{windows:?}");
    }
}

#[test]
fn blocks_win_over_overrides_at_any_entry() {
    let blocks = vec![
        block("v", "user", BlockedValues::Value("ann".into())),
        block("w", "user", BlockedValues::Value("bot-*".into())),
        block("n", "remote_address", BlockedValues::Cidr("192.0.2.0/24".into())),
    ];
    let rules = rules(&[
        overridden("a", &[("user", "*")], OverrideAction::Unlimited),
        Source::of_blocks("blocks", blocks),
    ]);
    for (entries, path, id) in [
        (&[("user", "ann")][..], BLOCKED, Some(OverlayMatch::Block("v"))),
        (&[("user", "bot-7"), ("path", "/")], BLOCKED, Some(OverlayMatch::Block("w"))),
        (&[("path", "/"), ("remote_address", "192.0.2.9")], BLOCKED, Some(OverlayMatch::Block("n"))),
        (&[("remote_address", "192.0.3.9")], "", None),
        (&[("remote_address", "192.0.2")], "", None),
        (&[("user", "bob")], "(override a)", Some(OverlayMatch::Override("a"))),
    ] {
        let shown: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        assert_eq!(found(&rules, entries).0, path, "{entries:?}");
        assert_eq!(rules.domain("shop").unwrap().overlay_match(&shown), id, "{entries:?}");
    }
}

/// Clients send such values in headers: a block of one must not deny the requests of others.
#[test]
fn a_value_with_an_escaped_slash_is_a_text_and_no_network() {
    for text in ["0.0.0.0/0", "::/0", "192.0.2.7/32", "1.2.3.4/99"] {
        let values = BlockedValues::of_text(&text.replace('/', r"\/")).expect("a value");
        let rules = rules(&[Source::of_blocks("blocks", vec![block("b", "user", values)])]);
        let denies = |value| found(&rules, &[("user", value)]).0 == BLOCKED;
        assert!(denies(text) && !denies("192.0.2.7") && !denies("2001:db8::1"), "{text}");
    }
    let refused = BlockedValues::of_text("1.2.3.4/99").expect_err("it resembles a network");
    assert!(refused.ends_with(r"to block this text itself, write 1.2.3.4\/99"), "{refused}");
}

fn block_file(text: impl Into<String>) -> Source {
    Source::new(SourceId::Blocks("blocks.txt".into()), text)
}

#[test]
fn each_line_of_a_file_of_blocks_denies_its_value_or_network() {
    let file = block_file(
        "\u{feff}# spam\r\n\r\nuser=ann\r\n  user=bot-* # pattern\n remote_address=192.0.2.0/24\nremote_address=2001:db8::1\n\
         user=a\\*#b\n[other]\nuser=amy\n[shop]\nuser=eve=1\n[*]\npath=/a/*",
    );
    let rules = rules(&[file]);
    for (entry, line) in [
        (("user", "ann"), Some(3)),
        (("user", "bot-7"), Some(4)),
        (("remote_address", "192.0.2.9"), Some(5)),
        (("remote_address", "192.0.3.9"), None),
        (("remote_address", "192.0.2.128/25"), Some(5)),
        (("remote_address", "192.0.2.0/23"), None),
        (("remote_address", "2001:DB8:0::1"), Some(6)),
        (("user", "a*#b"), Some(7)),
        (("user", "ax#b"), None),
        (("user", "amy"), None),
        (("user", "eve=1"), Some(11)),
        (("path", "/a/b"), Some(13)),
    ] {
        let entries = [Entry { key: entry.0, value: entry.1 }];
        let id = line.map(|line| format!("blocks.txt:{line}"));
        let found_id = rules.domain("shop").unwrap().overlay_match(&entries);
        assert_eq!(found_id, id.as_deref().map(OverlayMatch::Block), "{entry:?}");
        assert_eq!(found(&rules, &[entry]).0 == BLOCKED, line.is_some(), "{entry:?}");
    }
    // The domain `other` has no rules.
    let listed: Vec<&str> = rules.file_blocks().map(|block| block.id.rsplit(':').next().unwrap()).collect();
    assert_eq!(listed, ["3", "4", "5", "6", "7", "13", "11"]);
}

#[test]
fn every_malformed_line_of_a_file_of_blocks_is_an_error_with_its_place() {
    let file =
        block_file("user\n=x\nuser=\n  ip=10.0.0.0/33\nuser=fine\nuser = x\nip=10.0/8\n[]\nip=/10/8\n[shop");
    let sources = [Source::file("shop.yaml", RULES), file];
    let errors = RuleSet::parse(&sources, &LoadOptions::default()).unwrap_err();
    let places: Vec<String> = errors.iter().map(|error| error.origin.to_string()).collect();
    let expected = ["1:1", "2:1", "3:6", "4:6", "6:6", "7:4", "8:1", "10:1"];
    assert_eq!(places, expected.map(|place| format!("blocks.txt:{place}")), "{errors}");
    assert!(errors.to_string().contains(r#"blocks.txt:4:6: "10.0.0.0/33" is not a network"#), "{errors}");
}

/// Prints how long 100,000 networks take to load, and a decision among them.
#[test]
#[expect(clippy::disallowed_methods, reason = "it prints how long it takes")]
fn a_hundred_thousand_networks_are_loaded_and_searched() {
    let networks = (0..100_000u32).map(|number| {
        let address = std::net::Ipv4Addr::from(0x0b00_0000 + number * 512);
        format!("remote_address={address}/24\n")
    });
    let file = block_file(networks.collect::<String>());
    let started = std::time::Instant::now();
    let rules = rules(&[file]);
    let loaded = started.elapsed();
    let started = std::time::Instant::now();
    for (address, is_blocked) in [
        ("11.0.0.255", true),
        ("11.0.1.0", false),
        ("14.13.62.7", true),
        ("14.13.64.0", false),
        ("10.255.255.255", false),
    ] {
        assert_eq!(found(&rules, &[("remote_address", address)]).0 == BLOCKED, is_blocked, "{address}");
    }
    println!("100,000 networks loaded in {loaded:?}, 10 lookups in {:?}", started.elapsed());
    assert_eq!(rules.file_blocks().count(), 100_000);
}

#[test]
fn what_is_for_another_domain_does_not_apply() {
    let other =
        Block { domain: Some("other".into()), ..block("v", "user", BlockedValues::Value("ann".into())) };
    let rules = rules(&[Source::of_blocks("blocks", vec![other])]);
    assert_eq!(found(&rules, &[("user", "ann")]).0, "user=ann");
}

proptest! {
    #[test]
    fn blocked_is_what_one_of_the_blocks_matches(
        blocks in prop::collection::vec(("[ab]", "[ab*]{1,3}"), 1..6),
        entries in prop::collection::vec(("[abc]", "[ab]{1,3}"), 1..4),
    ) {
        let declared: Vec<Block> = blocks
            .iter()
            .map(|(key, value)| block("x", key, BlockedValues::Value(value.clone())))
            .collect();
        let expected = declared.iter().any(|block| {
            entries.iter().any(|(key, value)| block.key == *key && block.values.match_value(value))
        });
        let rules = rules(&[Source::of_blocks("blocks", declared)]);
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        prop_assert_eq!(found(&rules, &entries).0 == BLOCKED, expected);
    }
}

/// Of two overrides for one descriptor the first by id applied, and ids are random if none is given.
#[test]
fn of_several_overrides_the_last_declared_applies_and_wildcards_come_after_all_others() {
    let hits = |hits| OverrideAction::Limits(vec![OverrideLimit::new(hits, "hour", None, None).unwrap()]);
    let rules = rules(&[
        overridden("z", &[("user", "bob")], hits(11)),
        overridden("b", &[("user", "bob")], hits(12)),
        overridden("y", &[("user", "b*")], hits(13)),
        overridden("a", &[("user", "*")], hits(14)),
        overridden("c", &[("user", "*b*")], hits(15)),
        overridden("d", &[("user", "x*")], hits(16)),
    ]);
    for (user, of) in [("bob", "b"), ("bib", "c"), ("rob", "c"), ("tom", "a"), ("xu", "d")] {
        let expected = format!("(override {of})");
        assert_eq!(found(&rules, &[("user", user)]).0, expected, "{user}");
        let entries = [Entry { key: "user", value: user }];
        let explained = rules.domain("shop").unwrap().overlay_match(&entries);
        assert_eq!(explained, Some(OverlayMatch::Override(of)), "{user}");
    }
}

/// `Mallory` passed a block of `mallory` under a rule by which both share a counter.
#[test]
fn blocks_and_overrides_ignore_the_case_of_letters_where_a_rule_of_the_key_does() {
    const ANY_CASE: &str = "
domain: shop
descriptors:
  - key: plan
    descriptors:
      - { key: user, value: '*', value_ignore_case: true, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: path, rate_limit: { unit: day, requests_per_unit: 3 } }
";
    let sources = [
        Source::file("shop.yaml", ANY_CASE),
        Source::file("exact.yaml", RULES.replace("domain: shop", "domain: exact")),
        block_file("user=Mallory\nuser=BOT-*\npath=/A\n[shop]\nuser=eve\n"),
        overridden("o", &[("plan", "Gold"), ("user", "Ann")], OverrideAction::Unlimited),
        overridden("w", &[("plan", "free"), ("user", "Tom*")], OverrideAction::Unlimited),
    ];
    for semantics in [Semantics::Exact, Semantics::Reference] {
        let options = LoadOptions { semantics, ..LoadOptions::default() };
        let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
        let line = |line| Some(format!("Block(\"blocks.txt:{line}\")"));
        let by = |id: &str| Some(format!("Override({id:?})"));
        for (domain, entries, expected) in [
            ("shop", &[("user", "mALLORY")][..], line(1)),
            ("shop", &[("user", "bot-x")], line(2)),
            ("shop", &[("path", "/a")], None),
            ("shop", &[("path", "/A")], line(3)),
            ("shop", &[("user", "EVE")], line(5)),
            ("exact", &[("user", "mallory")], None),
            ("exact", &[("user", "Mallory")], line(1)),
            ("shop", &[("plan", "Gold"), ("user", "aNN")], by("o")),
            ("shop", &[("plan", "gold"), ("user", "ann")], None),
            ("shop", &[("plan", "free"), ("user", "TOMMY")], by("w")),
        ] {
            let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
            let domain = rules.domain(domain).expect("declared");
            let explained = domain.overlay_match(&entries).map(|of| format!("{of:?}"));
            assert_eq!(explained, expected, "{entries:?}");
            assert_eq!(domain.overlaid(&entries).is_some(), expected.is_some(), "{entries:?}");
        }
        assert_eq!(rules.file_blocks().count(), 4, "each is listed once");
    }
}

/// Blocks of a misspelt domain or key denied nothing, and nothing named them.
#[test]
fn a_misspelt_domain_or_key_in_a_file_of_blocks_is_a_warning_with_its_place() {
    let text = "user=ann\nip=192.0.2.1\nip=192.0.2.2\npath=/\n[shpo]\n  user=eve\nusr=eve\n[shop]\nuser=eve\nusr=eve\n";
    let sources = [Source::file("shop.yaml", RULES), block_file(text)];
    let options = LoadOptions::default();
    let warnings = |rules: &RuleSet| {
        let texts = rules.warnings().into_iter().map(|warning| warning.to_string());
        texts.filter(|text| text.starts_with("blocks.txt")).collect::<Vec<_>>()
    };
    let expected = [
        "blocks.txt:2:1: no rule has the key ip: the block applies to descriptors that no rule limits; is it misspelt?",
        "blocks.txt:6:3: no rules have the domain shpo, so that its blocks deny nothing; did you mean [shop]?",
        "blocks.txt:10:1: no rule of the domain shop has the key usr: the block applies to descriptors that no rule limits; is it misspelt?",
    ];
    let rules = RuleSet::parse(&sources, &options).expect("valid");
    assert_eq!(warnings(&rules), expected);
    let next = rules.successor_with_overlays(&[block_file("user=ann\n")], &options).expect("valid");
    assert_eq!(warnings(&next), [""; 0]);
    let next = next.successor_with_overlays(&[block_file(text)], &options).expect("valid");
    assert_eq!(warnings(&next), expected);
    let before_any_rules = RuleSet::parse(&sources[1..], &options).expect("valid");
    assert_eq!(warnings(&before_any_rules), [""; 0]);
}

/// A change of overrides and blocks does not read the rules again, but builds the same as all documents together.
#[test]
fn rules_with_other_overrides_and_blocks_are_those_of_a_whole_load() {
    let options = LoadOptions::default();
    let file =
        Source::file("shop.yaml", format!("{RULES}  - {{ key: free, rate_limit: {{ unlimited: true }} }}\n"));
    let limit =
        |number| OverrideAction::Limits(vec![OverrideLimit::new(number, "hour", None, None).unwrap()]);
    let eve = || Source::of_blocks("blocks", vec![block("eve", "user", BlockedValues::Value("eve".into()))]);
    let changes = [
        vec![eve()],
        vec![overridden("b", &[("user", "ann")], limit(10)), eve(), block_file("user=192.0.2.0/24\n")],
        vec![overridden("b", &[("user", "ann")], limit(20)), overridden("c", &[("user", "*")], limit(5))],
        vec![overridden("c", &[("user", "*")], limit(5))],
        vec![],
    ];
    let mut rules = RuleSet::parse(std::slice::from_ref(&file), &options).expect("valid");
    for overlays in changes {
        let all = [std::slice::from_ref(&file), &overlays].concat();
        let next = rules.successor_with_overlays(&overlays, &options).expect("valid");
        let whole = rules.successor(&all, &options).expect("valid");
        assert!(RuleChanges::between(&whole, &next).is_empty());
        assert_eq!(next.rule_limits().count(), whole.rule_limits().count());
        let named = |rules: &RuleSet| {
            let limits = rules.rule_limits().map(|(_, limit)| {
                (rules.limit_name(limit).clone(), rules.identity(limit).clone(), limit.id, limit.series)
            });
            limits.collect::<Vec<_>>()
        };
        assert_eq!(named(&next), named(&whole));
        for user in ["ann", "eve", "bob", "192.0.2.7"] {
            assert_eq!(found(&next, &[("user", user)]), found(&whole, &[("user", user)]), "{user}");
        }
        rules = next;
    }
    let malformed = rules.successor_with_overlays(&[block_file("=\n")], &options);
    assert!(malformed.is_err_and(|errors| errors.to_string().contains("has no key")));
}

/// Such an override counted by the default algorithm, and its operator had no warning.
#[test]
fn an_override_that_a_shared_store_cannot_count_is_named_with_the_reason() {
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let parse = |overlaid: &[Source]| {
        let sources = [&[Source::file("shop.yaml", RULES)], overlaid].concat();
        RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let declared = |limits: &[(u32, &str, Option<&str>, Option<u32>)]| {
        let limits = limits.iter().map(|&(requests, window, algorithm, burst)| {
            OverrideLimit::new(requests, window, algorithm, burst).expect("a limit")
        });
        let action = OverrideAction::Limits(limits.collect());
        let entries = vec![("user".to_owned(), "bob".to_owned())];
        OverrideRule { id: "o".into(), domain: "shop".into(), entries, action }
    };
    let bucket = (1, "year", Some("token_bucket"), Some(200));
    for (limits, expected) in [
        (vec![(5, "minute", None, None)], None),
        (vec![(10_000, "hour", Some("sliding_log"), None)], None),
        (vec![(10_001, "hour", Some("sliding_log"), None)], Some((0, NotShareable::Log(10_000)))),
        (vec![(5, "minute", None, None), bucket], Some((1, NotShareable::Bucket))),
    ] {
        let declared = declared(&limits);
        let before = parse(&[]);
        let domain = before.domain("shop").expect("declared");
        assert_eq!(domain.not_shareable(&declared, options.semantics), expected, "{limits:?}");
        let rules = parse(&[Source::of_override(declared.clone())]);
        assert_eq!(rules.overrides_not_shareable().len(), usize::from(expected.is_some()), "{limits:?}");
        // Counted by one server, each is as it is declared.
        let sources = [Source::file("shop.yaml", RULES), Source::of_override(declared.clone())];
        let rules = RuleSet::parse(&sources, &LoadOptions::default()).expect("good rules");
        assert_eq!(rules.overrides_not_shareable(), [""; 0]);
    }
}
