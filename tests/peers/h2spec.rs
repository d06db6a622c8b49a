//! The conformance tests of h2spec against our HTTP/2: over a service that reads every body before it answers, since
//! much of the protocol shows only while a request is under way; and the same over the real server.

use crate::support::Server;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{process::Command, sync::Arc};
use tidegate::http2::{self, Fields, Http2Settings, RequestBody, Responses, Service};
use tokio::net::TcpListener;

/// Responses every request with a few bytes, once it has read all of it: those to `/fast` at once, the others by a task.
struct Reader;

impl Service for Reader {
    type FastPath = ();
    type Call<'b> = ();
    type Body = Full<Bytes>;

    fn fast_path(&self, head: &Fields) -> Option<()> {
        (head.get(b":path") == Some(b"/fast")).then_some(())
    }

    fn decode(&self, (): (), _: &[u8], (): &mut ()) -> bool {
        true
    }

    fn respond(&self, calls: &[()], responses: &mut impl Responses) {
        for () in calls {
            responses.push(|out| out.extend_from_slice(b"fast"));
        }
    }

    async fn route(self: Arc<Self>, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        // What the client breaks off needs no answer.
        let _ = request.into_body().collect().await;
        Response::new(Full::new(Bytes::from_static(b"routed")))
    }
}

/// Holds that every test that the arguments choose passes.
async fn passes(port: u16, args: &'static [&'static str]) {
    let ran = tokio::task::spawn_blocking(move || {
        let mut h2spec = Command::new("h2spec");
        h2spec.args(["--host", "127.0.0.1", "--timeout", "5", "--port", &port.to_string()]).args(args);
        h2spec.output().expect("h2spec runs")
    });
    let ran = ran.await.expect("nothing panics");
    let said = String::from_utf8_lossy(&ran.stdout);
    let failures = said.split("Failures:").nth(1).unwrap_or(&said);
    assert!(ran.status.success() && said.contains(" 0 failed"), "{failures}");
}

async fn conforms(args: &'static [&'static str]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let never = std::future::pending();
            tokio::spawn(http2::serve(
                stream,
                Arc::new(Reader),
                Http2Settings::default(),
                Arc::default(),
                never,
            ));
        }
    });
    passes(port, args).await;
    accepting.abort();
}

async fn requests_that_are_routed_conform() {
    conforms(&["--path", "/"]).await;
}

async fn requests_that_are_answered_at_once_conform() {
    conforms(&["--path", "/fast"]).await;
}

/// h2spec's requests are not gRPC: the server refuses each by its head, and some tests look for what comes later.
async fn the_real_server_breaks_no_rule_that_a_refused_request_can_show() {
    let server = Server::start(&[]);
    let port = server.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    passes(port.expect("host:port"), &["hpack"]).await;
}

crate::tests_with! { H2SPEC:
    requests_that_are_routed_conform,
    requests_that_are_answered_at_once_conform,
    the_real_server_breaks_no_rule_that_a_refused_request_can_show,
}
