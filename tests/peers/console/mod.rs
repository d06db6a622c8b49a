//! The console of a real server, in Chromium: every page and action, roles, reconnecting, hostile texts, accessibility, many rules.

pub mod browser;
pub mod failures;
pub mod figures;
pub mod load;
pub mod operations;
pub mod pictures;
pub mod rule_keys;
pub mod shared;
pub mod shares;
pub mod unlimited;
pub mod what_if;

use crate::support::{Server, descriptor, rules_file};
use browser::Browser;
use serde_json::{Value, json};
use std::{fs, path::PathBuf, process::Command};
use tempfile::{NamedTempFile, TempDir};
use tidegate::api::pb::service::RateLimitRequest;

crate::tests_with! { CHROMIUM:
    every_page_shows_the_server_and_the_address_leads_back_to_it,
    an_operator_resets_the_counters_of_a_key_and_of_a_rule_and_gives_hits_back,
    a_reader_sees_no_action,
    a_wrong_token_is_refused_and_a_right_one_is_asked_for,
    a_link_with_a_token_opens_the_console_and_leaves_none_in_the_address,
    pages_continue_after_a_restart_of_the_server,
    texts_of_clients_are_never_markup,
    ten_thousand_rules_are_a_list_of_few_elements,
    a_text_that_is_no_token_is_refused_in_the_form,
    the_list_of_rules_and_the_open_rule_follow_a_reload,
}

/// The accessibility tests, which need axe-core beside the browser.
pub mod accessibility {
    use super::*;

    crate::tests_with! { CHROMIUM, AXE: no_page_has_an_accessibility_violation }

    async fn no_page_has_an_accessibility_violation() {
        let axe = fs::read_to_string(axe_path().expect("the peer is here")).expect("a script");
        let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
        shop.send("user", "ada", 5).await;
        shop.open(&browser, "overview", &shop.operate).await;
        for (page, text) in PAGES {
            for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light")] {
                browser.look(width, scheme).await;
                shop.go(&browser, page).await;
                browser.shows(text).await;
                browser.run(&axe, &[]).await;
                let run = "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then((result) => \
                           done(result.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' '))))";
                let violations = browser.run_async(run, &[]).await;
                assert_eq!(violations, json!([]), "{page} at {width}, {scheme}");
            }
        }
    }
}

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors:
      - { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: plan, value: free, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: partner, rate_limit: { unlimited: true } }
";

/// Pages with a text that each shows once it has read the server.
const PAGES: [(&str, &str); 10] = [
    ("overview", "4 rules, 3 limits"),
    ("rules", "4 rules"),
    ("keys", "Overrides"),
    ("keys?domain=shop&e=user%3Dada", "3 used, 0 remaining"),
    ("try?domain=shop&e=user%3Dada", "tidegate call shop user=ada"),
    ("live", "decisions a second"),
    ("unlimited", "Every descriptor since the start of the server had a rule."),
    ("shares", "0 buckets, 0 streams"),
    ("what-if?domain=shop", "Recorded: "),
    ("audit", "Started"),
];

/// The script of axe-core: at `TIDEGATE_AXE`.
pub fn axe_path() -> Option<PathBuf> {
    std::env::var_os("TIDEGATE_AXE").map(PathBuf::from).filter(|path| path.is_file())
}

/// A server with the console, and a token of each role.
struct Shop {
    server: Option<Server>,
    port: u16,
    read: String,
    operate: String,
    rules: NamedTempFile,
    folder: TempDir,
}

impl Shop {
    fn start(rules: &str, args: &[&str]) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(rules));
        let tokens = folder.path().join("tokens");
        let [read, operate] = ["read", "operate"].map(|role| {
            let made = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(["token", role, "--role", role, "--file"])
                .arg(&tokens)
                .output()
                .expect("the command runs");
            String::from_utf8(made.stdout).expect("text").trim().to_owned()
        });
        let mut shop = Self { server: None, port: 0, read, operate, rules, folder };
        shop.start_server(args);
        shop
    }

    /// Starts the server, on the port that it had before.
    fn start_server(&mut self, args: &[&str]) {
        let tokens = self.folder.path().join("tokens");
        let listen = format!("127.0.0.1:{}", self.port);
        let console = ["--http-listen", &listen, "--control", "loopback", "--console", "--http-token-file"];
        let tokens = [tokens.to_str().expect("UTF-8")];
        let server = Server::with_rules(self.rules.path(), &[&console[..], &tokens, args].concat());
        self.port = server.admin_port();
        self.server = Some(server);
    }

    fn address(&self, page: &str) -> String {
        format!("http://127.0.0.1:{}/console#/{page}", self.port)
    }

    /// Opens a page as a user who has entered a token.
    async fn open(&self, browser: &Browser, page: &str, token: &str) {
        browser.open(&self.address(page)).await;
        browser.shows("Bearer token").await;
        browser.enter_token(token).await;
        browser.shows("Forget the token").await;
    }

    /// Opens another page by its address, in the same tab.
    async fn go(&self, browser: &Browser, page: &str) {
        browser.open(&self.address(page)).await;
    }

    /// Sends requests with one entry; returns the number of denials.
    async fn send(&self, key: &str, value: &str, count: usize) -> usize {
        let mut client = self.server.as_ref().expect("it runs").client().await;
        let mut denied = 0;
        for _ in 0..count {
            let descriptors = vec![descriptor(&[(key, value)])];
            let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
            let response = client.0.should_rate_limit(request).await.expect("a decision").into_inner();
            denied += usize::from(response.overall_code == 2);
        }
        denied
    }
}

/// The bytes of a text in base64.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 6 | u32::from(digit(*byte)));
        let bits = bits << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    text.chunks(4).flat_map(group).collect()
}

async fn every_page_shows_the_server_and_the_address_leads_back_to_it() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    assert_eq!(shop.send("user", "ada", 7).await, 4);
    shop.send("plan", "free", 3).await;
    shop.send("partner", "acme", 4).await;
    browser.look(1280, "light").await;
    shop.open(&browser, "overview", &shop.read).await;
    browser.shows("4 rules, 3 limits").await;
    browser.shows("Denied").await;
    browser.shows("10 in all").await;

    browser.click("Rules").await;
    browser.shows("4 rules").await;
    browser.run("document.querySelector('.list .item').click()", &[]).await;
    browser.shows("3 hits admitted, 4 denied").await;
    let address = browser.run("return location.href", &[]).await;
    assert!(address.as_str().is_some_and(|address| address.contains("rule=user")), "{address}");
    browser.open("about:blank").await;
    browser.open(address.as_str().expect("an address")).await;
    browser.shows("3 hits admitted, 4 denied").await;

    // The keyboard: a digit opens a page, and a slash moves to its search field.
    browser.run("document.querySelector('main').focus()", &[]).await;
    browser.write("main", "3").await;
    browser.shows("Find a key").await;
    browser.write("input[aria-label='Entry: key']", "user").await;
    browser.write("input[aria-label='Entry: value']", "ada").await;
    browser.click("Show its counters").await;
    browser.shows("3 used, 0 remaining").await;
    browser.click("Explain").await;
    browser.shows("tidegate call shop user=ada").await;
    browser.shows("grpcurl -plaintext").await;
    browser.shows("denied").await;
    browser.back().await;
    browser.shows("3 used, 0 remaining").await;

    let origins =
        "return performance.getEntriesByType('resource').every((one) => new URL(one.name).origin === origin)";
    assert_eq!(browser.run(origins, &[]).await, json!(true));
    for width in [360, 390, 768, 3840] {
        browser.look(width, "light").await;
        for (page, text) in PAGES {
            shop.go(&browser, page).await;
            browser.shows(text).await;
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.run(overflow, &[]).await, json!(0), "{page} at {width}");
        }
    }
}

/// Confirms a dialog with a reason, and waits until it is closed.
async fn confirm(browser: &Browser, verb: &str) {
    browser.write("dialog input[name=reason]", "test of the console").await;
    press(browser, verb).await;
    browser.until("return !document.querySelector('dialog')", "the dialog closes").await;
}

/// Presses the button of a dialog.
async fn press(browser: &Browser, verb: &str) {
    let press =
        "[...document.querySelectorAll('dialog button')].find((e) => e.innerText === arguments[0]).click()";
    browser.run(press, &[json!(verb)]).await;
}

/// Gives a hit back to a key that has used three of three, and resets the key, on the page of keys.
async fn give_back_and_reset_a_key(shop: &Shop, browser: &Browser) {
    assert_eq!(shop.send("user", "ada", 5).await, 2);
    shop.open(browser, "keys?domain=shop&e=user%3Dada", &shop.operate).await;
    browser.shows("3 used, 0 remaining").await;
    browser.click("Give back…").await;
    confirm(browser, "Give back").await;
    browser.shows("1 hit given back").await;
    browser.shows("2 used, 1 remaining").await;
    assert_eq!(shop.send("user", "ada", 2).await, 1);
    browser.click("Reset…").await;
    confirm(browser, "Reset").await;
    browser.shows("1 counter dropped").await;
    browser.shows("0 used, 3 remaining").await;
}

async fn an_operator_resets_the_counters_of_a_key_and_of_a_rule_and_gives_hits_back() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    give_back_and_reset_a_key(&shop, &browser).await;
    assert_eq!(shop.send("user", "ada", 3).await, 0);

    // Resets the whole rule; without a reason nothing is sent.
    shop.go(&browser, "rules?domain=shop&rule=user").await;
    browser.click_when_shown("Reset counters…").await;
    press(&browser, "Reset").await;
    assert_eq!(shop.send("user", "ada", 1).await, 1);
    confirm(&browser, "Reset").await;
    browser.shows("1 counter dropped").await;
    assert_eq!(shop.send("user", "ada", 1).await, 0);
}

async fn a_reader_sees_no_action() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.read).await;
    browser.shows("0 used, 3 remaining").await;
    browser.shows("read only").await;
    shop.go(&browser, "rules?rule=user").await;
    browser.shows("Top keys").await;
    let actions = "return [...document.querySelectorAll('button')].map((e) => e.innerText).filter((text) => text.endsWith('…'))";
    assert_eq!(browser.run(actions, &[]).await, json!([]));
}

async fn a_wrong_token_is_refused_and_a_right_one_is_asked_for() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.open(&shop.address("rules")).await;
    browser.shows("Bearer token").await;
    browser.enter_token("tidegate_wrong").await;
    browser
        .until(
            "return document.querySelector('[role=alert]')?.innerText.startsWith('The server does not know this token')",
            "the refusal is shown",
        )
        .await;
    assert!(!browser.text().await.contains("Path contains"), "no page without a role");
    browser.enter_token(&shop.read).await;
    browser.shows("4 rules").await;

    // The file loses the token: the next call is refused, and the form replaces the page.
    let tokens = shop.folder.path().join("tokens");
    let text = fs::read_to_string(&tokens).expect("a file");
    let kept: Vec<&str> = text.lines().filter(|line| line.starts_with("operate:")).collect();
    fs::write(&tokens, kept.join("\n") + "\n").expect("written");
    browser.shows("Bearer token").await;
}

async fn a_link_with_a_token_opens_the_console_and_leaves_none_in_the_address() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.open(&format!("http://127.0.0.1:{}/console#token={}", shop.port, shop.read)).await;
    browser.shows("4 rules, 3 limits").await;
    assert_eq!(browser.run("return location.href.includes('tidegate_')", &[]).await, json!(false));
}

/// The browser cannot send it in a header, and the page showed that there is no connection; a part of an address left the page blank.
async fn a_text_that_is_no_token_is_refused_in_the_form() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.open(&shop.address("rules")).await;
    browser.shows("Bearer token").await;
    browser.enter_token("tidegate_\u{142}").await;
    browser.shows("This is not a token: it has characters that no token has. Copy it again.").await;
    for part in ["%", "%C5%82"] {
        browser.open("about:blank").await;
        browser.open(&format!("http://127.0.0.1:{}/console#token={part}", shop.port)).await;
        browser.shows("Bearer token").await;
    }
    browser.enter_token(&shop.read).await;
    browser.shows("4 rules, 3 limits").await;
}

/// The list kept its length, and rows of the former rules beyond it; the open rule was never drawn again.
async fn the_list_of_rules_and_the_open_rule_follow_a_reload() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "rules?rule=user", &shop.read).await;
    browser.shows("4 rules").await;
    browser.shows("Top keys").await;
    browser.run("document.querySelector('.split > .card a').focus()", &[]).await;
    let reload = |rules: &str| {
        fs::write(shop.rules.path(), rules).expect("written");
        shop.server.as_ref().expect("it runs").signal(rustix::process::Signal::HUP);
    };
    let first = "descriptors:\n  - { key: account, rate_limit: { unit: day, requests_per_unit: 2 } }";
    reload(
        &RULES
            .replace("descriptors:\n  - key: user", &format!("{first}\n  - key: user"))
            .replace("unit: 3 }", "unit: 7 }"),
    );
    browser.shows("5 rules").await;
    let drawn = "const shown = (cell) => cell.innerText.replace(/\\s/g, '');
        const rows = [...document.querySelectorAll('.list .item:not([hidden])')].map((row) => shown(row.firstElementChild));
        return rows.length === 5 && rows[0] === 'account' && document.querySelector('.split > .card').innerText.includes('7 per day')
          && document.querySelector('.list .item[aria-selected=true]').innerText.includes('7 per day') && document.activeElement.innerText === 'Top keys'";
    browser.until(drawn, "the rules after the reload, with the focus where it was").await;
    reload(
        "{ domain: shop, descriptors: [{ key: account, rate_limit: { unit: day, requests_per_unit: 2 } }] }",
    );
    browser.shows("1 rule").await;
    let closed = "return document.querySelector('.split > .card').hidden && document.querySelectorAll('.list .item:not([hidden])').length === 1";
    browser.until(closed, "the open rule is gone").await;
}

async fn pages_continue_after_a_restart_of_the_server() {
    let (mut shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.send("user", "ada", 3).await;
    shop.open(&browser, "keys?domain=shop&e=user%3Dada", &shop.read).await;
    browser.shows("3 used, 0 remaining").await;
    drop(shop.server.take());
    browser.shows("No connection to the server").await;
    shop.start_server(&[]);
    browser.shows("0 used, 3 remaining").await;
    browser.until("return document.getElementById('connection').hidden", "the message disappears").await;
}

async fn texts_of_clients_are_never_markup() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "overview", &shop.operate).await;
    let values = [
        "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">".to_owned(),
        "a\u{202e}gnp.exe\u{2066}\u{200b}\u{0}".to_owned(),
        "x".repeat(8_192),
        "' onfocus=alert(1) autofocus x='".to_owned(),
    ];
    for value in &values {
        for page in ["keys", "try"] {
            let open = "location.hash = '#/' + arguments[0] + '?' + new URLSearchParams([['domain', 'shop'], ['e', 'user=' + arguments[1]]])";
            browser.run(open, &[json!(page), json!(value)]).await;
            browser.shows(if page == "keys" { "used, " } else { "The decision now" }).await;
            let text = browser.text().await;
            for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{0}'] {
                assert!(!text.contains(hidden), "{page}: {hidden:?} of {value:?} is shown as it is");
            }
            let markup = "return [document.title, document.querySelectorAll('main script, main img, main [onfocus]').length]";
            let [title, elements] =
                serde_json::from_value::<[Value; 2]>(browser.run(markup, &[]).await).expect("two");
            assert!(title != "taken" && elements == 0, "{page}: {value:?}");
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(browser.run(overflow, &[]).await, json!(0), "{page}: {} characters", value.len());
        }
    }
}

async fn ten_thousand_rules_are_a_list_of_few_elements() {
    let each = |n: u32| {
        format!("  - {{ key: tenant, value: t{n}, rate_limit: {{ unit: hour, requests_per_unit: {n} }} }}\n")
    };
    let rules = format!("domain: shop\ndescriptors:\n{}", (1..=10_000).map(each).collect::<String>());
    let (shop, browser) = (Shop::start(&rules, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "rules", &shop.read).await;
    browser.shows("10,000 rules").await;
    // Scrolls through the whole list, a step in each frame, and measures the frames.
    let scroll = "const done = arguments[0], list = document.querySelector('.list'), times = [];
        let [last, step] = [performance.now(), 0], most = 0;
        requestAnimationFrame(function frame(now) {
          times.push(now - last); last = now; step += 1;
          list.scrollTop = step * list.scrollHeight / 120;
          most = Math.max(most, document.querySelectorAll('.item').length);
          if (step < 120) requestAnimationFrame(frame);
          else done([most, times.sort((a, b) => a - b)]);
        });";
    let measured = browser.run_async(scroll, &[]).await;
    let [most, times] = serde_json::from_value::<[Value; 2]>(measured).expect("two");
    let times: Vec<f64> = serde_json::from_value(times).expect("numbers");
    eprintln!(
        "frames while 10,000 rules are scrolled: p50 {:.1} ms, p95 {:.1} ms, max {:.1} ms",
        times[60], times[114], times[119]
    );
    assert!(most.as_u64().is_some_and(|most| most < 100), "{most} elements");
    browser.shows("tenant=t10000").await;
    let filter = "const input = document.querySelector('input[type=search]'); input.value = 't9999'; input.dispatchEvent(new Event('input'))";
    browser.run(filter, &[]).await;
    browser.shows("\n1 rule").await;
}
