//! The meaning of the console's figures: bars, rates, orders, the time before a tab was opened, and narrow windows.

use super::{Browser, RULES, Shop};
use serde_json::{Value, json};

crate::tests_with! { CHROMIUM:
    a_flooded_key_has_a_full_bar_and_the_time_of_its_next_hit,
    the_rate_of_a_rule_with_two_limits_is_that_of_its_requests,
    rules_have_their_domain_and_are_ordered_by_denials,
    the_chart_begins_before_the_tab_was_opened,
    the_chart_has_the_readings_of_five_minutes_at_their_times,
    the_overview_has_the_most_denied_keys,
    a_visit_without_a_token_is_no_refused_call,
    an_address_that_was_edited_by_hand_opens_its_page,
    long_paths_of_rules_keep_their_ends_and_the_pane_is_there_when_a_rule_is_selected,
    tiles_and_rows_agree_on_hits_and_times_have_their_zone,
    a_narrow_window_keeps_the_heads_of_columns_and_breaks_no_words,
}

const BUCKET: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 60, algorithm: token_bucket } }
";

const TWO_LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limits:
      - { unit: minute, requests_per_unit: 3 }
      - { unit: hour, requests_per_unit: 5 }
";

async fn a_flooded_key_has_a_full_bar_and_the_time_of_its_next_hit() {
    let (shop, browser) = (Shop::start(BUCKET, &[]), Browser::start().await);
    shop.send("user", "ada", 90).await;
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.read).await;
    browser.shows("one more hit").await;
    assert!(!browser.text().await.contains("resets in"), "only one hit of sixty is free then");
    // Also between two readings of the server: the next hit fits after a second.
    let watch =
        "const done = arguments[0], bar = document.querySelector('.bar i'), begin = performance.now();
        let least = 100;
        requestAnimationFrame(function frame(now) {
          least = Math.min(least, Number.parseFloat(bar.style.width));
          if (now - begin < 1500) requestAnimationFrame(frame);
          else done(least);
        });";
    let least = browser.run_async(watch, &[]).await;
    assert!(least.as_f64().is_some_and(|percent| percent > 80.0), "{least} % of the bar");
}

/// Has the calls of a method return this from now on.
async fn replace_response(browser: &Browser, method: &str, response: Value) {
    let replace = "const [method, response] = arguments, real = fetch;
        window.fetch = (path, options) => String(path).endsWith(method) ? Promise.resolve(Response.json(response)) : real(path, options)";
    browser.run(replace, &[json!(method), response]).await;
}

async fn the_rate_of_a_rule_with_two_limits_is_that_of_its_requests() {
    let (shop, browser) = (Shop::start(TWO_LIMITS, &[]), Browser::start().await);
    shop.send("user", "ada", 9).await;
    browser.look(1280, "light").await;
    shop.open(&browser, "overview?domain=shop", &shop.read).await;
    browser.shows("3 in all").await;
    shop.go(&browser, "rules").await;
    browser.shows("3 per minute, 5 per hour").await;
    let limit = |requests| json!({ "requests": requests, "window": "60s", "rates": { "admitted": 12.0, "denied": 4.0 } });
    let rule = json!({ "domain": "shop", "rule": "user", "limits": [limit(3), limit(5)] });
    replace_response(&browser, "ListRules", json!({ "rules": [rule], "total": 1 })).await;
    browser.shows("12/s").await;
    browser.shows("4/s").await;
}

async fn rules_have_their_domain_and_are_ordered_by_denials() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("plan", "free", 3).await;
    shop.send("user", "ada", 7).await;
    let replies = shop.send("user", "eve", 9).await;
    assert_eq!(replies, 6);
    browser.look(1280, "light").await;
    shop.open(&browser, "rules", &shop.read).await;
    browser.shows("4 rules").await;
    let column = "return [...document.querySelectorAll('.list .item:not([hidden])')].map((row) => row.children[Number(arguments[0])].innerText.trim())";
    let domains = browser.run(column, &[json!(1)]).await;
    assert_eq!(domains, json!(["shop", "shop", "shop", "shop"]));
    let order = "const select = [...document.querySelectorAll('select')].at(-1); select.value = arguments[0]; select.dispatchEvent(new Event('change'))";
    browser.run(order, &[json!("denied")]).await;
    let first = "return document.querySelector('.list .item').firstChild.innerText.trim() === 'user' && location.hash.includes('sort=denied')";
    browser.until(first, "the rule with most denials is first").await;
    browser.run("document.querySelector('.list .item').click()", &[]).await;
    browser.shows("6 hits admitted, 10 denied").await;
}

/// 5,000 rules of tenants used to be shown as `tenant=tenant-…`, all alike.
async fn long_paths_of_rules_keep_their_ends_and_the_pane_is_there_when_a_rule_is_selected() {
    let tenant = |n: u32| format!("tenant-of-the-northern-region-with-a-long-name-{n:04}");
    let each = |n| {
        format!(
            "  - {{ key: customer_tenant, value: {}, rate_limit: {{ unit: minute, requests_per_unit: 900 }}, shadow_mode: true }}\n",
            tenant(n)
        )
    };
    let rules = format!("domain: shop\ndescriptors:\n{}", (1..=50).map(each).collect::<String>());
    let (shop, browser) = (Shop::start(&rules, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "rules", &shop.read).await;
    browser.shows("50 rules").await;
    // The texts that their cell does not cut: the text after the part that may be cut, and whole cells.
    let row = "const cells = [...document.querySelectorAll('.list .item:not([hidden])')].at(arguments[0]).children;
        const fits = (cell) => cell.scrollWidth <= cell.clientWidth;
        const [path, part] = [cells[0].firstElementChild, cells[0].querySelector('.middle > span')];
        return [path.lastChild.data.slice(-4), fits(path), fits(part), fits(cells[2]), fits(cells[6]), document.querySelector('.split > .card').hidden]";
    let whole = browser.run(row, &[json!(1)]).await;
    assert_eq!(whole, json!(["0002", true, false, true, true, true]));
    browser.run("document.querySelector('.list .item').click()", &[]).await;
    let shown = browser.run(row, &[json!(2)]).await;
    assert_eq!(shown, json!(["0003", true, false, true, true, false]));
    browser.shows(&tenant(1)).await;
    // Escape.
    browser.write(".list", "\u{e00c}").await;
    assert_eq!(browser.run(row, &[json!(1)]).await, whole);
    let address = browser.run("return location.hash", &[]).await;
    assert_eq!(address, json!("#/rules"));
}

/// The tile counts requests, and also hits, like the rows of domains.
async fn tiles_and_rows_agree_on_hits_and_times_have_their_zone() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("partner", "acme", 5).await;
    browser.look(1280, "light").await;
    shop.open(&browser, "overview", &shop.read).await;
    // 10 requests a second, which are 30 hits: 20 of one domain, 10 of the other.
    let advance = "const real = fetch; let readings = 0;
        const domain = (domain, hits) => ({ domain, rules: 1, hits: { admitted: String(hits) } });
        const status = (n) => ({ now: new Date(Date.UTC(2026, 6, 1, 12) + 1000 * n).toISOString(), started: '2026-07-01T10:00:00Z', role: 'READ',
          decisions: { admitted: String(10 * n) }, rules: { loaded: '2026-07-01T10:00:00Z' }, domains: [domain('shop', 20 * n), domain('ads', 10 * n)] });
        window.fetch = (path, options) => String(path).endsWith('Status') ? Promise.resolve(Response.json(status(readings += 2))) : real(path, options)";
    browser.run(advance, &[]).await;
    for shown in ["30 hits/s in all domains", "10/s", "20/s", "Admitted requests", "Admitted hits"] {
        browser.shows(shown).await;
    }
    let zone = "return new Intl.DateTimeFormat('en-GB', { timeZoneName: 'short' }).formatToParts(new Date('2026-07-01T10:00:00Z')).at(-1).value";
    let zone = browser.run(zone, &[]).await;
    let zone = zone.as_str().expect("a zone");
    let loaded = browser.text().await;
    assert!(loaded.lines().any(|line| line.contains("Jul 2026, ") && line.contains(zone)), "{loaded}");
}

async fn the_chart_begins_before_the_tab_was_opened() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("partner", "acme", 50).await;
    // The server has two readings after these requests.
    let response = |points: &Value| points["points"].as_array().map_or(0, Vec::len);
    shop.open(&browser, "overview", &shop.read).await;
    let read = "const done = arguments.at ? arguments.at(-1) : arguments[arguments.length - 1];
        fetch('control/v1/History', { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${sessionStorage.getItem('tidegate-token')}` }, body: '{}' })
          .then((response) => response.json()).then(done)";
    let mut kept = 0;
    while kept < 4 {
        kept = response(&browser.run_async(read, &[]).await);
    }
    // Like a tab that is opened now: its first chart has lines over several readings.
    browser.run("location.reload()", &[]).await;
    let points = "const path = document.querySelector('.chart path.admitted'); return path ? path.getAttribute('d').split('L').length > 4 : false";
    browser.until(points, "a chart of the time before").await;
    let own = "return performance.now() < 6000";
    assert_eq!(browser.run(own, &[]).await, json!(true), "the tab itself has three readings at most");
}

/// A hidden tab reads seldom: readings of hours were at equal distances, from "5 min ago" to "now".
async fn the_chart_has_the_readings_of_five_minutes_at_their_times() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "overview", &shop.read).await;
    let seconds = "const done = arguments[arguments.length - 1];
        import(`${location.origin}/console/chart.js`).then(({ Chart, recent }) => {
          const kept = recent([-7200, -400, -299, -100, 0].map((second) => ({ at: 1e12 + 1000 * second })));
          const chart = new Chart('of the test');
          document.body.append(chart.element);
          chart.update([['shadow', 'hits', kept.map(() => 1)]], { from: '5 min ago', to: 'now', times: kept.map(({ at }) => at) });
          const width = Number(chart.svg.getAttribute('viewBox').split(' ')[2]);
          const left = Number(chart.svg.querySelector('path.axis').getAttribute('d').slice(1).split(' ')[0]);
          const points = chart.svg.querySelector('path.shadow').getAttribute('d').slice(1).split('L');
          done(points.map((point) => Math.round(300 * (Number(point.split(' ')[0]) - width) / (width - left))));
        }).catch((error) => done(String(error)))";
    assert_eq!(browser.run_async(seconds, &[]).await, json!([-299, -100, 0]));
}

async fn the_overview_has_the_most_denied_keys() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("user", "mallory", 9).await;
    shop.open(&browser, "overview", &shop.read).await;
    browser.shows("Most denied keys of the last minute").await;
    browser.click_when_shown("user=mallory").await;
    browser.shows("3 used, 0 remaining").await;
    // The sum under the list is not that of the chosen domain.
    shop.go(&browser, "keys?domain=shop").await;
    browser.shows("6 hits of all domains and rules in").await;
}

async fn a_visit_without_a_token_is_no_refused_call() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.open(&shop.address("overview")).await;
    browser.shows("Bearer token").await;
    browser.open("about:blank").await;
    shop.open(&browser, "audit", &shop.read).await;
    browser.shows("Started").await;
    let text = browser.text().await;
    assert!(!text.contains("UNAUTHENTICATED"), "{text}");
}

async fn an_address_that_was_edited_by_hand_opens_its_page() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "overview", &shop.read).await;
    for (address, text) in
        [("keys?e=%25zz", "%zz"), ("keys?e=user", "user"), ("try?d=%25zz", "Try a request")]
    {
        shop.go(&browser, address).await;
        browser.until("return document.querySelector('main h1') !== null", address).await;
        browser.shows(text).await;
    }
}

async fn a_narrow_window_keeps_the_heads_of_columns_and_breaks_no_words() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("user", "mallory", 9).await;
    browser.look(390, "light").await;
    shop.open(&browser, "rules", &shop.read).await;
    browser.shows("4 rules").await;
    let heads = "return [...document.querySelectorAll('.columns span')].filter((head) => head.offsetParent).map((head) => head.innerText)";
    assert_eq!(browser.run(heads, &[]).await, json!(["Rule", "Admitted hits", "Denied hits"]));
    shop.go(&browser, "live").await;
    browser.shows("decisions a second").await;
    assert_eq!(browser.run(heads, &[]).await, json!(["Decision", "Descriptors", "Remaining"]));
    for page in ["overview", "keys"] {
        shop.go(&browser, page).await;
        browser.shows("mallory").await;
        let lines = "return Math.max(...[...document.querySelectorAll('td bdi')].map((text) => text.getBoundingClientRect().height))";
        let height = browser.run(lines, &[]).await;
        assert!(height.as_f64().is_some_and(|height| height < 30.0), "{page}: a word takes {height} px");
    }
}
