//! Slots of limits of requests in flight, as guards.

use crate::{
    client::{Error, Tidegate},
    decision::Decision,
    request::{Descriptor, Request},
};
use std::ops::Deref;

/// The slots that a request holds until it is over, released when this is dropped; see [`Tidegate::acquire`]. It derefs to the decision.
/// A request that is not allowed holds none.
///
/// Dropped outside of a runtime of tokio it releases nothing, and the server frees the slots after `max_hold`.
#[must_use = "the slots are released when this is dropped"]
#[derive(Debug)]
pub struct Slot {
    decision: Decision,
    client: Tidegate,
    domain: Option<String>,
    is_held: bool,
}

impl Deref for Slot {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl Tidegate {
    /// Takes hits as [`limit`](Self::limit) does, and holds the slots of limits of requests in flight until the guard is dropped. No
    /// denial is kept.
    ///
    /// ```no_run
    /// # async fn example(client: tidegate_client::Tidegate) -> Result<(), tidegate_client::Error> {
    /// let slot = client.acquire([("user", "ann")]).await?;
    /// if slot.allowed {
    ///     // The request is in flight.
    /// }
    /// slot.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, request: impl Into<Request>) -> Result<Slot, Error> {
        let request = request.into().without_local_denials();
        let domain = request.domain.clone();
        let decision = self.limit(request).await?;
        Ok(Slot { is_held: decision.ticket.is_some(), decision, client: self.clone(), domain })
    }
}

impl Slot {
    /// The decision on the request.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Releases the slots, and waits for the answer. What fails is logged, and the server frees them after `max_hold`.
    pub async fn release(mut self) {
        if let Some(release) = self.request(None) {
            send(&self.client, release).await;
        }
        self.is_held = false;
    }

    /// Releases so many hits of each of the slots, and waits for the answer.
    pub async fn release_part(&mut self, cost: u64) {
        if let Some(release) = self.request(Some(cost)) {
            send(&self.client, release).await;
        }
    }

    /// The request that releases so many hits, or all; none if there are no slots.
    fn request(&self, cost: Option<u64>) -> Option<Request> {
        let ticket = self.decision.ticket.as_deref().filter(|_| self.is_held)?;
        let whole = Descriptor::new([("slot", ticket)]);
        let descriptor = match cost {
            Some(cost) => whole.cost(cost).giving_back(),
            None => whole,
        };
        let request = Request::new([descriptor]).without_local_denials();
        Some(match &self.domain {
            Some(domain) => request.domain(domain.clone()),
            None => request,
        })
    }
}

async fn send(client: &Tidegate, release: Request) {
    if let Err(error) = client.limit(release).await {
        tracing::warn!(%error, "a slot was not released: the server frees it after max_hold");
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(release) = self.request(None) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return tracing::warn!(
                "a slot was dropped outside of a runtime: the server frees it after max_hold"
            );
        };
        let client = self.client.clone();
        runtime.spawn(async move { send(&client, release).await });
    }
}
