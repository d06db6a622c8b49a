//! Decisions on counters of several groups: all parts at once. Hits are then taken back if another part denied.
//!
//! A request may be dropped at any time. What its parts have charged is then taken back once they have responded.

use super::{
    background::ATTEMPTS,
    batches::{Call, Links, Task},
    failure::Failure,
    shared_store::SharedStore,
};
use crate::{
    PeerId,
    script::{Conclusion, EncodedRequest, Part, Undo, Verdict, conclude, undo_all, undo_of},
};
use std::{sync::Arc, time::Duration};
use tidegate_core::{limit::Code, limiter::RemoteRequest};
use tokio::sync::oneshot;

type Response = Result<Verdict, Failure>;

/// The parts of a request while they are decided.
struct Pending {
    store: Arc<SharedStore>,
    peer: PeerId,
    parts: Vec<Part>,
    responses: Vec<oneshot::Receiver<Response>>,
    /// Verdicts on the first of the parts.
    verdicts: Vec<Response>,
    /// Hits that the request gives back if all parts admit it, by group.
    give_back: Vec<(u16, EncodedRequest)>,
}

/// Decides a request with counters of several groups.
pub(super) async fn decide(
    store: &Arc<SharedStore>,
    remote: &RemoteRequest<'_>,
    request: &EncodedRequest,
    (peer, timeout): (PeerId, Duration),
) -> Response {
    let parts = request.parts();
    let is_available = |part: &Part| store.nodes.of(part.group).is_some_and(|node| node.is_available());
    if !parts.iter().all(is_available) {
        return Err(Failure::Unavailable);
    }
    let mut responses = Vec::with_capacity(parts.len());
    for part in &parts {
        let (reply, response) = oneshot::channel();
        Links::send(
            store,
            Call::new(part.group, Task::Decide { request: part.request.clone(), peer, reply }),
        );
        responses.push(response);
    }
    let give_back = request.give_backs(&parts);
    let (store_of_parts, verdicts) = (Arc::clone(store), Vec::new());
    let mut pending = Pending { store: store_of_parts, peer, parts, responses, verdicts, give_back };
    if tokio::time::timeout(timeout, pending.respond()).await.is_err() {
        return Err(Failure::Timeout);
    }
    let verdicts: Vec<Verdict> = pending.verdicts.iter().cloned().collect::<Result<_, _>>()?;
    let Ok(conclusion) = conclude(remote, request, &pending.parts, &verdicts) else {
        return Err(Failure::Failed);
    };
    pending.parts.clear();
    let Conclusion { verdict, undo, give_back } = conclusion;
    for (group, undo) in undo {
        spawn_undo(store, group, peer, undo);
    }
    give_back.into_iter().for_each(|(group, request)| spawn_give_back(store, group, peer, request));
    Ok(verdict)
}

/// Takes back what the store has charged for a request, if the store admitted it and local counters have denied it. Hits of a counter with
/// leases stay until they expire.
pub(super) fn take_back(
    store: &Arc<SharedStore>,
    remote: &RemoteRequest<'_>,
    request: &EncodedRequest,
    peer: PeerId,
    verdict: &Verdict,
) {
    match undo_all(remote, request, verdict) {
        Ok(undo) => undo.into_iter().for_each(|(group, undo)| spawn_undo(store, group, peer, undo)),
        Err(error) => tracing::error!(%error, "hits of a denied request stay in the shared store"),
    }
}

impl Pending {
    /// Waits for the remaining responses.
    async fn respond(&mut self) {
        for response in &mut self.responses[self.verdicts.len()..] {
            // A link that has ended sends no response.
            self.verdicts.push(response.await.unwrap_or(Err(Failure::Failed)));
        }
    }
}

/// Takes back what was charged, unless the whole request was decided. Hits that it gives back are given back if no part denied it.
impl Drop for Pending {
    fn drop(&mut self) {
        if self.parts.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let mut rest = Self {
            store: Arc::clone(&self.store),
            peer: self.peer,
            parts: std::mem::take(&mut self.parts),
            responses: std::mem::take(&mut self.responses),
            verdicts: std::mem::take(&mut self.verdicts),
            give_back: std::mem::take(&mut self.give_back),
        };
        let work = rest.store.unfinished.begin();
        tokio::spawn(async move {
            rest.respond().await;
            if rest.verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict { code: Code::Ok, .. }))) {
                let give_back = std::mem::take(&mut rest.give_back).into_iter();
                give_back
                    .for_each(|(group, request)| spawn_give_back(&rest.store, group, rest.peer, request));
            }
            for (part, verdict) in std::mem::take(&mut rest.parts).iter().zip(&rest.verdicts) {
                match verdict {
                    Ok(verdict) => {
                        let undo = undo_of(&part.request, verdict);
                        undo.into_iter()
                            .for_each(|undo| spawn_undo(&rest.store, part.group, rest.peer, undo));
                    }
                    Err(_) => rest.store.release_of(part.group, rest.peer, &part.request),
                }
            }
            drop(work);
        });
    }
}

/// Gives hits back in the background. If that fails, they stay charged.
fn spawn_give_back(store: &Arc<SharedStore>, group: u16, peer: PeerId, request: EncodedRequest) {
    let (reply, response) = oneshot::channel();
    Links::send(store, Call::new(group, Task::Decide { request, peer, reply }));
    let work = store.unfinished.begin();
    tokio::spawn(async move {
        let _ = response.await;
        drop(work);
    });
}

/// Takes back hits in the background. They stay charged if that does not succeed in about a minute, or if there is too much such work.
pub(super) fn spawn_undo(store: &Arc<SharedStore>, group: u16, peer: PeerId, undo: Undo) {
    let count = |store: &SharedStore, done: Option<u64>| store.counts.undone.count(done.is_some().into());
    match token() {
        Some(token) => drop(store.in_background((group, peer), undo.command(token), ATTEMPTS, count)),
        None => count(store, None),
    }
}

/// A random number that no other undo has.
fn token() -> Option<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(u128::from_le_bytes(bytes))
}
