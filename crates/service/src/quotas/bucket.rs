//! The name of a bucket: keys with values, in no order.

use std::{fmt, sync::Arc};
use tidegate_core::limit::Entry;

/// Keys with values, sorted by key. In one piece, since there are many: each text with its length before it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(Arc<str>);

impl Bucket {
    /// A bucket with these keys and values, in any order.
    pub fn new<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut pairs: Vec<(&str, &str)> = pairs.into_iter().collect();
        pairs.sort_unstable();
        let texts = pairs.into_iter().flat_map(|(key, value)| [key, value]);
        Self(texts.map(|text| format!("{}:{text}", text.len())).collect::<String>().into())
    }

    /// Length of its texts.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The keys with their values, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = &*self.0;
        let mut next = move || {
            let (length, after) = rest.split_once(':')?;
            let (text, after) = after.split_at_checked(length.parse().ok()?)?;
            rest = after;
            Some(text)
        };
        std::iter::from_fn(move || Some(Entry { key: next()?, value: next()? }))
    }
}

/// `key=value, key=value`.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Entry { key, value }) in self.entries().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{key}={value:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_bucket_has_its_pairs_in_any_order(
            pairs in proptest::collection::btree_map("[a:3é]{1,4}", "[a:3é]{0,4}", 0..5),
        ) {
            let forwards = Bucket::new(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            let backwards = Bucket::new(pairs.iter().rev().map(|(key, value)| (key.as_str(), value.as_str())));
            prop_assert_eq!(&forwards, &backwards);
            let read: BTreeMap<String, String> =
                forwards.entries().map(|entry| (entry.key.to_owned(), entry.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }
    }
}
