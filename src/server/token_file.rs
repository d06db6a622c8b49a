//! The file of bearer tokens: read at the start, and again when it changes.

use super::error::{ServeError, TokenFileError};
use crate::api::{Tokens, TokensError};
use arc_swap::ArcSwap;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tidegate_core::rules::read_text;
use tidegate_counts::LastAttempt;
use tidegate_operations::config::{
    ReloadRequests,
    watch::{Wake, Watch, WatchSettings, WatchThread},
};

/// Maximum length of the file.
const BYTES_MAX: u64 = 16 << 20;

/// The thread that reads the file again when it changes.
pub(super) struct TokenFile {
    tokens: Arc<ArcSwap<Tokens>>,
    last_reload: Arc<LastAttempt>,
    thread: WatchThread,
}

impl TokenFile {
    pub(super) fn start(path: &Path, requests: &ReloadRequests) -> Result<Self, ServeError> {
        let path = path.to_owned();
        // Before the file is read, so that no change between the two is missed.
        let watch = Watch::new(vec![path.clone()].into(), WatchSettings::default());
        let tokens = read(&path).map_err(ServeError::Tokens)?;
        tracing::info!(tokens = tokens.count(), "HTTP requests need a bearer token");
        let tokens = Arc::new(ArcSwap::from_pointee(tokens));
        let last_reload = Arc::<LastAttempt>::default();
        let (in_force, last) = (Arc::clone(&tokens), Arc::clone(&last_reload));
        let mut reloads = Reloads { path, in_force, last, unreadable: None };
        let thread = WatchThread::start("tokens", watch, requests, move |wake| reloads.on_wake(wake))?;
        Ok(Self { tokens, last_reload, thread })
    }

    /// The tokens in force.
    pub(super) fn tokens(&self) -> Arc<ArcSwap<Tokens>> {
        Arc::clone(&self.tokens)
    }

    /// The result of the last reload.
    pub(super) fn last_reload(&self) -> Arc<LastAttempt> {
        Arc::clone(&self.last_reload)
    }

    pub(super) fn stop(self) {
        self.thread.stop();
    }
}

/// The tokens of a file that is read for the first time.
pub(super) fn read(path: &Path) -> Result<Tokens, TokenFileError> {
    read_by(path, Tokens::parse)
}

fn read_by(
    path: &Path,
    parse: impl Fn(&str) -> Result<Tokens, TokensError>,
) -> Result<Tokens, TokenFileError> {
    let path = path.to_owned();
    match read_text(&path, BYTES_MAX) {
        Err(source) => Err(TokenFileError::Read { path, source }),
        Ok(text) => parse(&text).map_err(|source| TokenFileError::Parse { path, source }),
    }
}

/// Reads the file again.
struct Reloads {
    path: PathBuf,
    in_force: Arc<ArcSwap<Tokens>>,
    last: Arc<LastAttempt>,
    /// The error, if the operating system could not read the file last. It may be readable later although it has not changed.
    unreadable: Option<String>,
}

impl Reloads {
    /// Puts the tokens of the file in force unless it has errors.
    fn on_wake(&mut self, wake: Wake) {
        let known = self.unreadable.take().filter(|_| wake == Wake::Idle);
        if wake == Wake::Idle && known.is_none() {
            return;
        }
        let read = read_by(&self.path, Tokens::parse_again);
        self.last.record(read.is_ok().into());
        match read {
            Ok(tokens) => {
                match tokens.count() {
                    0 => {
                        tracing::warn!(
                            "the file of HTTP tokens is empty: all requests that need one are refused"
                        )
                    }
                    tokens => tracing::info!(tokens, "HTTP tokens reloaded"),
                }
                self.in_force.store(Arc::new(tokens));
            }
            Err(error) => {
                let text = error.to_string();
                if known.as_ref() != Some(&text) {
                    tracing::error!(%error, "HTTP tokens not reloaded; those in force stay");
                }
                self.unreadable = error.is_of_reading().then_some(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If it could not be read for want of file descriptors, a revoked token stayed valid.
    #[test]
    fn a_file_that_could_not_be_read_is_read_again_until_it_can_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let write = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("{name}:{}\n", "0".repeat(64)));
            std::fs::write(&path, lines.collect::<String>()).expect("written");
        };
        write(&["ann"]);
        let in_force = Arc::new(ArcSwap::from_pointee(read(&path).expect("valid")));
        let (tokens, last) = (Arc::clone(&in_force), Arc::<LastAttempt>::default());
        let mut reloads = Reloads { path: path.clone(), in_force, last: Arc::clone(&last), unreadable: None };
        std::fs::remove_file(&path).expect("it is there");
        reloads.on_wake(Wake::Changed);
        reloads.on_wake(Wake::Idle);
        assert!(!last.is_successful());
        write(&["ann", "bob"]);
        reloads.on_wake(Wake::Idle);
        assert!(last.is_successful());
        assert_eq!(tokens.load().count(), 2);
        // Files with errors in their content are read again when they change.
        std::fs::write(&path, [0xff]).expect("written");
        reloads.on_wake(Wake::Changed);
        write(&["ann"]);
        reloads.on_wake(Wake::Idle);
        assert!(!last.is_successful());
    }
}
