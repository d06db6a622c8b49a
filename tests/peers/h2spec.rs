//! The conformance tests of h2spec: against a service that reads every body before it responds, and against the server.

use crate::support::Server;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{
    process::Command,
    sync::{Arc, LazyLock},
};
use tidegate_http2::{FieldNames, Fields, Http2Settings, RequestBody, Responses, Service};
use tokio::net::TcpListener;

/// Responds to every request once it has read all of it: to requests for `/fast` on the fast path, to others by a task.
struct Reader;

impl Service for Reader {
    type FastPath = ();
    type Call<'b> = ();
    type Body = Full<Bytes>;

    fn field_names() -> &'static FieldNames {
        static NAMES: LazyLock<FieldNames> = LazyLock::new(|| FieldNames::new([]));
        &NAMES
    }

    fn fast_path(&self, head: Fields<'_>) -> Option<()> {
        (head.get(b":path") == Some(b"/fast")).then_some(())
    }

    fn decode(&self, (): (), _: &[u8], (): &mut ()) -> bool {
        true
    }

    fn respond(&self, calls: &[()], responses: &mut impl Responses) {
        for () in calls {
            responses.push(0, |out| out.extend_from_slice(b"fast"));
        }
    }

    async fn route(self: Arc<Self>, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        // A request that the client cancels needs no response.
        let _ = request.into_body().collect().await;
        Response::new(Full::new(Bytes::from_static(b"routed")))
    }
}

/// Runs of each suite: if an order of frames depends on timing, some of them fail.
const RUNS: usize = 5;

/// Asserts that h2spec passes, in every run.
async fn passes(port: u16, args: &'static [&'static str]) {
    for run in 0..RUNS {
        let ran = tokio::task::spawn_blocking(move || {
            let mut h2spec = Command::new("h2spec");
            h2spec.args(["--host", "127.0.0.1", "--timeout", "5", "--port", &port.to_string()]).args(args);
            h2spec.output().expect("h2spec runs")
        });
        let ran = ran.await.expect("nothing panics");
        let output = String::from_utf8_lossy(&ran.stdout);
        let failures = output.split("Failures:").nth(1).unwrap_or(&output);
        assert!(ran.status.success() && output.contains(" 0 failed"), "run {run}: {failures}");
    }
}

async fn conforms(args: &'static [&'static str]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let never = std::future::pending();
            tokio::spawn(tidegate_http2::serve(
                stream,
                Arc::new(Reader),
                Http2Settings::default(),
                Arc::default(),
                None,
                never,
            ));
        }
    });
    passes(port, args).await;
    accepting.abort();
}

async fn routed_requests_conform() {
    conforms(&["--path", "/"]).await;
}

async fn requests_of_the_fast_path_conform() {
    conforms(&["--path", "/fast"]).await;
}

/// The server refuses the requests of h2spec by their headers, since they are not gRPC: its response precedes much of what the tests send.
async fn the_server_conforms() {
    let server = Server::start(&[]);
    let port = server.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    passes(port.expect("host:port"), &[]).await;
}

crate::tests_with! { H2SPEC:
    routed_requests_conform,
    requests_of_the_fast_path_conform,
    the_server_conforms,
}
