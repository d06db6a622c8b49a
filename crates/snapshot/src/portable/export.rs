//! Writing the portable form.

use super::{FORMAT, PortableLine};
use crate::{Archive, OpenError, Progress, state_bytes};
use std::{
    collections::HashMap,
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
    let mut file = PortableWriter::new(out, archive.seed(), archive.at())?;
    archive.limits().iter().try_for_each(|info| file.limit(info.clone()).map(drop))?;
    archive.read(progress, |key, limit, state| {
        file.counter(key, limit as u32, state).map_err(ExportError::from)
    })?;
    Ok(file.finish()?)
}

/// Writes the portable form: of a snapshot, or of counters that are not from a snapshot.
pub struct PortableWriter<W> {
    out: W,
    /// The places of limits that [`Self::add`] has written.
    places: HashMap<LimitInfo, u32>,
    /// Number of limits written so far.
    limits: u32,
    counters: u64,
    /// Memory for a state.
    bytes: Vec<u8>,
}

impl<W: Write> PortableWriter<W> {
    /// Begins the file.
    pub fn new(out: W, seed: &Seed, at: Timestamp) -> io::Result<Self> {
        let mut file = Self { out, places: HashMap::new(), limits: 0, counters: 0, bytes: Vec::new() };
        let seed = hex(&seed.to_bytes());
        file.line(&PortableLine::TidegateSnapshot { format: FORMAT, seed, at_nanos: at.as_nanos() })?;
        Ok(file)
    }

    /// Adds a counter, and its limit if that is new.
    pub fn add(&mut self, key: Key, limit: LimitInfo, state: &State) -> io::Result<()> {
        let place = match self.places.get(&limit) {
            Some(place) => *place,
            None => {
                let place = self.limit(limit.clone())?;
                self.places.insert(limit, place);
                place
            }
        };
        self.counter(key, place, state)
    }

    /// Ends the file. Returns the number of counters.
    pub fn finish(mut self) -> io::Result<u64> {
        self.line(&PortableLine::End { counters: self.counters })?;
        self.out.flush()?;
        Ok(self.counters)
    }

    /// Writes a limit. Returns its place.
    fn limit(&mut self, limit: LimitInfo) -> io::Result<u32> {
        let place = self.limits;
        self.limits += 1;
        self.line(&PortableLine::Limit { place, limit })?;
        Ok(place)
    }

    fn counter(&mut self, key: Key, limit: u32, state: &State) -> io::Result<()> {
        self.counters += 1;
        self.bytes.clear();
        state_bytes::write(state, &mut self.bytes);
        let (high, low) = key.halves();
        let (key, state) = (format!("{high:016x}{low:016x}"), hex(&self.bytes));
        self.line(&PortableLine::Counter { key, limit, state })
    }

    fn line(&mut self, line: &PortableLine) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
