//! Fuzz bridge.

use super::arguments::descriptor::DescriptorText;

pub use super::commands::bench::fuzz_bridge::http2_client;

/// The entries of a descriptor as people write it; none if it is refused.
pub fn descriptor_text(text: &str) -> Option<Vec<(String, String)>> {
    text.parse().ok().map(|DescriptorText(entries)| entries)
}
