//! The same names over `shuttle`, which may switch threads at each of these calls.
//!
//! A lock is not poisoned by a panic here, as real locks are not: the model ends with the first panic anyway.

#![expect(missing_docs, reason = "the names and their contracts are those of parking_lot and arc-swap")]

use shuttle::sync::{self, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;

pub use shuttle::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// Why a lock can be taken.
const NOT_POISONED: &str = "the model ends with the first panic";

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(NOT_POISONED)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(NOT_POISONED)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(NOT_POISONED)
    }
}

/// A pointer that is replaced atomically, between any two steps of its readers: the contract of `arc-swap`, which is not checked
/// itself.
pub struct ArcSwap<T>(Mutex<Arc<T>>);

pub type Guard<T> = T;

/// A guard of a value that is not read from a shared pointer.
pub fn guard<T>(value: Arc<T>) -> Guard<Arc<T>> {
    value
}

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub fn load(&self) -> Guard<Arc<T>> {
        Arc::clone(&self.0.lock())
    }

    pub fn store(&self, value: Arc<T>) {
        *self.0.lock() = value;
    }
}
