//! Limits in this process: they count as the server does, and decide requests without an answer.

use crate::servers::{TestClock, misbehaving, serve};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_client::{Decision, Descriptor, LocalLimit, Reason, Request, Tidegate};

const RULES: &str = "
domain: d
descriptors:
  - key: bucket
    rate_limit: {name: bucket, per: 7s, requests_per_unit: 5, algorithm: token_bucket}
  - key: window
    rate_limit: {name: window, per: 10s, requests_per_unit: 4, algorithm: fixed_window}
";

/// Pseudorandom numbers below a bound.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        usize::try_from(self.0).expect("31 bits") % bound
    }
}

/// The compared parts of a decision.
fn seen(decision: &Decision, has_resets: bool) -> String {
    let statuses = decision.statuses.iter().map(|status| {
        let name = status.limit.as_ref().map(|limit| limit.name.clone());
        (name, status.over_limit, status.remaining, status.reset_after.filter(|_| has_resets))
    });
    format!("{} {:?} {:?}", decision.allowed, decision.retry_after, statuses.collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counting_client_decides_as_the_server_does() {
    let server = serve(RULES, &["--test-clock"]);
    let mut clock = TestClock::new(&server.address);
    let client = Tidegate::builder(&server.address).domain("d").timeout(Duration::from_secs(5));
    let client = client.local_denials(0).build().expect("a client");
    let now = Arc::new(AtomicU64::new(1_700_006_400_000_000_000));
    let time = Arc::clone(&now);
    let counting = Tidegate::counting(
        [
            LocalLimit::bucket(["bucket"], 5, Duration::from_secs(7)).named("bucket"),
            LocalLimit::window(["window"], 4, Duration::from_secs(10)).named("window"),
        ],
        move || Duration::from_nanos(time.load(Ordering::Relaxed)),
    );
    let mut chance = Chance(7);
    for step in 0..150 {
        let passed = [0, 1, 333_333_333, 1_400_000_000, 2_999_999_999, 12_000_000_000][chance.below(6)];
        let nanos = now.fetch_add(passed, Ordering::Relaxed) + passed;
        clock.set(nanos / 1_000_000, nanos % 1_000_000).await;
        let keys: &[&str] = [&["bucket"][..], &["window"], &["bucket", "window"], &["none"]][chance.below(4)];
        let value = ["a", "b"][chance.below(2)];
        let descriptors = keys.iter().map(|key| Descriptor::new([(*key, value)]));
        let request = Request::new(descriptors).cost([1, 1, 2, 3, 6][chance.below(5)]);
        let operation = chance.below(6);
        let decide = async |client: &Tidegate| {
            let decision = match operation {
                0 => client.peek(request.clone()).await,
                1 => client.give_back(request.clone()).await,
                _ => client.limit(request.clone()).await,
            };
            seen(&decision.expect("a decision"), operation != 1)
        };
        let (real, local) = (decide(&client).await, decide(&counting).await);
        assert_eq!(local, real, "step {step}, operation {operation}: {request:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_limits_requests_without_an_answer() {
    let (_server, address) = misbehaving("refused");
    let client = Tidegate::builder(&address).domain("d").timeout(Duration::from_secs(5));
    let client = client.fallback(LocalLimit::bucket(["user"], 2, Duration::from_secs(3600)));
    let client = client.build().expect("a client");
    let mut decisions = Vec::new();
    for _ in 0..3 {
        decisions.push(client.limit([("user", "a")]).await.expect("a decision"));
    }
    let found: Vec<_> = decisions.iter().map(|one| (one.reason, one.remaining)).collect();
    assert_eq!(
        found,
        [(Reason::FailedOpen, Some(1)), (Reason::FailedOpen, Some(0)), (Reason::FailedClosed, Some(0))]
    );
    assert!(decisions[2].error.is_some() && decisions[2].retry_after.is_some(), "{:?}", decisions[2]);
    let other = client.limit([("team", "a")]).await.expect("a decision");
    assert_eq!((other.allowed, other.remaining), (true, None), "not of the fallback");
}
