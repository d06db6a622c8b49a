//! The pages while clients send requests; with `TIDEGATE_PICTURES`, the pictures of the documentation.

use super::{Browser, Shop, confirm, from_base64};
use crate::support::{Client, descriptor};
use serde_json::json;
use std::{env, fs, path::Path, time::Duration};
use tidegate::api::pb::service::RateLimitRequest;
use tokio::time::{MissedTickBehavior, interval, sleep};

crate::tests_with! { CHROMIUM: pages_show_a_shop_under_load }

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 900 }
    descriptors:
      - { key: path, value: /login, rate_limit: { unit: minute, requests_per_unit: 40, algorithm: sliding_log } }
      - { key: path, value: /search*, rate_limit: { per: 10s, requests_per_unit: 60 } }
  - { key: plan, value: free, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 400 } }
  - { key: export, rate_limit: { unit: minute, requests_per_unit: 30, algorithm: leaky_bucket, burst: 5 } }
  - { key: partner, rate_limit: { unlimited: true } }
";

/// Users, the first of whom send most.
const USERS: [&str; 10] = ["mallory", "ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivan"];

/// The descriptors of a request.
fn descriptors(number: usize) -> Vec<Vec<(&'static str, &'static str)>> {
    // The squares of a sequence without repetition in 997 steps: small numbers are more frequent.
    let share = (number * 619 % 997) as f64 / 997.0;
    let user = USERS[(share * share * share * USERS.len() as f64) as usize];
    match number % 7 {
        0 => vec![vec![("user", user)], vec![("user", user), ("path", "/login")]],
        1 | 2 => vec![vec![("user", user)], vec![("user", user), ("path", "/search?q=shoes")]],
        3 => vec![vec![("user", user)], vec![("plan", "free")]],
        4 if number.is_multiple_of(3) => vec![vec![("export", user)]],
        5 if number.is_multiple_of(2) => vec![vec![("partner", "acme")]],
        _ => vec![vec![("user", user)]],
    }
}

/// Sends requests until it is aborted, in waves.
async fn send(mut client: Client) {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_usize.. {
        ticks.tick().await;
        let wave = 1.0 + (number as f64 / 400.0).sin();
        for part in 0..1 + (wave * 2.0) as usize {
            let descriptors =
                descriptors(number * 5 + part).iter().map(|entries| descriptor(entries)).collect();
            let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
            client.0.should_rate_limit(request).await.expect("a decision");
        }
    }
}

/// Writes a picture of the page if `TIDEGATE_PICTURES` names a folder.
pub async fn take_picture(browser: &Browser, name: &str) {
    let Some(folder) = env::var_os("TIDEGATE_PICTURES") else { return };
    browser.run("scrollTo(0, 0)", &[]).await;
    browser.until("return !document.getElementById('notice').textContent", "no notice covers the page").await;
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.look(width, scheme).await;
        sleep(Duration::from_millis(300)).await;
        let path = Path::new(&folder).join(format!("{name}-{width}-{scheme}.png"));
        fs::write(path, from_base64(&browser.picture().await)).expect("written");
    }
    browser.look(1280, "light").await;
}

/// Waits for a history that is worth a picture.
async fn history(seconds: u64) {
    if env::var_os("TIDEGATE_PICTURES").is_some() {
        sleep(Duration::from_secs(seconds)).await;
    }
}

async fn pages_show_a_shop_under_load() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    let client = shop.server.as_ref().expect("it runs").client().await;
    let load = tokio::spawn(send(client));
    browser.look(1280, "light").await;
    shop.open(&browser, "overview", &shop.operate).await;
    history(270).await;
    let drawn = "return document.querySelector('.chart path.denied')?.getAttribute('d').length > 20";
    browser.until(drawn, "the chart is drawn").await;
    take_picture(&browser, "overview").await;

    shop.go(&browser, "rules?domain=shop").await;
    browser.shows("/login").await;
    browser.run("document.querySelectorAll('.list .item')[1].click()", &[]).await;
    browser.shows("hits admitted").await;
    take_picture(&browser, "rules").await;

    shop.go(&browser, "keys").await;
    browser.shows("user=mallory").await;
    take_picture(&browser, "top").await;
    shop.go(&browser, "keys?domain=shop&e=user%3Dmallory&e=path%3D%2Flogin").await;
    browser.shows("0 remaining").await;
    take_picture(&browser, "keys").await;
    browser.click("Block\u{2026}").await;
    confirm(&browser, "Block").await;
    shop.go(&browser, "keys?domain=shop&e=user%3Dcleo").await;
    browser.click_when_shown("Override\u{2026}").await;
    browser.run("document.querySelector('dialog select[name=kind]').value = 'unlimited'", &[]).await;
    confirm(&browser, "Set").await;

    shop.go(&browser, "try?domain=shop&e=user%3Dmallory&e=path%3D%2Flogin").await;
    browser.shows("denies the request").await;
    take_picture(&browser, "try").await;

    shop.go(&browser, "live").await;
    browser.shows("mallory").await;
    take_picture(&browser, "live").await;

    shop.go(&browser, "audit").await;
    browser.shows("SetOverride").await;
    take_picture(&browser, "audit").await;

    shop.go(&browser, "what-if?domain=shop").await;
    let loaded = "return document.querySelector('textarea').value.includes('domain: shop')";
    browser.until(loaded, "the rules in force").await;
    history(60).await;
    let edit = "const text = document.querySelector('textarea'); text.value = text.value.replace(arguments[0], arguments[1]); \
                text.dispatchEvent(new Event('input'))";
    browser.run(edit, &[json!("requests_per_unit: 900"), json!("requests_per_unit: 60")]).await;
    browser.click("Compare").await;
    browser.shows("Descriptors by rule").await;
    take_picture(&browser, "what-if").await;
    assert!(!load.is_finished(), "every request was decided");
    load.abort();
}
