//! Limits with conditions whose counters are shared by several servers.

use super::{RedisCluster, RedisServer};
use crate::{
    support::{Server, descriptor, rules_file},
    tests_with,
};
use std::path::Path;
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! {
    REDIS:
    limits_with_conditions_are_shared_by_servers_with_leases_and_without,
    counters_of_limits_with_conditions_are_found_whatever_the_slots_of_a_cluster,
}

const LIMITS: &str = "
- { namespace: d, max_value: 100, seconds: 86400, name: all }
- { namespace: d, max_value: 40, seconds: 86400, name: reads, conditions: ['descriptors[0].method == \"GET\"'] }
- { namespace: d, max_value: 30, seconds: 86400, name: users, variables: ['descriptors[0].user'] }
";

fn server(rules: &Path, url: &str, lease: &str) -> Server {
    let args =
        ["--counters", url, "--counters-timeout", "2s", "--on-store-failure", "error", "--lease", lease];
    Server::with_rules(rules, &args)
}

/// Numbers of requests that two servers admit: of one user, of reads besides, and of all others.
async fn admitted(url: &str, lease: &str) -> [usize; 3] {
    let rules = rules_file(LIMITS);
    let servers = [server(rules.path(), url, lease), server(rules.path(), url, lease)];
    let mut clients = [servers[0].client().await, servers[1].client().await];
    let mut admitted = [0; 3];
    let user = [("other", "x"), ("user", "ann")];
    for (of, entries) in
        [&user[..], &[("method", "GET"), ("x", "y")], &[("method", "PUT")]].into_iter().enumerate()
    {
        for attempt in 0..160 {
            // Other entries beside the entries of the limits: counters do not depend on them.
            let number = attempt.to_string();
            let entries = [&[("number", number.as_str())], entries].concat();
            let client = &mut clients[attempt % 2];
            let response =
                client.should_rate_limit("d", vec![descriptor(&entries)]).await.expect("a decision");
            admitted[of] += usize::from(response.overall_code() == Code::Ok);
        }
    }
    admitted
}

async fn limits_with_conditions_are_shared_by_servers_with_leases_and_without() {
    for lease in ["off", "auto"] {
        let store = RedisServer::start();
        let url = store.url();
        assert_eq!(admitted(&url, lease).await, [30, 40, 30], "lease {lease}");
    }
}

async fn counters_of_limits_with_conditions_are_found_whatever_the_slots_of_a_cluster() {
    let cluster = RedisCluster::start(false);
    assert_eq!(admitted(&cluster.url(), "off").await, [30, 40, 30]);
}
