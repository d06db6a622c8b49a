//! The locks, atomics and swapped pointers of a decision: all are imported from here.
//!
//! With the feature `model` they are those of `shuttle`, which runs the store, the rules and the limiter under schedules of its
//! choice; `tests/model` has the properties that must hold under all of them. Without it they are the real locks and atomics, re-exported.

#[cfg(feature = "model")]
mod model;

#[cfg(feature = "model")]
pub use model::{ArcSwap, AtomicBool, AtomicU64, AtomicUsize, Guard, Mutex, MutexGuard, RwLock, guard};

#[cfg(not(feature = "model"))]
pub use {
    arc_swap::{ArcSwap, Guard},
    parking_lot::{Mutex, MutexGuard, RwLock},
    std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// A guard of a value that is not read from a shared pointer.
#[cfg(not(feature = "model"))]
pub(crate) fn guard<T>(value: std::sync::Arc<T>) -> Guard<std::sync::Arc<T>> {
    Guard::from_inner(value)
}
