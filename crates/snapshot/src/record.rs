//! The records of a snapshot. Pure bytes; reading never panics.
//!
//! A record is framed as follows. Numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version of the format, [`VERSION`] |
//! | 1 | kind: 1 head, 2 limits, 3 pages, 4 commit |
//! | 8 | number of the generation it belongs to |
//! | 8 | its own number within the generation, from 0 |
//! | … | body |
//! | 4 | CRC-32 of all bytes before |
//!
//! The body of pages is described in [`pages`](super::pages); the others are JSON. A record is valid only as a whole and at its own
//! position: a damaged, truncated or moved record is an error.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tidegate_core::store::Seed;

/// The version of the format. A reader refuses newer versions, and reads every older one.
pub(super) const VERSION: u8 = 1;

const HEADER_BYTES: usize = 18;
const CHECKSUM_BYTES: usize = 4;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// The first record of a generation: [`Head`].
    Head = 1,
    /// Some [`LimitInfo`](tidegate_core::rules::LimitInfo)s. Counters refer to each by its index among all limits of the generation.
    Limits = 2,
    /// Counters.
    Pages = 3,
    /// The end of a pass: [`Commit`].
    Commit = 4,
}

/// The position of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) generation: u64,
    pub(super) number: u64,
}

/// The parameters of a generation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// The secret of the keys, as 32 hexadecimal digits.
    pub(super) seed: String,
    /// Number of shards over which the keys are distributed.
    pub(super) shards: usize,
}

/// The end of a pass. With all records before, it is a complete snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Commit {
    /// Nanoseconds since the Unix epoch. No state in the snapshot is newer.
    pub(super) at_nanos: u64,
    /// Number of counters at the time, for display.
    pub(super) counters: u64,
    /// The numbers of the records with limits, in ascending order.
    pub(super) limit_records: Vec<u64>,
}

/// The reason why bytes are not the expected record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("is truncated")]
    Short,
    #[error("is of version {0}, and this program reads up to {VERSION}")]
    Newer(u8),
    #[error("does not match its checksum")]
    Checksum,
    #[error("belongs at another position")]
    Misplaced,
    #[error("is of the wrong kind")]
    Kind,
    #[error("cannot be read: {0}")]
    Body(String),
}

impl Head {
    pub(super) fn new(seed: &Seed, shards: usize) -> Self {
        let seed = format!("{:032x}", u128::from_be_bytes(seed.to_bytes()));
        Self { seed, shards }
    }

    /// The secret. None if it is malformed.
    pub(super) fn seed(&self) -> Option<Seed> {
        let is_hex = self.seed.len() == 32 && self.seed.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(&self.seed, 16).ok())??;
        Some(Seed::from_bytes(number.to_be_bytes()))
    }
}

/// Frames a body.
pub(super) fn seal(kind: Kind, position: Position, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER_BYTES + body.len() + CHECKSUM_BYTES);
    record.extend_from_slice(&[VERSION, kind as u8]);
    record.extend_from_slice(&position.generation.to_le_bytes());
    record.extend_from_slice(&position.number.to_le_bytes());
    record.extend_from_slice(body);
    record.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
    record
}

/// Frames a JSON body.
pub(super) fn seal_json(kind: Kind, position: Position, body: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(body).expect("a plain structure with text keys is always JSON");
    seal(kind, position, &body)
}

/// The kind and the body of the record that is expected at `position`.
pub(super) fn open(record: &[u8], position: Position) -> Result<(Kind, &[u8]), RecordError> {
    let (rest, checksum) = record.split_last_chunk::<CHECKSUM_BYTES>().ok_or(RecordError::Short)?;
    let (header, body) = rest.split_first_chunk::<HEADER_BYTES>().ok_or(RecordError::Short)?;
    let [version, kind, place @ ..] = header;
    if crc32fast::hash(rest).to_le_bytes() != *checksum {
        return Err(RecordError::Checksum);
    }
    if *version != VERSION {
        return Err(RecordError::Newer(*version));
    }
    let (generation, number) = (position.generation.to_le_bytes(), position.number.to_le_bytes());
    if place[..8] != generation || place[8..] != number {
        return Err(RecordError::Misplaced);
    }
    let kinds = [Kind::Head, Kind::Limits, Kind::Pages, Kind::Commit];
    let kind = kinds.into_iter().find(|&known| known as u8 == *kind);
    Ok((kind.ok_or(RecordError::Kind)?, body))
}

/// The JSON body of a record that is expected to have this kind.
pub(super) fn open_json<T: DeserializeOwned>(
    record: &[u8],
    kind: Kind,
    position: Position,
) -> Result<T, RecordError> {
    let (found, body) = open(record, position)?;
    if found != kind {
        return Err(RecordError::Kind);
    }
    serde_json::from_slice(body).map_err(|error| RecordError::Body(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POSITION: Position = Position { generation: 3, number: 77 };

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let record = seal(Kind::Pages, POSITION, b"some counters");
        assert_eq!(open(&record, POSITION), Ok((Kind::Pages, &b"some counters"[..])));
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&damaged, POSITION).is_err(), "bit {bit}");
        }
        for length in 0..record.len() {
            assert!(open(&record[..length], POSITION).is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn a_valid_record_at_another_position_is_refused() {
        let record = seal(Kind::Pages, POSITION, b"");
        for wrong in [Position { generation: 2, ..POSITION }, Position { number: 78, ..POSITION }] {
            assert_eq!(open(&record, wrong), Err(RecordError::Misplaced));
        }
        let as_head = open_json::<Head>(&record, Kind::Head, POSITION);
        assert_eq!(as_head, Err(RecordError::Kind));
    }

    #[test]
    fn a_newer_version_is_distinguished_from_damage() {
        let mut record = seal(Kind::Head, POSITION, b"{}");
        record[0] = VERSION + 1;
        let end = record.len() - CHECKSUM_BYTES;
        let checksum = crc32fast::hash(&record[..end]).to_le_bytes();
        record[end..].copy_from_slice(&checksum);
        assert_eq!(open(&record, POSITION), Err(RecordError::Newer(VERSION + 1)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            prop_assert!(open(&bytes, POSITION).is_err());
        }
    }
}
