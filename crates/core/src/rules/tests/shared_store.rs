//! Rules that a shared store cannot count.

use super::*;

#[test]
fn bans_and_schedules_are_refused_in_a_shared_store_unless_the_domain_counts_locally() {
    let rules = "descriptors:\n\
        - {key: a, rate_limit: {unit: day, requests_per_unit: 1, ban: {after: 2, within: 1m, for: 5m}}}\n\
        - {key: b, rate_limit: {unit: day, requests_per_unit: 1, schedule: [{days: sun, requests_per_unit: 9}]}}\n";
    let shared = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let parse = |head: &str| RuleSet::parse(&[Source::file("r.yaml", format!("{head}{rules}"))], &shared);
    let errors = parse("domain: d\n").expect_err("they are refused").to_string();
    for reason in [
        "ban: cannot be counted in a shared store: denials are counted by one process; remove it, or write `counters: local`",
        "schedule: cannot be counted in a shared store: a limit there has one number at all times; remove it, or write",
    ] {
        assert!(errors.contains(reason), "{errors}");
    }
    assert!(parse("domain: d\ncounters: local\n").is_ok());
}

#[test]
fn quotas_of_counters_in_a_shared_store_are_of_buckets_and_windows_and_need_leases() {
    let parse = |head: &str, limit: &str, leases: bool| {
        let options = LoadOptions { shared_counters: true, leases, ..LoadOptions::default() };
        let rules = format!(
            "domain: d\nrlqs: {{min_use: 1%}}\n{head}descriptors: [{{key: a, rate_limit: {{{limit}}}}}]\n"
        );
        RuleSet::parse(&[Source::file("r.yaml", rules)], &options)
            .map(|_| ())
            .map_err(|errors| errors.to_string())
    };
    let token_bucket = "unit: second, requests_per_unit: 9, algorithm: token_bucket";
    for limit in [
        token_bucket,
        "unit: second, requests_per_unit: 9, algorithm: leaky_bucket, burst: 90",
        "unit: hour, requests_per_unit: 900, algorithm: token_bucket",
        "unit: day, requests_per_unit: 900",
        "per: 10m, requests_per_unit: 900, algorithm: fixed_window",
        "unit: minute, requests_per_unit: 10",
        "unit: hour, requests_per_unit: 900, algorithm: token_bucket, refill: intervals",
        "unit: minute, requests_per_unit: 900, algorithm: fixed_window",
        "unit: minute, requests_per_unit: 1000, algorithm: fixed_window",
        "unit: second, requests_per_unit: 100",
    ] {
        assert_eq!(parse("", limit, true), Ok(()), "{limit}");
    }
    for limit in [
        "unit: second, requests_per_unit: 9, algorithm: token_bucket, refill: intervals",
        "unit: minute, requests_per_unit: 1000, algorithm: token_bucket, refill: intervals",
    ] {
        let error = parse("", limit, true).unwrap_err();
        assert!(
            error.contains("remove `refill`, make it a `fixed_window`, write `counters: local` beside"),
            "{error}"
        );
        assert_eq!(parse("counters: local\n", limit, true), Ok(()), "{limit}");
    }
    let error = parse("", token_bucket, false).unwrap_err();
    assert!(error.contains("by leases, which are off; start with `--lease auto`"), "{error}");
    assert_eq!(parse("counters: local\n", token_bucket, false), Ok(()));
}
