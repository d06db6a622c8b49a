//! Releases of slots of requests in flight, and ends of reservations. Every server of the store can make them with the ticket.
//!
//! A release of all hits of a slot, and an end, are repeated for about a minute until the store has run them: a second one changes nothing.
//! A release of a part of the hits is not repeated, since the store may have run it. If one is lost, its slots and reservations end at
//! their deadlines.

use super::{background::ATTEMPTS, counts::StoreEvent, shared_store::SharedStore};
use crate::{
    PeerId,
    script::{COUNTERS_MAX, Command, EncodedRequest},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};
use tidegate_core::{
    limit::Hits,
    limiter::{HeldKind, SlotRelease},
    store::Key,
};
use tokio::task::JoinHandle;

/// The result of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Whether these are slots or reservations.
    pub kind: HeldKind,
    /// Slots released and reservations ended now.
    pub closed: u64,
    /// Released or ended before, past their deadlines, or never taken.
    pub unknown: u64,
}

impl SharedStore {
    /// Releases slots and ends reservations for a peer. Returns when the store has done so, or at the deadline of decisions; releases then
    /// go on. Calls `count` with each result.
    pub async fn release(
        self: &Arc<Self>,
        releases: &[SlotRelease],
        peer: PeerId,
        count: impl Fn(Closed) + Clone + Send + 'static,
    ) {
        let started: Vec<_> =
            releases.iter().flat_map(|release| self.start_releases(release, peer, &count)).collect();
        let all = async {
            for release in started {
                // A release that panicked has released nothing.
                let _ = release.await;
            }
        };
        let _ = tokio::time::timeout(self.settings.timeout, all).await;
    }

    /// Releases slots and ends reservations for a peer in the background.
    pub fn release_later(
        self: &Arc<Self>,
        release: &SlotRelease,
        peer: PeerId,
        count: impl Fn(Closed) + Clone + Send + 'static,
    ) {
        drop(self.start_releases(release, peer, &count));
    }
}

/// The keys of counters by their groups.
pub(super) fn by_group<G: Ord>(counters: impl Iterator<Item = (G, Key)>) -> BTreeMap<G, Vec<Key>> {
    let mut groups: BTreeMap<G, Vec<Key>> = BTreeMap::new();
    counters.for_each(|(group, key)| groups.entry(group).or_default().push(key));
    groups
}

impl SharedStore {
    fn start_releases(
        self: &Arc<Self>,
        release: &SlotRelease,
        peer: PeerId,
        count: &(impl Fn(Closed) + Clone + Send + 'static),
    ) -> Vec<JoinHandle<()>> {
        let SlotRelease { id, hits, held } = release;
        // No slot has this id, and no request has so many counters.
        if *id == 0 || held.len() > COUNTERS_MAX {
            return Vec::new();
        }
        let groups = by_group(held.iter().map(|(held, group)| ((held.kind, *group), held.key)));
        let start = |((kind, group), keys): ((HeldKind, u16), Vec<Key>)| {
            let (named, count) = (keys.len() as u64, count.clone());
            let done =
                move |closed: u64| count(Closed { kind, closed, unknown: named.saturating_sub(closed) });
            // A second release of a part would release more.
            let (command, attempts) = match (kind, hits) {
                (HeldKind::Reservation, _) => (Command::end(*id, *hits, keys), ATTEMPTS),
                (HeldKind::Slot, Hits::GiveBack(hits)) => (Command::release(*id, Some(hits.get()), keys), 1),
                (HeldKind::Slot, _) => (Command::release(*id, None, keys), ATTEMPTS),
            };
            self.start_release((group, peer), command, attempts, done)
        };
        groups.into_iter().filter_map(start).collect()
    }

    /// Starts a release. None if there are too many: the release is then lost.
    fn start_release(
        self: &Arc<Self>,
        origin: (u16, PeerId),
        command: Command,
        attempts: u32,
        done: impl FnOnce(u64) + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        self.releases.fetch_add(1, Ordering::Relaxed);
        self.in_background(origin, command, attempts, |store, closed| {
            match closed {
                Some(closed) => done(closed),
                None => store.counts.events.count(StoreEvent::LostRelease),
            }
            store.releases.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Releases slots that a request may have taken, and ends its reservations, if the store has not responded to it.
    pub(super) fn release_of(self: &Arc<Self>, group: u16, peer: PeerId, request: &EncodedRequest) {
        for command in Command::close(request) {
            drop(self.start_release((group, peer), command, ATTEMPTS, |_| {}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SharedSettings;
    use std::time::Duration;
    use tidegate_core::limiter::Held;

    /// If the store does not respond, each of them goes on for up to a minute after its caller has given up. One client with many tickets,
    /// or with long invented tickets, had the ends of all other clients dropped.
    #[test]
    fn releases_of_one_peer_leave_room_for_those_of_others_and_what_is_too_much_is_counted_as_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let settings = SharedSettings::of_tests("redis://127.0.0.1:1", Duration::ZERO);
        let store = runtime.block_on(SharedStore::connect(settings)).expect("it is joined later");
        let state =
            || (store.releases.load(Ordering::Relaxed), store.counts.events.sum(StoreEvent::LostRelease));
        let slot = |counter| Held { kind: HeldKind::Slot, key: Key::from_halves(1, counter) };
        let release = |id, counters| SlotRelease {
            id,
            hits: Hits::ONE,
            held: (0..counters).map(|counter| (slot(counter), 0)).collect(),
        };
        {
            let _guard = runtime.enter();
            let (flood, other) = (store.peer_id("192.0.2.1"), store.peer_id("192.0.2.2"));
            (1..=5).for_each(|id| store.release_later(&release(id, 4_000), flood, |_| {}));
            assert_eq!(state(), (5, 0));
            (1..=3).for_each(|id| store.release_later(&release(id, 1), flood, |_| {}));
            assert_eq!(state(), (5, 3));
            (1..=20_000).for_each(|id| store.release_later(&release(id, 1), other, |_| {}));
            assert_eq!(state(), (20_005, 3));
        }
        // Releases that end with their runtime are lost, and make room.
        drop(runtime);
        assert_eq!(state(), (0, 20_008));
    }
}
