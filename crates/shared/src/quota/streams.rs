//! The buckets that each client reports, by the client's numbers for them.

use super::{growth::reserve_one, push::StreamId};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Number of a bucket.
pub(super) type BucketNumber = u32;

/// A client's place: a bucket, and the client's index in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) bucket: BucketNumber,
    pub(super) index: u32,
    /// Whether the client may not have received a change.
    is_changed: bool,
}

impl Membership {
    /// A number that the client uses for no bucket.
    const NONE: Self = Self { bucket: BucketNumber::MAX, index: 0, is_changed: false };

    pub(super) fn new(bucket: BucketNumber, index: usize) -> Self {
        Self { bucket, index: index as u32, is_changed: false }
    }

    fn exists(&self) -> bool {
        self.bucket != BucketNumber::MAX
    }
}

/// The clients.
#[derive(Default)]
pub(super) struct Streams(HashMap<StreamId, Stream, RandomState>);

/// The buckets of one client, by its numbers for them.
#[derive(Default)]
struct Stream {
    places: Vec<Membership>,
    /// The numbers of buckets with changes that the client may not have received, each once.
    changed: Vec<u32>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, stream: StreamId, place: u32) -> Option<Membership> {
        self.0.get(&stream)?.places.get(place as usize).copied().filter(Membership::exists)
    }

    /// The numbers that a client uses.
    pub(super) fn places(&self, stream: StreamId) -> Vec<u32> {
        let numbered = (0..).zip(self.0.get(&stream).into_iter().flat_map(|stream| &stream.places));
        numbered.filter(|(_, membership)| membership.exists()).map(|(place, _)| place).collect()
    }

    /// Adds a bucket of a client.
    pub(super) fn add(&mut self, stream: StreamId, place: u32, membership: Membership) {
        let places = &mut self.0.entry(stream).or_default().places;
        while places.len() <= place as usize {
            reserve_one(places);
            places.push(Membership::NONE);
        }
        places[place as usize] = membership;
    }

    /// Notes that the client has another index in its bucket.
    pub(super) fn moved(&mut self, stream: StreamId, place: u32, index: u32) {
        let places = self.0.get_mut(&stream).map(|stream| &mut stream.places);
        if let Some(known) = places.and_then(|places| places.get_mut(place as usize)) {
            known.index = index;
        }
    }

    /// Removes a bucket of a client.
    pub(super) fn remove(&mut self, stream: StreamId, place: u32) -> Option<Membership> {
        let Stream { places, changed } = self.0.get_mut(&stream)?;
        let known = std::mem::replace(places.get_mut(place as usize)?, Membership::NONE);
        if known.is_changed {
            changed.retain(|changed| *changed != place);
        }
        Some(known).filter(Membership::exists)
    }

    /// Notes that a client is sent a change.
    pub(super) fn note_change(&mut self, stream: StreamId, place: u32) {
        let Some(Stream { places, changed }) = self.0.get_mut(&stream) else { return };
        let known = places.get_mut(place as usize).filter(|known| known.exists());
        if known.is_some_and(|known| !std::mem::replace(&mut known.is_changed, true)) {
            changed.push(place);
        }
    }

    /// Buckets with changes that the client may not have received.
    pub(super) fn changed(&self, stream: StreamId) -> impl Iterator<Item = Membership> + Clone {
        let stream = self.0.get(&stream).into_iter();
        stream.flat_map(|Stream { places, changed }| {
            changed.iter().filter_map(|place| places.get(*place as usize).copied().filter(Membership::exists))
        })
    }

    /// Forgets the changes that the client has received.
    pub(super) fn acknowledge(&mut self, stream: StreamId, mut has_received: impl FnMut(Membership) -> bool) {
        let Some(Stream { places, changed }) = self.0.get_mut(&stream) else { return };
        changed.retain(|place| {
            let Some(known) = places.get_mut(*place as usize).filter(|known| known.is_changed) else {
                return false;
            };
            known.is_changed = !has_received(*known);
            known.is_changed
        });
        if changed.is_empty() {
            *changed = Vec::new();
        }
    }

    /// Forgets a client.
    pub(super) fn close(&mut self, stream: StreamId) {
        self.0.remove(&stream);
    }
}
