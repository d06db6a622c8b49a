//! The manifest: the generation in force, and its last committed record. It is small, and replaced as a whole after every pass.
//!
//! Two lines: JSON, and the CRC-32 of that line in hexadecimal.

use super::record::VERSION;
use serde::{Deserialize, Serialize};

/// The committed state of the data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Version of the format.
    pub(super) format: u8,
    /// The generation in force.
    pub(super) generation: u64,
    /// The number of its last commit; none if nothing was ever committed.
    pub(super) committed: Option<u64>,
}

/// The reason why bytes are not a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ManifestError {
    Damaged,
    Newer(u64),
}

impl Manifest {
    pub(super) fn new(generation: u64, committed: Option<u64>) -> Self {
        Self { format: VERSION, generation, committed }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let line = serde_json::to_string(&self).expect("a plain structure is always JSON");
        format!("{line}\n{:08x}\n", crc32fast::hash(line.as_bytes())).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        /// The part that every version must be able to read.
        #[derive(Deserialize)]
        struct AnyVersion {
            format: u64,
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Damaged)?;
        let (line, checksum) = text.split_once('\n').ok_or(ManifestError::Damaged)?;
        if checksum != format!("{:08x}\n", crc32fast::hash(line.as_bytes())) {
            return Err(ManifestError::Damaged);
        }
        let version: AnyVersion = serde_json::from_str(line).map_err(|_| ManifestError::Damaged)?;
        if version.format > u64::from(VERSION) {
            return Err(ManifestError::Newer(version.format));
        }
        serde_json::from_str(line).map_err(|_| ManifestError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let manifest = Manifest::new(4, Some(17));
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::from_bytes(&bytes), Ok(manifest));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::from_bytes(&damaged), Err(ManifestError::Damaged), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Manifest::from_bytes(&bytes[..length]), Err(ManifestError::Damaged));
        }
    }

    #[test]
    fn a_newer_format_is_distinguished_from_damage() {
        let line = r#"{"format":9,"something":"else"}"#;
        let bytes = format!("{line}\n{:08x}\n", crc32fast::hash(line.as_bytes()));
        assert_eq!(Manifest::from_bytes(bytes.as_bytes()), Err(ManifestError::Newer(9)));
    }
}
