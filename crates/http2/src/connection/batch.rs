//! Calls of the fast path that were received in one read, to be decided in one batch.

use crate::{Service, flow_control::StreamSendWindow};
use smallvec::SmallVec;

/// Calls in one batch.
const BATCH_MAX: usize = 16;

/// The rest of the bytes read, and the earlier calls that have no response yet.
pub(super) struct Input<'s, 'b, S: Service> {
    pub(super) rest: &'b [u8],
    pub(super) service: &'s S,
    pub(super) batch: Batch<'b, S>,
}

/// Calls in the order received.
pub(super) struct Batch<'b, S: Service> {
    pub(super) streams: SmallVec<[(u32, StreamSendWindow); BATCH_MAX]>,
    pub(super) calls: SmallVec<[S::Call<'b>; BATCH_MAX]>,
}

impl<'b, S: Service> Batch<'b, S> {
    // Inlined, so that an empty batch is made in place. As the result of a call, its unused places would be copied at each read.
    #[inline]
    pub(super) fn new() -> Self {
        Self { streams: SmallVec::new(), calls: SmallVec::new() }
    }

    /// Adds a complete call. False if the service routes it.
    #[inline]
    pub(super) fn add(
        &mut self,
        service: &S,
        stream: (u32, StreamSendWindow),
        fast_path: S::FastPath,
        body: &'b [u8],
    ) -> bool {
        self.calls.push(S::Call::default());
        let is_decoded = self.calls.last_mut().is_some_and(|call| service.decode(fast_path, body, call));
        if is_decoded {
            self.streams.push(stream);
        } else {
            self.calls.pop();
        }
        is_decoded
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= BATCH_MAX
    }
}
