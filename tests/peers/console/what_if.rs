//! The page What-if: proposed rules against recorded decisions and against a log, roles, errors.

use super::{Browser, RULES, Shop};
use serde_json::json;

crate::tests_with! { CHROMIUM:
    proposed_rules_are_compared_on_recorded_decisions,
    a_log_is_compared_and_an_error_in_the_rules_has_its_line,
    edits_of_proposed_rules_survive_other_pages,
}

/// Forty hits a minute.
const MINUTES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 40, algorithm: fixed_window } }
";

/// Ten minutes of a log, with one to four users in each, who send one request a second.
fn log() -> String {
    let line = |second: usize, user: usize| {
        let time = format!("2026-03-01T12:{:02}:{:02}Z", second / 60, second % 60);
        let entries = format!(r#"[{{"key":"user","value":"user-{user}"}}]"#);
        let descriptor = format!(
            r#"{{"entries":{entries},"hits":1,"code":"OK","limit":null,"remaining":0,"reset_ns":null}}"#
        );
        format!(r#"{{"v":1,"time":"{time}","domain":"shop","code":"OK","descriptors":[{descriptor}]}}"#)
            + "\n"
    };
    (0..600).flat_map(|second| (0..=(second / 60 % 4)).map(move |user| line(second, user))).collect()
}

/// Replaces a part of the proposed rules, like a user who edits them.
async fn edit(browser: &Browser, from: &str, to: &str) {
    browser
        .until(
            "return document.querySelector('textarea').value.includes('domain: shop')",
            "the rules in force",
        )
        .await;
    let edit = "const text = document.querySelector('textarea'); text.value = text.value.replace(arguments[0], arguments[1]); \
                text.dispatchEvent(new Event('input'))";
    browser.run(edit, &[json!(from), json!(to)]).await;
}

async fn proposed_rules_are_compared_on_recorded_decisions() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "rules?domain=shop&rule=user", &shop.read).await;
    browser.click_when_shown("What if").await;
    browser.shows("Recorded: 0 decisions").await;
    // With the rules in force nothing differs; with half the limit, some requests are denied that are admitted now.
    for user in ["ada", "<script>eve</script>", "bob\u{202e}"] {
        shop.send("user", user, 5).await;
    }
    shop.send("plan", "free", 4).await;
    browser.shows("Recorded: 19 decisions").await;
    browser.click("Compare").await;
    browser.shows("Descriptors by rule").await;
    browser.shows("0 of 0 keys").await;
    edit(&browser, "requests_per_unit: 3", "requests_per_unit: 2").await;
    browser.click("Compare").await;
    browser.shows("3 of 3 keys").await;
    browser.shows("Newly denied keys").await;
    browser.shows("user=<script>eve</script>").await;
    browser.shows("user=bob\u{27e8}U+202E\u{27e9}").await;
    let drawn = "return document.querySelector('.chart path.admitted')?.getAttribute('d').length > 20";
    browser.until(drawn, "the chart is drawn").await;

    // The address contains the choices, and the text is kept while another page is open.
    browser.run("document.querySelector('select[name=against]').value = 'RECORDED'", &[]).await;
    browser.click("Compare").await;
    browser.shows("Denied, as recorded").await;
    assert_eq!(browser.run("return location.hash", &[]).await, json!("#/what-if?against=RECORDED"));
    browser.click("user=ada").await;
    browser.shows("3 used, 0 remaining").await;
    browser.back().await;
    browser.shows("Compared with").await;
    let kept = "return document.querySelector('textarea').value.includes('requests_per_unit: 2')";
    assert_eq!(browser.run(kept, &[]).await, json!(true));
}

async fn a_log_is_compared_and_an_error_in_the_rules_has_its_line() {
    let (shop, browser) = (Shop::start(MINUTES, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "what-if?domain=shop", &shop.read).await;
    // As if chosen in a dialog of the browser, once uncompressed and once compressed.
    let choose = "const [text, done] = arguments, input = document.querySelectorAll('input[type=file]')[1];
        const put = (blob) => { const files = new DataTransfer(); files.items.add(new File([blob], 'log')); input.files = files.files;
          input.dispatchEvent(new Event('change')); done(true); };
        if (!window.packed) { window.packed = true; put(new Blob([text])); }
        else new Response(new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'))).blob().then(put);";
    for _ in 0..2 {
        edit(&browser, "requests_per_unit: 40", "requests_per_unit: 50").await;
        browser.run_async(choose, &[json!(log())]).await;
        browser.click("Compare").await;
        // Each of the 23 pairs of user and minute has 20 denials under the rules in force, and 10 under the proposed rules.
        browser.shows("Newly admitted keys").await;
        browser.shows("460 (33.3 %)").await;
        browser.shows("230 (16.7 %)").await;
        browser.shows("230 of 4 keys").await;
        browser.run("document.querySelector('main > div:last-child').replaceChildren()", &[]).await;
    }
    // With 60 hits of each key in a minute, 60 is the least limit that denies no hit.
    browser.write("input[name=suggest]", "user").await;
    browser.click("Compare").await;
    browser.shows("Limits of user").await;
    browser.shows("60 per minute").await;
    browser.shows("p50 60, p95 60, p99 60, max 60").await;
    edit(&browser, "unit: minute", "unit: eon").await;
    browser.click("Compare").await;
    browser.shows("\"eon\"").await;
    browser.shows("proposed:").await;
    edit(&browser, "unit: eon", "unit: minute").await;
    browser.click("Use the recorded decisions").await;
    browser.click("Compare").await;
    browser.shows("no decision on a domain of the proposed rules is recorded").await;
}

async fn edits_of_proposed_rules_survive_other_pages() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "what-if?domain=shop", &shop.read).await;
    edit(&browser, "requests_per_unit: 3", "requests_per_unit: 777").await;
    shop.go(&browser, "overview").await;
    browser.shows("4 rules, 3 limits").await;
    shop.go(&browser, "what-if?domain=shop").await;
    browser.shows("These are the rules as you edited them").await;
    let is_edited = "return document.querySelector('textarea').value.includes('777')";
    assert_eq!(browser.run(is_edited, &[]).await, json!(true));
    browser.click("Replace them with those in force").await;
    browser
        .until("return !document.querySelector('textarea').value.includes('777')", "the rules in force")
        .await;
}
