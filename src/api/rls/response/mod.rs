//! What an answer says besides its verdict and its statuses: what rules want done with their denials, and what the server
//! is set to tell of every decision.
//!
//! Unless it is set to, an answer says nothing of all this but for denials whose rules want it, and costs nothing for it.

mod headers;
mod metadata;
mod on_deny;

pub use headers::{PlainHeaders, ResponseHeaders};

use crate::api::pb::service::RateLimitResponse;
use crate::limit::{Decision, Request};

/// What the server is set to tell of every decision. Unless set, nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Extras {
    /// What was asked, and which rules and limits are over, as metadata for the proxy's logs and filters.
    pub dynamic_metadata: bool,
    /// How much is left and how long to wait, as headers for the client.
    pub headers: ResponseHeaders,
}

/// Adds all there is to an answer that has its verdict and its statuses.
pub(super) fn add(
    extras: Option<&Extras>,
    request: &Request<'_>,
    decision: &Decision<'_>,
    message: &mut RateLimitResponse,
) {
    let denial = decision.denial();
    if let Some(denial) = &denial {
        on_deny::tell(denial, message);
    }
    let Some(extras) = extras else { return };
    headers::add(&extras.headers, decision, denial.as_ref(), message);
    if extras.dynamic_metadata {
        message.dynamic_metadata = Some(metadata::of(request, decision, denial.as_ref()));
    }
}
