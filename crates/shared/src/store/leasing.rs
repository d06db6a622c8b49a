//! The leasing thread: sends requests for credits that are due, and passes the responses to the holders.

use super::{
    connection::Connection,
    shared_store::SharedStore,
    side_connection::{PAUSE, SideConnection},
};
use crate::{
    holders::{DueRequest, Holders, LeaseEvent},
    lease::Terms,
    script::Batch,
};
use redis::RedisError;
use std::{sync::Arc, time::Duration};
use tidegate_core::{clock::Clock, limit::Timestamp};
use tidegate_threads::{BackgroundThread, Priority, StartError, StoppableThread};
use tokio::{sync::oneshot, task::JoinSet};

/// Interval between two looks for due requests: as often as the most frequent reports.
const INTERVAL: Duration = Duration::from_millis(2);

/// Interval between two looks while there are no holders.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);

/// The most requests of one call of the script. Each occupies the store for some 20 microseconds.
const REQUESTS_MAX: usize = 32;

/// Starts the thread. Without leases, it only drops denials that have ended. When it ends, it releases all credits.
pub fn start_leasing(
    store: &Arc<SharedStore>,
    clock: &Arc<dyn Clock>,
) -> Result<StoppableThread, StartError> {
    let store = Arc::clone(store);
    let holders = Arc::clone(&store.holders);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let clock = Arc::clone(clock);
    let run = async move || {
        let connection = SideConnection::new(Arc::clone(&store));
        let mut leasing = Lessee { store, holders, clock, connection };
        loop {
            let pause = leasing.step().await;
            if tokio::time::timeout(pause, &mut stopped).await.is_ok() {
                return leasing.release().await;
            }
        }
    };
    Ok(BackgroundThread::start_async("leases", Priority::Full, run)?.stopped_by(stop))
}

struct Lessee {
    store: Arc<SharedStore>,
    holders: Arc<Holders>,
    clock: Arc<dyn Clock>,
    connection: SideConnection,
}

impl Lessee {
    /// Sends the requests that are due. Returns the pause until the next step.
    async fn step(&mut self) -> Duration {
        if self.holders.is_empty() {
            return IDLE_INTERVAL;
        }
        if !self.store.leases() {
            // Nothing is leased, and no request is due.
            self.holders.due(Holders::now());
            return PAUSE;
        }
        // Without a connection, the holders keep their due requests, and spend their credits to the end.
        let Ok(connection) = self.connection.get().await else { return PAUSE };
        let due = self.holders.due(Holders::now());
        if due.is_empty() {
            return INTERVAL;
        }
        if self.send(&connection, due).await.is_err() {
            self.connection.close();
        }
        INTERVAL
    }

    /// Returns all credits, so that other servers can use them at once.
    async fn release(&mut self) {
        if !self.store.leases() {
            return;
        }
        let due = self.holders.release_all(Holders::now());
        if !due.is_empty()
            && let Ok(connection) = self.connection.get().await
        {
            // If the store cannot be reached, it counts them as spent.
            let _ = self.send(&connection, due).await;
        }
    }

    /// Sends all requests at once. An error if a call has failed.
    async fn send(&self, connection: &Connection, mut due: Vec<DueRequest>) -> Result<(), RedisError> {
        self.holders.counts.events.add(LeaseEvent::Request, due.len() as u64);
        let mut calls = JoinSet::new();
        while !due.is_empty() {
            let rest = due.split_off(due.len().min(REQUESTS_MAX));
            let (batch, mut connection) = (std::mem::replace(&mut due, rest), connection.clone());
            let (store, holders) = (Arc::clone(&self.store), Arc::clone(&self.holders));
            let now = self.clock.now();
            calls.spawn(async move { call(&store, &holders, &mut connection, batch, now).await });
        }
        let mut result = Ok(());
        while let Some(called) = calls.join_next().await {
            // A panic was printed when it happened.
            if let Ok(Err(error)) = called {
                tracing::debug!(%error, "a call for leases failed");
                result = Err(error);
            }
        }
        result
    }
}

async fn call(
    store: &SharedStore,
    holders: &Holders,
    connection: &mut Connection,
    due: Vec<DueRequest>,
    now: Timestamp,
) -> Result<(), RedisError> {
    let (mut batch, settings) = (Batch::default(), holders.settings);
    for DueRequest { key, algorithm, request } in &due {
        batch.push_lease(*key, Terms { algorithm, settings }, request, now);
    }
    let reply = store.evaluate(&mut connection.commands, 0, &connection.run, &batch, false).await?;
    let now = Holders::now();
    for (due, grant) in due.iter().zip(reply.grants) {
        let Some(grant) = grant else { continue };
        match grant.decode(&due.algorithm) {
            Ok(grant) => {
                let terms = Terms { algorithm: &due.algorithm, settings };
                let response = grant.response(terms, &due.request, reply.epoch, reply.now);
                holders.accept(due, &response, grant.counter(terms, reply.now), now);
            }
            Err(error) => tracing::error!(%error, "a grant of the shared store is not used"),
        }
    }
    Ok(())
}
