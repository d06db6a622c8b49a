//! Keys that select descriptors by their values, schedules, bans and conditions: how the pages show and explain them, and overrides that
//! replace them.

use super::{Browser, Shop, confirm};
use serde_json::json;

crate::tests_with! { CHROMIUM:
    each_key_is_shown_with_its_rule_explained_and_overridden,
    a_ban_is_shown_with_the_time_that_is_left,
    limits_with_conditions_are_shown_with_their_counters,
}

const RULES: &str = "
domain: shop
descriptors:
  - { key: plan, values: [free, trial], value_ignore_case: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: address, value_network: [10.0.0.0/8, '2001:db8::/32'], rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: path, value_regex: '^/v[0-9]+/export', rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: partner, rate_limit: { unit: day, requests_per_unit: 9, schedule: [{ hours: '00:00-24:00', requests_per_unit: 1 }] } }
  - { key: client, rate_limit: { unit: day, requests_per_unit: 1, ban: { after: 2, within: 1m, for: 10m } } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1, when: 'descriptors[0].user != \"admin\"' } }
";

struct Case {
    key: &'static str,
    value: &'static str,
    /// The path of the rule of the key.
    rule: &'static str,
    /// A text on the page of the rule.
    shown: &'static str,
    /// The reason why the value matches.
    matched: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        key: "plan",
        value: "TRIAL",
        rule: "plan=(list free, any case)",
        shown: "1 per day",
        matched: "matched the list free, trial in any case of letters",
    },
    Case {
        key: "address",
        value: "2001:DB8:0::7",
        rule: "address=(network 10.0.0.0/8)",
        shown: "1 per day",
        matched: "matched the network 2001:db8::/32, of the networks 10.0.0.0/8, 2001:db8::/32",
    },
    Case {
        key: "path",
        value: "/v12/export/all",
        rule: "path=(regex ^/v[0-9]+/export)",
        shown: "1 per day",
        matched: "matched the regular expression ^/v[0-9]+/export",
    },
    Case {
        key: "partner",
        value: "p",
        rule: "partner",
        shown: "schedule: 1 mon-sun 00:00-24:00 UTC",
        matched: "matched the key alone",
    },
    Case {
        key: "client",
        value: "c",
        rule: "client",
        shown: "ban: 10m after 2 denials within 1m",
        matched: "matched the key alone",
    },
    Case {
        key: "user",
        value: "ann",
        rule: "user",
        shown: "when: descriptors[0].user != \"admin\"",
        matched: "matched the key alone",
    },
];

/// Opens a page with parameters that need escaping.
async fn go(browser: &Browser, page: &str, parameters: &[(&str, &str)]) {
    let open = "location.hash = '#/' + arguments[0] + '?' + new URLSearchParams(arguments[1])";
    browser.run(open, &[json!(page), json!(parameters)]).await;
}

async fn each_key_is_shown_with_its_rule_explained_and_overridden() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "rules", &shop.operate).await;
    browser.shows("6 rules").await;
    for Case { key, value, rule, shown, matched } in CASES {
        let entry = format!("{key}={value}");
        assert_eq!(shop.send(key, value, 1).await, 0, "{key}");
        go(&browser, "rules", &[("domain", "shop"), ("rule", rule)]).await;
        browser.shows(rule).await;
        browser.shows(shown).await;
        browser.shows("1 hits admitted, 0 denied").await;
        go(&browser, "try", &[("domain", "shop"), ("e", &entry)]).await;
        browser.shows(matched).await;
        browser.shows(&format!("{rule}: limited")).await;
        browser.shows("1 used, 0 remaining").await;
        go(&browser, "keys", &[("domain", "shop"), ("e", &entry)]).await;
        browser.shows(&format!("Rule {rule}")).await;
        browser.shows("1 used, 0 remaining").await;
        browser.click("Override\u{2026}").await;
        let fields = "return ['requests0', 'unit0'].map((name) => document.querySelector(`dialog input[name=${name}]`).value)";
        // The fields have the number that applies now.
        assert_eq!(browser.run(fields, &[]).await, json!(["1", "day"]), "{key}");
        browser.run("document.querySelector('dialog input[name=requests0]').value = '3'", &[]).await;
        confirm(&browser, "Set").await;
        browser.shows("3 per day instead of the rules").await;
        browser.shows("1 used, 2 remaining").await;
        assert_eq!(shop.send(key, value, 3).await, 1, "{key}");
        browser.shows("3 used, 0 remaining").await;
        browser.click_when_shown("Delete the override\u{2026}").await;
        confirm(&browser, "Delete the override").await;
        browser.shows(&format!("Rule {rule}")).await;
    }
    // A limit whose condition is not met.
    go(&browser, "try", &[("domain", "shop"), ("e", "user=admin")]).await;
    browser.shows("user: limited; the limit user does not apply: its `when` does not hold").await;
    assert_eq!(shop.send("user", "admin", 2).await, 0);
    // A value that no descriptor matches: the page lists the values that match.
    go(&browser, "try", &[("domain", "shop"), ("e", "address=192.0.2.1")]).await;
    browser.shows("no descriptor here matches address=192.0.2.1; known values: (network 10.0.0.0/8)").await;
}

async fn a_ban_is_shown_with_the_time_that_is_left() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=client%3Dmallory", &shop.operate).await;
    browser.shows("0 used, 1 remaining").await;
    assert_eq!(shop.send("client", "mallory", 4).await, 3);
    browser.shows("Banned for 9").await;
    shop.go(&browser, "try?domain=shop&e=client%3Dmallory").await;
    browser.shows("banned for 9").await;
    browser.back().await;
    browser.click_when_shown("Reset\u{2026}").await;
    confirm(&browser, "Reset").await;
    browser.shows("2 counters dropped").await;
    browser.shows("0 used, 1 remaining").await;
    assert_eq!(shop.send("client", "mallory", 1).await, 0);
}

async fn limits_with_conditions_are_shown_with_their_counters() {
    const LIMITS: &str = "
- { namespace: shop, max_value: 2, seconds: 86400, name: users, conditions: ['descriptors[0].user != \"admin\"'], variables: ['descriptors[0].user'] }
- { namespace: shop, max_value: 9, seconds: 60 }
";
    let rule = "per 86400 s if descriptors[0].user != \"admin\" for each descriptors[0].user";
    let (shop, browser) = (Shop::start(LIMITS, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    assert_eq!(shop.send("user", "ann", 3).await, 1);
    shop.open(&browser, "rules", &shop.operate).await;
    browser.shows("2 rules").await;
    go(&browser, "rules", &[("domain", "shop"), ("rule", rule)]).await;
    browser.shows("2 hits admitted, 1 denied").await;
    go(&browser, "keys", &[("domain", "shop"), ("e", "user=ann")]).await;
    browser.shows("2 used, 0 remaining").await;
    browser.shows("2 used, 7 remaining").await;
    browser.click("Explain").await;
    browser.shows(&format!("limited: {rule}; per 60 s")).await;
    browser.back().await;
    browser.click_when_shown("Override\u{2026}").await;
    browser.run("document.querySelector('dialog input[name=requests0]').value = '1'", &[]).await;
    confirm(&browser, "Set").await;
    // The override begins without hits.
    browser.shows("0 used, 1 remaining").await;
    assert_eq!(shop.send("user", "ann", 2).await, 1);
    go(&browser, "what-if", &[("domain", "shop")]).await;
    browser
        .until("return document.querySelector('textarea').value.includes('namespace: shop')", "the file")
        .await;
}
