//! axum: a limited application.
//!
//! `cargo run --example axum 8000`; `curl -H 'x-api-key: alice' 127.0.0.1:8000`

use axum::{Extension, Router, routing::get};
use std::{env, error::Error};
use tidegate_client::{Decision, Key, Missing, RateLimitLayer, Tidegate};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("TIDEGATE_ADDR").unwrap_or_else(|_| "127.0.0.1:8081".to_owned());
    let client = Tidegate::builder(address).domain("demo").build()?;
    let layer = RateLimitLayer::new(client, [Key::header("api_key", "x-api-key", Missing::Reject)]);
    let app = Router::new().route("/", get(hello)).layer(layer);
    let port = env::args().nth(1).unwrap_or_else(|| "8000".to_owned());
    axum::serve(TcpListener::bind(format!("127.0.0.1:{port}")).await?, app).await?;
    Ok(())
}

async fn hello(Extension(decision): Extension<Decision>) -> String {
    format!("hello, {} left\n", decision.remaining.unwrap_or(0))
}
