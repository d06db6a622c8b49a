//! The fields of a header block, in one buffer that is used for block after block.

use super::ENTRY_OVERHEAD;

/// Names and values in their order.
#[derive(Default, Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    /// For each field: where its name and its value end in `bytes`. It starts where the one before it ends.
    ends: Vec<(u32, u32)>,
    /// What they cost, as SETTINGS_MAX_HEADER_LIST_SIZE counts it. Fields beyond the bound are counted, not kept.
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

    /// What all fields cost, kept or not.
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

    /// The bytes appended since the field before are one more field; if it goes beyond the bound of the list, it is only
    /// counted. The field is shown to `seen` before.
    #[inline]
    pub(super) fn end_field(&mut self, name_end: usize, list_max: usize, seen: impl FnOnce(&[u8], &[u8])) {
        let start = self.ends.last().map_or(0, |&(_, end)| end as usize);
        let (name, value) = self.bytes[start..].split_at(name_end - start);
        seen(name, value);
        self.list_bytes = self.list_bytes.saturating_add(name.len() + value.len() + ENTRY_OVERHEAD);
        if self.list_bytes <= list_max {
            // A list within its bound is far below 4 GiB.
            self.ends.push((name_end as u32, self.bytes.len() as u32));
        } else {
            self.bytes.truncate(start);
        }
    }
}

#[cfg(test)]
impl Fields {
    /// Whether what is kept keeps to the bound of the list.
    pub(super) fn ends_within(&self, list_max: usize) -> bool {
        self.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum::<usize>() <= list_max
    }
}
