//! Counters in the store that the reference server's variables name.

use super::RedisServer;
use crate::{
    support::{Server, rules_file},
    tests_with,
};
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! { REDIS: servers_share_counters_by_the_variables_of_the_reference_server }

const RULES: &str =
    "{ domain: d, descriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 3 } }] }";

async fn servers_share_counters_by_the_variables_of_the_reference_server() {
    let (redis, rules) = (RedisServer::start(), rules_file(RULES));
    let socket = redis.socket().display().to_string();
    let variables = [
        ("TIDEGATE_ENV", "reference"),
        // The server is awaited by its log, whose level is WARN there.
        ("LOG_LEVEL", "INFO"),
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", &socket),
        ("REDIS_TYPE", "SINGLE"),
    ];
    let args = ["--http-listen", "127.0.0.1:0", "--counters-timeout", "2s"];
    let servers = [(); 2].map(|()| Server::with_variables(rules.path(), &args, &variables));
    let mut codes = Vec::new();
    for server in servers.iter().cycle().take(5) {
        let response = server.client().await.hit("d", &[("k", "a")]).await.expect("a decision");
        codes.push(response.overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit]);
}
