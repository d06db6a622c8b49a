//! The same names over `shuttle`, which may switch threads at each of these calls.
//!
//! A lock is not poisoned by a panic here, as the real ones are not: the model ends with the first panic anyway.

use shuttle::sync::{self, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;

pub(crate) use shuttle::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// Why a lock can be taken.
const NOT_POISONED: &str = "the model ends with the first panic";

#[derive(Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(NOT_POISONED)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(NOT_POISONED)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(NOT_POISONED)
    }
}

/// A pointer that is replaced atomically, between any two steps of its readers: the contract of `arc-swap`, which is not checked
/// itself.
pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

pub(crate) type Guard<T> = T;

/// A guard of a value that is not read from a shared pointer.
pub(crate) fn guard<T>(value: Arc<T>) -> Guard<Arc<T>> {
    value
}

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        Arc::clone(&self.0.lock())
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock() = value;
    }
}
