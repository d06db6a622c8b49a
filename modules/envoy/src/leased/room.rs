//! The room in a message to the server.
//!
//! Invariant: whatever values a client sends, a request with at most [`value_bytes_max`] bytes of each value fits into a message, unless the
//! configuration leaves no room for a hash of each value.

use super::messages::OTHER_BYTES;
use tidegate_core::limit::CUT_BYTES;
use tidegate_envoy_config::{Draft, Policy};
use tidegate_http2::client::BODY_MAX;

/// Bytes of the decisions or claims of a message.
pub(super) const CONTENT_BYTES_MAX: usize = BODY_MAX - OTHER_BYTES;
/// Bytes of a message before its content: compression and length, tag and length of a decision.
pub(super) const FRAMING_BYTES: usize = 16;
/// Bytes of an encoded request.
pub(super) const REQUEST_BYTES_MAX: usize = CONTENT_BYTES_MAX - FRAMING_BYTES;

/// Bytes of a request besides its domain and descriptors, at most.
const DOMAIN_BYTES: usize = 4;
/// Bytes of a descriptor besides its entries, at most: its limit and hits, and the entry by which its renewal names a ticket of two counters.
const DESCRIPTOR_BYTES: usize = 32 + 128;
/// Bytes of an entry besides its key and value, at most.
const ENTRY_BYTES: usize = 12;
/// Bytes of a value in a request whose values do not all fit.
const VALUE_BYTES_MAX: usize = 1024 + CUT_BYTES;

/// The most bytes of a value that a message to the server has as a whole, at least [`CUT_BYTES`]. Of longer values it has as many bytes: the
/// first part, with a hash.
pub(crate) fn value_bytes_max<'p>(
    domain: &str,
    drafts: &[Draft<'_>],
    policies: impl Iterator<Item = &'p Policy>,
) -> usize {
    let descriptors = drafts.iter().map(|draft| DESCRIPTOR_BYTES + draft.bytes(ENTRY_BYTES));
    let bytes = DOMAIN_BYTES + domain.len() + descriptors.sum::<usize>();
    if bytes <= REQUEST_BYTES_MAX { usize::MAX } else { share(domain, policies) }
}

/// An equal share of the room for each value. It depends on the configuration only: a client that could change it would get another text,
/// and another counter, for the same value.
#[cold]
fn share<'p>(domain: &str, policies: impl Iterator<Item = &'p Policy>) -> usize {
    let (mut bytes, mut entries) = (DOMAIN_BYTES + domain.len(), 0);
    for policy in policies {
        bytes += DESCRIPTOR_BYTES;
        for key in policy.keys() {
            bytes += ENTRY_BYTES + key.len();
            entries += 1;
        }
    }
    let share = REQUEST_BYTES_MAX.saturating_sub(bytes) / entries.max(1);
    if share < CUT_BYTES { usize::MAX } else { share.min(VALUE_BYTES_MAX) }
}
