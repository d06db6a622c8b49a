//! The page Live under a thousand decisions a second: what the main thread of the browser does.

#![expect(clippy::disallowed_methods, reason = "the time of a real browser is measured")]

use super::{Browser, RULES, Shop};
use crate::support::descriptor;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

crate::tests_with! { CHROMIUM: a_thousand_decisions_a_second_leave_the_page_idle_most_of_the_time }

const CLIENTS: u32 = 10;
/// Decisions of each client.
const DECISIONS: u32 = 400;
/// Pause between two decisions of a client: a hundred a second.
const PACE: Duration = Duration::from_millis(10);
/// Processor seconds of the main thread for one decision, many times what an idle machine takes. A thousand decisions a second then
/// take a fifth of its time.
const SECONDS_PER_DECISION_MAX: f64 = 0.000_2;

impl Shop {
    /// Sends as many decisions a second as all clients make.
    async fn send_a_thousand_a_second(&self) {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mut client = self.server.as_ref().expect("it runs").client().await;
            clients.spawn(async move {
                let (user, mut tick) = (format!("user-{number}"), interval(PACE));
                tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
                for _ in 0..DECISIONS {
                    tick.tick().await;
                    let descriptors = vec![descriptor(&[("user", &user)])];
                    client.should_rate_limit("shop", descriptors).await.expect("a decision");
                }
            });
        }
        while clients.join_next().await.is_some() {}
    }
}

/// Processor seconds of the main thread of the page so far: scripts, styles and layout.
async fn worked(browser: &Browser) -> f64 {
    let metrics = browser.devtools("Performance.getMetrics", json!({})).await;
    let metrics = metrics["metrics"].as_array().expect("metrics").iter();
    let of_work = metrics.filter(|metric| {
        ["ScriptDuration", "LayoutDuration", "RecalcStyleDuration"].iter().any(|name| metric["name"] == *name)
    });
    of_work.filter_map(|metric| metric["value"].as_f64()).sum()
}

async fn a_thousand_decisions_a_second_leave_the_page_idle_most_of_the_time() {
    let (shop, browser) = (Shop::start(RULES, &[]), Browser::start().await);
    browser.look(1280, "light").await;
    shop.open(&browser, "live", &shop.read).await;
    // The stream is open when a decision arrives.
    for _ in 0..100 {
        shop.send("user", "first", 1).await;
        if browser.text().await.contains("user=first") {
            break;
        }
    }
    browser.shows("user=first").await;
    // Of the thread alone: by the clock, a page would also take what other processes take of a busy machine.
    browser.devtools("Performance.enable", json!({ "timeDomain": "threadTicks" })).await;
    let watch = "window.frames = []; let last = performance.now(); window.long = 0;
        new PerformanceObserver((list) => list.getEntries().forEach((task) => { window.long += task.duration; })).observe({ type: 'longtask' });
        requestAnimationFrame(function frame(now) { window.frames.push(now - last); last = now; requestAnimationFrame(frame); });";
    browser.run(watch, &[]).await;
    let (before, started) = (worked(&browser).await, std::time::Instant::now());
    shop.send_a_thousand_a_second().await;
    let wall = started.elapsed().as_secs_f64();
    let sent = CLIENTS * DECISIONS;
    let all = "return Number(document.querySelector('.list').getAttribute('aria-rowcount')) >= arguments[0]";
    let mut shown = json!(false);
    while shown != json!(true) {
        assert!(started.elapsed() < Duration::from_secs(60), "not all decisions are shown");
        shown = browser.run(all, &[json!(sent)]).await;
    }
    let seconds = worked(&browser).await - before;
    let of_page = "return [window.frames.sort((a, b) => a - b), window.long, document.querySelectorAll('.item').length]";
    let [frames, long, items] =
        serde_json::from_value::<[Value; 3]>(browser.run(of_page, &[]).await).expect("three");
    let frames: Vec<f64> = serde_json::from_value(frames).expect("numbers");
    let at = |share: usize| frames[(frames.len() - 1) * share / 100];
    let dropped = frames.iter().filter(|frame| **frame > 25.0).count();
    eprintln!(
        "{sent} decisions in {wall:.1} s: {:.1} µs of the main thread each; frames: p50 {:.1} ms, p95 {:.1} ms, {dropped} of {} late; \
         long tasks {long} ms",
        seconds * 1e6 / f64::from(sent),
        at(50),
        at(95),
        frames.len(),
    );
    assert!(items.as_u64().is_some_and(|items| items < 100), "{items} elements");
    assert!(seconds < SECONDS_PER_DECISION_MAX * f64::from(sent), "{seconds} s for {sent} decisions");
}
