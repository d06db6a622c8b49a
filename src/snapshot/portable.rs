//! The exported form of a snapshot: JSON lines that any tool can read and write. `docs/operations.md` describes it.
//!
//! The first line has the version, the secret and the time. The limits follow, each with its index, then the counters. The
//! last line has their number, so that a truncated file is not mistaken for a whole one.

use super::{
    Archive, OpenError, Progress, Writer,
    disk::DiskError,
    limit_record::LimitRecord,
    open::{disk, lock},
    state_bytes,
    write::Generation,
};
use crate::{
    algorithm::{Algorithm, State},
    clock::ManualClock,
    limit::{LimitId, Timestamp},
    rules::{LimitInfo, LimitTable},
    store::{Counter, Key, OnFull, Seed, Store, StoreSettings},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, hash_map::Entry},
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};

const FORMAT: u32 = 1;

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    TidegateSnapshot {
        format: u32,
        seed: String,
        at_nanos: u64,
    },
    Limit {
        place: u32,
        limit: LimitRecord,
    },
    /// All but the place in hexadecimal digits.
    Counter {
        key: String,
        limit: u32,
        state: String,
    },
    End {
        counters: u64,
    },
}

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

/// Writes the snapshot in its portable form; returns how many counters it has.
pub fn export(
    archive: &mut Archive,
    out: &mut impl Write,
    progress: impl FnMut(Progress),
) -> Result<u64, ExportError> {
    let seed = hex(&archive.seed().to_bytes());
    write(out, &Line::TidegateSnapshot { format: FORMAT, seed, at_nanos: archive.at().as_nanos() })?;
    for (place, info) in (0..).zip(archive.limits()) {
        write(out, &Line::Limit { place, limit: info.into() })?;
    }
    let (mut counters, mut bytes) = (0, Vec::new());
    archive.read(progress, |key, limit, state| {
        counters += 1;
        write_counter(out, key, limit as u32, state, &mut bytes).map_err(ExportError::from)
    })?;
    write(out, &Line::End { counters })?;
    out.flush()?;
    Ok(counters)
}

fn write(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Writes counters of another source than a snapshot in the portable form.
pub struct PortableWriter<W> {
    out: W,
    /// The limits written so far, with their places.
    limits: HashMap<LimitInfo, u32>,
    counters: u64,
}

impl<W: Write> PortableWriter<W> {
    /// Begins the file.
    pub fn new(mut out: W, seed: &Seed, at: Timestamp) -> io::Result<Self> {
        let seed = hex(&seed.to_bytes());
        write(&mut out, &Line::TidegateSnapshot { format: FORMAT, seed, at_nanos: at.as_nanos() })?;
        Ok(Self { out, limits: HashMap::new(), counters: 0 })
    }

    /// Adds a counter, and its limit if it is a new one.
    pub fn add(&mut self, key: Key, limit: LimitInfo, state: &State) -> io::Result<()> {
        let next = self.limits.len() as u32;
        let place = match self.limits.entry(limit) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                write(&mut self.out, &Line::Limit { place: next, limit: new.key().into() })?;
                *new.insert(next)
            }
        };
        write_counter(&mut self.out, key, place, state, &mut Vec::new())?;
        self.counters += 1;
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        write(&mut self.out, &Line::End { counters: self.counters })?;
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
    write(out, &Line::Counter { key, limit, state: hex(bytes) })
}

/// The content of a portable file, for another destination than a data directory.
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

    /// Every counter: its key, the algorithm of its limit, and its state.
    pub fn counters(&self) -> impl Iterator<Item = (Key, Algorithm, State)> + '_ {
        let Read { store, table, .. } = &self.0;
        let of_shard = |shard| {
            let shard = store.lock(shard);
            let counters = shard.iter().filter_map(|(key, counter)| {
                let limit = table.get(counter.limit())?;
                Some((key, limit.algorithm.clone(), counter.state().into_owned()))
            });
            counters.collect::<Vec<_>>()
        };
        (0..store.shard_count()).flat_map(of_shard)
    }
}

/// Makes a snapshot of a portable file in a directory that has none; returns how many counters it has.
pub fn import(file: impl BufRead, directory: &Path) -> Result<u64, ImportError> {
    let lock = lock(directory)?;
    let mut disk = disk(directory);
    if disk.read_manifest()?.is_some() || !disk.generations()?.is_empty() {
        return Err(ImportError::Occupied(directory.into()));
    }
    let Read { seed, at, store, table } = read_lines(file)?;
    let mut writer = Writer::new(disk, Some(lock), seed, Generation::empty(0), true);
    writer.pass(&store, &table, &ManualClock::new(at))?;
    Ok(store.counters() as u64)
}

/// The content of a portable file.
pub(super) struct Read {
    seed: Seed,
    at: Timestamp,
    pub(super) store: Store,
    table: LimitTable,
}

/// Reads a whole portable file.
pub(super) fn read_lines(file: impl BufRead) -> Result<Read, ImportError> {
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
        Ok(Line::TidegateSnapshot { format: FORMAT, seed, at_nanos }) => {
            let seed = from_hex(&seed).and_then(|bytes| bytes.try_into().ok());
            let seed = seed.ok_or("`seed` is not 32 hexadecimal digits")?;
            Ok((Seed::from_bytes(seed), Timestamp::from_nanos(at_nanos)))
        }
        Ok(Line::TidegateSnapshot { format, .. }) => {
            Err(format!("it has format {format}, and this program reads format {FORMAT}"))
        }
        _ => Err("it is not the first line of an exported snapshot".into()),
    }
}

/// A snapshot that is being read.
struct Import {
    store: Store,
    table: LimitTable,
    /// By place in the file.
    limits: Vec<LimitId>,
}

impl Import {
    /// Takes a line; returns whether it is the last one.
    fn take(&mut self, text: &str) -> Result<bool, String> {
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            Line::TidegateSnapshot { .. } => return Err("a second first line".into()),
            Line::Limit { place, limit } => {
                if place as usize != self.limits.len() {
                    return Err(format!("this is limit {}, not {place}", self.limits.len()));
                }
                self.limits.push(self.table.register(limit.try_into()?));
            }
            Line::Counter { key, limit, state } => self.count(&key, limit, &state)?,
            Line::End { counters } => {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(
        r#"{"tidegate_snapshot":{"format":1,"seed":"000102030405060708090a0b0c0d0e0f","at_nanos":1700000000000000000}}"#,
        "\n",
        r#"{"limit":{"place":0,"limit":{"domain":"d","path":"user","tag":0,"algorithm":{"sliding_window":{"limit":9,"window":60000000000}}}}}"#,
        "\n",
        r#"{"counter":{"key":"ff00000000000000000000000000000a","limit":0,"state":"413f7fb00107"}}"#,
        "\n",
        r#"{"end":{"counters":1}}"#,
        "\n",
    );

    fn import_text(text: &str) -> (tempfile::TempDir, Result<u64, ImportError>) {
        let directory = tempfile::tempdir().unwrap();
        let done = import(text.as_bytes(), directory.path());
        (directory, done)
    }

    #[test]
    fn an_imported_snapshot_is_exported_to_the_same_bytes() {
        let (directory, done) = import_text(FILE);
        assert_eq!(done.unwrap(), 1);
        let mut archive = Archive::open(directory.path()).unwrap().expect("it was imported");
        let mut exported = Vec::new();
        assert_eq!(export(&mut archive, &mut exported, |_| {}).unwrap(), 1);
        assert_eq!(String::from_utf8(exported).unwrap(), FILE);
        drop(archive);
        let again = import(FILE.as_bytes(), directory.path());
        assert!(matches!(again, Err(ImportError::Occupied(_))));
    }

    #[test]
    fn every_truncated_file_is_refused() {
        for length in 0..FILE.len() - 1 {
            assert!(import_text(&FILE[..length]).1.is_err(), "cut to {length} bytes");
        }
    }

    #[test]
    fn keys_chosen_to_collide_are_refused() {
        let (before, rest) = FILE.split_once("{\"counter\"").unwrap();
        let counters: String = (0..100)
            .map(|number| {
                format!("{{\"counter\":{{\"key\":\"{number:016x}00000000000000aa\",\"limit\":0,\"state\":\"413f7fb00107\"}}}}\n")
            })
            .collect();
        let refused =
            import_text(&format!("{before}{counters}{{\"counter\"{rest}")).1.expect_err("too many agree");
        assert_eq!(refused.to_string(), "line 59: too many keys end in the same bits: no secret made them");
    }

    #[test]
    fn a_malformed_line_is_reported_by_its_number() {
        let refused = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            import_text(&FILE.replace(from, to)).1.expect_err("it is wrong").to_string()
        };
        assert_eq!(
            refused(r#""format":1"#, r#""format":2"#),
            "line 1: it has format 2, and this program reads format 1"
        );
        assert_eq!(
            refused(r#""limit":0,"state""#, r#""limit":1,"state""#),
            "line 3: there is no such limit above"
        );
        assert_eq!(refused("413f7fb00107", "413f7fb0010700"), "line 3: `state` is no state");
        assert_eq!(refused("000a", "000x"), "line 3: `key` is not 32 hexadecimal digits");
        assert_eq!(
            refused(r#"{"counters":1}"#, r#"{"counters":2}"#),
            "line 4: the file has 1 counters, not 2"
        );
        assert!(refused(r#""window":60000000000"#, r#""window":0"#).starts_with("line 2: "));
    }
}
