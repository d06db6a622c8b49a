//! The overview and the shares of a server with shared counters, and operations on these counters.

use super::{Browser, RULES, Shop, confirm, give_back_and_reset_a_key, shares};
use crate::shared_store::RedisServer;

crate::tests_with! {
    CHROMIUM, REDIS:
    the_overview_shows_the_shared_store_and_its_leases,
    an_operator_resets_shared_counters_and_gives_hits_back,
    the_part_that_a_server_has_of_a_limit_is_shown,
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
    browser.shows("Round trip in 5 min: p50").await;
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

async fn the_part_that_a_server_has_of_a_limit_is_shown() {
    let store = RedisServer::start();
    let (shop, browser) = (Shop::start(shares::RULES, &["--counters", &store.url()]), Browser::start().await);
    let reporting = shares::reports(shop.server.as_ref().expect("it runs"), 20).await;
    browser.look(1280, "light").await;
    shop.open(&browser, "shares", &shop.read).await;
    browser.shows("Part of this server").await;
    let part = "return /Part of this server\\s+[1-9][0-9.]*\\/s, [1-9][0-9]* tokens, ends in [0-9]+ s/.test(document.body.innerText)";
    browser.until(part, "its rate, its tokens and its end").await;
    browser.shows("Parts of 0 other servers").await;
    reporting.abort();
}
