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
    let mut admitted = 0;

    let mut server = Server::with_rules(rules.path(), &args);
    let mut node = Node::new(7, server.channel().await);
    node.token = Some(secret.clone());
    let spent_away = loop {
        for _ in 0..10 {
            admitted += u64::from(node.decide("x", now()).await.unwrap().is_admitted());
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        node.exchange(now(), Fate::Answered).await.unwrap();
        if node.credits(now()) < 20 {
            assert!(admitted < LIMIT, "it was never granted anything");
            continue;
        }
        // A snapshot that began after the grant: an earlier snapshot lacks hits that were admitted since.
        let granted_at = clock.now().as_nanos();
        while last_snapshot_began(&server.log()).is_none_or(|at| at <= granted_at) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if node.credits(now()) == 0 {
            continue;
        }
        server.signal(Signal::KILL);
        server.wait();
        let mut spent = 0;
        while node.credits(now()) > 0 {
            assert_eq!(node.decide("x", now()).await.unwrap(), Outcome::Here(true));
            spent += 1;
        }
        if spent > 0 {
            break spent;
        }
        server = Server::with_rules(rules.path(), &args);
        let (epoch, generation) = (node.epoch, node.generation);
        node = Node::new(node.number + 1, server.channel().await);
        node.token = Some(secret.clone());
        assert!((epoch, generation) != (0, 0), "it had learned them");
    };
    admitted += spent_away;

    let server = Server::with_rules(rules.path(), &args);
    let mut plain = server.client().await;
    let mut hits = 0;
    while plain.hit("d", &[("a", "x")]).await.unwrap().overall_code() == Code::Ok {
        hits += 1;
    }
    admitted += hits;
    assert!(admitted <= LIMIT, "{admitted}, {spent_away} of them by credits while the server was away");
    // The process has another number: the node learns the counter again, and nothing is granted for the identifier that it knew.
    let mut again = Node::new(node.number, server.channel().await);
    again.token = Some(secret);
    let former = node.epoch;
    assert!(!again.decide("x", now()).await.unwrap().is_admitted());
    assert_ne!(again.epoch, former);
    assert!(server.terminate().success());
}
