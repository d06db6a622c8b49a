//! The input of an expression: descriptors, and the names of its limit.

/// The descriptors of a request: maps of keys to values. Of entries with equal keys the last counts.
pub trait Descriptors<'t> {
    /// Number of descriptors.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries of the descriptor, which exists.
    fn entries(&self, descriptor: usize) -> usize;

    /// Key and value of the entry, which exists.
    fn entry(&self, descriptor: usize, entry: usize) -> (&'t str, &'t str);

    /// The value of the key.
    fn value(&self, descriptor: usize, key: &str) -> Option<&'t str> {
        if descriptor >= self.len() {
            return None;
        }
        let mut entries = (0..self.entries(descriptor)).rev().map(|entry| self.entry(descriptor, entry));
        entries.find(|entry| entry.0 == key).map(|entry| entry.1)
    }
}

/// The limit that an expression belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitNames<'l> {
    /// `limit.name`; null if none.
    pub name: Option<&'l str>,
    /// `limit.id`; null if none.
    pub id: Option<&'l str>,
}
