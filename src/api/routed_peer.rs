//! The other end of a call that takes tonic's router.

use std::sync::Arc;

/// The peer of a routed call, and the verified names in its certificate, in the extensions of its request.
#[derive(Clone)]
pub(super) struct RoutedPeer(pub(super) Arc<str>, pub(super) Arc<[String]>);
