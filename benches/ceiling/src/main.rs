//! Servers that return a constant to every `ShouldRateLimit`: the cost of the transport alone, a lower bound for a server
//! built on it.
//!
//! Each uses one current-thread runtime, the allocator of Tidegate, and TCP_NODELAY.

mod bare;
mod full;
mod pb;
mod secure;

use pb::{
    RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
};
use std::{io, net::SocketAddr, path::PathBuf, process::ExitCode};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns OK to every ShouldRateLimit.
#[derive(clap::Parser)]
struct Arguments {
    /// Library that serves HTTP/2
    transport: Transport,
    /// Address to listen on
    address: SocketAddr,
    /// Certificate chain as PEM, for TLS
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Transport {
    /// tonic: messages decoded and encoded
    Tonic,
    /// Bare hyper: bytes read and bytes written
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
        let tls = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref());
        match (arguments.transport, tls) {
            (Transport::Tonic, None) => full::serve(listener).await,
            (Transport::Tonic, Some((cert, key))) => {
                full::serve_connections(secure::incoming(listener, cert, key)?).await
            }
            (Transport::Hyper, None) => bare::serve(listener).await,
            (Transport::Hyper, Some(_)) => Err(io::Error::other("hyper serves without TLS here")),
        }
    })
}

/// 999 of 1,000 per minute remaining, reset in 30 s.
fn answer() -> RateLimitResponse {
    let limit = RateLimit { requests_per_unit: 1_000, unit: Unit::Minute.into(), ..RateLimit::default() };
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(limit),
        limit_remaining: 999,
        duration_until_reset: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
        quota: None,
        mode: 0,
        estimated: false,
    };
    RateLimitResponse { overall_code: Code::Ok.into(), statuses: vec![status], ..Default::default() }
}
