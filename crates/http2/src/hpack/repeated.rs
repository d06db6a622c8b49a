//! Recognises a header block that repeats the block before with another value of one field.
//!
//! A client that traces sends a `traceparent` that differs in every request. It adds the field to the dynamic table, which raises the
//! indices of all older entries by one. All bytes of its next block except those of the value are therefore known.

use super::{NEWEST, source::Source};
use std::ops::Range;

/// The longest block that is expected again.
const BLOCK_MAX: usize = 1024;

/// Number of bytes that are added to at once.
const EIGHT: usize = size_of::<u64>();

/// The longest string whose length takes one byte; bit 7 of that byte is set if the string is Huffman-coded.
const SHORT_STRING_MAX: u8 = 0x7e;

/// The next block, without the value of the single field that it adds to the dynamic table.
#[derive(Default)]
pub(super) struct Expected {
    /// Number of blocks until an index takes more bytes. None if no block is expected.
    left: Option<u8>,
    /// The bytes around the value and its length.
    bytes: Vec<u8>,
    /// For each of these bytes, the increment from block to block: one if it is the index of an entry that was in the table before.
    increments: Vec<u8>,
    /// The bytes from the first to the last with an increment.
    incremented: Range<usize>,
    /// Number of the bytes, without the padding of the last eight.
    bytes_len: usize,
    /// Number of the bytes before the value.
    before: usize,
    /// The position of the field.
    pub(super) field: usize,
    /// Length of its value.
    pub(super) value_len: usize,
    /// The oldest entry that the block refers to, before and after it adds its own.
    pub(super) oldest: [Source; 2],
    /// Whether the block has been received since the last block that was decoded in full.
    pub(super) is_repeated: bool,
}

impl Expected {
    /// Expects no block.
    pub(super) fn clear(&mut self) {
        (self.left, self.is_repeated) = (None, false);
    }

    /// Expects the block that follows `block`. `block` was decoded last and added only one entry to the dynamic table: the field at a
    /// position, with a value of this length. Expects none if the next block cannot be known.
    pub(super) fn follow(&mut self, block: &[u8], (field, value_len): (usize, usize), added: Source) {
        self.clear();
        if block.len() > BLOCK_MAX {
            return;
        }
        self.increments.clear();
        self.increments.resize(block.len(), 0);
        let mut layout = Layout::new(block, added, &mut self.increments);
        let end = (0..).try_for_each(|position| layout.read_field(position == field));
        let (Err(End::OfBlock), Some(value)) = (end, layout.value) else { return };
        (self.left, self.before, self.oldest) = (Some(layout.left), value.start, layout.oldest);
        (self.field, self.value_len) = (field, value_len);
        self.increments.drain(value.clone());
        self.bytes.clear();
        self.bytes.extend_from_slice(block);
        self.bytes.drain(value);
        let first = self.increments.iter().position(|increment| *increment > 0);
        let last = self.increments.iter().rposition(|increment| *increment > 0);
        // Whole groups of eight bytes, which are added to at once. Zeros are added to the bytes beyond.
        let (first, end) = (first.unwrap_or(0), last.map_or(0, |last| last + 1));
        self.incremented = first..first + (end - first).next_multiple_of(EIGHT);
        let len = self.bytes.len().max(self.incremented.end);
        self.bytes_len = self.bytes.len();
        self.bytes.resize(len, 0);
        self.increments.resize(len, 0);
        self.advance();
    }

    /// The Huffman-coded value in a block, if it is the expected block.
    #[inline]
    pub(super) fn value_in<'b>(&self, block: &'b [u8]) -> Option<&'b [u8]> {
        self.left?;
        let (before, after) = self.bytes[..self.bytes_len].split_at(self.before);
        let (length, rest) = block.strip_prefix(before)?.split_first()?;
        let length = length.checked_sub(0x80).filter(|length| *length <= SHORT_STRING_MAX)?;
        let (value, rest) = rest.split_at_checked(usize::from(length))?;
        (rest == after).then_some(value)
    }

    /// Expects the block after this one.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.left = self.left.and_then(|left| left.checked_sub(1));
        if self.left.is_some() {
            let bytes = self.bytes[self.incremented.clone()].as_chunks_mut().0;
            let increments = self.increments[self.incremented.clone()].as_chunks().0;
            for (eight, increments) in bytes.iter_mut().zip(increments) {
                // No byte overflows, so that nothing carries into the next byte.
                let sum = u64::from_ne_bytes(*eight) + u64::from_ne_bytes(*increments);
                *eight = sum.to_ne_bytes();
            }
        }
    }
}

/// The reason why no further field is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    OfBlock,
    /// A field that cannot be expected again.
    Other,
}

/// The bytes of a valid block that are expected in the next block.
struct Layout<'b> {
    block: &'b [u8],
    at: usize,
    /// Increment of each byte of the block; see [`Expected`].
    increments: &'b mut [u8],
    left: u8,
    oldest: [Source; 2],
    /// The value of the changed field, with its length.
    value: Option<Range<usize>>,
    /// The entry that the block added.
    added: Source,
}

impl<'b> Layout<'b> {
    fn new(block: &'b [u8], added: Source, increments: &'b mut [u8]) -> Self {
        Self { block, at: 0, increments, left: u8::MAX, oldest: [Source::LITERAL; 2], value: None, added }
    }

    fn read_field(&mut self, has_changed: bool) -> Result<(), End> {
        match *self.block.get(self.at).ok_or(End::OfBlock)? {
            first @ 0x81..=0xfe => {
                self.index(first & 0x7f, 0xfe);
                self.at += 1;
            }
            first @ 0x41..=0x7f if has_changed => self.read_added(first & 0x3f)?,
            first @ ..=0x1f => {
                self.read_static_name(first & 0x0f)?;
                self.at = self.string_end()?;
            }
            _ => return Err(End::Other),
        }
        Ok(())
    }

    /// Notes that the current byte is this index, at most `byte_max`.
    fn index(&mut self, index: u8, byte_max: u8) {
        let Some(back) = usize::from(index).checked_sub(NEWEST) else { return };
        self.increments[self.at] = 1;
        self.left = self.left.min(byte_max - self.block[self.at]);
        let (is_after, newest) = match self.value {
            None => (0, self.added.before(1)),
            Some(_) => (1, self.added),
        };
        self.oldest[is_after] = self.oldest[is_after].min(newest.before(back as u64));
    }

    /// Reads the changed field. Its name is that of an entry, and its value is Huffman-coded.
    fn read_added(&mut self, name: u8) -> Result<(), End> {
        // Only an older entry's index has another byte. The block before has added the newest entry, whose name is used again.
        if name == 0x3f {
            self.at += 1;
            let more = *self.block.get(self.at).filter(|more| **more < 0x80).ok_or(End::Other)?;
            self.index(name + more, 0x7f);
        }
        self.at += 1;
        let start = self.at;
        self.block.get(start).filter(|length| **length >= 0x80).ok_or(End::Other)?;
        self.at = self.string_end()?;
        self.value = Some(start..self.at);
        Ok(())
    }

    /// Reads the name of a literal field that is not added: a name of the static table, or a literal.
    fn read_static_name(&mut self, index: u8) -> Result<(), End> {
        self.at += 1;
        match index {
            0 => self.at = self.string_end()?,
            0x0f => {
                let is_static = |more: &&u8| usize::from(**more) + 0x0f < NEWEST;
                self.block.get(self.at).filter(is_static).ok_or(End::Other)?;
                self.at += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// The end of the string at the current byte.
    fn string_end(&self) -> Result<usize, End> {
        let length = self.block.get(self.at).map(|length| length & 0x7f);
        let length = length.filter(|length| *length <= SHORT_STRING_MAX).ok_or(End::Other)?;
        Ok(self.at + 1 + usize::from(length))
    }
}
