//! The body of a record with counters: a sequence of pages. Pure bytes; reading never panics.
//!
//! A page: the shard (2 bytes), the number of last bits that its keys share (1), those bits (4), the number of counters (2). A counter: the
//! halves of its key (8 and 8 bytes), the place of its limit (4), its state in the format of [`state_bytes`]. Numbers are little-endian.
//!
//! [`state_bytes`]: super::state_bytes

use super::state_bytes;
use tidegate_core::{
    algorithm::{State, StateView},
    store::{Key, PageKeys},
};

/// One page of counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) shard: u16,
    pub(super) keys: PageKeys,
    pub(super) counters: Vec<KeptCounter>,
}

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeptCounter {
    pub(super) key: Key,
    /// The place of its limit among those of the generation.
    pub(super) limit: u32,
    pub(super) state: State,
}

/// Appends a page. `limit` returns the place of a counter's limit.
pub(super) fn encode<'c>(
    out: &mut Vec<u8>,
    shard: u16,
    keys: PageKeys,
    counters: impl ExactSizeIterator<Item = (Key, u32, StateView<'c>)>,
) {
    out.extend_from_slice(&shard.to_le_bytes());
    out.push(keys.depth as u8);
    out.extend_from_slice(&keys.bits.to_le_bytes());
    out.extend_from_slice(&(counters.len() as u16).to_le_bytes());
    for (key, limit, state) in counters {
        let (high, low) = key.halves();
        out.extend_from_slice(&high.to_le_bytes());
        out.extend_from_slice(&low.to_le_bytes());
        out.extend_from_slice(&limit.to_le_bytes());
        state_bytes::write(&state, out);
    }
}

/// All pages of a body. None if it does not consist of whole pages.
pub(super) fn decode(mut body: &[u8]) -> Option<Vec<Page>> {
    let mut pages = Vec::new();
    while !body.is_empty() {
        pages.push(page(&mut body)?);
    }
    Some(pages)
}

fn page(body: &mut &[u8]) -> Option<Page> {
    let shard = u16::from_le_bytes(take(body)?);
    let [depth] = take(body)?;
    let keys = PageKeys { depth: u32::from(depth), bits: u32::from_le_bytes(take(body)?) };
    if keys.depth > PageKeys::DEPTH_MAX || keys.bits >> keys.depth != 0 {
        return None;
    }
    let count = u16::from_le_bytes(take(body)?);
    let mut counters = Vec::with_capacity(usize::from(count).min(64));
    for _ in 0..count {
        let key = Key::from_halves(u64::from_le_bytes(take(body)?), u64::from_le_bytes(take(body)?));
        let limit = u32::from_le_bytes(take(body)?);
        let state = state_bytes::read(body)?;
        if !keys.contain(key) {
            return None;
        }
        counters.push(KeptCounter { key, limit, state });
    }
    Some(Page { shard, keys, counters })
}

fn take<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = body.split_first_chunk::<N>()?;
    *body = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_core::algorithm::{Algorithm, SlidingWindow};
    use tidegate_core::limit::{Timestamp, Window};

    fn state(hits: u64) -> State {
        let window = Window::from_secs(60).unwrap();
        let algorithm = Algorithm::SlidingWindow(SlidingWindow { limit: 100, window });
        algorithm.add(State::EMPTY, hits, Timestamp::from_millis(1_700_000_000_000))
    }

    fn some_pages() -> impl Strategy<Value = Vec<Page>> {
        let counter = (any::<u64>(), any::<u64>(), any::<u32>(), 0..1000u64);
        let page = (any::<u16>(), 0..=31u32, any::<u32>(), prop::collection::vec(counter, 0..64));
        let page = page.prop_map(|(shard, depth, bits, counters)| {
            let keys = PageKeys { depth, bits: bits & ((1 << depth) - 1) };
            let counters = counters.into_iter().map(|(high, low, limit, hits)| {
                let low = low >> depth << depth | u64::from(keys.bits);
                KeptCounter { key: Key::from_halves(high, low), limit, state: state(hits) }
            });
            Page { shard, keys, counters: counters.collect() }
        });
        prop::collection::vec(page, 0..8)
    }

    fn encoded(pages: &[Page]) -> Vec<u8> {
        let mut body = Vec::new();
        for page in pages {
            let counters =
                page.counters.iter().map(|kept| (kept.key, kept.limit, StateView::Borrowed(&kept.state)));
            encode(&mut body, page.shard, page.keys, counters);
        }
        body
    }

    proptest! {
        #[test]
        fn pages_are_read_as_they_were_written(pages in some_pages()) {
            prop_assert_eq!(decode(&encoded(&pages)), Some(pages));
        }

        #[test]
        fn no_damage_panics(pages in some_pages(), damage: Vec<(prop::sample::Index, u8)>, cut: prop::sample::Index) {
            let mut body = encoded(&pages);
            for (at, byte) in damage {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = byte;
                }
            }
            let _ = decode(&body);
            let _ = decode(&body[..cut.index(body.len() + 1)]);
            let _ = decode(&body);
        }
    }
}
