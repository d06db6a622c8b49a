//! The times of responses to queued requests, to the millisecond: the clock is the clock of the timers, and stands still while there is
//! anything to do.

use crate::support::{
    descriptor,
    http2::{SHOULD_RATE_LIMIT, grpc, plain},
    limiter,
};
use prost::Message;
use std::{num::NonZeroU64, sync::Arc, time::Duration};
use tidegate::api::{
    GrpcPort, LongLivedBounds, RouteSettings,
    pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    routes,
};
use tidegate_core::{
    clock::Clock,
    limit::{Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
};
use tidegate_http2::Http2Settings;
use tidegate_service::RateLimitService;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

const ONE_A_SECOND: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 10s, max_queue: 5}
";

/// The time of a runtime started with paused time: it is fixed until all tasks wait for timers, then advances to the next
/// timer.
struct PausedTime(Instant);

impl PausedTime {
    #[expect(clippy::disallowed_methods, reason = "a time that does not pass by itself")]
    fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for PausedTime {
    fn now(&self) -> Timestamp {
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).expect("a short test");
        Timestamp::from_millis(1_700_000_123_456).saturating_add_nanos(nanos)
    }
}

/// A front, and the limiter behind it.
#[derive(Clone)]
struct Held {
    front: Arc<GrpcPort>,
    limiter: Arc<Limiter>,
    time: Arc<PausedTime>,
}

impl Held {
    async fn new(rules: &str) -> Self {
        let limiter = Arc::new(limiter(rules));
        let time = Arc::new(PausedTime::start());
        let clock = Arc::clone(&time) as Arc<dyn Clock>;
        let service = RateLimitService::new(Arc::clone(&limiter), clock, RequestLimits::default());
        let routes = routes(
            service.clone(),
            None,
            None,
            RouteSettings { message_bytes_max: 4096, first_message_within: Duration::from_secs(30) },
        );
        Self {
            front: Arc::new(GrpcPort::new(service, routes, 4096, LongLivedBounds::default())),
            limiter,
            time,
        }
    }

    /// Takes one hit of the only user, with an optional deadline; returns the verdict and its time in milliseconds.
    async fn send(&self, deadline: Option<&str>) -> (Code, u128) {
        let head =
            deadline.iter().fold(grpc(SHOULD_RATE_LIMIT), |head, text| head.header("grpc-timeout", *text));
        let message = RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![descriptor(&[("user", "x")])],
            hits_addend: 0,
        };
        let (client, server) = tokio::io::duplex(1 << 12);
        let never = std::future::pending();
        let serving = tidegate_http2::serve(
            server,
            Arc::clone(&self.front),
            Http2Settings::default(),
            Arc::default(),
            None,
            never,
        );
        let (mut requests, connection) = h2::client::handshake(client).await.expect("HTTP/2");
        let asking = async {
            let head = head.body(()).expect("a well-formed head");
            let (response, mut stream) = requests.send_request(head, false).expect("a good head");
            stream.send_data(plain(&message.encode_to_vec()).into(), true).expect("it is taken");
            let mut body = response.await.expect("an answer").into_body();
            let framed = body.data().await.expect("a message").expect("a body that ends well");
            let answer = RateLimitResponse::decode(&framed[5..]).expect("an answer");
            (answer.overall_code(), self.time.0.elapsed().as_millis())
        };
        tokio::select! {
            answer = asking => answer,
            ended = serving => panic!("the server ended the connection: {ended:?}"),
            ended = connection => panic!("the client ended the connection: {ended:?}"),
        }
    }

    /// The same in a call on a connection of its own, which closes when the task is aborted. The request has arrived when this returns.
    async fn call(&self, deadline: Option<&'static str>) -> JoinHandle<(Code, u128)> {
        let held = self.clone();
        let call = tokio::spawn(async move { held.send(deadline).await });
        let calls = self.limiter.queued();
        while self.limiter.queued() == calls && !call.is_finished() {
            tokio::task::yield_now().await;
        }
        call
    }
}

#[tokio::test(start_paused = true)]
async fn each_queued_request_is_answered_at_its_release_time_and_those_beyond_the_queue_at_once() {
    let held = Held::new(ONE_A_SECOND).await;
    let mut calls = Vec::new();
    for _ in 0..7 {
        calls.push(held.call(None).await);
    }
    assert_eq!(calls.pop().expect("seven").await.unwrap(), (Code::OverLimit, 0));
    for (call, turn) in calls.into_iter().zip([0, 1_000, 2_000, 3_000, 4_000, 5_000]) {
        assert_eq!(call.await.unwrap(), (Code::Ok, turn));
    }
    assert_eq!(held.send(None).await, (Code::Ok, 6_000));
    assert_eq!(held.limiter.queued(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_advances_the_next_which_is_answered_earlier() {
    let held = Held::new(ONE_A_SECOND).await;
    let mut calls = Vec::new();
    for _ in 0..5 {
        calls.push(held.call(None).await);
    }
    sleep(Duration::from_millis(300)).await;
    calls[2].abort();
    let mut answered = Vec::new();
    for call in calls {
        answered.push(call.await.ok());
    }
    let at = |turn| Some((Code::Ok, turn));
    assert_eq!(answered, [at(0), at(1_000), None, at(2_000), at(3_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_deadline_before_its_release_is_denied_at_once_and_not_charged() {
    let held = Held::new(ONE_A_SECOND).await;
    assert_eq!(held.send(None).await, (Code::Ok, 0));
    assert_eq!(held.send(Some("20m")).await, (Code::OverLimit, 0));
    assert_eq!(held.send(Some("999999u")).await, (Code::OverLimit, 0));
    assert_eq!(held.send(Some("1S")).await, (Code::Ok, 1_000));
}

#[tokio::test(start_paused = true)]
async fn hits_that_are_given_back_wake_queued_requests() {
    let held = Held::new(ONE_A_SECOND).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(held.call(None).await);
    }
    sleep(Duration::from_millis(300)).await;
    let mut give_back = Request::new("d");
    let entries = [Entry { key: "user", value: "x" }].into_iter().collect();
    give_back.push(Descriptor { entries, limit: None, hits: Hits::GiveBack(NonZeroU64::MIN) });
    held.limiter.pin().decide(&give_back, held.time.now());
    let turns = [0, 300, 1_000];
    for (call, turn) in calls.into_iter().zip(turns) {
        assert_eq!(call.await.unwrap(), (Code::Ok, turn));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_would_be_released_after_the_end_are_denied_when_the_end_is_set() {
    let held = Held::new(ONE_A_SECOND).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(held.call(None).await);
    }
    sleep(Duration::from_millis(300)).await;
    held.limiter.end_queues_at(held.time.now().saturating_add(Duration::from_millis(1_700)));
    let mut answered = Vec::new();
    for call in calls {
        answered.push(call.await.unwrap());
    }
    assert_eq!(answered, [(Code::Ok, 0), (Code::Ok, 1_000), (Code::Ok, 2_000), (Code::OverLimit, 300)]);
    assert_eq!(held.limiter.queued(), 0);
}
