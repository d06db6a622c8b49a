//! Renewals of slots of requests in flight and of reservations. Every server of the store can make them with the ticket.
//!
//! A ticket is renewed as a whole or not at all, by one call of the script. If its counters are in several slots of a cluster, all of them
//! are read first. A counter that ends between the two calls still leaves the others renewed. A renewal is not repeated here: its caller
//! gets the result, and repeats it in time.

use super::{batches::Links, failure::Failure, shared_store::SharedStore};
use crate::{
    PeerId,
    script::{COUNTERS_MAX, Command},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tidegate_core::{
    limit::Window,
    limiter::{Held, StoredRenewal},
    store::Key,
};

/// Counters by [`HeldKind`](tidegate_core::limiter::HeldKind), each with the time for which it holds.
type Named = [Vec<(Key, Window)>; 2];

impl SharedStore {
    /// Renews everything that a ticket names if all of it is held. The caller of this peer waits up to `wait_max`. Returns whether all is
    /// held.
    pub async fn renew(
        self: &Arc<Self>,
        renewal: &StoredRenewal,
        peer: PeerId,
        wait_max: Duration,
    ) -> Result<bool, Failure> {
        let counters = renewal.held().len();
        // No request has so many counters.
        if counters > COUNTERS_MAX {
            return Ok(false);
        }
        let work = self.unfinished.begin_bounded(peer, counters).ok_or(Failure::Unavailable)?;
        let (store, [looks, renewals]) =
            (Arc::clone(self), [true, renewal.is_peek()].map(|it| parts(renewal, it)));
        // It is made even if its caller has given up.
        let renewed = tokio::spawn(async move {
            let _work = work;
            if looks.len() > 1 && !are_held(&store, looks).await? {
                return Ok(false);
            }
            are_held(&store, renewals).await
        });
        let timeout = self.settings.timeout.min(wait_max);
        // A task that panicked has probably renewed nothing.
        let in_time = tokio::time::timeout(timeout, renewed).await;
        in_time.map_or(Err(Failure::Timeout), |joined| joined.unwrap_or(Err(Failure::Failed)))
    }
}

/// The commands for the counters of each group.
fn parts(renewal: &StoredRenewal, is_peek: bool) -> Vec<(u16, Command)> {
    let mut groups: BTreeMap<u16, Named> = BTreeMap::new();
    for &(Held { kind, key }, group, hold) in renewal.held() {
        groups.entry(group).or_default()[kind as usize].push((key, hold));
    }
    let command = |(group, [slots, reserved]): (u16, Named)| {
        (group, Command::renew(renewal.id(), &slots, &reserved, is_peek))
    };
    groups.into_iter().map(command).collect()
}

/// Calls the script for all parts at once. Returns whether all of them are held.
async fn are_held(store: &Arc<SharedStore>, parts: Vec<(u16, Command)>) -> Result<bool, Failure> {
    let send = |(group, command)| Links::command(store, group, Arc::new(command));
    let responses: Vec<_> = parts.into_iter().map(send).collect();
    let mut are_held = true;
    for response in responses {
        // A link that has ended sends no response.
        are_held &= response.await.unwrap_or(Err(Failure::Failed))? > 0;
    }
    Ok(are_held)
}
