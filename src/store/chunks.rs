//! Memory for slots, handed out eight at a time and used again when given back.
//!
//! All chunks are of one size, so that none lies idle between others of other sizes, however pages grow and shrink.

/// Slots of a chunk.
pub(super) const CHUNK_SLOTS: usize = 8;

/// Chunks that are allocated in one go: a kilobyte, so that growing never takes long and little lies idle in each shard.
const SEGMENT_CHUNKS: usize = 4;

/// Names a chunk that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ChunkId(u32);

type Chunk<T> = [T; CHUNK_SLOTS];

/// The chunks of one table. A slot that holds nothing holds the default.
pub(super) struct Chunks<T> {
    segments: Vec<Box<[Chunk<T>; SEGMENT_CHUNKS]>>,
    /// Given back, or never handed out.
    free: Vec<ChunkId>,
}

impl<T: Default> Chunks<T> {
    pub(super) const fn new() -> Self {
        Self { segments: Vec::new(), free: Vec::new() }
    }

    /// Hands out a chunk whose slots hold nothing.
    pub(super) fn take(&mut self) -> ChunkId {
        if let Some(chunk) = self.free.pop() {
            return chunk;
        }
        let first = (self.segments.len() * SEGMENT_CHUNKS) as u32;
        self.segments.push(Box::new(std::array::from_fn(|_| std::array::from_fn(|_| T::default()))));
        self.free.extend((first + 1..first + SEGMENT_CHUNKS as u32).rev().map(ChunkId));
        ChunkId(first)
    }

    /// Takes a chunk back; its slots must hold nothing.
    pub(super) fn give_back(&mut self, chunk: ChunkId) {
        self.free.push(chunk);
    }

    #[inline]
    pub(super) fn slot(&self, ChunkId(chunk): ChunkId, slot: usize) -> &T {
        let chunk = chunk as usize;
        &self.segments[chunk / SEGMENT_CHUNKS][chunk % SEGMENT_CHUNKS][slot]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, ChunkId(chunk): ChunkId, slot: usize) -> &mut T {
        let chunk = chunk as usize;
        &mut self.segments[chunk / SEGMENT_CHUNKS][chunk % SEGMENT_CHUNKS][slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_nobody_elses_until_it_is_given_back() {
        let mut chunks = Chunks::new();
        let taken: Vec<ChunkId> = (0..100).map(|_| chunks.take()).collect();
        for (number, &chunk) in taken.iter().enumerate() {
            (0..CHUNK_SLOTS).for_each(|slot| *chunks.slot_mut(chunk, slot) = number * 10 + slot);
        }
        for (number, &chunk) in taken.iter().enumerate() {
            assert!((0..CHUNK_SLOTS).all(|slot| *chunks.slot(chunk, slot) == number * 10 + slot));
        }
        let segments = chunks.segments.len();
        taken.iter().for_each(|&chunk| chunks.give_back(chunk));
        (0..100).for_each(|_| _ = chunks.take());
        assert_eq!(chunks.segments.len(), segments);
    }
}
