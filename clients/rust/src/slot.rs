//! Slots of limits of requests in flight, and estimates of costs that are known only at the end, as guards.

use crate::{
    client::{Error, Tidegate},
    decision::Decision,
    request::{Descriptor, Request},
};
use std::{
    ops::Deref,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::runtime::Handle;

/// The slots and estimates that a request holds until it is over, released when this is dropped; see [`Tidegate::acquire`]. It derefs to
/// the decision. A request that is not allowed holds none.
///
/// Dropped outside of a runtime of tokio it releases nothing, and the server frees the slots after `max_hold`.
#[must_use = "the slots are released when this is dropped"]
#[derive(Debug)]
pub struct Slot {
    decision: Decision,
    client: Tidegate,
    domain: Option<String>,
    /// The request's descriptors.
    descriptors: Vec<Descriptor>,
    is_held: bool,
    /// The actual cost at the end; without it the estimates stay charged.
    cost: Option<u64>,
}

impl Deref for Slot {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

impl Tidegate {
    /// Takes hits as [`limit`](Self::limit) does, and holds the slots of limits of requests in flight until the guard is dropped. For
    /// limits that reserve it holds estimates, which [`commit`](Slot::commit) replaces. No denial is kept. A call that is dropped before
    /// its answer continues, and releases the slots that it gets.
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
        self.hold(request.into().without_local_denials()).await
    }

    /// Acquires the slots and estimates of a request.
    pub(crate) fn hold(&self, request: Request) -> Holding {
        let client = self.clone();
        Holding(Some(Box::pin(async move {
            let decision = client.limit(request.clone()).await?;
            let (is_held, domain) = (decision.ticket.is_some(), request.domain.clone());
            let descriptors = if is_held { request.descriptors().to_vec() } else { Vec::new() };
            Ok(Slot { decision, client, domain, descriptors, is_held, cost: None })
        })))
    }
}

type Acquired = Result<Slot, Error>;

/// A call for slots. If it is dropped, the server may have admitted it: then it continues, and its slot is released.
pub(crate) struct Holding(Option<Pin<Box<dyn Future<Output = Acquired> + Send>>>);

impl Future for Holding {
    type Output = Acquired;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Acquired> {
        let Some(call) = self.0.as_mut() else { return Poll::Pending };
        let acquired = ready!(call.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(acquired)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let (Some(call), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(call.await) });
        }
    }
}

impl Slot {
    /// The decision on the request.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Extends the hold of the slots and estimates to `max_hold` of their rules from now on; returns whether all are still held. If not,
    /// the request must not go on. Without an answer the client's policy decides. Takes no hits.
    ///
    /// Call it each third of `max_hold`, so that a failed renewal can be repeated.
    pub async fn renew(&self) -> Result<bool, Error> {
        let Some(ticket) = self.decision.ticket.as_deref() else { return Ok(self.decision.allowed) };
        // Zero hits are a peek, which renews nothing.
        let renewed = |descriptor: &Descriptor| descriptor.clone().and("renew", ticket).cost(1);
        let renewal = self.of_domain(Request::new(self.descriptors.iter().map(renewed)));
        Ok(self.client.limit(renewal).await?.allowed)
    }

    /// Releases the slots, keeps the estimates charged, and waits for the answer. A failure is logged, and the server frees them after
    /// `max_hold`.
    pub async fn release(self) {
        self.end(None).await;
    }

    /// Ends the request with its actual cost, instead of its estimates, and releases the slots. Zero gives the estimates back.
    pub async fn commit(self, cost: u64) {
        self.end(Some(cost)).await;
    }

    /// Ends the request at no cost.
    pub async fn cancel(self) {
        self.commit(0).await;
    }

    /// Releases `cost` hits of each slot, and waits for the answer. Ends the estimates, reduced by as many hits.
    pub async fn release_part(&mut self, cost: u64) {
        if let Some(part) = self.request(|ticket| ticket.cost(cost).giving_back()) {
            send(&self.client, part).await;
        }
    }

    async fn end(mut self, cost: Option<u64>) {
        // If it is dropped before the answer, it is sent again with the same cost.
        self.cost = cost;
        if let Some(end) = self.end_request() {
            send(&self.client, end).await;
        }
        self.is_held = false;
    }

    /// The request that ends the slots and estimates; none if nothing is held.
    fn end_request(&self) -> Option<Request> {
        let estimate = self.decision.ticket_cost.max(1);
        self.request(|ticket| match self.cost {
            None => ticket.cost(estimate),
            // Zero hits are a peek, which releases no slot.
            Some(0) => ticket.cost(estimate).giving_back(),
            Some(cost) => ticket.cost(cost),
        })
    }

    fn request(&self, with_cost: impl FnOnce(Descriptor) -> Descriptor) -> Option<Request> {
        let ticket = self.decision.ticket.as_deref().filter(|_| self.is_held)?;
        let descriptor = with_cost(Descriptor::new([("slot", ticket)]));
        Some(self.of_domain(Request::new([descriptor])))
    }

    fn of_domain(&self, request: Request) -> Request {
        let request = request.without_local_denials();
        match &self.domain {
            Some(domain) => request.domain(domain.clone()),
            None => request,
        }
    }
}

async fn send(client: &Tidegate, release: Request) {
    if let Err(error) = client.limit(release).await {
        tracing::warn!(%error, "the end of a request is lost: its slots and estimates end after max_hold");
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(release) = self.end_request() else { return };
        let Ok(runtime) = Handle::try_current() else {
            return tracing::warn!(
                "a slot was dropped outside of a runtime: its slots and estimates end after max_hold"
            );
        };
        let client = self.client.clone();
        runtime.spawn(async move { send(&client, release).await });
    }
}
