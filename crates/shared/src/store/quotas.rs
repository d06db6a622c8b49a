//! The thread that sends requests for parts of quota, and passes on the grants.

use super::{connection::Connection, shared_store::SharedStore, side_connection::SideConnection};
use crate::{
    quota::{PartCall, PartGrant},
    script::{Batch, decode_parts},
};
use redis::{ErrorKind, RedisError};
use std::sync::Arc;
use tidegate_core::{clock::Clock, store::Key};
use tidegate_threads::{BackgroundThread, Priority, StartError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The most requests of one call of the script. Each occupies the store for some 50 microseconds, or less in a batch.
const REQUESTS_MAX: usize = 32;

/// The sender of requests. Requests to a thread that has ended are dropped.
#[derive(Debug)]
pub struct PartCalls(UnboundedSender<Vec<PartCall>>);

impl PartCalls {
    /// Sends requests. A failed request gets no response; the next request for its counter is newer.
    pub fn send(&self, calls: Vec<PartCall>) {
        if !calls.is_empty() {
            let _ = self.0.send(calls);
        }
    }
}

/// Starts the thread. It passes on each grant with the key of its counter and the number of its request, and ends when the sender is
/// dropped.
pub fn start_parts(
    store: &Arc<SharedStore>,
    clock: &Arc<dyn Clock>,
    granted: impl Fn(Key, u64, PartGrant) + Send + 'static,
) -> Result<(BackgroundThread, PartCalls), StartError> {
    let (calls, received) = unbounded_channel();
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let run = async move || answer(&store, &*clock, received, granted).await;
    Ok((BackgroundThread::start_async("quota-store", Priority::Full, run)?, PartCalls(calls)))
}

/// Sends the requests that are received.
async fn answer(
    store: &Arc<SharedStore>,
    clock: &dyn Clock,
    mut received: UnboundedReceiver<Vec<PartCall>>,
    granted: impl Fn(Key, u64, PartGrant),
) {
    let mut connection = SideConnection::new(Arc::clone(store));
    while let Some(calls) = received.recv().await {
        for calls in calls.chunks(REQUESTS_MAX) {
            if let Err(error) = send(store, clock, &mut connection, calls, &granted).await {
                tracing::debug!(%error, "a call for parts of quota failed");
                connection.close();
                // Requests that arrived meanwhile are dropped too: without a response each takes the time limit, in which more arrive.
                while received.try_recv().is_ok() {}
                break;
            }
        }
    }
}

async fn send(
    store: &SharedStore,
    clock: &dyn Clock,
    connection: &mut SideConnection,
    calls: &[PartCall],
    granted: &impl Fn(Key, u64, PartGrant),
) -> Result<(), RedisError> {
    if !store.leases() {
        return Ok(());
    }
    let Connection { mut commands, run, .. } = connection.get().await?;
    let now = clock.now();
    let mut reply = store.request_parts(&mut commands, &run, calls, now).await?;
    if reply.is_empty() {
        // A call without requests begins the epoch.
        store.evaluate(&mut commands, 0, &run, &Batch::default(), false).await?;
        reply = store.request_parts(&mut commands, &run, calls, now).await?;
    }
    let grants = decode_parts(&reply, calls.len());
    let grants = grants.ok_or((ErrorKind::UnexpectedReturnType, "not a reply of the script"))?;
    for (call, grant) in calls.iter().zip(grants) {
        if let Some(grant) = grant {
            granted(call.bucket, call.request.sequence, grant);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lease::NodeId,
        quota::{Part, PartRequest},
        store::SharedSettings,
    };
    use std::{net::TcpListener, time::Duration};
    use tidegate_core::{
        algorithm::{Algorithm, SlidingLog},
        clock::SystemClock,
        limit::Window,
    };

    /// Each second, a server requests the part of every counter again. Each of these calls used to wait for the time limit, one after
    /// another, and the queue grew for as long as the store was silent.
    #[test]
    fn requests_that_queue_behind_a_silent_store_are_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Accepts connections, and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        silent.set_nonblocking(true).expect("it is set");
        let url = format!("redis://{}", silent.local_addr().expect("it is bound"));
        let settings = SharedSettings::of_tests(&url, Duration::from_millis(200));
        let store = Arc::new(SharedStore::new(settings).expect("settings of one store"));
        let (part, clock) = (Part::default(), SystemClock::new());
        let request = PartRequest {
            server: NodeId(1),
            sequence: 1,
            kept: part,
            spent: 0,
            acknowledged: None,
            wanted: part,
            rate_max: 0,
            span: 0,
            demand: 0,
            clients: 0,
        };
        let window = Window::from_secs(60).expect("a window");
        let algorithm = Algorithm::SlidingLog(SlidingLog { limit: 10, window });
        let call = PartCall { bucket: Key::from_halves(1, 2), algorithm, request };
        let (calls, received) = unbounded_channel();
        (0..5).for_each(|_| calls.send(vec![call.clone()]).expect("it is received"));
        drop(calls);
        runtime.block_on(answer(&store, &clock, received, |_, _, _| {}));
        let connections = std::iter::from_fn(|| silent.accept().ok()).count();
        assert_eq!(connections, 1);
    }
}
