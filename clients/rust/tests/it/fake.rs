//! Tests of applications, and functions of the caller that panic.

use crate::servers::{misbehaving, serve};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_client::{Decision, Descriptor, Error, Key, OnFailure, RateLimitLayer, Reason, Tidegate};
use tower_layer::Layer;
use tower_service::Service;

#[tokio::test]
async fn a_fake_client_returns_the_decisions_of_a_test() {
    let decisions = [
        Decision::admitted(),
        Decision::denied(Some(Duration::from_secs(90))),
        Decision::failed(OnFailure::Closed, "DEADLINE_EXCEEDED"),
    ];
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let client = Tidegate::fake(move |call| {
        let mut seen = seen.lock().expect("no panic");
        seen.push(call);
        decisions[seen.len() - 1].clone()
    });
    let layer = RateLimitLayer::new(client, [Key::constant("route", "all")]);
    for (status, retry_after) in [(204, None), (429, Some("90")), (503, None)] {
        let application =
            tower_service_fn(|_| Response::builder().status(204).body(Empty::<bytes::Bytes>::new()));
        let request = Request::new(Empty::<bytes::Bytes>::new());
        let response = layer.layer(application).call(request).await.expect("a response");
        assert_eq!(response.status(), status);
        let header = response.headers().get("retry-after").map(|value| value.to_str().expect("ASCII"));
        assert_eq!(header, retry_after);
        response.into_body().collect().await.expect("a body");
    }
    let calls = calls.lock().expect("no panic");
    assert_eq!(calls[0].descriptors[0].entries(), [("route".to_owned(), "all".to_owned())]);
    assert_eq!((calls[0].domain.as_str(), &calls[0].costs[..]), ("fake", &[1][..]));
}

#[tokio::test]
async fn a_slot_is_released_once_and_none_without_a_ticket() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let mut admitted = Decision::admitted();
    admitted.ticket = Some("slot-1".to_owned());
    let client = Tidegate::fake(move |call| {
        seen.lock().expect("no panic").push((
            call.domain,
            call.descriptors[0].entries().to_vec(),
            call.gives_back,
        ));
        admitted.clone()
    });
    let request = || tidegate_client::Request::from([("user", "ann")]).domain("other");
    let mut slot = client.acquire(request()).await.expect("a decision");
    slot.release_part(2).await;
    slot.release().await;
    drop(client.acquire(request()).await.expect("a decision"));
    // The task of the dropped slot.
    while calls.lock().expect("no panic").len() < 5 {
        tokio::task::yield_now().await;
    }
    let named = |gives_back| ("other".to_owned(), vec![("slot".to_owned(), "slot-1".to_owned())], gives_back);
    let calls = calls.lock().expect("no panic").clone();
    assert_eq!([&calls[1], &calls[2], &calls[4]], [&named(true), &named(false), &named(false)]);

    assert_eq!(calls.len(), 5);

    let count = Arc::new(AtomicU64::new(0));
    for decision in
        [Decision::denied(None), Decision::failed(OnFailure::Open, "UNAVAILABLE"), Decision::admitted()]
    {
        let counted = Arc::clone(&count);
        let client = Tidegate::fake(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            decision.clone()
        });
        client.acquire(request()).await.expect("a decision").release().await;
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn an_end_has_the_actual_cost_or_else_the_estimate_also_if_its_call_is_dropped() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let mut admitted = Decision::admitted();
    (admitted.ticket, admitted.ticket_cost) = (Some("slot-1".to_owned()), 40);
    let client = Tidegate::fake(move |call| {
        seen.lock().expect("no panic").push((call.costs[0], call.gives_back));
        admitted.clone()
    });
    let ends = |number: usize| calls.lock().expect("no panic").get(number).copied();
    let acquire = async || client.acquire([("user", "ann")]).await.expect("a decision");
    acquire().await.release().await;
    acquire().await.commit(7).await;
    acquire().await.commit(0).await;
    acquire().await.cancel().await;
    assert_eq!([1, 3, 5, 7].map(ends), [(40, false), (7, false), (40, true), (40, true)].map(Some));
    let slot = acquire().await;
    drop(slot.commit(9));
    // The task of the dropped slot.
    while ends(9).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ends(9), Some((40, false)), "a future that was never polled has not begun");
    assert_eq!(ends(10), None);
}

type Answer = fn(Request<Empty<bytes::Bytes>>) -> http::Result<Response<Empty<bytes::Bytes>>>;

/// A service made of a function.
#[derive(Clone)]
struct Application(Answer);

fn tower_service_fn(answer: Answer) -> Application {
    Application(answer)
}

impl Service<Request<Empty<bytes::Bytes>>> for Application {
    type Response = Response<Empty<bytes::Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<bytes::Bytes>>) -> Self::Future {
        std::future::ready(Ok((self.0)(request).expect("a response")))
    }
}

#[tokio::test]
async fn a_panic_of_an_observer_or_a_source_of_metadata_costs_no_decision_and_no_permit() {
    let server = serve("{domain: d, descriptors: []}", &[]);
    let client = |address: &str| {
        let client = Tidegate::builder(address).domain("d").timeout(Duration::from_secs(10));
        client.observer(|_, _| panic!("of an observer")).metadata(|_| panic!("of a source"))
    };
    let decided = client(&server.address).build().expect("a client");
    assert_eq!(decided.limit([("user", "a")]).await.expect("a decision").reason, Reason::Decided);
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let (_, refused) = misbehaving("refused");
    let client = client(&refused).clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
    let client = client.breaker(1, Duration::from_secs(1)).build().expect("a client");
    for (at, error) in
        [(0, "UNAVAILABLE"), (0, "BREAKER_OPEN"), (1, "UNAVAILABLE"), (1, "BREAKER_OPEN"), (2, "UNAVAILABLE")]
    {
        now.store(at, Ordering::Relaxed);
        let decision = client.limit([("user", "a")]).await.expect("a decision");
        assert_eq!(decision.error, Some(error), "at {at}");
    }
    let without_key = client.limit(Descriptor::new([("", "a")])).await;
    assert!(matches!(without_key, Err(Error::Request(_))), "{without_key:?}");
}
