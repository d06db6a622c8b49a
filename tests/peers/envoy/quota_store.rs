//! Limits that several real Envoys enforce by the quotas of two servers with one store: a server is killed, another server joins, and the
//! store is killed and comes back empty. Requests to a server spend the same limit. Windows of a day are spent to their end, and not
//! beyond. With windows of a minute, the rate moves to the remaining server.

use super::{
    load::{BackEnd, Client},
    quotas::{KEY, LISTENER, RATE, envoys, reached},
};
use crate::{
    shared_store::{RedisServer, free_port},
    support::{Client as RateLimitClient, Server, rules_file},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

crate::tests_with! {
    ENVOY, REDIS:
    servers_with_one_store_divide_a_limit_and_keep_it,
    servers_with_one_store_spend_a_window_of_a_day_and_no_more,
    servers_with_one_store_divide_a_window_of_a_minute_by_rates_and_keep_it,
}

/// Seconds after which everything that was assigned without the store has ended: the time for which servers assign without it, the life of
/// an assignment, and a round trip.
const ENDED: f64 = 20.0;

/// The longest life of a server's part, in seconds, and then the time for learning its clients' demand.
const PART: f64 = 20.0;

/// The burst, divided among the Envoys. On a loaded machine, requests are not sent evenly.
const BURST: f64 = 300.0;

const RULES: &str = "
domain: shop
rlqs: { clients: 4 }
descriptors:
  - key: api_key
    rate_limit: { unit: second, requests_per_unit: 200, algorithm: token_bucket, size: 300 }
";

fn serve(listen: &str, rules: &Path, store: &str) -> Server {
    let rules = rules.to_str().expect("UTF-8");
    // The limit holds while the store decides: a loaded machine may take longer than 10 ms.
    let args = ["--counters", store, "--on-store-failure", "deny", "--counters-timeout", "1s"];
    Server::start_on(listen, &[&["--rules", rules], &args[..]].concat())
}

/// Sends this many requests per second to a server.
fn spend(mut client: RateLimitClient, key: &'static str, back_end: &Arc<BackEnd>, rate: &Arc<AtomicU32>) {
    let (back_end, rate) = (Arc::clone(back_end), Arc::clone(rate));
    tokio::spawn(async move {
        loop {
            let per_second = rate.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs_f64(1.0 / f64::from(per_second.max(10)))).await;
            let sent = back_end.second();
            if per_second > 0
                && let Ok(response) = client.hit("shop", &[("api_key", key)]).await
                && response.overall_code == 1
            {
                back_end.count_admitted(key, sent);
            }
        }
    });
}

async fn servers_with_one_store_divide_a_limit_and_keep_it() {
    let (back_end, port) = BackEnd::start();
    let store_port = free_port();
    let url = format!("redis://127.0.0.1:{store_port}");
    let store = RedisServer::start_on(store_port, &[]);
    let rules = rules_file(RULES);
    let serve = |listen: &str| serve(listen, rules.path(), &url);
    let (mut first, second) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    let address = first.address().to_owned();
    let at_first = envoys(&first, (&back_end, port), &[160, 40]).await;
    let at_second = envoys(&second, (&back_end, port), &[80, 20]).await;
    let set = |envoys: &[(crate::envoy_process::Envoy, Client)], rate| {
        envoys.iter().for_each(|(_, client)| client.set(rate));
    };
    let took = reached(&back_end, RATE, PART + 25.0).await;
    let from = back_end.second() + 3.0;
    back_end.until(from + 10.0).await;
    let steady = back_end.rate(KEY, from, from + 10.0);
    println!("from the start of two servers and a store {took:.1} s; then {steady:.1} of {RATE} requests/s");
    assert!(steady >= 0.93 * RATE, "{steady} requests/s");

    // Requests to a server spend the same limit, and get a part of it.
    let direct = Arc::new(AtomicU32::new(50));
    spend(second.client().await, KEY, &back_end, &direct);
    let from = back_end.second() + 10.0;
    back_end.until(from + 5.0).await;
    let with_direct = back_end.rate(KEY, from, from + 5.0);
    let by_calls = back_end.counted() as f64 / 15.0;
    println!("{with_direct:.1} requests/s with those to a server, which has admitted {by_calls:.1}/s");
    assert!(by_calls >= 10.0, "{by_calls}");
    direct.store(0, Ordering::Relaxed);

    first.signal_until_it_ends(rustix::process::Signal::KILL);
    drop(first);
    set(&at_first, 0);
    set(&at_second, 150);
    let took = reached(&back_end, RATE, PART + 20.0).await;
    println!("{took:.1} s after the kill of a server, and all load has moved to the other one");

    let _joined = serve(&address);
    set(&at_first, 150);
    set(&at_second, 0);
    let took = reached(&back_end, RATE, PART + 20.0).await;
    println!("{took:.1} s after a server has joined, and all load has moved to it");

    set(&at_second, 50);
    back_end.until(back_end.second() + 6.0).await;
    drop(store);
    back_end.until(back_end.second() + ENDED).await;
    let from = back_end.second() + 1.0;
    back_end.until(from + 3.0).await;
    let without = back_end.rate(KEY, from, from + 3.0);
    assert_eq!(without, 0.0, "without the store all that was assigned has ended");
    let _store = RedisServer::start_on(store_port, &[]);
    let took = reached(&back_end, RATE, PART + 40.0).await;
    println!("{took:.1} s after the store is back, empty");

    let most = back_end.most_beyond(KEY, |seconds| RATE * seconds);
    println!(
        "{:.0} s in all; at most {most:.0} requests beyond the rate, of a burst of {BURST}",
        back_end.second()
    );
    assert!(most <= BURST, "{most} requests beyond the rate");
}

const PER_DAY: usize = 3_000;

const RULES_OF_DAY: &str = "
domain: shop
rlqs: { clients: 4 }
descriptors:
  - key: api_key
    rate_limit: { unit: day, requests_per_unit: 3000, algorithm: sliding_log }
";

/// With the second key, a server is killed while it has a part of the window, which counts as spent.
async fn servers_with_one_store_spend_a_window_of_a_day_and_no_more() {
    let (back_end, port) = BackEnd::start();
    let store_port = free_port();
    let url = format!("redis://127.0.0.1:{store_port}");
    let _store = RedisServer::start_on(store_port, &[]);
    let rules = rules_file(RULES_OF_DAY);
    let serve = |listen: &str| serve(listen, rules.path(), &url);
    let (mut first, second) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    let address = first.address().to_owned();
    let mut envoys_of_both = envoys(&first, (&back_end, port), &[60, 20]).await;
    envoys_of_both.extend(envoys(&second, (&back_end, port), &[30, 10]).await);
    let direct = Arc::new(AtomicU32::new(20));
    spend(second.client().await, KEY, &back_end, &direct);
    let began = back_end.second();
    while back_end.count(KEY) < PER_DAY * 95 / 100 && back_end.second() < began + 150.0 {
        back_end.until(back_end.second() + 1.0).await;
    }
    let took = back_end.second() - began;
    back_end.until(back_end.second() + 20.0).await;
    let (admitted, by_calls) = (back_end.count(KEY), back_end.counted());
    println!("{admitted} of {PER_DAY} admitted, 95 % in {took:.0} s, {by_calls} of them by a server");
    assert!((PER_DAY * 95 / 100..=PER_DAY).contains(&admitted), "{admitted}");
    assert!(by_calls >= 100, "{by_calls}");

    const OTHER: &str = "bob";
    direct.store(0, Ordering::Relaxed);
    envoys_of_both.iter().for_each(|(_, client)| client.set(0));
    let rates = [20, 10, 20, 10];
    let clients: Vec<Client> = (envoys_of_both.iter().zip(rates))
        .map(|((envoy, _), rate)| Client::start(&back_end, envoy.port(LISTENER), OTHER, rate))
        .collect();
    back_end.until(back_end.second() + 12.0).await;
    first.signal_until_it_ends(rustix::process::Signal::KILL);
    drop(first);
    let at_kill = back_end.count(OTHER);
    back_end.until(back_end.second() + ENDED).await;
    let _joined = serve(&address);
    clients.iter().for_each(|client| client.set(60));
    spend(second.client().await, OTHER, &back_end, &Arc::new(AtomicU32::new(20)));
    back_end.until(back_end.second() + 60.0).await;
    let admitted = back_end.count(OTHER);
    println!("{admitted} of {PER_DAY} admitted, {at_kill} before a server was killed");
    assert!((PER_DAY / 2..=PER_DAY).contains(&admitted), "{admitted}");
    let mut client = second.client().await;
    for key in [KEY, OTHER] {
        let response = client.hit("shop", &[("api_key", key)]).await.expect("a response");
        assert_eq!(response.overall_code, 2, "{key}");
    }
}

const PER_MINUTE: f64 = 6_000.0;

const RULES_OF_MINUTE: &str = "
domain: shop
rlqs: { clients: 4 }
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 6000, algorithm: sliding_log }
";

async fn servers_with_one_store_divide_a_window_of_a_minute_by_rates_and_keep_it() {
    let (back_end, port) = BackEnd::start();
    let store_port = free_port();
    let url = format!("redis://127.0.0.1:{store_port}");
    let _store = RedisServer::start_on(store_port, &[]);
    let rules = rules_file(RULES_OF_MINUTE);
    let serve = |listen: &str| serve(listen, rules.path(), &url);
    let (mut first, second) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    let at_first = envoys(&first, (&back_end, port), &[80, 20]).await;
    let at_second = envoys(&second, (&back_end, port), &[70, 30]).await;
    // The burst, and the part that is kept free, are missing from the rate.
    let steady = 0.9 * PER_MINUTE / 60.0;
    let took = reached(&back_end, steady, PART + 25.0).await;
    let direct = Arc::new(AtomicU32::new(10));
    spend(second.client().await, KEY, &back_end, &direct);
    let from = back_end.second() + 10.0;
    back_end.until(from + 30.0).await;
    let (with_direct, by_calls) = (back_end.rate(KEY, from, from + 30.0), back_end.counted());
    println!("after {took:.1} s; then {with_direct:.1} of 100 requests/s, {by_calls} by a server");
    assert!(with_direct >= 0.85 * PER_MINUTE / 60.0 && by_calls >= 50, "{with_direct}, {by_calls}");
    direct.store(0, Ordering::Relaxed);

    first.signal_until_it_ends(rustix::process::Signal::KILL);
    drop(first);
    at_first.iter().for_each(|(_, client)| client.set(0));
    at_second.iter().for_each(|(_, client)| client.set(100));
    let took = reached(&back_end, steady, PART + 25.0).await;
    println!("{took:.1} s after the kill of a server, and all load has moved to the other one");
    // The window that contains the most requests of both servers ends later.
    back_end.until(back_end.second() + 40.0).await;
    let most = back_end.most_beyond(KEY, |seconds| PER_MINUTE * (seconds / 60.0).ceil());
    println!("{:.0} s in all; at best {most:.0} requests beyond the window", back_end.second());
    assert!(most <= 0.0, "{most} requests beyond the window");
}
