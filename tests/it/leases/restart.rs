//! A server that is killed while credits are outstanding.

use super::{Fate, MILLI, Node, Outcome};
use crate::{
    control::token,
    snapshot_kill::last_snapshot_began,
    support::{Server, rules_file},
};
use rustix::process::Signal;
use std::time::Duration;
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_shared::lease::Monotonic;

/// A window that does not end during the test.
const RULES: &str = "{ domain: d, descriptors: [{ key: a, rate_limit: { per: 3660d, requests_per_unit: 3000, algorithm: fixed_window } }] }";
const LIMIT: u64 = 3_000;

/// The server is killed after a snapshot with the credits, which the node spends while the server is down. If the snapshot lacked the
/// leases, these hits would be admitted beyond the limit.
#[tokio::test]
async fn outstanding_credits_stay_within_the_limit_when_the_server_is_killed() {
    let (folder, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    let (tokens, data) = (folder.path().join("tokens"), folder.path().join("data"));
    let secret = token(&tokens, "holder", &["--role", "lease"]);
    let [tokens, data] = [tokens, data].map(|path| path.to_str().unwrap().to_owned());
    let args = [
        "--leases",
        "--http-token-file",
        &tokens,
        "--data",
        &data,
        "--snapshot-interval",
        "20ms",
        "--log",
        "tidegate=debug,info",
    ];
    let clock = SystemClock::new();
    let began = clock.now();
    let now = || Monotonic::from_nanos(u64::try_from(clock.now().since(began).as_nanos()).unwrap() + MILLI);
    let mut server = Server::with_rules(rules.path(), &args);
    let mut number = 7;
    // Each attempt has a counter and a node of its own: credits that a busy machine lets expire are used for good.
    let (node, value, admitted, spent_away) = loop {
        number += 1;
        let value = format!("x{number}");
        let mut node = Node::new(number, server.channel().await);
        node.token = Some(secret.clone());
        let mut admitted = 0;
        while node.credits(now()) < 20 {
            assert!(admitted < LIMIT, "it was never granted anything");
            for _ in 0..10 {
                admitted += u64::from(node.decide(&value, now()).await.unwrap().is_admitted());
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            node.exchange(now(), Fate::Answered).await.unwrap();
        }
        // A snapshot that began after the grant: an earlier snapshot lacks hits that were admitted since.
        let granted_at = clock.now().as_nanos();
        while server.read_log(last_snapshot_began).is_none_or(|at| at <= granted_at) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if node.credits(now()) == 0 {
            continue;
        }
        server.signal(Signal::KILL);
        server.wait();
        let mut spent = 0;
        while let Some(at) = Some(now()).filter(|at| node.credits(*at) > 0) {
            assert_eq!(node.decide(&value, at).await.unwrap(), Outcome::Here(true));
            spent += 1;
        }
        assert!((node.epoch, node.generation) != (0, 0), "it had learned them");
        if spent > 0 {
            break (node, value, admitted + spent, spent);
        }
        server = Server::with_rules(rules.path(), &args);
    };

    let server = Server::with_rules(rules.path(), &args);
    let mut plain = server.client().await;
    let mut hits = 0;
    while plain.hit("d", &[("a", &value)]).await.unwrap().overall_code() == Code::Ok {
        hits += 1;
    }
    let all = admitted + hits;
    assert!(all <= LIMIT, "{all}, {spent_away} of them by credits while the server was away");
    // The process has another number: the node learns the counter again, and nothing is granted for the identifier that it knew.
    let mut again = Node::new(number, server.channel().await);
    again.token = Some(secret);
    let former = node.epoch;
    assert!(!again.decide(&value, now()).await.unwrap().is_admitted());
    assert_ne!(again.epoch, former);
    assert!(server.terminate().success());
}
