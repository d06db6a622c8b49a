//! The last valid rules, in a file of the data directory. A server starts with them if the rule files have errors, or if the control plane
//! has not sent rules.
//!
//! Invariants: the file is replaced as a whole; its content was in force; it is used only with the `--rules` and `--blocks` with which it
//! was written. It does not contain overrides and blocks of the control API, which have their own file.

use super::whole_file;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tidegate_core::{
    limit::Timestamp,
    rules::{Source, SourceId, read_regular},
};
use tidegate_threads::{BackgroundThread, Priority};

/// Name of the file in the data directory.
const FILE: &str = "last-valid-rules.json";

/// Version of its format.
const FORMAT: u32 = 1;

/// The most bytes of the file. With its escapes, it is longer than the rules.
const BYTES_MAX: u64 = 1 << 30;

/// Keeps the rules in force.
#[derive(Clone, Debug)]
pub struct KeptRules(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// The values of `--rules` and `--blocks`.
    given: Vec<String>,
    /// The content of the file, once this process has read or written it.
    written: Mutex<Option<Arc<Vec<Source>>>>,
    /// The rules to write next.
    next: Mutex<Option<(Arc<Vec<Source>>, Timestamp)>>,
    is_writing: AtomicBool,
}

/// Rules that were in force before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastRules {
    /// The documents, in the order in which they are merged.
    pub sources: Vec<Source>,
    /// The time at which they were put in force.
    pub at: Timestamp,
}

/// The kept rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeptRulesError {
    /// There are no kept rules.
    #[error("no rules are kept in {}", .0.display())]
    None(PathBuf),
    /// The file cannot be read, is of a later version of the server, or its rules are of other files.
    #[error("the rules kept in {}{reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    given: Vec<String>,
    at_ns: u64,
    sources: Vec<KeptSource>,
}

#[derive(Serialize, Deserialize)]
struct KeptSource {
    #[serde(flatten)]
    id: SourceId,
    text: String,
}

impl KeptRules {
    /// The kept rules of a data directory, for these values of `--rules` and `--blocks`.
    pub fn new(directory: &Path, given: Vec<String>) -> Self {
        let (path, written, next, is_writing) =
            (directory.join(FILE), Mutex::default(), Mutex::default(), AtomicBool::default());
        Self(Arc::new(Inner { path, given, written, next, is_writing }))
    }

    /// Reads the kept rules.
    pub fn read(&self) -> Result<LastRules, KeptRulesError> {
        let Inner { path, given, .. } = &*self.0;
        let unusable = |reason| KeptRulesError::Unusable { path: path.clone(), reason };
        let bytes = read_regular(path, BYTES_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => KeptRulesError::None(path.clone()),
            _ => unusable(format!(": {error}")),
        })?;
        let malformed = |error: serde_json::Error| unusable(format!(": {error}"));
        let format =
            serde_json::from_slice::<serde_json::Value>(&bytes).map_err(malformed)?["format"].as_u64();
        if let Some(format) = format.filter(|format| *format > FORMAT.into()) {
            return Err(unusable(format!(" have format {format}, and this version reads {FORMAT}")));
        }
        let Document { given: of, at_ns, sources, .. } = serde_json::from_slice(&bytes).map_err(malformed)?;
        if of != *given {
            return Err(unusable(format!(" are of `{}`, and are not used for others", of.join(" "))));
        }
        let sources = sources.into_iter().map(|KeptSource { id, text }| Source::new(id, text)).collect();
        Ok(LastRules { sources, at: Timestamp::from_nanos(at_ns) })
    }

    /// Keeps these rules, unless the file has them. Writes on a separate thread, since a disk may hang. If several are waiting, writes the
    /// last.
    pub(super) fn keep(&self, sources: Arc<Vec<Source>>, now: Timestamp) {
        *self.0.next.lock() = Some((sources, now));
        if self.0.is_writing.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(&self.0);
        let thread = BackgroundThread::start("kept-rules", Priority::Full, move || inner.write_all());
        if let Err(error) = thread {
            self.0.is_writing.store(false, Ordering::Release);
            tracing::warn!(%error, "the rules in force are not kept for a later start");
        }
    }
}

impl Inner {
    /// Writes until no rules are left to write.
    fn write_all(&self) {
        loop {
            while let Some((sources, at)) = { self.next.lock().take() } {
                if let Err(error) = self.write(&sources, at) {
                    tracing::warn!(file = %self.path.display(), %error, "the rules in force are not kept for a later start");
                }
            }
            self.is_writing.store(false, Ordering::Release);
            // Other rules may have been added since the last look.
            if self.next.lock().is_none() || self.is_writing.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    fn write(&self, sources: &Arc<Vec<Source>>, at: Timestamp) -> io::Result<()> {
        let mut written = self.written.lock();
        if written.as_ref().is_some_and(|written| without_overrides(written).eq(without_overrides(sources))) {
            return Ok(());
        }
        let kept = |source: &Source| KeptSource { id: source.id.clone(), text: source.text().into_owned() };
        let document = Document {
            format: FORMAT,
            given: self.given.clone(),
            at_ns: at.as_nanos(),
            sources: without_overrides(sources).map(kept).collect(),
        };
        whole_file::replace(&self.path, &serde_json::to_vec(&document)?)?;
        *written = Some(Arc::clone(sources));
        Ok(())
    }
}

fn without_overrides(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| !matches!(source.id, SourceId::Override(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path, given: &str) -> KeptRules {
        KeptRules::new(folder, vec![given.to_owned()])
    }

    #[test]
    fn what_is_kept_is_read_again_without_overrides() {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = [
            Source::file("r.yaml", "domain: a"),
            Source::new(SourceId::Xds("edge".into()), "{}"),
            Source::new(SourceId::Override("o".into()), "{}"),
            Source::new(SourceId::Blocks("b".into()), "user=x"),
        ];
        let kept = kept(folder.path(), "r.yaml");
        assert!(matches!(kept.read(), Err(KeptRulesError::None(_))));
        let at = Timestamp::from_millis(5);
        kept.0.write(&Arc::new(sources.to_vec()), at).expect("written");
        let expected = [&sources[..2], &sources[3..]].concat();
        assert_eq!(kept.read().expect("they are there"), LastRules { sources: expected, at });
    }

    #[test]
    fn rules_of_other_files_and_of_later_versions_and_damaged_ones_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let one = kept(folder.path(), "one.yaml");
        one.0
            .write(&Arc::new(vec![Source::file("one.yaml", "domain: a")]), Timestamp::default())
            .expect("written");
        let error = kept(folder.path(), "two.yaml").read().expect_err("they are of others").to_string();
        assert!(error.ends_with("are of `one.yaml`, and are not used for others"), "{error}");
        for (text, expected) in [
            (r#"{"format":2,"rules":"in another form"}"#, "have format 2, and this version reads 1"),
            (r#"{"format":1,"given":["one.yaml"],"at_ns":0,"sour"#, "EOF while parsing a string"),
        ] {
            std::fs::write(&one.0.path, text).expect("written");
            let error = one.read().expect_err("it is not used").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
