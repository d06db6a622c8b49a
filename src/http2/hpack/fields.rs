//! The fields of a header block, in one buffer that is reused for every block.

use super::ENTRY_OVERHEAD;
use crate::http2::steps;

/// Names and values in their order.
#[derive(Default, Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    /// For each field: where its name and its value end in `bytes`. It starts where the one before it ends.
    ends: Vec<(u32, u32)>,
    /// Their size, as SETTINGS_MAX_HEADER_LIST_SIZE counts it. Fields beyond the bound are counted, not kept.
    list_bytes: usize,
}

impl Fields {
    /// Names and values in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(name_end, value_end)| {
            let (name_end, value_end) = (name_end as usize, value_end as usize);
            let field = (&self.bytes[start..name_end], &self.bytes[name_end..value_end]);
            start = value_end;
            field
        })
    }

    /// The first value under a name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Size of all fields, kept or not.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.list_bytes = 0;
    }

    /// The buffer, to which a name and then a value are to be appended.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a field; one beyond the bound of the list is only counted.
    #[inline]
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], list_max: usize) {
        steps::add(steps::FIELD);
        if self.count(name.len() + value.len()) > list_max {
            return;
        }
        steps::add(steps::of_bytes(name.len() + value.len()));
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((name_end as u32, self.bytes.len() as u32));
    }

    /// Counts a field with so many bytes of name and value; the size of the list with it.
    fn count(&mut self, bytes: usize) -> usize {
        self.list_bytes = self.list_bytes.saturating_add(bytes + ENTRY_OVERHEAD);
        self.list_bytes
    }

    /// Makes a field of the bytes appended since the last; one beyond the bound of the list is only counted. The field is
    /// passed to `seen` before.
    #[inline]
    pub(super) fn end_field(&mut self, name_end: usize, list_max: usize, seen: impl FnOnce(&[u8], &[u8])) {
        let start = self.ends.last().map_or(0, |&(_, end)| end as usize);
        let (name, value) = self.bytes[start..].split_at(name_end - start);
        seen(name, value);
        let bytes = name.len() + value.len();
        if self.count(bytes) <= list_max {
            // A list within its bound is far below 4 GiB.
            self.ends.push((name_end as u32, self.bytes.len() as u32));
        } else {
            self.bytes.truncate(start);
        }
    }
}

#[cfg(test)]
impl Fields {
    /// Whether the fields kept are within the bound of the list.
    pub(super) fn ends_within(&self, list_max: usize) -> bool {
        self.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum::<usize>() <= list_max
    }
}
