//! Releases of slots of requests in flight. Every server of the store makes them, by the ticket of the slots.
//!
//! A release of all hits of a slot is repeated until the store has made it, for about a minute: a second one changes nothing. One of a
//! part of them is not repeated, since the store may have made it. Slots whose release is lost end at their deadlines.

use super::{
    SharedStore,
    batches::Task,
    counts::StoreEvent,
    inner::Inner,
    parts::{UNDO_ATTEMPTS, until_done},
};
use crate::script::{COUNTERS_MAX, EncodedRequest, Release};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};
use tidegate_core::{limiter::SlotRelease, store::Key};
use tokio::{runtime::Handle, task::JoinHandle};

/// Releases that are under way at once. Of more, the slots end at their deadlines.
const RELEASES_MAX: usize = 10_000;

impl SharedStore {
    /// Releases slots. Returns once the store has, or at the deadline of decisions; releases go on then. `count` is called with the
    /// number of slots that were held, and of those that were not.
    pub async fn release(&self, releases: &[SlotRelease], count: impl Fn(u64, u64) + Clone + Send + 'static) {
        let started: Vec<_> =
            releases.iter().flat_map(|release| self.0.start_releases(release, &count)).collect();
        let all = async {
            for release in started {
                // One that panicked has released nothing.
                let _ = release.await;
            }
        };
        let _ = tokio::time::timeout(self.0.settings.timeout, all).await;
    }

    /// Releases slots in the background.
    pub fn release_later(&self, release: &SlotRelease, count: impl Fn(u64, u64) + Clone + Send + 'static) {
        drop(self.0.start_releases(release, &count));
    }
}

impl Inner {
    fn start_releases(
        self: &Arc<Self>,
        release: &SlotRelease,
        count: &(impl Fn(u64, u64) + Clone + Send + 'static),
    ) -> Vec<JoinHandle<()>> {
        let mut groups: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
        release.counters.iter().for_each(|(group, key)| groups.entry(*group).or_default().push(*key));
        // No slot has this id, and no request so many counters.
        let is_ticket = release.id != 0 && release.counters.len() <= COUNTERS_MAX;
        let groups = groups.into_iter().filter(|_| is_ticket);
        let started = groups.map(|(group, keys)| {
            let (named, count) = (keys.len() as u64, count.clone());
            let done = move |released: u64| count(released, named.saturating_sub(released));
            self.start_release(group, Release::new(release.id, release.hits, keys), done)
        });
        started.flatten().collect()
    }

    /// Starts a release; none if there are too many.
    fn start_release(
        self: &Arc<Self>,
        group: u16,
        release: Release,
        done: impl FnOnce(u64) + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok();
        let is_bounded = self.releases.fetch_add(1, Ordering::Relaxed) < RELEASES_MAX;
        let Some(runtime) = runtime.filter(|_| is_bounded) else {
            self.releases.fetch_sub(1, Ordering::Relaxed);
            self.counts.events.count(StoreEvent::LostRelease);
            return None;
        };
        let (store, attempts) = (Arc::clone(self), if release.is_repeatable() { UNDO_ATTEMPTS } else { 1 });
        let release = Arc::new(release);
        Some(runtime.spawn(async move {
            let task = |reply| Task::Release { release: Arc::clone(&release), reply };
            match until_done(&store, group, attempts, task).await {
                Some(released) => done(released),
                None => store.counts.events.count(StoreEvent::LostRelease),
            }
            store.releases.fetch_sub(1, Ordering::Relaxed);
        }))
    }

    /// Releases the slots that a request has perhaps taken, to which the store did not respond.
    pub(super) fn release_of(self: &Arc<Self>, group: u16, request: &EncodedRequest) {
        if let Some(release) = Release::of_request(request) {
            drop(self.start_release(group, release, |_| {}));
        }
    }
}
