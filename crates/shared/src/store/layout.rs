//! The layout that the servers of a store agree on.

use crate::script::LAYOUT_VERSION;
use std::fmt::Write as _;
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
        Self { text: layout(&seed), seed }
    }

    /// The layout found in a store. None if its version is another one.
    pub(super) fn of(found: &str) -> Option<Self> {
        seed(found).map(Self::new)
    }
}

/// The value that holds the version of the layout and the secret of keys.
pub(super) fn layout(seed: &Seed) -> String {
    let mut text = format!("tidegate {LAYOUT_VERSION} ");
    for byte in seed.to_bytes() {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

/// The secret in the value. None if its version is another one.
pub(super) fn seed(layout: &str) -> Option<Seed> {
    let fields = layout.strip_prefix(&format!("tidegate {LAYOUT_VERSION} "))?;
    // An epoch may follow.
    let digits = fields.split_once(' ').map_or(fields, |(digits, _)| digits);
    // The parser of numbers would accept a sign.
    let is_complete = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = is_complete.then(|| u128::from_str_radix(digits, 16).ok())??;
    Some(Seed::from_bytes(bytes.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_read_only_from_a_layout_of_this_version() {
        let secret = Seed::from_bytes(*b"0123456789abcdef");
        assert_eq!(seed(&layout(&secret)), Some(secret.clone()));
        assert_eq!(seed(&layout(&secret).replace("tidegate 3", "tidegate 2")), None);
        assert_eq!(seed(&(layout(&secret) + " 1700000000000000 a-run")), Some(secret));
        assert_eq!(seed("tidegate 3 +123456789abcdef0123456789abcdef"), None);
    }
}
