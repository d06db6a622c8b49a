//! Calls that the server refuses or does not answer, as the console shows them.

use super::{Browser, RULES, Shop};
use rustix::process::Signal;
use serde_json::json;
use std::process::Command;

crate::tests_with! { CHROMIUM:
    a_refusal_is_shown_with_the_reason_of_the_server,
    the_header_names_the_caller_of_the_next_token,
    a_server_that_hangs_is_reported,
    a_silent_stream_of_decisions_is_opened_anew,
}

/// Every 403 was explained by a token without a role, and texts of the port were left out.
async fn a_refusal_is_shown_with_the_reason_of_the_server() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    let tokens = shop.folder.path().join("tokens");
    let made =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["token", "plain", "--file"]).arg(tokens).output();
    let plain = String::from_utf8(made.expect("the command runs").stdout).expect("text");
    shop.server.as_ref().expect("it runs").logged("HTTP tokens reloaded");
    browser.open(&shop.address("rules")).await;
    browser.shows("Bearer token").await;
    browser.enter_token(plain.trim()).await;
    browser.shows("token:plain has the role none; the method needs read").await;

    let call = "const [token, done] = arguments;
        sessionStorage.setItem('tidegate-token', token);
        import('/console/api.js').then(({ call }) => call('Status', { text: 'x'.repeat(600000) })).catch((error) => done(error.message))";
    let message = browser.run_async(call, &[json!(shop.read)]).await;
    assert_eq!(message, "the body is longer than the 524288 bytes of --http-max-body-bytes");
}

/// The header stayed empty until the page was loaded again.
async fn the_header_names_the_caller_of_the_next_token() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "rules", &shop.read).await;
    browser.shows("token:read, read only").await;
    browser.run("sessionStorage.setItem('tidegate-token', 'tidegate_revoked')", &[]).await;
    browser.shows("The server does not know this token").await;
    browser.enter_token(&shop.operate).await;
    browser.shows("token:operate, operate").await;
}

/// The system accepts connections of a stopped process: no call failed, and the page showed its last figures.
async fn a_server_that_hangs_is_reported() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "overview", &shop.read).await;
    let server = shop.server.as_ref().expect("it runs");
    server.signal(Signal::STOP);
    let hasten = "window.patient = AbortSignal.timeout; AbortSignal.timeout = (ms) => patient.call(AbortSignal, ms / 100)";
    browser.run(hasten, &[]).await;
    browser.shows("No connection to the server (the server does not respond)").await;
    browser.run("AbortSignal.timeout = patient", &[]).await;
    server.signal(Signal::CONT);
    browser.until("return document.getElementById('connection').hidden", "the message disappears").await;
}

async fn a_silent_stream_of_decisions_is_opened_anew() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    shop.open(&browser, "overview", &shop.read).await;
    // 45 s pass at once.
    let hasten = "const [real, timer] = [fetch, setTimeout];
        window.streams = 0;
        window.fetch = (path, options) => { streams += String(path).endsWith('Tail'); return real(path, options); };
        window.setTimeout = (act, ms) => timer(act, ms === 45000 ? 50 : ms)";
    browser.run(hasten, &[]).await;
    shop.go(&browser, "live").await;
    browser.until("return streams > 1", "another stream").await;
}
