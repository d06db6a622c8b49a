//! The examples of docs/rules.md about values, times, bans and conditions: decisions are as the page states.

use crate::support::limiter;
use std::num::NonZeroU64;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Reset, Timestamp},
    limiter::Limiter,
};

const PAGE: &str = include_str!("../../docs/rules.md");

/// Monday, 15 January 2024, 00:00 in Berlin.
const MONDAY: u64 = 1_705_273_200_000;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The block of the page that begins with this line.
fn example(first_line: &str) -> &'static str {
    let mut blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with(&format!("{first_line}\n"))).expect("a block of the page")
}

/// Entries as `key=value,key=value`; descriptors are separated by `;`.
fn decide(limiter: &Limiter, domain: &str, descriptors: &str, hits: u64, millis: u64) -> Result<(), Reset> {
    let mut request = Request::new(domain);
    for entries in descriptors.split(';') {
        let entries = entries.split(',').map(|entry| entry.split_once('=').expect("an entry"));
        let entries = entries.map(|(key, value)| Entry { key, value }).collect();
        let hits = Hits::Take(NonZeroU64::new(hits).expect("hits"));
        request.push(Descriptor { entries, limit: None, hits });
    }
    let pinned = limiter.pin();
    let decision = pinned.decide(&request, Timestamp::from_millis(millis));
    let denied = decision.statuses.iter().find(|status| status.code == Code::OverLimit);
    match decision.code {
        Code::Ok => Ok(()),
        Code::OverLimit => Err(denied.and_then(|status| status.reset).expect("a denial has a reset")),
    }
}

/// Asserts that exactly this many hits, one by one, are admitted at a moment.
fn admits(limiter: &Limiter, (domain, descriptors): (&str, &str), hits: usize, millis: u64) {
    let admitted = (0..=hits).filter(|_| decide(limiter, domain, descriptors, 1, millis).is_ok()).count();
    assert_eq!(admitted, hits, "{domain}: {descriptors}");
}

#[test]
fn the_table_of_matching_is_what_explain_shows() {
    let limiter = limiter(example("domain: walk"));
    let rules = limiter.rules();
    let table = PAGE.split("| descriptor | limit | reason |\n|---|---|---|\n").nth(1).expect("the table");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let entries: Vec<(&str, &str)> =
            cells[1].split(", ").filter_map(|entry| entry.trim_matches('`').split_once('=')).collect();
        let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        let found = rules.domain("walk").expect("it is declared").find(&entries);
        let limit = found.and_then(|found| found.rule.limits.first());
        let shown = limit.map_or_else(|| "none".to_owned(), |limit| format!("{} a second", limit.requests));
        assert_eq!(shown, cells[2], "{row}");
    }
}

#[test]
fn lists_networks_and_regular_expressions_limit_as_described() {
    let limiter = limiter(example("domain: several-values"));
    let of = |descriptor| ("several-values", descriptor);
    admits(&limiter, of("plan=free"), 10, MONDAY);
    assert!(decide(&limiter, "several-values", "plan=FREE", 1, MONDAY).is_err(), "the same counter");
    admits(&limiter, of("plan=Trial"), 10, MONDAY);
    assert!(decide(&limiter, "several-values", "plan=gold", 1_000, MONDAY).is_ok(), "no rule");
    for unlimited in ["10.2.0.1", "2001:db8::1", "::ffff:10.200.0.1"] {
        let descriptor = format!("remote_address={unlimited}");
        assert!(decide(&limiter, "several-values", &descriptor, 100_000, MONDAY).is_ok(), "{unlimited}");
    }
    admits(&limiter, of("remote_address=10.1.2.3"), 100, MONDAY);
    assert!(decide(&limiter, "several-values", "remote_address=::ffff:10.1.2.3", 1, MONDAY).is_err());
    admits(&limiter, of("remote_address=198.51.100.1"), 50, MONDAY);
    assert!(
        decide(&limiter, "several-values", "remote_address=198.51.100.2", 1, MONDAY).is_err(),
        "one counter for the network"
    );
    admits(&limiter, of("path=/v12/export/a"), 5, MONDAY);
    admits(&limiter, of("path=/v12/export/b"), 5, MONDAY);
    assert!(decide(&limiter, "several-values", "path=/export/v1", 99, MONDAY).is_ok());
}

#[test]
fn a_schedule_keeps_what_was_used_and_its_resets_are_exact() {
    let limiter = limiter(example("domain: hours"));
    let partner = |hits, millis| decide(&limiter, "hours", "partner=a", hits, millis);
    let evening = MONDAY + 18 * HOUR;
    assert_eq!(partner(40, evening - MINUTE / 2), Ok(()));
    let Err(Reset::After(until_room)) = partner(1, evening) else { panic!("40 of 10 are used") };
    assert!(partner(1, evening + until_room.as_millis() as u64 - 1).is_err());
    assert_eq!(partner(1, evening + until_room.as_millis() as u64 + 1), Ok(()));
    // A request that is admitted only in the night of Monday.
    let at_nine = MONDAY + 21 * HOUR;
    let Err(reset) = partner(100, at_nine) else { panic!("100 of 10") };
    assert_eq!(reset, Reset::After(std::time::Duration::from_secs(3_600)));
    assert_eq!(partner(100, at_nine + HOUR), Ok(()));
    // The night of Thursday ends on Friday, and on Sunday nothing is limited.
    assert_eq!(partner(200, MONDAY + 4 * 24 * HOUR + 5 * HOUR), Ok(()));
    assert!(partner(11, MONDAY + 4 * 24 * HOUR + 6 * HOUR + 3 * MINUTE).is_err());
    assert_eq!(partner(100_000, MONDAY + 6 * 24 * HOUR), Ok(()));
}

#[test]
fn five_denials_within_a_minute_ban_for_ten() {
    let limiter = limiter(example("domain: bans"));
    let address = |millis| decide(&limiter, "bans", "remote_address=192.0.2.1", 1, millis);
    (0..20).for_each(|_| assert_eq!(address(MONDAY), Ok(())));
    (0..4).for_each(|_| assert!(address(MONDAY).is_err()));
    assert_eq!(address(MONDAY), Err(Reset::After(std::time::Duration::from_secs(600))));
    assert!(address(MONDAY + 10 * MINUTE - 1).is_err());
    assert_eq!(address(MONDAY + 10 * MINUTE), Ok(()));
    assert_eq!(decide(&limiter, "bans", "remote_address=192.0.2.2", 1, MONDAY), Ok(()));
}

#[test]
fn limits_with_conditions_apply_as_described() {
    let limiter = limiter(example("- namespace: shop"));
    admits(&limiter, ("shop", "user_id=ann,path=/a,method=GET"), 100, MONDAY);
    admits(&limiter, ("shop", "method=GET,path=/a,user_id=bob,other=x"), 100, MONDAY);
    for elsewhere in ["method=GET,path=/static/a,user_id=ann", "method=PUT,path=/a,user_id=ann"] {
        assert_eq!(decide(&limiter, "shop", elsewhere, 100, MONDAY), Ok(()), "{elsewhere}");
    }
    // All methods share the limit of a second.
    assert!(decide(&limiter, "shop", "method=PUT", 9_601, MONDAY).is_err());
    assert_eq!(decide(&limiter, "shop", "method=PUT", 9_600, MONDAY), Ok(()));
}

#[test]
fn a_limit_with_when_applies_to_requests_for_which_it_holds() {
    let text =
        PAGE.split("```yaml\n").find(|block| block.contains("when: 'descriptors.exists")).expect("a block");
    let limiter = limiter(text.split("```").next().expect("its end"));
    admits(&limiter, ("shop", "user=ann;method=PUT"), 5, MONDAY);
    admits(&limiter, ("shop", "user=ann"), 95, MONDAY);
    admits(&limiter, ("shop", "user=bob;method=GET"), 100, MONDAY);
}
