//! Bearer tokens (RFC 6750): a request without a token of the file is refused with 401, unless the file lists a name in the client's
//! certificate.

use super::state::{ClientAddress, HttpState};
use crate::api::bearer_token::bearer_token;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::WWW_AUTHENTICATE},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tidegate_operations::control::Role;

/// A request without a token gets no error code, as RFC 6750 requires.
const NO_TOKEN: (&str, &str) =
    (r#"Bearer realm="tidegate""#, "send a token: `authorization: Bearer TOKEN`\n");

const INVALID_TOKEN: (&str, &str) = (
    r#"Bearer realm="tidegate", error="invalid_token""#,
    "the token has no line in the file of --http-token-file\n",
);

pub(super) async fn require_token(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let Some(tokens) = &state.tokens else { return next.run(request).await };
    let (challenge, reason) = match bearer_token(request.headers()) {
        None => {
            let client = request.extensions().get::<ClientAddress>();
            if client
                .is_some_and(|ClientAddress(_, names)| tokens.load().find_client(names, Role::None).is_some())
            {
                return next.run(request).await;
            }
            NO_TOKEN
        }
        Some(token) => match tokens.load().name_of(token) {
            Some(name) => {
                tracing::trace!(name, path = request.uri().path(), "request with a token");
                return next.run(request).await;
            }
            None => INVALID_TOKEN,
        },
    };
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)], reason).into_response()
}

impl HttpState {
    /// Whether the sender of a request that was let through has a role; true where no token is needed at all.
    pub(super) fn has_role(&self, headers: &HeaderMap, client: Option<&ClientAddress>) -> bool {
        let Some(tokens) = self.tokens.as_ref().map(|tokens| tokens.load()) else { return true };
        let of_token = bearer_token(headers).and_then(|token| tokens.find(token));
        let of_client = client.and_then(|ClientAddress(_, names)| tokens.find_client(names, Role::Read));
        of_token.or(of_client).is_some_and(|(_, role)| role.permits(Role::Read))
    }
}
