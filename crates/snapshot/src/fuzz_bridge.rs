//! Fuzz bridge: the decoders of data on disk.

use super::{
    RestoreError, Restored, SimulatedDisk,
    manifest::Manifest,
    pages,
    portable::{ImportError, read_lines},
    record::{self, Kind, Position},
    write::Writer,
};

use tidegate_core::{
    algorithm::StateView,
    limit::Timestamp,
    limiter::Limiter,
    store::{Seed, Store},
};

/// Restores from records with these bodies, each sealed as if it had been written: input that no checksum rejects.
pub fn restore_records<'b>(
    bodies: impl ExactSizeIterator<Item = (u8, &'b [u8])>,
    build: impl FnOnce(Seed) -> Limiter,
    now: Timestamp,
) -> Result<(Limiter, Writer, Restored), RestoreError> {
    let (disk, generation) = (SimulatedDisk::default(), 1);
    let committed = (bodies.len() as u64).checked_sub(1);
    for ((kind, body), number) in bodies.zip(0..) {
        let kind = [Kind::Head, Kind::Limits, Kind::Pages, Kind::Commit][usize::from(kind) % 4];
        disk.put(generation, number, record::seal(kind, Position { generation, number }, body));
    }
    disk.put_manifest(Manifest::new(generation, committed).to_bytes());
    super::start_simulated(&disk, Seed::from_bytes([0; 16]), build, now)
}

/// The body of a record with counters, decoded and encoded. None if it is refused.
pub fn reencode_pages(body: &[u8]) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    for page in pages::decode(body)? {
        let counters =
            page.counters.iter().map(|kept| (kept.key, kept.limit, StateView::Borrowed(&kept.state)));
        pages::encode(&mut again, page.shard, page.keys, counters);
    }
    Some(again)
}

/// A manifest, decoded and encoded. None if it is refused.
pub fn reencode_manifest(bytes: &[u8]) -> Option<Vec<u8>> {
    Manifest::from_bytes(bytes).ok().map(Manifest::to_bytes)
}

/// The counters of a snapshot in its portable form.
pub fn import_lines(file: &[u8]) -> Result<Store, ImportError> {
    read_lines(file).map(|read| read.store)
}
