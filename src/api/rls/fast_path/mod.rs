//! The fast path of `ShouldRateLimit`: the request is decoded from where the connection put it, and the response is
//! encoded where the connection sends it from. No allocation.

mod decode;
mod encode;
mod wire;

pub(in crate::api) use decode::read;
pub(in crate::api) use encode::{framed, framed_message};

#[cfg(any(test, feature = "fuzzing"))]
use tidegate_core::limit::{Request, RequestLimits};

/// The request of a message of the common form; none of any other.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn request<'m>(message: &'m [u8], limits: &RequestLimits) -> Option<Request<'m>> {
    let mut request = Request::default();
    read(message, limits, &mut request).ok().map(|()| request)
}
