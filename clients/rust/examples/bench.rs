//! Measures the client beside a bare tonic stub, for `cargo xtask clients --bench`.
//!
//! The server at `TIDEGATE_ADDR` has the domain `bench` with a key `admitted`, which is never denied, and a key `denied`, which is always
//! denied after its first hit.

#![allow(clippy::disallowed_methods, reason = "a measurement of real time")]

use http::uri::PathAndQuery;
use proto::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, rate_limit_descriptor::Entry,
    rate_limit_response::Code,
};
use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};
use tidegate_client::{Reason, Tidegate};
use tonic::{
    client::Grpc,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

#[allow(dead_code, reason = "the stub needs a part of it")]
mod proto {
    include!("../src/generated/tidegate.client.v1.rs");
}

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const ROUNDS: usize = 10;
const SEQUENTIAL_CALLS: usize = 500;
const CALLERS: usize = 64;
const CALLS_PER_CALLER: usize = 100;
const LOCAL_DENIALS: u32 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error + Send + Sync>;

/// A caller of the server: the stub or the client.
#[derive(Clone)]
enum Caller {
    Stub(Channel),
    Client(Tidegate),
}

impl Caller {
    async fn call(&self) {
        match self {
            Self::Stub(channel) => {
                let entry = Entry { key: "admitted".to_owned(), value: "alice".into() };
                let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
                let message = RateLimitRequest {
                    domain: "bench".to_owned(),
                    descriptors: vec![descriptor],
                    hits_addend: 0,
                };
                let mut request = tonic::Request::new(message);
                request.metadata_mut().insert("tidegate-precision", MetadataValue::from_static("exact"));
                request.set_timeout(TIMEOUT);
                let mut grpc = Grpc::new(channel.clone());
                grpc.ready().await.expect("a connection");
                let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
                let response = grpc.unary(request, PathAndQuery::from_static(METHOD), codec).await;
                assert_eq!(response.expect("a response").get_ref().overall_code(), Code::Ok);
            }
            Self::Client(client) => {
                let decision = client.limit([("admitted", "alice")]).await.expect("a decision");
                assert!(decision.allowed && decision.reason == Reason::Decided, "{decision:?}");
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // On a worker thread, as the handlers of a server are.
    tokio::spawn(measure()).await?
}

async fn measure() -> Result<(), Failure> {
    let address = env::var("TIDEGATE_ADDR")?;
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
    let client = Tidegate::builder(address).domain("bench").timeout(TIMEOUT).build()?;
    let local_denial_us = local_denial(&client).await?;
    let callers = [Caller::Stub(channel), Caller::Client(client)];
    let [stub_p50_us, client_p50_us] = sequential(&callers).await;
    let [stub_per_s, client_per_s] = concurrent(&callers).await?;
    println!(
        "{{\"stub_p50_us\": {stub_p50_us}, \"client_p50_us\": {client_p50_us}, \"stub_per_s\": {stub_per_s}, \
         \"client_per_s\": {client_per_s}, \"local_denial_us\": {local_denial_us}}}"
    );
    Ok(())
}

/// Returns the median times of sequential calls in microseconds, each of its best round.
async fn sequential(callers: &[Caller; 2]) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (caller, best) in callers.iter().zip(&mut best) {
            let mut times = Vec::with_capacity(SEQUENTIAL_CALLS);
            for _ in 0..SEQUENTIAL_CALLS {
                let started = Instant::now();
                caller.call().await;
                times.push(started.elapsed());
            }
            times.sort_unstable();
            *best = best.min(times[times.len() / 2].as_secs_f64() * 1e6);
        }
    }
    best
}

/// Returns the numbers of calls per second, each of its best round.
async fn concurrent(callers: &[Caller; 2]) -> Result<[f64; 2], Failure> {
    let mut best = [0_f64; 2];
    for _ in 0..ROUNDS {
        for (caller, best) in callers.iter().zip(&mut best) {
            let started = Instant::now();
            let tasks = (0..CALLERS).map(|_| {
                let caller = caller.clone();
                tokio::spawn(async move {
                    for _ in 0..CALLS_PER_CALLER {
                        caller.call().await;
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await?;
            }
            *best = best.max((CALLERS * CALLS_PER_CALLER) as f64 / started.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}

/// Returns the time of a denial without a call, in microseconds: the least mean of a round.
async fn local_denial(client: &Tidegate) -> Result<f64, tidegate_client::Error> {
    while client.limit([("denied", "alice")]).await?.allowed {}
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..LOCAL_DENIALS {
            let decision = client.limit([("denied", "alice")]).await?;
            assert_eq!(decision.reason, Reason::DeniedLocally);
        }
        least = least.min(started.elapsed().as_secs_f64() * 1e6 / f64::from(LOCAL_DENIALS));
    }
    Ok(least)
}
