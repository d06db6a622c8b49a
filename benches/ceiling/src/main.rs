//! Servers that answer every `ShouldRateLimit` alike, without a rule or a counter: what the transport alone costs, and
//! so what a server over it can reach.
//!
//! Each has one current-thread runtime, the allocator that Tidegate has, and TCP_NODELAY.

mod bare;
mod full;
mod pb;

use pb::{
    RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
};
use std::{io, net::SocketAddr, process::ExitCode};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Answers every ShouldRateLimit with OK, from nothing.
#[derive(clap::Parser)]
struct Arguments {
    /// What stands between the wire and the answer
    transport: Transport,
    /// Where to listen
    address: SocketAddr,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Transport {
    /// Tonic: messages decoded and encoded
    Tonic,
    /// Hyper alone: bytes read and bytes written
    Hyper,
}

fn main() -> ExitCode {
    match run(&clap::Parser::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.address).await?;
        match arguments.transport {
            Transport::Tonic => full::serve(listener).await,
            Transport::Hyper => bare::serve(listener).await,
        }
    })
}

/// 999 of 1,000 a minute remain, all of them in 30 seconds.
fn answer() -> RateLimitResponse {
    let limit = RateLimit { requests_per_unit: 1_000, unit: Unit::Minute.into(), name: String::new() };
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(limit),
        limit_remaining: 999,
        duration_until_reset: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
        quota: None,
    };
    RateLimitResponse { overall_code: Code::Ok.into(), statuses: vec![status], ..Default::default() }
}
