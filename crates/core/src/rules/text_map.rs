//! An immutable map from texts: few are scanned, many are hashed.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smol_str::SmolStr;

/// Up to this many, comparing each is as fast as hashing one, and saves the table.
const FEW_MAX: usize = 2;

/// A map by text. Clients only look up and never insert, so that hash flooding is impossible and the seed may be fixed.
#[derive(Clone, Debug)]
pub(super) struct TextMap<V>(Texts<V>);

#[derive(Clone, Debug)]
enum Texts<V> {
    Few(Box<[(SmolStr, V)]>),
    Many(HashMap<SmolStr, V, FixedState>),
}

impl<V> TextMap<V> {
    /// The value of `text`.
    #[inline(always)]
    pub(super) fn get(&self, text: &str) -> Option<&V> {
        match &self.0 {
            Texts::Few(pairs) => pairs.iter().find(|(key, _)| *key == *text).map(|(_, value)| value),
            Texts::Many(map) => map.get(text),
        }
    }

    /// Every pair, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let (few, many) = match &self.0 {
            Texts::Few(pairs) => (Some(pairs.iter()), None),
            Texts::Many(map) => (None, Some(map.iter())),
        };
        let few = few.into_iter().flatten().map(|(key, value)| (key.as_str(), value));
        few.chain(many.into_iter().flatten().map(|(key, value)| (key.as_str(), value)))
    }

    /// Every text, with its value to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut V)> {
        let (few, many) = match &mut self.0 {
            Texts::Few(pairs) => (Some(pairs.iter_mut()), None),
            Texts::Many(map) => (None, Some(map.iter_mut())),
        };
        let few = few.into_iter().flatten().map(|(key, value)| (key.as_str(), value));
        few.chain(many.into_iter().flatten().map(|(key, value)| (key.as_str(), value)))
    }
}

impl<V> Default for TextMap<V> {
    fn default() -> Self {
        Self(Texts::Few(Box::default()))
    }
}

impl<V> From<HashMap<SmolStr, V, FixedState>> for TextMap<V> {
    fn from(map: HashMap<SmolStr, V, FixedState>) -> Self {
        Self(if map.len() <= FEW_MAX { Texts::Few(map.into_iter().collect()) } else { Texts::Many(map) })
    }
}

impl<V> FromIterator<(SmolStr, V)> for TextMap<V> {
    /// Texts are expected to differ; of two equal texts either may be found.
    fn from_iter<I: IntoIterator<Item = (SmolStr, V)>>(pairs: I) -> Self {
        Self::from(pairs.into_iter().collect::<HashMap<_, _, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_found_alike() {
        for count in [0, 1, FEW_MAX, FEW_MAX + 1, 1000] {
            let map: TextMap<usize> = (0..count).map(|n| (n.to_string().into(), n)).collect();
            for n in 0..count {
                assert_eq!(map.get(&n.to_string()), Some(&n));
            }
            assert_eq!(map.get("none"), None);
            assert_eq!(map.iter().count(), count);
        }
    }
}
