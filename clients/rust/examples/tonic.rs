//! tonic: a limited gRPC server, with a method that returns its request.
//!
//! `cargo run --example tonic 8000`; `cargo run --example tonic 8000 call`

use http::uri::PathAndQuery;
use std::{
    convert::Infallible,
    env,
    error::Error,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};
use tidegate_client::{Key, Missing, RateLimitLayer, Tidegate};
use tonic::{
    Request, Response, Status,
    body::Body,
    metadata::MetadataValue,
    server::{NamedService, UnaryService},
    transport::{Channel, Server},
};
use tonic_prost::ProstCodec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let port = arguments.get(1).map_or("8000", String::as_str);
    if arguments.get(2).is_some_and(|argument| argument == "call") {
        return call(port).await;
    }
    let address = env::var("TIDEGATE_ADDR").unwrap_or_else(|_| "127.0.0.1:8081".to_owned());
    let client = Tidegate::builder(address).domain("demo").build()?;
    let layer = RateLimitLayer::new(client, [Key::header("api_key", "x-api-key", Missing::Reject)]);
    Server::builder().layer(layer).add_service(Echo).serve(format!("127.0.0.1:{port}").parse()?).await?;
    Ok(())
}

async fn call(port: &str) -> Result<(), Box<dyn Error>> {
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))?.connect().await?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let mut request = Request::new("hello".to_owned());
    request.metadata_mut().insert("x-api-key", MetadataValue::from_static("alice"));
    let path = PathAndQuery::from_static("/sample.Echo/Say");
    let response: Response<String> = grpc.unary(request, path, ProstCodec::default()).await?;
    println!("{} {:?}", response.get_ref(), response.metadata().get("ratelimit"));
    Ok(())
}

/// The service `sample.Echo`, as code that is generated from a `.proto` file would have it.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "sample.Echo";
}

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let codec = ProstCodec::<String, String>::default();
        Box::pin(async move { Ok(tonic::server::Grpc::new(codec).unary(Say, request).await) })
    }
}

struct Say;

impl UnaryService<String> for Say {
    type Response = String;
    type Future = Ready<Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}
