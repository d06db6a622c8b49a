//! The client of a request that takes a router: tonic's, or that of the HTTP port.

use axum::extract::FromRequestParts;
use http::{Extensions, request::Parts};
use std::{convert::Infallible, sync::Arc};

/// The client of a request, in its extensions.
#[derive(Clone, Default)]
pub(super) struct Client {
    /// See [`CallOrigin::peer`](tidegate_service::CallOrigin).
    pub(super) peer: Arc<str>,
    /// The verified names in its certificate.
    pub(super) names: Arc<[String]>,
}

impl Client {
    /// The peer and the names of the client; empty if no connection has set them.
    pub(super) fn of(extensions: &Extensions) -> (&str, &[String]) {
        extensions.get::<Self>().map_or(("", &[]), |Self { peer, names }| (peer, names))
    }
}

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
