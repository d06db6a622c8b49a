//! A flood of far more distinct keys than there is room for: `TIDEGATE_FLOOD_KEYS` (default 300,000) keys and
//! `TIDEGATE_FLOOD_COUNTERS` (default 20,000) counters.

use crate::support::limiter_with_room;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    store::OnFull,
};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3, algorithm: sliding_log }
  - key: flood
    rate_limit: { unit: minute, requests_per_unit: 3 }
";
const LIVE: u64 = 1000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn hit(limiter: &Limiter, key: &str, value: u64, now: Timestamp) -> Code {
    let value = value.to_string();
    let mut request = Request::new("d");
    let entries = [Entry { key, value: &value }].into_iter().collect();
    request.push(Descriptor { entries, hits: Hits::ONE, limit: None });
    limiter.pin().decide(&request, now).code
}

fn rss_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim_end_matches("kB").trim().parse().unwrap_or(0) / 1024
}

#[test]
fn a_flood_of_keys_neither_exceeds_the_bound_nor_resets_a_live_counter() {
    let (keys, counters_max) =
        (number("TIDEGATE_FLOOD_KEYS", 300_000), number("TIDEGATE_FLOOD_COUNTERS", 20_000) as usize);
    for on_full in [OnFull::Deny, OnFull::Allow] {
        let limiter = limiter_with_room(RULES, counters_max, on_full);
        let start = Timestamp::from_millis(1_700_000_000_000);
        for user in 0..LIVE {
            assert!((0..3).all(|_| hit(&limiter, "user", user, start) == Code::Ok));
        }
        let (mut admitted, mut most) = (0, 0);
        for key in 0..keys {
            admitted += u64::from(hit(&limiter, "flood", key, start) == Code::Ok);
            most = most.max(limiter.store().counters());
        }
        let reset = (0..LIVE).filter(|&user| hit(&limiter, "user", user, start) == Code::Ok).count();
        println!(
            "{on_full:?}: {keys} distinct keys sent, {admitted} admitted, {most} counters held of {counters_max} at most, \
             RSS {} MB, live counters reset: {reset}",
            rss_megabytes()
        );
        assert!(most <= counters_max);
        assert_eq!(reset, 0);
        let fitting = keys.min(counters_max as u64 - LIVE);
        assert_eq!(admitted, if on_full == OnFull::Deny { fitting } else { keys });
        // Once the flood has expired there is room again, without a sweeper's help.
        let later = start.saturating_add_nanos(150_000_000_000);
        let admitted = (0..100).filter(|&key| hit(&limiter, "flood", keys + key, later) == Code::Ok).count();
        assert_eq!(admitted, 100);
        assert!((0..LIVE).all(|user| hit(&limiter, "user", user, later) == Code::OverLimit));
    }
}
