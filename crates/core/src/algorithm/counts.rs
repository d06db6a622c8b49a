//! The hits of a counter by sub-window, for [`SubWindows`](super::SubWindows), and their form as stored.

use crate::varint;

/// Hits in each sub-window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Number of the current sub-window: start / length. Never decreases.
    pub(super) number: u64,
    /// Hits, oldest first: in the sub-window that the window is leaving, in those after it, in the current one.
    pub(super) hits: Box<[u32]>,
}

impl Counts {
    /// Hits of sub-windows, oldest first, up to the sub-window `number`; none if no precision has so many.
    pub fn new(number: u64, hits: Box<[u32]>) -> Option<Self> {
        (2..=usize::from(u8::MAX) + 1).contains(&hits.len()).then_some(Self { number, hits })
    }

    /// Number of the current sub-window: start / length.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Hits, oldest first: in the sub-window that the window is leaving, in those after it, in the current one.
    pub fn hits(&self) -> &[u32] {
        &self.hits
    }

    /// Bytes held beyond the struct's own.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.hits)
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(varint::bytes(self.number));
        out.extend(self.hits.iter().flat_map(|&hits| varint::bytes(u64::from(hits))));
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied().peekable();
        let number = varint::read(&mut bytes)?;
        let mut hits = Vec::new();
        while bytes.peek().is_some() {
            hits.push(u32::try_from(varint::read(&mut bytes)?).ok()?);
        }
        Self::new(number, hits.into())
    }
}
