//! The layout that the servers of a store agree on.

use crate::script::LAYOUT_VERSION;
use tidegate_core::store::Seed;

/// The layout that the servers of a store agree on.
pub(super) struct Layout {
    /// Value of the key of the layout: its version and the secret.
    pub(super) text: String,
    /// The secret of keys.
    pub(super) seed: Seed,
}

impl Layout {
    pub(super) fn new(seed: Seed) -> Self {
        let secret = u128::from_be_bytes(seed.to_bytes());
        Self { text: format!("tidegate {LAYOUT_VERSION} {secret:032x}"), seed }
    }

    /// The layout found in a store. None if its version is another one.
    pub(super) fn of(found: &str) -> Option<Self> {
        let fields = found.strip_prefix(&format!("tidegate {LAYOUT_VERSION} "))?;
        // An epoch may follow.
        let digits = fields.split_once(' ').map_or(fields, |(digits, _)| digits);
        // The parser of numbers would accept a sign.
        let is_complete = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = is_complete.then(|| u128::from_str_radix(digits, 16).ok())??;
        Some(Self::new(Seed::from_bytes(bytes.to_be_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_read_only_from_a_layout_of_this_version() {
        let secret = Seed::from_bytes(*b"0123456789abcdef");
        let seed = |text: &str| Layout::of(text).map(|layout| layout.seed);
        let text = Layout::new(secret.clone()).text;
        assert_eq!(text, "tidegate 3 30313233343536373839616263646566");
        assert_eq!(seed(&text), Some(secret.clone()));
        assert_eq!(seed(&text.replace("tidegate 3", "tidegate 2")), None);
        assert_eq!(seed(&(text + " 1700000000000000 a-run")), Some(secret));
        assert_eq!(seed("tidegate 3 +123456789abcdef0123456789abcdef"), None);
    }
}
