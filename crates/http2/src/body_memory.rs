//! Memory for requests that are not complete: one budget for all connections, and a share for each.
//!
//! A connection may hold an eighth of what is free of three quarters of the budget. If it holds more, because others were opened later, it
//! gives up requests at its ticks, so that all connections converge to equal parts. The last quarter is for connections that hold little,
//! for example one honest call.
//!
//! Invariant: the bytes of all shares together are at most the budget.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Reciprocal of the part of the free memory that one connection may hold.
const FREE_SHARE: usize = 8;
/// A connection may hold the budget divided by this while there is any room, or [`LITTLE_MIN`] bytes if that is more.
const LITTLE_PART: usize = 1 << 14;
const LITTLE_MIN: usize = 2 << 10;

/// The budget of all connections.
#[derive(Debug)]
pub struct BodyMemory {
    max: usize,
    used: AtomicUsize,
}

/// The memory that one connection holds. Clones are the same share.
#[derive(Clone, Debug)]
pub struct BodyShare(Arc<Share>);

#[derive(Debug)]
struct Share {
    memory: Arc<BodyMemory>,
    held: AtomicUsize,
}

/// Bytes of one request, given back when dropped.
#[derive(Debug)]
pub struct HeldBytes {
    share: BodyShare,
    bytes: usize,
}

/// The budget has no room for these bytes on this connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the memory for incomplete requests is used up (--max-body-memory)")]
pub struct NoRoom;

impl BodyMemory {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0) })
    }

    /// Bytes held by all connections.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The budget, in bytes.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Whether a connection may hold `held` bytes if all connections hold `used`.
    fn allows(&self, held: usize, used: usize) -> bool {
        let for_many = (self.max - self.max / 4).saturating_sub(used);
        held <= for_many / FREE_SHARE || used <= self.max && held <= LITTLE_MIN.max(self.max / LITTLE_PART)
    }

    /// The share of a connection.
    pub fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare(Arc::new(Share { memory: Arc::clone(self), held: AtomicUsize::new(0) }))
    }
}

impl BodyShare {
    /// A share of a budget of its own that is never used up.
    pub fn unlimited() -> Self {
        BodyMemory::new(usize::MAX / 2).share()
    }

    /// Whether the connection holds more than it may by now.
    pub(super) fn is_over(&self) -> bool {
        let Share { memory, held } = &*self.0;
        !memory.allows(held.load(Relaxed), memory.used())
    }

    /// Holds `bytes`.
    pub fn hold(&self, bytes: usize) -> Result<HeldBytes, NoRoom> {
        let mut held = HeldBytes { share: self.clone(), bytes: 0 };
        held.set(bytes)?;
        Ok(held)
    }
}

impl HeldBytes {
    /// Changes the held bytes to `bytes`. After an error they are unchanged.
    pub fn set(&mut self, bytes: usize) -> Result<(), NoRoom> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => return Ok(()),
            Some(more) => self.grow(more)?,
            None => self.shrink(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Holds `more` bytes.
    pub fn add(&mut self, more: usize) -> Result<(), NoRoom> {
        self.set(self.bytes.saturating_add(more))
    }

    fn grow(&self, more: usize) -> Result<(), NoRoom> {
        let Share { memory, held } = &*self.share.0;
        let used = memory.used.fetch_add(more, Relaxed).saturating_add(more);
        let held = held.fetch_add(more, Relaxed).saturating_add(more);
        // May also fail if others exceed the budget for a moment, before they give their bytes back.
        if memory.allows(held, used) {
            return Ok(());
        }
        self.shrink(more);
        Err(NoRoom)
    }

    fn shrink(&self, less: usize) {
        self.share.0.held.fetch_sub(less, Relaxed);
        self.share.0.memory.used.fetch_sub(less, Relaxed);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_gets_a_part_and_many_converge_to_equal_ones() {
        let memory = BodyMemory::new(32 << 20);
        let (share, free) = (memory.share(), 24 << 20);
        let mut one = share.hold(0).expect("room");
        while one.add(1_024).is_ok() {}
        assert!((free / 10..=free / 9).contains(&one.bytes), "{}", one.bytes);
        drop(one);
        assert_eq!(memory.used(), 0);

        let shares: Vec<BodyShare> = (0..900).map(|_| memory.share()).collect();
        let mut held: Vec<HeldBytes> = shares.iter().map(|share| share.hold(0).expect("room")).collect();
        for held in &mut held {
            while held.add(1_024).is_ok() {}
        }
        assert!(memory.used() < memory.max() && memory.share().hold(2_000).is_ok(), "{}", memory.used());
        // Ticks: each connection that holds too much gives up half.
        for _ in 0..20 {
            for (share, held) in shares.iter().zip(&mut held).filter(|(share, _)| share.is_over()) {
                held.set(held.bytes / 2).expect("less");
                assert!(!share.is_over() || held.bytes > 0);
            }
        }
        let (most, next) = (held.iter().map(|held| held.bytes).max(), memory.share().hold(16 << 10));
        assert!(most < Some(1 << 20) && next.is_ok(), "{most:?}, {}", memory.used());
        drop((held, next));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn requests_of_one_connection_share_its_part() {
        let memory = BodyMemory::new(9_000_000);
        let share = memory.share();
        let mut first = share.hold(400_000).expect("room");
        assert_eq!(share.hold(400_000).err(), Some(NoRoom));
        let second = share.hold(200_000).expect("room");
        first.set(100).expect("less");
        drop(second);
        assert_eq!((memory.used(), memory.share().hold(700_000).is_ok()), (100, true));
    }
}
