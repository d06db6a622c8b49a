//! The queue between the deciding threads and the writing thread.
//!
//! Each thread appends to its own lane, which has a fixed capacity. A record that does not fit is dropped and counted. A decision never
//! waits for the writer, and only allocates the memory of a lane, once.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_counts::{PerThread, ThreadIndex};

/// Records of all threads.
pub(crate) struct Queue {
    lanes: PerThread<Lane>,
    /// Bytes of each half of a lane.
    half_bytes: usize,
}

#[derive(Default)]
struct Lane {
    /// The writer exchanges one half at a time, and the other stays free.
    halves: [Mutex<Vec<u8>>; 2],
    dropped: AtomicU64,
}

/// The result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appended {
    /// The lane has room for more.
    Stored,
    /// Half of the capacity is used: the writer should take it.
    HalfFull,
    /// There was no room.
    Dropped,
}

impl Default for Queue {
    /// A queue for decisions that operators watch or record.
    fn default() -> Self {
        Self::new(256 << 10)
    }
}

impl Queue {
    /// A queue with lanes of this capacity.
    pub(crate) fn new(lane_bytes: usize) -> Self {
        Self { lanes: PerThread::default(), half_bytes: (lane_bytes / 2).max(1) }
    }

    /// Appends a record of at most `bytes_max` bytes to this thread's lane.
    pub(crate) fn append(&self, bytes_max: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Appended {
        let lane = self.lanes.of(ThreadIndex::current());
        // Tries each half twice: the writer holds one at a time, and may move from the first to the second in between.
        for half in lane.halves.iter().chain(&lane.halves) {
            let Some(mut half) = half.try_lock() else { continue };
            if half.capacity() < self.half_bytes {
                half.reserve_exact(self.half_bytes);
            }
            let before = half.len();
            if before + bytes_max > self.half_bytes {
                continue;
            }
            encode(&mut half);
            debug_assert!(half.len() <= before + bytes_max, "a record is within its bound");
            let middle = self.half_bytes / 2;
            let passes_middle = before < middle && half.len() >= middle;
            return if passes_middle { Appended::HalfFull } else { Appended::Stored };
        }
        lane.dropped.fetch_add(1, Ordering::Relaxed);
        Appended::Dropped
    }

    /// Moves the appended records to `taken`, and reuses its former buffers for the lanes.
    pub(crate) fn take(&self, taken: &mut Vec<Vec<u8>>) {
        let mut free = std::mem::take(taken);
        for half in self.lanes.iter().flat_map(|lane| &lane.halves) {
            let mut next = Vec::new();
            if !half.lock().is_empty() {
                next = free.pop().unwrap_or_default();
                next.clear();
                next.reserve_exact(self.half_bytes);
                std::mem::swap(&mut *half.lock(), &mut next);
            }
            if !next.is_empty() {
                taken.push(next);
            }
        }
    }

    /// Records dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dropped.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(queue: &Queue, bytes: &[u8]) -> Appended {
        queue.append(bytes.len(), |out| out.extend_from_slice(bytes))
    }

    #[test]
    fn a_full_lane_drops_and_counts_and_has_room_again_once_taken() {
        let queue = Queue::new(16);
        let results: Vec<_> = (0..6).map(|_| append(&queue, b"1234")).collect();
        use Appended::{Dropped, HalfFull, Stored};
        assert_eq!(results, [HalfFull, Stored, HalfFull, Stored, Dropped, Dropped]);
        assert_eq!(queue.dropped(), 2);
        let mut taken = Vec::new();
        queue.take(&mut taken);
        assert_eq!(taken.concat(), b"1234".repeat(4));
        assert_eq!(append(&queue, b"5678"), HalfFull);
        queue.take(&mut taken);
        assert_eq!((taken.concat(), queue.dropped()), (b"5678".to_vec(), 2));
    }

    #[test]
    fn a_record_larger_than_a_lane_is_dropped() {
        let queue = Queue::new(16);
        assert_eq!(append(&queue, &[0; 9]), Appended::Dropped);
    }

    #[test]
    fn records_of_many_threads_are_stored_or_counted() {
        let queue = Queue::new(4096);
        let (mut seen, mut taken) = (0, Vec::new());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5_000).for_each(|_| _ = append(&queue, &[7; 8]))))
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                queue.take(&mut taken);
                seen += taken.iter().map(Vec::len).sum::<usize>() / 8;
            }
        });
        queue.take(&mut taken);
        seen += taken.iter().map(Vec::len).sum::<usize>() / 8;
        assert_eq!(seen as u64 + queue.dropped(), 20_000);
    }
}
