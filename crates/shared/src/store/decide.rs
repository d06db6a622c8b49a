//! Decisions in the store: one call of the script for counters of one group, and a call for each group otherwise.

use super::{
    batches::{Call, Links, Task},
    failure::Failure,
    parts,
    shared_store::SharedStore,
};
use crate::{
    PeerId,
    script::{EncodedRequest, Verdict},
};
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Code, Timestamp},
    limiter::RemoteRequest,
};
use tokio::sync::oneshot;

impl SharedStore {
    /// The decision on a request of a peer, by the deadline of the settings or the caller's. `now` is the time of this machine.
    pub async fn decide(
        self: &Arc<Self>,
        request: &RemoteRequest<'_>,
        peer: PeerId,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let result = self.call(request, peer, now, wait_max).await;
        self.counts.count_call(&result);
        result
    }

    async fn call(
        self: &Arc<Self>,
        request: &RemoteRequest<'_>,
        peer: PeerId,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let remote = request;
        let request = EncodedRequest::new(remote, now).ok_or(Failure::TooLarge)?;
        let timeout = self.settings.timeout.min(wait_max);
        // If there is no response, slots of the request have to be released and its reservations ended, as hits in several groups have to
        // be taken back.
        let Some(group) = request.group().filter(|_| !request.takes_tickets()) else {
            return parts::decide(self, remote, &request, (peer, timeout)).await;
        };
        let node = self.nodes.of(group).filter(|node| node.is_available()).ok_or(Failure::Unavailable)?;
        let (reply, verdict) = oneshot::channel();
        Links::send_to(self, &node, Call::new(group, Task::Decide { request, peer, reply }));
        match tokio::time::timeout(timeout, verdict).await {
            Ok(Ok(result)) => result,
            // The link has ended with its runtime.
            Ok(Err(_)) => Err(Failure::Failed),
            // The link counts the calls that it has sent. The caller's deadline may be short, or the link may still be connecting.
            Err(_) => Err(Failure::Timeout),
        }
    }

    /// Takes back what the store has charged for a request of a peer, if the store admitted it and local counters have denied it.
    pub fn take_back(
        self: &Arc<Self>,
        request: &RemoteRequest<'_>,
        peer: PeerId,
        verdict: &Verdict,
        now: Timestamp,
    ) {
        if let (Code::Ok, Some(encoded)) = (verdict.code, EncodedRequest::new(request, now)) {
            parts::take_back(self, request, &encoded, peer, verdict);
        }
    }
}
