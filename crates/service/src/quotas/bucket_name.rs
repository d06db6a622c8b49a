//! The name of a bucket: keys with values, in no order.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};
use tidegate_core::limit::{Entry, client_bytes, client_text};

/// Keys with values, sorted by key, in one string, as there are many names. Each text has its length before it. If a text was cut, an
/// [`UNCUT`] follows and then all texts in full, so that the client gets its own bytes back.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName(Arc<str>);

/// Begins the full texts, where a length would be otherwise.
const UNCUT: char = '!';

impl BucketName {
    /// A bucket with these keys and values, in any order.
    pub fn new<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        Self::of_bytes(pairs, usize::MAX)
    }

    /// A bucket as a client sends it, with each text cut at `bytes_max`. If a key is sent twice, the last value counts.
    pub fn of_bytes<'t>(pairs: impl IntoIterator<Item = (&'t [u8], &'t [u8])>, bytes_max: usize) -> Self {
        let pairs: BTreeMap<&[u8], &[u8]> = pairs.into_iter().collect();
        let texts = |bytes_max| {
            let texts = pairs.iter().flat_map(|(key, value)| [*key, *value]);
            texts.map(move |bytes| client_text(bytes, bytes_max))
        };
        let written = |text: Cow<'_, str>| format!("{}:{text}", text.len());
        let mut all: String = texts(bytes_max).map(written).collect();
        if texts(bytes_max).any(|text| text.len() > bytes_max) {
            all.push(UNCUT);
            all.extend(texts(usize::MAX).map(written));
        }
        Self(all.into())
    }

    /// Length of its texts.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The keys with their values, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut texts = Texts(&self.0);
        std::iter::from_fn(move || Some(Entry { key: texts.next()?, value: texts.next()? }))
    }

    /// The keys with their values, as the client sent them.
    pub fn sent(&self) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
        let mut texts = Texts(&self.0);
        while texts.next().is_some() {}
        let mut texts = Texts(texts.0.strip_prefix(UNCUT).unwrap_or(&self.0));
        std::iter::from_fn(move || Some((client_bytes(texts.next()?), client_bytes(texts.next()?))))
    }
}

/// The texts that are not read yet.
struct Texts<'b>(&'b str);

impl<'b> Iterator for Texts<'b> {
    type Item = &'b str;

    fn next(&mut self) -> Option<&'b str> {
        let (length, after) = self.0.split_once(':')?;
        let (text, after) = after.split_at_checked(length.parse().ok()?)?;
        self.0 = after;
        Some(text)
    }
}

/// `key=value, key=value`.
impl fmt::Debug for BucketName {
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

    proptest! {
        #[test]
        fn a_bucket_has_its_pairs_in_any_order(
            pairs in proptest::collection::btree_map("[a:3é]{1,4}", "[a:3é]{0,4}", 0..5),
        ) {
            let forwards = BucketName::new(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            let backwards = BucketName::new(pairs.iter().rev().map(|(key, value)| (key.as_str(), value.as_str())));
            prop_assert_eq!(&forwards, &backwards);
            let read: BTreeMap<String, String> =
                forwards.entries().map(|entry| (entry.key.to_owned(), entry.value.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn a_client_is_sent_its_own_bytes(
            pairs in proptest::collection::btree_map(
                proptest::collection::vec(any::<u8>(), 1..4), proptest::collection::vec(any::<u8>(), 0..30), 0..4,
            ),
            bytes_max in 1..40_usize,
        ) {
            let bucket = BucketName::of_bytes(pairs.iter().map(|(key, value)| (&key[..], &value[..])), bytes_max);
            let sent: BTreeMap<Vec<u8>, Vec<u8>> =
                bucket.sent().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
            prop_assert_eq!(sent, pairs.clone());
            let mut texts: Vec<_> = bucket.entries().map(|Entry { key, value }| (key.to_owned(), value.to_owned())).collect();
            texts.sort_unstable();
            let text = |bytes| client_text(bytes, bytes_max).into_owned();
            let mut expected: Vec<_> = pairs.iter().map(|(key, value)| (text(key), text(value))).collect();
            expected.sort_unstable();
            prop_assert_eq!(texts, expected);
        }
    }
}
