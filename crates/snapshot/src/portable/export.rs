//! Writing the portable form.

use super::{FORMAT, PortableLine};
use crate::{Archive, OpenError, Progress, state_bytes};
use std::{
    collections::{HashMap, hash_map::Entry},
    io::{self, Write},
};
use tidegate_core::{
    algorithm::State,
    limit::Timestamp,
    rules::LimitInfo,
    store::{Key, Seed},
};

/// The reason why a snapshot cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file cannot be written.
    #[error("cannot write the file: {0}")]
    Write(#[from] io::Error),
}

/// Writes the snapshot in its portable form. Returns the number of counters.
pub fn export(
    archive: &mut Archive,
    out: &mut impl Write,
    progress: impl FnMut(Progress),
) -> Result<u64, ExportError> {
    let seed = hex(&archive.seed().to_bytes());
    write(out, &PortableLine::TidegateSnapshot { format: FORMAT, seed, at_nanos: archive.at().as_nanos() })?;
    for (place, info) in (0..).zip(archive.limits()) {
        write(out, &PortableLine::Limit { place, limit: info.clone() })?;
    }
    let (mut counters, mut bytes) = (0, Vec::new());
    archive.read(progress, |key, limit, state| {
        counters += 1;
        write_counter(out, key, limit as u32, state, &mut bytes).map_err(ExportError::from)
    })?;
    write(out, &PortableLine::End { counters })?;
    out.flush()?;
    Ok(counters)
}

/// Writes counters in the portable form that are not from a snapshot.
pub struct PortableWriter<W> {
    out: W,
    /// The limits written so far, and their places.
    limits: HashMap<LimitInfo, u32>,
    counters: u64,
}

impl<W: Write> PortableWriter<W> {
    /// Begins the file.
    pub fn new(mut out: W, seed: &Seed, at: Timestamp) -> io::Result<Self> {
        let seed = hex(&seed.to_bytes());
        write(&mut out, &PortableLine::TidegateSnapshot { format: FORMAT, seed, at_nanos: at.as_nanos() })?;
        Ok(Self { out, limits: HashMap::new(), counters: 0 })
    }

    /// Adds a counter, and its limit if that is new.
    pub fn add(&mut self, key: Key, limit: LimitInfo, state: &State) -> io::Result<()> {
        let next = self.limits.len() as u32;
        let place = match self.limits.entry(limit) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                write(&mut self.out, &PortableLine::Limit { place: next, limit: new.key().clone() })?;
                *new.insert(next)
            }
        };
        write_counter(&mut self.out, key, place, state, &mut Vec::new())?;
        self.counters += 1;
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        write(&mut self.out, &PortableLine::End { counters: self.counters })?;
        self.out.flush()
    }
}

fn write_counter(
    out: &mut impl Write,
    key: Key,
    limit: u32,
    state: &State,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    bytes.clear();
    state_bytes::write(state, bytes);
    let (high, low) = key.halves();
    let key = format!("{high:016x}{low:016x}");
    write(out, &PortableLine::Counter { key, limit, state: hex(bytes) })
}

fn write(out: &mut impl Write, line: &PortableLine) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
