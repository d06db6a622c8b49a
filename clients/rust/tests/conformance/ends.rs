//! Cases of ends: the layer under axum, by responses that end in every way.

use crate::{client, list, serve, text};
use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tidegate_client::{Key, RateLimitLayer, Tidegate};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

const LARGE: usize = 8 << 20;

/// The application; a handler of `/slow` notifies that it has begun.
fn application(reached: Arc<Notify>) -> Router {
    let slow = move || {
        let reached = Arc::clone(&reached);
        async move {
            reached.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let late = get(std::future::pending::<()>).layer(from_fn(in_time));
    Router::new()
        .route("/body", get(|| async { "body" }))
        .route("/none", get(|| async { StatusCode::NO_CONTENT }))
        .route("/same", get(|| async { StatusCode::NOT_MODIFIED }))
        .route("/error", get(|| async { (StatusCode::INTERNAL_SERVER_ERROR, "an error") }))
        .route("/large", get(|| async { vec![b'x'; LARGE] }))
        .route("/raise", get(raise))
        .route("/slow", get(slow))
        .route("/late", late)
}

async fn raise() {
    // Without the hook's message, which is for failing tests.
    std::panic::resume_unwind(Box::new("of the handler"));
}

async fn in_time(request: Request, next: Next) -> Response {
    let response = tokio::time::timeout(Duration::from_millis(20), next.run(request)).await;
    response.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
}

pub async fn check(case: &Value) {
    let file: Value =
        serde_json::from_str(include_str!("../../../conformance/cases/ends.json")).expect("JSON");
    let server = serve(text(&file["rules"]), &[]);
    let client = client(&server.address).build().expect("a client");
    let reached = Arc::new(Notify::new());
    let layer = RateLimitLayer::new(client.clone(), [Key::constant("route", "all")]);
    let application = application(Arc::clone(&reached)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, application).await });

    let mut stream = TcpStream::connect(&address).await.expect("it listens");
    let head = format!(
        "{} {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        text(&case["method"]),
        text(&case["path"])
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    if case["client"] == "aborts" {
        reached.notified().await;
        assert_eq!(left(&client).await, Some(0), "while the handler runs");
    } else {
        let mut response = vec![0; 1024];
        let length = stream.read(&mut response).await.expect("a response");
        let status = String::from_utf8_lossy(&response[..length]).split(' ').nth(1).map(str::to_owned);
        // hyper closes the connection of a handler that panics.
        let status: u64 = status.map_or(500, |status| status.parse().expect("a status"));
        assert!(list(&case["status"]).contains(&status.into()), "{status}");
        if case["client"] == "reads" {
            _ = stream.read_to_end(&mut response).await;
        }
    }
    drop(stream);
    let deadline = Instant::now() + Duration::from_secs(5);
    while left(&client).await != Some(1) {
        assert!(Instant::now() < deadline, "the slot stays held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn left(client: &Tidegate) -> Option<u32> {
    client.peek([("route", "all")]).await.expect("a decision").remaining
}
