//! `GET /console` and the files below it: the console, which calls the control API.
//!
//! The files are served without a token: they are the same in every server, and a browser sends none before its first page.

use super::{paths, state::HttpState};
use crate::{
    api::{client::Client, tokens::Tokens},
    console::{self, CONTENT_SECURITY_POLICY, File, INDEX},
};
use axum::{
    Router,
    extract::{Path, Request, State},
    http::{
        HeaderMap, Method, StatusCode,
        header::{
            ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY as CSP, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
            REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use tidegate_operations::control::Role;

/// The file that states whether this caller needs a token: without it, a visit without a token would be refused and audited.
const ACCESS: &str = "access.json";

/// The routes of the console.
pub(super) fn router() -> Router<HttpState> {
    Router::new()
        .route(paths::CONSOLE[0], get(|headers: HeaderMap| async move { serve(INDEX, &headers) }))
        // References in the page are relative to its path.
        .route("/console/", get(|| async { Redirect::permanent("../console") }))
        .route(&format!("{}/{ACCESS}", paths::CONSOLE[0]), get(access))
        .route(
            paths::CONSOLE[1],
            get(|Path(name): Path<String>, headers: HeaderMap| async move { serve(&name, &headers) }),
        )
}

/// Leads a browser that opens `/` to the console. Other clients get the list of paths there.
pub(super) async fn from_index(request: Request, next: Next) -> Response {
    let accepts = request.headers().get(ACCEPT).and_then(|accepts| accepts.to_str().ok());
    let is_browser = accepts.is_some_and(|accepts| accepts.contains("text/html"));
    if request.method() == Method::GET && request.uri().path() == paths::INDEX && is_browser {
        return Redirect::temporary("console").into_response();
    }
    next.run(request).await
}

/// `{"needsToken": true}` if callers have roles by tokens, and this one has none by its certificate.
async fn access(State(state): State<HttpState>, client: Client) -> impl IntoResponse {
    let has_role = |tokens: &Tokens| {
        tokens.find_client(&client.names, Role::Read).is_some_and(|(_, role)| role.permits(Role::Read))
    };
    let needs_token = state.tokens.as_ref().is_some_and(|tokens| !has_role(&tokens.load()));
    let body = serde_json::json!({ "needsToken": needs_token }).to_string();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some(File { media_type, content, .. }) = console::file(name) else {
        return (StatusCode::NOT_FOUND, "not found; the console is at /console\n").into_response();
    };
    let tag = console::entity_tag();
    let common = [
        (CONTENT_TYPE, *media_type),
        (CSP, CONTENT_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // A browser checks each time whether the file has changed, so that all files are of one version.
        (CACHE_CONTROL, "no-cache"),
        (ETAG, tag),
    ];
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, *content).into_response()
}
