//! Requests that the port refuses before their route. Each is counted by its reason. Refused requests for decisions are also logged, one a
//! second for each reason, since their senders may then admit what was not decided.

use super::{limitador, paths, state::HttpState};
use crate::api::refusals::refuse_at_http_port;
use axum::{http::StatusCode, response::Response};
use std::sync::Arc;
use tidegate_service::HttpRefusal;

/// The text of a refusal, with the remedy; in the extensions of its response.
#[derive(Clone)]
pub(super) struct RefusalText(pub(super) Arc<str>);

/// Marks a response as a refusal for a reason that its status does not show.
pub(super) fn refused(refusal: HttpRefusal, mut response: Response) -> Response {
    response.extensions_mut().insert(refusal);
    response
}

/// Whether the sender of a request to this path expects a decision.
pub(super) fn expects_decision(path: &str) -> bool {
    path == paths::JSON || limitador::DECISIONS.contains(&path)
}

/// Counts the response if it is a refusal, and logs it if its sender expects a decision.
pub(super) fn note(state: &HttpState, expects_decision: bool, peer: &str, response: &Response) {
    let marked = response.extensions().get::<HttpRefusal>().copied();
    let Some(refusal) = marked.or_else(|| of_status(response.status())) else { return };
    state.refusals().count(refusal);
    // Clients of the API use the right method; a browser that opens the path does not.
    if expects_decision && refusal != HttpRefusal::Method {
        refuse_at_http_port(&state.service, refusal, peer, &cause(response));
    }
}

/// The text of a refusal, which its caller rarely shows to anyone; or the status, if it has none.
fn cause(response: &Response) -> String {
    let text = response.extensions().get::<RefusalText>();
    text.map_or_else(|| response.status().to_string(), |text| text.0.trim_end().to_owned())
}

/// Reason of a refusal with this status. For other statuses the service counts the reason, or nothing was refused.
fn of_status(status: StatusCode) -> Option<HttpRefusal> {
    match status {
        StatusCode::UNAUTHORIZED => Some(HttpRefusal::Unauthorized),
        StatusCode::NOT_FOUND => Some(HttpRefusal::NotFound),
        StatusCode::METHOD_NOT_ALLOWED => Some(HttpRefusal::Method),
        StatusCode::PAYLOAD_TOO_LARGE => Some(HttpRefusal::BodyBytes),
        StatusCode::REQUEST_TIMEOUT => Some(HttpRefusal::BodyTimeout),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::whole_body::closing, *};

    /// The line had the status alone, such as `421 Misdirected Request`.
    #[test]
    fn the_cause_in_the_log_is_the_text_of_the_refusal_with_its_remedy() {
        let response = closing(StatusCode::MISDIRECTED_REQUEST, "add it with --http-allowed-hosts\n");
        let refused = refused(HttpRefusal::Origin, response);
        assert_eq!(cause(&refused), "add it with --http-allowed-hosts");
        let without = Response::builder().status(StatusCode::NOT_FOUND).body(axum::body::Body::empty());
        assert_eq!(cause(&without.unwrap()), "404 Not Found");
    }
}
