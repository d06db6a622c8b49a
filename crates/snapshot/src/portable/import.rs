//! Reading the portable form.

use super::{FORMAT, PortableLine};
use crate::{OpenError, Writer, disk, disk::DiskError, open::lock, state_bytes, write::Generation};
use std::{
    io::{self, BufRead},
    path::{Path, PathBuf},
    sync::Arc,
};
use tidegate_core::{
    algorithm::State,
    clock::ManualClock,
    limit::{LimitId, Timestamp},
    rules::{LimitInfo, LimitTable},
    store::{Counter, Key, OnFull, Seed, Store, StoreSettings},
};

/// The reason why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    /// A line is malformed.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// The directory has a snapshot already.
    #[error("{} holds a snapshot already: choose a new directory", .0.display())]
    Occupied(PathBuf),
    /// The directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The content of a portable file, for a destination other than a data directory.
pub struct Portable(Read);

impl Portable {
    /// Reads a whole file.
    pub fn read(file: impl BufRead) -> Result<Self, ImportError> {
        read_lines(file).map(Self)
    }

    /// The secret of the keys.
    pub fn seed(&self) -> &Seed {
        &self.0.seed
    }

    /// Number of counters.
    pub fn len(&self) -> usize {
        self.0.store.counters()
    }

    /// Whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every counter: its key, its limit, and its state.
    pub fn counters(&self) -> impl Iterator<Item = (Key, Arc<LimitInfo>, State)> + '_ {
        let Read { store, table, .. } = &self.0;
        let of_shard = |shard| {
            let shard = store.lock(shard);
            let counters = shard.iter().filter_map(|(key, counter)| {
                let limit = table.get(counter.limit())?;
                Some((key, limit, counter.state().into_owned()))
            });
            counters.collect::<Vec<_>>()
        };
        (0..store.shard_count()).flat_map(of_shard)
    }
}

/// Makes a snapshot from a portable file in a directory that has none. Returns the number of counters.
pub fn import(file: impl BufRead, directory: &Path) -> Result<u64, ImportError> {
    let lock = lock(directory)?;
    let mut disk = disk::of_directory(directory);
    if disk.read_manifest()?.is_some() || !disk.generations()?.is_empty() {
        return Err(ImportError::Occupied(directory.into()));
    }
    let Read { seed, at, store, table } = read_lines(file)?;
    let mut writer = Writer::new(disk, Some(lock), seed, Generation::empty(0), true);
    writer.pass(&store, &table, &ManualClock::new(at))?;
    Ok(store.counters() as u64)
}

/// The content of a portable file.
pub(crate) struct Read {
    seed: Seed,
    at: Timestamp,
    pub(crate) store: Store,
    table: LimitTable,
}

/// Reads a whole portable file.
pub(crate) fn read_lines(file: impl BufRead) -> Result<Read, ImportError> {
    let mut lines = (1..).zip(file.lines());
    let (number, first) = lines.next().unwrap_or((1, Ok(String::new())));
    let (seed, at) = first_line(&first?).map_err(|problem| ImportError::Line { line: number, problem })?;
    let settings = StoreSettings { seed: seed.clone(), counters_max: usize::MAX, on_full: OnFull::Deny };
    let mut import = Import { store: Store::new(settings), table: LimitTable::default(), limits: Vec::new() };
    let mut is_whole = false;
    let mut last = number;
    for (number, line) in lines {
        let line = line?;
        last = number;
        let taken =
            if is_whole { Err("nothing may follow the last line".into()) } else { import.take(&line) };
        is_whole = taken.map_err(|problem| ImportError::Line { line: number, problem })?;
    }
    if !is_whole {
        let problem = "the file is truncated: its last line must be the number of counters".into();
        return Err(ImportError::Line { line: last, problem });
    }
    let Import { store, table, .. } = import;
    Ok(Read { seed, at, store, table })
}

fn first_line(text: &str) -> Result<(Seed, Timestamp), String> {
    match serde_json::from_str(text) {
        Ok(PortableLine::TidegateSnapshot { format: FORMAT, seed, at_nanos }) => {
            let seed = from_hex(&seed).and_then(|bytes| bytes.try_into().ok());
            let seed = seed.ok_or("`seed` is not 32 hexadecimal digits")?;
            Ok((Seed::from_bytes(seed), Timestamp::from_nanos(at_nanos)))
        }
        Ok(PortableLine::TidegateSnapshot { format, .. }) => {
            Err(format!("it has format {format}, and this program reads format {FORMAT}"))
        }
        _ => Err("it is not the first line of an exported snapshot".into()),
    }
}

/// A snapshot that is being read.
struct Import {
    store: Store,
    table: LimitTable,
    /// Limits by place in the file.
    limits: Vec<LimitId>,
}

impl Import {
    /// Reads a line. Returns whether it is the last one.
    fn take(&mut self, text: &str) -> Result<bool, String> {
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            PortableLine::TidegateSnapshot { .. } => return Err("a second first line".into()),
            PortableLine::Limit { place, limit } => {
                if place as usize != self.limits.len() {
                    return Err(format!("this is limit {}, not {place}", self.limits.len()));
                }
                self.limits.push(self.table.register(limit));
            }
            PortableLine::Counter { key, limit, state } => self.count(&key, limit, &state)?,
            PortableLine::End { counters } => {
                let found = self.store.counters() as u64;
                if counters != found {
                    return Err(format!("the file has {found} counters, not {counters}"));
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn count(&mut self, key: &str, limit: u32, state: &str) -> Result<(), String> {
        let key = from_hex(key).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        let key = u128::from_be_bytes(key.ok_or("`key` is not 32 hexadecimal digits")?);
        let key = Key::from_halves((key >> 64) as u64, key as u64);
        let limit = *self.limits.get(limit as usize).ok_or("there is no such limit above")?;
        let bytes = from_hex(state).ok_or("`state` is not in hexadecimal digits")?;
        let mut rest = bytes.as_slice();
        let state = state_bytes::read(&mut rest).filter(|_| rest.is_empty()).ok_or("`state` is no state")?;
        let mut shard = self.store.lock(Store::shard_of(key));
        if shard.find(key).is_some() {
            return Err("this key has a counter above".into());
        }
        // The server that restores it decides whether it has expired.
        let never = Timestamp::from_nanos(u64::MAX);
        let counter = Counter::new(state, limit, never);
        shard.insert_foreign(key, counter, Timestamp::EPOCH).map_err(|crowded| crowded.to_string())?;
        self.store.reserve(1);
        Ok(())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
