//! Bearer tokens (RFC 6750): a request without a token of the file is refused with 401, unless the file lists a name in the client's
//! certificate.

use super::state::HttpState;
use crate::api::{bearer_token::bearer_token, client::Client};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::WWW_AUTHENTICATE},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tidegate_operations::control::{Credential, Role};

/// A request without a token gets no error code, as RFC 6750 requires.
const NO_TOKEN: (&str, &str) =
    (r#"Bearer realm="tidegate""#, "send a token: `authorization: Bearer TOKEN`\n");

const INVALID_TOKEN: (&str, &str) = (
    r#"Bearer realm="tidegate", error="invalid_token""#,
    "the token has no line in the file of --http-token-file\n",
);

pub(super) async fn require_token(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let Some(tokens) = &state.tokens else { return next.run(request).await };
    let token = bearer_token(request.headers());
    let (_, names) = Client::of(request.extensions());
    if let Credential::Known(actor, _) = tokens.load().credential(token, names, Role::None) {
        tracing::trace!(actor, path = request.uri().path(), "request with credentials");
        return next.run(request).await;
    }
    let (challenge, reason) = if token.is_some() { INVALID_TOKEN } else { NO_TOKEN };
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)], reason).into_response()
}

impl HttpState {
    /// Whether the sender of a request that was let through has a role; true where no token is needed at all.
    pub(super) fn has_role(&self, headers: &HeaderMap, client: &Client) -> bool {
        let Some(tokens) = self.tokens.as_ref().map(|tokens| tokens.load()) else { return true };
        tokens.credential(bearer_token(headers), &client.names, Role::Read).permits(Role::Read)
    }
}
