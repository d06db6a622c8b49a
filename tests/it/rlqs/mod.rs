//! Quotas over the wire (RLQS): streams that stay open, the messages that they are sent, and how they end.

mod operators;
mod rule_files;

use crate::{
    admin::start,
    metrics::metrics_when,
    support::{Server, rules_file},
};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};
use tidegate::api::pb::{
    quota::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
        rate_limit_quota_response::bucket_action::BucketAction,
        rate_limit_quota_service_client::RateLimitQuotaServiceClient,
        rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
    types::{
        RateLimitStrategy, TokenBucket,
        rate_limit_strategy::{BlanketRule, Strategy},
    },
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Endpoint};

pub const RULES: &str = "
domain: shop
rlqs: { clients: 2, unrecorded: 100% }
descriptors:
  - key: plan
    value: free
    rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket }
  - { key: plan, value: gold, rate_limit: { unlimited: true } }
  - { key: plan, value: none, rate_limit: { unit: second, requests_per_unit: 0 } }
  - key: tenant
    descriptors:
      - { key: path, value: /pay*, rate_limit: { unlimited: true } }
";

/// Time limit for messages that the server sends at once, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which a server that has just started assigns no shares: shares of a former server may be in force.
const LEARNING: Duration = Duration::from_secs(17);

/// A client, and the messages that it received.
pub struct Client {
    pub reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    pub responses: Streaming<RateLimitQuotaResponse>,
}

impl Client {
    pub async fn open(server: &Server) -> Self {
        Self::open_from(server, Ipv4Addr::LOCALHOST).await
    }

    /// Opens a stream on a connection from this address.
    pub async fn open_from(server: &Server, address: Ipv4Addr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).expect("host:port");
        let channel = endpoint.local_address(Some(address.into())).connect().await;
        let (reports, receiver) = mpsc::channel(8);
        let mut client = RateLimitQuotaServiceClient::new(channel.expect("the server accepts"));
        let opened = client.stream_rate_limit_quotas(ReceiverStream::new(receiver)).await;
        Self { reports, responses: opened.expect("the response begins at once").into_inner() }
    }

    pub async fn report(&self, domain: &str, buckets: &[&[(&str, &str)]], allowed: u64) {
        self.report_usage(domain, buckets, allowed, 0).await;
    }

    async fn report_usage(&self, domain: &str, buckets: &[&[(&str, &str)]], allowed: u64, denied: u64) {
        let usage = |pairs: &&[(&str, &str)]| BucketQuotaUsage {
            bucket_id: Some(bucket(pairs)),
            num_requests_allowed: allowed,
            num_requests_denied: denied,
            ..BucketQuotaUsage::default()
        };
        let bucket_quota_usages = buckets.iter().map(usage).collect();
        let message = RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages };
        self.reports.send(message).await.expect("the stream is open");
    }

    pub async fn next(&mut self) -> Result<Vec<(BucketId, BucketAction)>, Status> {
        let next = timeout(PATIENCE, self.responses.message()).await.expect("something is sent")?;
        let actions = next.expect("a status ends the stream").bucket_action.into_iter();
        let pair = |action: tidegate::api::pb::quota::rate_limit_quota_response::BucketAction| {
            (action.bucket_id.expect("a bucket"), action.bucket_action.expect("an action"))
        };
        Ok(actions.map(pair).collect())
    }

    /// The next assignment, of the only bucket.
    pub async fn strategy(&mut self) -> Strategy {
        let actions = self.next().await.expect("an assignment");
        let [(_, action)] = &*actions else { panic!("one bucket: {actions:?}") };
        strategy(action)
    }

    pub async fn end(&mut self) -> Code {
        loop {
            if let Err(status) = self.next().await {
                return status.code();
            }
        }
    }
}

pub fn bucket(pairs: &[(&str, &str)]) -> BucketId {
    let pair = |(key, value): &(&str, &str)| BucketEntry { key: (*key).into(), value: (*value).into() };
    let mut bucket: Vec<_> = pairs.iter().map(pair).collect();
    bucket.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    BucketId { bucket }
}

/// The assignment that Envoy obeys: a strategy, and whole seconds of life.
fn strategy(action: &BucketAction) -> Strategy {
    let BucketAction::QuotaAssignmentAction(assignment) = action else { panic!("{action:?}") };
    let ttl = assignment.assignment_time_to_live.expect("always sent");
    assert!(ttl.seconds >= 10 && ttl.nanos == 0, "{ttl:?}");
    match &assignment.rate_limit_strategy {
        Some(RateLimitStrategy { strategy: Some(strategy) }) => *strategy,
        other => panic!("{other:?}"),
    }
}

pub const ALLOW_ALL: Strategy = Strategy::BlanketRule(BlanketRule::AllowAll as i32);
const DENY_ALL: Strategy = Strategy::BlanketRule(BlanketRule::DenyAll as i32);

pub fn serve(rules: &str, args: &[&str]) -> Server {
    Server::with_rules(rules_file(rules).path(), args)
}

#[tokio::test]
async fn what_no_rule_limits_is_admitted_and_what_a_rule_denies_is_denied() {
    let server = serve(RULES, &[]);
    let mut client = Client::open(&server).await;
    let buckets: [&[(&str, &str)]; 4] =
        [&[("plan", "gold")], &[("path", "/pay/1"), ("tenant", "a")], &[("plan", "none")], &[("other", "x")]];
    client.report("shop", &buckets, 1).await;
    let mut found = Vec::new();
    while found.len() < buckets.len() {
        found.extend(client.next().await.expect("assignments"));
    }
    for (pairs, expected) in buckets.into_iter().zip([ALLOW_ALL, ALLOW_ALL, DENY_ALL, ALLOW_ALL]) {
        let (_, action) = found.iter().find(|(id, _)| *id == bucket(pairs)).expect("an assignment for each");
        assert_eq!(strategy(action), expected, "{pairs:?}");
    }
}

/// Only descriptors of requests were counted before.
#[tokio::test]
async fn buckets_that_no_rule_decides_on_are_counted_as_unlimited() {
    let (server, port) = start(RULES, &[]);
    let mut client = Client::open(&server).await;
    let buckets: [&[(&str, &str)]; 4] = [
        &[("plan", "gold")],
        &[("plan", "free")],
        &[("tenant", "a"), ("path", "/secret")],
        &[("other", "x")],
    ];
    client.report("shop", &buckets, 3).await;
    client.report_usage("shop", &[&[("other", "y")]], 1, 1).await;
    client.next().await.expect("assignments");
    let counted = |found: &BTreeMap<String, f64>| {
        let of_shop = found.iter().filter_map(|(name, value)| {
            let keys =
                name.strip_prefix("tidegate_descriptors_without_limit_total{domain=\"shop\",keys=\"")?;
            Some((keys.trim_end_matches("\"}").to_owned(), *value))
        });
        of_shop.collect::<Vec<_>>()
    };
    let found = metrics_when(port, |found| counted(found).contains(&("other".into(), 5.0))).await;
    assert_eq!(counted(&found), [("other".into(), 5.0), ("path → tenant".into(), 3.0)]);
    assert_eq!(server.logged("no descriptor has the key other").len(), 1);
}

#[tokio::test]
async fn a_stream_stays_open_while_nothing_is_reported() {
    let server = serve(RULES, &["--body-timeout", "500ms", "--first-request-timeout", "500ms"]);
    let mut client = Client::open(&server).await;
    for _ in 0..3 {
        client.report("shop", &[&[("plan", "gold")]], 1).await;
        assert_eq!(client.strategy().await, ALLOW_ALL);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

#[tokio::test]
async fn two_clients_divide_a_limit_after_the_time_in_which_the_server_learns() {
    let server = serve(RULES, &[]);
    let (mut one, mut other) = (Client::open(&server).await, Client::open(&server).await);
    tokio::time::sleep(LEARNING).await;
    let mut rates = Vec::new();
    for client in [&mut one, &mut other] {
        client.report("shop", &[&[("plan", "free")]], 1).await;
        let Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill, fill_interval }) =
            client.strategy().await
        else {
            panic!("a share")
        };
        let interval = fill_interval.expect("always sent");
        assert!(interval.seconds >= 1 && max_tokens >= 1, "{interval:?}, {max_tokens}");
        rates.push(f64::from(tokens_per_fill.expect("always sent")) / interval.seconds as f64);
    }
    assert!(rates.iter().sum::<f64>() <= 100.0, "{rates:?}");
}

/// A client of the proxy chooses values: if a stream ended because of one value, it would end the quotas of all others.
#[tokio::test]
async fn buckets_of_any_bytes_and_length_are_assigned_under_the_names_that_were_sent() {
    let server = serve(RULES, &[]);
    let mut client = Client::open(&server).await;
    for value in [&b"\xff"[..], b"\\xff", &[b'a'; 20_000], &[0xff; 9_000]] {
        let pairs = [(&b"plan"[..], &b"gold"[..]), (b"x", value)];
        let bucket = pairs.map(|(key, value)| BucketEntry { key: key.into(), value: value.into() });
        let bucket_id = BucketId { bucket: bucket.into() };
        let usage = BucketQuotaUsage {
            bucket_id: Some(bucket_id.clone()),
            num_requests_allowed: 1,
            ..BucketQuotaUsage::default()
        };
        let message = RateLimitQuotaUsageReports { domain: "shop".into(), bucket_quota_usages: vec![usage] };
        client.reports.send(message).await.expect("the stream is open");
        let assigned = client.next().await.expect("an assignment");
        assert_eq!(assigned.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&bucket_id]);
    }
}

/// The rate of the last assignment that arrives until no more arrive.
async fn last_rate(client: &mut Client, mut rate: f64) -> f64 {
    while let Ok(actions) = timeout(Duration::from_millis(100), client.next()).await {
        for (_, action) in actions.expect("assignments") {
            rate = match strategy(&action) {
                Strategy::TokenBucket(TokenBucket { tokens_per_fill, fill_interval, .. }) => {
                    let secs = fill_interval.expect("always sent").seconds;
                    f64::from(tokens_per_fill.expect("always sent")) / secs as f64
                }
                _ => 0.0,
            };
        }
    }
    rate
}

/// After a kill, with or without a data directory: what the server assigns is within the limit, together with what a former server
/// assigned.
#[tokio::test]
async fn a_server_that_starts_assigns_no_more_than_a_former_one_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("UTF-8");
    for args in [&[][..], &["--data", data, "--snapshot-interval", "50ms"]] {
        let mut server = serve(RULES, args);
        let mut former = Client::open(&server).await;
        tokio::time::sleep(LEARNING).await;
        former.report_usage("shop", &[&[("plan", "free")]], 0, 500).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let had = last_rate(&mut former, 0.0).await;
        assert!(had > 10.0, "{had}");
        server.signal_until_it_ends(rustix::process::Signal::KILL);
        let server = serve(RULES, args);
        let (mut former, mut new) = (Client::open(&server).await, Client::open(&server).await);
        for (allowed, denied) in [(1, 0), (2 * had as u64, 500)] {
            former.report_usage("shop", &[&[("plan", "free")]], allowed, denied).await;
            new.report_usage("shop", &[&[("plan", "free")]], 0, 1_000).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let [rate, of_new] = [last_rate(&mut former, 0.0).await, last_rate(&mut new, 0.0).await];
        println!("{args:?}: {had:.1} before, {rate:.1} after, {of_new:.1} of a new client");
        assert!(rate > 0.0 && had.max(rate) + of_new <= 100.0, "{had:.1}, {rate:.1}, {of_new:.1}");
        // Without a record, everything that the former server may have assigned counts. With a record, the server assigns more once that is
        // recorded.
        assert_eq!(of_new > 0.0, !args.is_empty(), "{of_new:.1}");
    }
}

/// Three streams of one address demand 10^9 requests per second, and state that they admitted as many.
#[tokio::test]
async fn a_peer_takes_no_more_than_its_part_whatever_it_reports() {
    let rules = RULES.replace("clients: 2", "clients: 3, max_share: 40%");
    let server = serve(&rules, &[]);
    let mut hostile = Vec::new();
    for _ in 0..3 {
        hostile.push((Client::open_from(&server, Ipv4Addr::LOCALHOST).await, 0.0));
    }
    let mut honest = Client::open_from(&server, Ipv4Addr::new(127, 0, 0, 2)).await;
    let mut rate = 0.0;
    tokio::time::sleep(LEARNING).await;
    for _ in 0..8 {
        for (client, _) in &hostile {
            let most = u64::MAX / 4;
            client.report_usage("shop", &[&[("plan", "free")]], most, most).await;
        }
        honest.report_usage("shop", &[&[("plan", "free")]], rate as u64, 200).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        for (client, of_client) in &mut hostile {
            *of_client = last_rate(client, *of_client).await;
        }
        rate = last_rate(&mut honest, rate).await;
    }
    let of_hostile: f64 = hostile.iter().map(|(_, of_client)| of_client).sum();
    println!("hostile {of_hostile:.1}, honest {rate:.1} of 100 requests/s");
    assert!(of_hostile > 0.0 && of_hostile <= 40.0, "{of_hostile}");
    // The part of its own peer.
    assert!((39.0..=40.0).contains(&rate), "{rate}");
}

/// Envoy admits everything without a stream. Its operator saw neither a line in the log nor a figure.
#[tokio::test]
async fn streams_that_cannot_be_served_end_with_the_reason_which_is_counted_and_logged() {
    let (server, port) = start(&RULES.replace("rlqs: { clients: 2, unrecorded: 100% }", ""), &[]);
    for (domain, pairs, code) in [
        ("shop", &[("plan", "gold")][..], Code::FailedPrecondition),
        ("unknown", &[("plan", "gold")], Code::FailedPrecondition),
        ("", &[("plan", "gold")], Code::InvalidArgument),
        ("shop", &[], Code::InvalidArgument),
        ("shop", &[("", "gold")], Code::InvalidArgument),
    ] {
        let mut client = Client::open(&server).await;
        client.report(domain, &[pairs], 1).await;
        assert_eq!(client.end().await, code, "{domain} {pairs:?}");
    }
    let name = |reason: &str| format!("tidegate_requests_refused_total{{reason=\"{reason}\"}}");
    let counted =
        |found: &BTreeMap<String, f64>| (found[&name("quota_domain")], found[&name("quota_reports")]);
    let found = metrics_when(port, |found| counted(found) == (2.0, 3.0)).await;
    assert_eq!(counted(&found), (2.0, 3.0));
    for (reason, cause) in
        [("quota_domain", "has no quotas; write `rlqs: {}`"), ("quota_reports", "domain is empty")]
    {
        let lines = server.logged(&format!(r#""reason":"{reason}""#));
        assert!(lines[0].contains(cause) && lines[0].contains(r#""peer":"127.0.0.1""#), "{lines:?}");
    }
}

#[tokio::test]
async fn a_changed_rule_reaches_the_clients_at_once() {
    let file = rules_file(RULES);
    let server = Server::with_rules(file.path(), &["--rules-watch", "poll"]);
    let mut client = Client::open(&server).await;
    client.report("shop", &[&[("plan", "gold")]], 1).await;
    assert_eq!(client.strategy().await, ALLOW_ALL);
    let denied = RULES.replace("unlimited: true", "unit: second, requests_per_unit: 0");
    std::fs::write(file.path(), denied).expect("rules are written");
    assert_eq!(client.strategy().await, DENY_ALL);
    std::fs::write(file.path(), RULES.replace("rlqs: { clients: 2, unrecorded: 100% }", ""))
        .expect("rules are written");
    let actions = client.next().await.expect("the bucket is abandoned");
    assert!(matches!(&*actions, [(_, BucketAction::AbandonAction(_))]), "{actions:?}");
    assert_eq!(client.end().await, Code::FailedPrecondition);
    assert_eq!(server.logged(r#""quotas_removed":"shop""#).len(), 1);
    server.logged(r#""reason":"quota_domain""#);
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let mut server = serve(RULES, &["--drain-timeout", "60s"]);
    let mut client = Client::open(&server).await;
    client.report("shop", &[&[("plan", "gold")]], 1).await;
    assert_eq!(client.strategy().await, ALLOW_ALL);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(client.end().await, Code::Unavailable);
    drop(client);
    assert!(server.wait().success());
}
