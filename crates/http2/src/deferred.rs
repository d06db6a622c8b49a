//! Responses that take time, and hooks that run if a client resets a call.

use bytes::Bytes;
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

/// The body of a response that takes time.
pub type DeferredBody = Pin<Box<dyn Future<Output = DeferredResponse> + Send>>;

/// A response that took time.
pub struct DeferredResponse {
    /// Its body.
    pub body: Bytes,
    /// Runs if the client resets the call.
    pub on_reset: Option<OnReset>,
}

/// A hook that runs once if the client resets a call after its response was made: before the response is written, or within some seconds
/// after, while the connection lasts. A routed response has it in its extensions.
#[derive(Clone)]
pub struct OnReset(Arc<Mutex<Option<Hook>>>);

type Hook = Box<dyn FnOnce() + Send>;

impl OnReset {
    /// Runs the function.
    pub fn new(hook: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(hook)))))
    }

    /// A hook that runs all of these hooks.
    pub fn all(hooks: Vec<Self>) -> Self {
        Self::new(move || hooks.iter().for_each(Self::run))
    }

    /// Runs the hook now, unless it was run before.
    pub fn run(&self) {
        let hook = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hook) = hook {
            hook();
        }
    }
}
