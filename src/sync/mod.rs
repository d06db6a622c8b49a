//! What threads share memory through: every lock, atomic and swapped pointer of a decision comes from here.
//!
//! With the feature `model` they are those of `shuttle`, which runs the very code of the store, the rules and the limiter
//! under schedules of its choice; `tests/model` says what must hold under all of them. Without it they are the real ones,
//! and nothing stands between.

#[cfg(feature = "model")]
mod model;

#[cfg(feature = "model")]
pub(crate) use model::{ArcSwap, AtomicU64, AtomicUsize, Guard, Mutex, MutexGuard, RwLock};

#[cfg(not(feature = "model"))]
pub(crate) use {
    arc_swap::{ArcSwap, Guard},
    parking_lot::{Mutex, MutexGuard, RwLock},
    std::sync::atomic::{AtomicU64, AtomicUsize},
};
