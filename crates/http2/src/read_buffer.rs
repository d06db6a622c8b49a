//! Bytes that were read and are not a whole frame yet.

/// Keeps the start of a frame until the rest is read.
#[derive(Default)]
pub struct ReadBuffer(Vec<u8>);

impl ReadBuffer {
    /// Passes the kept bytes and the read bytes to `take`, which takes whole frames. Keeps the rest. Only incomplete frames are copied, and
    /// without one no memory is kept.
    #[inline]
    pub(crate) fn read<T>(&mut self, bytes: &[u8], take: impl FnOnce(&mut &[u8]) -> T) -> T {
        if self.0.is_empty() {
            let mut rest = bytes;
            let taken = take(&mut rest);
            self.0.extend_from_slice(rest);
            return taken;
        }
        self.0.extend_from_slice(bytes);
        let mut rest = &self.0[..];
        let taken = take(&mut rest);
        let used = self.0.len() - rest.len();
        if used == self.0.len() {
            self.0 = Vec::new();
        } else {
            self.0.drain(..used);
        }
        taken
    }

    /// Memory of the bytes kept.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Frees memory that the kept bytes do not use.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// The bytes kept.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.0
    }
}
