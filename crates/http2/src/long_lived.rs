//! Calls that stay open, counted per connection.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The number of calls of one connection that the service keeps open for as long as the client likes.
///
/// Every routed request has it in its extensions. The service decides which calls count.
#[derive(Clone, Debug, Default)]
pub struct LongLived(Arc<AtomicUsize>);

/// The place of one call that stays open. Dropping it frees the place.
#[derive(Debug)]
pub struct LongLivedCall(LongLived);

impl LongLived {
    /// Takes a place for one more call, unless `max` are taken.
    pub fn start(&self, max: usize) -> Option<LongLivedCall> {
        let more = |count| (count < max).then_some(count + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| LongLivedCall(self.clone()))
    }
}

impl Drop for LongLivedCall {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let calls = LongLived::default();
        let (first, second) = (calls.start(2), calls.start(2));
        assert!(first.is_some() && second.is_some());
        assert!(calls.start(2).is_none());
        drop(first);
        assert!(calls.start(2).is_some());
    }
}
