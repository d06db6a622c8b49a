//! Bytes of any kind, cut anywhere.

use super::{client::*, *};
use proptest::prelude::*;

/// Bytes that a client might send, valid or not.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![0..12_u32, any::<u32>()];
    let payload = prop_oneof![
        Just(head("/fast")),
        Just(head("/other")),
        prop::collection::vec(any::<u8>(), 0..20),
        Just(vec![0, 0, 0, 1]),
        Just(vec![0; 8]),
    ];
    let loose = (0..11_u8, any::<u8>(), stream, payload)
        .prop_map(|(kind, flags, stream, payload)| frame_bytes(kind, flags, stream & 0x7fff_ffff, &payload));
    let whole = (0..40_u32, prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(stream, body)| call(stream * 2 + 1, &body));
    prop_oneof![3 => loose, 3 => whole, 1 => prop::collection::vec(any::<u8>(), 0..30)]
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_bytes_are_cut(
        frames in prop::collection::vec(anything(), 0..12), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = [opening(&[]), frames.concat()].concat();
        let mut whole = Client::silent(Http2Settings::default());
        whole.sends(&bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Client::silent(Http2Settings::default());
        let mut start = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            if pieces.server.wants_to_read() {
                pieces.sends(&bytes[start..cut]);
            }
            start = cut;
        }
        prop_assert_eq!(whole.server.failure(), pieces.server.failure());
        prop_assert_eq!(whole.receives(), pieces.receives());
    }
}
