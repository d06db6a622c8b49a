//! Each fault, as a client sees it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::{
        RateLimitRequest,
        rate_limit_response::{Code, rate_limit::Unit},
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

/// A running server; killed when dropped.
struct Faulty {
    child: Child,
    address: String,
}

impl Faulty {
    fn start(fault: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faulty-server"));
        let mut child = command.arg(fault).stderr(Stdio::piped()).spawn().expect("it starts");
        // Address and "serving".
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines().take(2);
        let lines: Vec<_> = lines.map(|line| line.expect("text")).collect();
        let address = lines[0].split('"').nth(7).expect("an address").to_owned();
        Self { child, address }
    }

    async fn client(&self) -> RateLimitServiceClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        RateLimitServiceClient::new(endpoint.connect().await.expect("a connection"))
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request() -> RateLimitRequest {
    let entry = Entry { key: "user".into(), value: "a".into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor], hits_addend: 0 }
}

#[tokio::test]
async fn each_fault_is_seen_by_its_client() {
    for (fault, expected) in [
        ("blackhole", Err(&[tonic::Code::DeadlineExceeded, tonic::Code::Cancelled][..])),
        (
            "reset",
            Err(&[
                tonic::Code::Unavailable,
                tonic::Code::Unknown,
                tonic::Code::Internal,
                tonic::Code::Cancelled,
            ]),
        ),
        ("unavailable", Err(&[tonic::Code::Unavailable])),
        ("slow=10s", Err(&[tonic::Code::DeadlineExceeded, tonic::Code::Cancelled])),
        ("slow=1ms", Ok(Code::Ok)),
        ("goaway", Ok(Code::Ok)),
        ("drain", Ok(Code::Ok)),
        ("garbage", Err(&[tonic::Code::Internal])),
    ] {
        let server = Faulty::start(fault);
        let mut client = server.client().await;
        let mut request = Request::new(request());
        request.set_timeout(Duration::from_millis(if expected.is_ok() { 10_000 } else { 500 }));
        match (client.should_rate_limit(request).await, expected) {
            (Ok(response), Ok(code)) => assert_eq!(response.into_inner().overall_code(), code, "{fault}"),
            (Err(status), Err(codes)) => assert!(codes.contains(&status.code()), "{fault}: {status}"),
            (seen, _) => panic!("{fault}: {seen:?}"),
        }
    }
}

/// Calls that are lost are counted: a client that sends a lost call again finds that a number was skipped.
#[tokio::test]
async fn a_lost_call_counts_and_the_next_response_states_how_many_arrived() {
    let server = Faulty::start("lost");
    let mut seen = Vec::new();
    for _ in 0..8 {
        let mut client = server.client().await;
        let response = client.should_rate_limit(request()).await;
        seen.push(response.ok().map(|response| {
            let status = response.into_inner().statuses.remove(0);
            let limit = status.current_limit.expect("clients report what remains of a limit");
            assert_eq!((limit.requests_per_unit, limit.unit()), (1_000, Unit::Hour));
            status.limit_remaining
        }));
    }
    assert_eq!(seen, [Some(999), None, Some(997), None, Some(995), None, Some(993), None]);
}
