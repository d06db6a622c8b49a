//! The overview of a server with shared counters, and operations on them.

use super::{Browser, RULES, Shop, confirm, give_back_and_reset_a_key};
use crate::shared_store::RedisServer;

crate::tests_with! {
    CHROMIUM, REDIS:
    the_overview_shows_the_shared_store_and_its_leases,
    an_operator_resets_shared_counters_and_gives_hits_back,
}

async fn the_overview_shows_the_shared_store_and_its_leases() {
    let redis = RedisServer::start();
    let url = redis.url();
    let shop = Shop::start(RULES, &["--counters", &url, "--counters-timeout", "2s", "--lease", "auto"]);
    let browser = Browser::start().await;
    assert_eq!(shop.send("user", "ada", 4).await, 1);
    shop.open(&browser, "overview", &shop.read).await;
    browser.shows("Store of shared counters").await;
    browser.shows("reachable").await;
    browser.shows("1 server").await;
    browser.shows("Round trip: p50").await;
    browser.shows("0 failed (0.0 %)").await;
    browser.shows("with credits").await;
    drop(redis);
    shop.send("user", "ada", 2).await;
    browser.shows("not reachable").await;
    browser.shows("1 outage").await;
}

async fn an_operator_resets_shared_counters_and_gives_hits_back() {
    let redis = RedisServer::start();
    let url = redis.url();
    let shop = Shop::start(RULES, &["--counters", &url, "--counters-timeout", "2s"]);
    let browser = Browser::start().await;
    give_back_and_reset_a_key(&shop, &browser).await;
    assert_eq!(shop.send("user", "ada", 4).await, 1);

    shop.go(&browser, "rules?domain=shop&rule=user").await;
    browser.click_when_shown("Reset counters…").await;
    confirm(&browser, "Reset").await;
    browser.shows("Reset here, and within a second on all servers").await;
    assert_eq!(shop.send("user", "ada", 4).await, 1);
}
