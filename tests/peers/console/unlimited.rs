//! The page of descriptors that nothing limits, with rules that would limit them; and of descriptors that state no day for their windows.

use super::{Browser, RULES, Shop, pictures::take_picture};
use serde_json::json;
use std::env;

crate::tests_with! { CHROMIUM:
    descriptors_without_a_limit_are_shown_with_a_rule_that_limits_them,
    descriptors_that_state_no_day_are_shown_with_the_days_that_their_rule_accepts,
}

/// A key that has to be escaped, except on pictures of the documentation.
fn api_key() -> &'static str {
    if env::var_os("TIDEGATE_PICTURES").is_some() { "api_key" } else { "<b>api_key</b>" }
}

async fn descriptors_without_a_limit_are_shown_with_a_rule_that_limits_them() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "unlimited", &shop.read).await;
    browser.shows("Every descriptor since the start of the server had a rule.").await;
    let server = shop.server.as_ref().expect("it runs");
    let mut client = server.client().await;
    for (domain, entries) in [
        ("shop", &[("user", "ada"), ("path", "/search")][..]),
        ("shop", &[("user", "bob"), ("path", "/cart")]),
        ("shop", &[("partner", "it is unlimited on purpose")]),
        ("checkout", &[(api_key(), "secret")]),
    ] {
        client.hit(domain, entries).await.expect("a response");
    }
    browser.shows("2 paths of keys without a limit").await;
    for text in [
        "shop: user \u{2192} path",
        "2 descriptors, first ",
        "descriptors below user have the key path with these values only: /login",
        "Most like it: user \u{2192} path=/login",
        "To limit it, add to `descriptors` of the descriptor at ",
        "- key: path\n  rate_limit:\n    unit: minute",
        "no rules have the domain checkout",
        api_key(),
    ] {
        browser.shows(text).await;
    }
    assert_eq!(browser.run("return document.querySelectorAll('main b').length", &[]).await, json!(0));
    assert!(!browser.text().await.contains("secret"), "values are not shown");
    take_picture(&browser, "unlimited").await;
    browser.write("main input[type=search]", "shop").await;
    browser.shows("1 path of keys without a limit").await;
    let address = browser.run("return location.hash", &[]).await;
    assert_eq!(address, json!("#/unlimited?domain=shop"));
    for width in [360, 1280] {
        browser.look(width, "light").await;
        let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(overflow, &[]).await, json!(0), "at {width}");
    }
}

async fn descriptors_that_state_no_day_are_shown_with_the_days_that_their_rule_accepts() {
    let rules = "
domain: shop
descriptors:
  - key: customer
    descriptors:
      - key: billing_day
        rate_limit: { requests_per_unit: 100, algorithm: fixed_window, calendar: { month: { entry: billing_day } } }
";
    let (shop, browser) = (Shop::start(rules, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "unlimited", &shop.read).await;
    browser.shows("Every descriptor since the start of the server had a rule.").await;
    let section = "return document.querySelector('main section').hidden";
    assert_eq!(browser.run(section, &[]).await, json!(true), "nothing is without a day");
    let mut client = shop.server.as_ref().expect("it runs").client().await;
    client.hit("shop", &[("customer", "ann"), ("billing_day", "secret")]).await.expect("a response");
    browser.shows("1 path of keys without a day").await;
    for text in [
        "Windows without a day",
        "shop: customer \u{2192} billing_day",
        "1 descriptor, first ",
        "the value of billing_day is no day of the month, so the windows begin on the 1st",
        "Rule: customer \u{2192} billing_day",
        "Remedy: send a day from 1 to 31 as billing_day, such as 17; or correct `entry` of the limit at ",
    ] {
        browser.shows(text).await;
    }
    assert!(!browser.text().await.contains("secret"), "values are not shown");
    for (width, scheme) in [(360, "light"), (1280, "dark")] {
        browser.look(width, scheme).await;
        let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(overflow, &[]).await, json!(0), "at {width}");
    }
}
