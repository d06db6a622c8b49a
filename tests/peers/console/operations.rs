//! Keys with most hits, overrides, blocks, decisions as they are made, and the audit log, in the console.

use super::{Browser, RULES, Shop, confirm, press};
use crate::support::eventually;
use serde_json::json;

crate::tests_with! { CHROMIUM:
    a_key_is_found_blocked_and_unblocked,
    an_override_takes_the_place_of_a_rule,
    decisions_are_shown_as_they_are_made,
    changes_of_others_and_the_audit_log_of_a_restarted_server_are_shown,
    the_value_of_a_client_is_a_text_and_no_pattern_or_network,
    a_blocked_key_shows_who_blocked_it_and_why_and_is_unblocked_there,
    an_override_takes_any_window_and_begins_with_the_limit_of_the_rule,
    an_override_begins_with_all_limits_of_the_rule_and_names_those_that_it_drops,
    a_dialog_closes_with_its_page,
}

/// The keys with most hits lead to the key, which is then blocked; the audit log shows who blocked it and why.
async fn a_key_is_found_blocked_and_unblocked() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys", &shop.operate).await;
    assert_eq!(shop.send("user", "mallory", 9).await, 6);
    browser.shows("mallory").await;
    browser.click("user=mallory").await;
    browser.shows("3 used, 0 remaining").await;
    browser.click("Block\u{2026}").await;
    confirm(&browser, "Block").await;
    assert_eq!(shop.send("user", "mallory", 1).await, 1);
    shop.go(&browser, "try?domain=shop&e=user%3Dmallory").await;
    browser.shows("denies the request").await;
    shop.go(&browser, "audit").await;
    browser.shows("SetBlock").await;
    browser.shows("token:operate").await;
    browser.shows("test of the console").await;
    shop.go(&browser, "keys").await;
    browser.click_when_shown("Delete\u{2026}").await;
    confirm(&browser, "Delete").await;
    shop.go(&browser, "audit").await;
    browser.shows("DeleteBlock").await;
}

async fn an_override_takes_the_place_of_a_rule() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    assert_eq!(shop.send("user", "ada", 4).await, 1);
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.operate).await;
    browser.shows("3 used, 0 remaining").await;
    browser.click("Override\u{2026}").await;
    browser.run("document.querySelector('dialog select[name=kind]').value = 'unlimited'", &[]).await;
    confirm(&browser, "Set").await;
    assert_eq!(shop.send("user", "ada", 9).await, 0);
    shop.go(&browser, "keys").await;
    browser.shows("unlimited").await;
    browser.click_when_shown("Delete\u{2026}").await;
    confirm(&browser, "Delete").await;
    assert_eq!(shop.send("user", "ada", 1).await, 1);
}

async fn decisions_are_shown_as_they_are_made() {
    let (mut shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "live?key=user", &shop.read).await;
    // The stream is open when a decision arrives.
    for _ in 0..100 {
        shop.send("user", "<script>ada</script>", 4).await;
        shop.send("plan", "free", 1).await;
        if browser.text().await.contains("user=<script>ada</script>") {
            break;
        }
    }
    browser.shows("user=<script>ada</script>").await;
    browser.shows("denied").await;
    assert!(!browser.text().await.contains("plan=free"), "the filter leaves it out");
    browser.click("Pause").await;
    shop.send("user", "bob", 2).await;
    browser.shows("Paused; 2 new decisions").await;
    assert!(!browser.text().await.contains("user=bob"));
    browser.click("Continue").await;
    browser.shows("user=bob").await;
    drop(shop.server.take());
    browser.shows("No connection to the server").await;
    shop.start_server(&[]);
    eventually("the stream is read again", async || {
        shop.send("user", "carol", 1).await;
        let shown = browser.text().await;
        if shown.contains("user=carol") { Ok(()) } else { Err(shown) }
    })
    .await;
}

/// Without a data directory a server that starts again has another audit log, with the same numbers.
async fn changes_of_others_and_the_audit_log_of_a_restarted_server_are_shown() {
    let (mut shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys", &shop.operate).await;
    assert_eq!(shop.send("user", "ada", 4).await, 1);
    browser.shows("user=ada").await;
    browser
        .run("document.querySelector('main table a').focus(); window.focused = document.activeElement", &[])
        .await;
    let set = "const [token, expiresIn, done] = arguments;
        const block = { id: 'other', domain: 'shop', key: 'user', value: 'mallory', reason: 'set elsewhere' };
        fetch('control/v1/SetBlock', { method: 'POST', headers: { authorization: 'Bearer ' + token, 'content-type': 'application/json' }, body: JSON.stringify({ block, expiresIn }) })
          .then((response) => done(response.status));";
    assert_eq!(browser.run_async(set, &[json!(shop.operate), json!("3s")]).await, json!(200));
    browser.shows("set elsewhere").await;
    let drawn_again = "return !window.focused.isConnected && document.activeElement.innerText === 'user=ada'";
    browser.until(drawn_again, "the key that has the focus keeps it").await;
    let gone = "return !document.body.innerText.includes('set elsewhere')";
    browser.until(gone, "what has expired disappears").await;

    assert_eq!(browser.run_async(set, &[json!(shop.operate), json!("600s")]).await, json!(200));
    shop.go(&browser, "audit").await;
    browser.shows("Expired").await;
    drop(shop.server.take());
    shop.start_server(&[]);
    browser.until(gone, "entries of the former server disappear").await;
    browser.shows("Started").await;
}

/// A client can send a `*`, which in a block or an override is a pattern unless it is escaped, and a network, which a block would extend
/// to the addresses of others.
async fn the_value_of_a_client_is_a_text_and_no_pattern_or_network() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Da*%5C", &shop.operate).await;
    browser.click_when_shown("Override\u{2026}").await;
    browser.run("document.querySelector('dialog select[name=kind]').value = 'unlimited'", &[]).await;
    confirm(&browser, "Set").await;
    assert_eq!((shop.send("user", "a*\\", 5).await, shop.send("user", "ada\\", 4).await), (0, 1));
    browser.click_when_shown("Block\u{2026}").await;
    confirm(&browser, "Block").await;
    assert_eq!((shop.send("user", "a*\\", 1).await, shop.send("user", "abe\\", 1).await), (1, 0));
    for value in ["0.0.0.0/0", "1.2.3.4/99"] {
        shop.go(&browser, &format!("keys?domain=shop&e=user%3D{}", value.replace('/', "%2F"))).await;
        browser.shows(value).await;
        browser.click_when_shown("Block\u{2026}").await;
        confirm(&browser, "Block").await;
        assert_eq!((shop.send("user", value, 1).await, shop.send("user", "192.0.2.7", 1).await), (1, 0));
    }
}

async fn a_blocked_key_shows_who_blocked_it_and_why_and_is_unblocked_there() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Dmallory", &shop.operate).await;
    browser.shows("0 used, 3 remaining").await;
    browser.click("Block\u{2026}").await;
    confirm(&browser, "Block").await;
    browser.shows("blocked").await;
    browser.shows("\u{201c}test of the console\u{201d}, by token:operate, since").await;
    browser.shows("until").await;
    assert_eq!(shop.send("user", "mallory", 1).await, 1);
    shop.go(&browser, "try?domain=shop&e=user%3Dmallory").await;
    browser.shows("denies the request, \u{201c}test of the console\u{201d}, by token:operate, until").await;
    browser.back().await;
    browser.click_when_shown("Unblock\u{2026}").await;
    confirm(&browser, "Unblock").await;
    browser.until("return !document.body.innerText.includes('blocked ')", "the block is gone").await;
    assert_eq!(shop.send("user", "mallory", 1).await, 0);
}

async fn an_override_takes_any_window_and_begins_with_the_limit_of_the_rule() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.operate).await;
    browser.shows("0 used, 3 remaining").await;
    browser.click("Override\u{2026}").await;
    let fields = "return ['requests0', 'unit0'].map((name) => document.querySelector(`dialog input[name=${name}]`).value)";
    assert_eq!(browser.run(fields, &[]).await, json!(["3", "day"]));
    browser.run("document.querySelector('dialog input[name=unit0]').value = 'fortnight'", &[]).await;
    browser.write("dialog input[name=reason]", "a typing error").await;
    press(&browser, "Set").await;
    browser
        .until(
            "return document.querySelector('dialog [role=alert]').innerText.includes('unit')",
            "the refusal",
        )
        .await;
    let set = "document.querySelector('dialog input[name=unit0]').value = '30s'; \
               document.querySelector('dialog input[name=requests0]').value = '5'";
    browser.run(set, &[]).await;
    confirm(&browser, "Set").await;
    browser.shows("5 per 30s instead of the rules").await;
    browser.shows("5 per 30 s").await;
    let windows = "const done = arguments[0]; import('/console/view.js').then(({ unit }) => done([0.5, 1.25, 30, 60].map(unit)))";
    assert_eq!(browser.run_async(windows, &[]).await, json!(["500ms", "1250ms", "30s", "minute"]));
}

/// The dialog had fields for the first limit alone, so that an override of it dropped the others without a word.
async fn an_override_begins_with_all_limits_of_the_rule_and_names_those_that_it_drops() {
    let rules = "{ domain: shop, descriptors: [{ key: user, rate_limits: [
        { name: per-hour, unit: hour, requests_per_unit: 3 }, { name: per-day, unit: day, requests_per_unit: 5 }] }] }";
    let (shop, browser) = (Shop::start(rules, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.operate).await;
    browser.shows("0 used, 5 remaining").await;
    browser.click("Override\u{2026}").await;
    let fields = "return ['requests0', 'unit0', 'requests1', 'unit1'].map((name) => document.querySelector(`dialog input[name=${name}]`).value)";
    assert_eq!(browser.run(fields, &[]).await, json!(["3", "hour", "5", "day"]));
    browser.run("document.querySelector('dialog input[name=requests0]').value = '9'", &[]).await;
    confirm(&browser, "Set").await;
    browser.shows("9 per hour, 5 per day instead of the rules").await;
    assert_eq!(shop.send("user", "ada", 6).await, 1);
    browser.click("Override\u{2026}").await;
    browser.run("document.querySelector('dialog input[name=requests1]').value = ''", &[]).await;
    confirm(&browser, "Set").await;
    browser.shows("per-day (5 per day) of user does not apply while the override is in force").await;
}

async fn a_dialog_closes_with_its_page() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.operate).await;
    browser.shows("0 used, 3 remaining").await;
    shop.go(&browser, "keys?domain=shop&e=user%3Deve").await;
    browser.shows("user=eve").await;
    browser.click_when_shown("Reset\u{2026}").await;
    browser.shows("Reset the counters of this key").await;
    browser.back().await;
    browser.shows("user=ada").await;
    browser
        .until("return !document.querySelector('dialog')", "the dialog of the page before is closed")
        .await;
}
