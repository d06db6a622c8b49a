//! The file of bearer tokens: read at the start, and again when it changes.

use super::error::{ServeError, TokenFileError};
use crate::api::{Tokens, TokensError};
use arc_swap::ArcSwap;
use std::{path::Path, sync::Arc};
use tidegate_core::rules::read_text;
use tidegate_counts::LastAttempt;
use tidegate_operations::config::{
    ReloadRequests,
    watch::{LastError, Wake, Watch, WatchSettings, WatchThread},
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
        let mut last_error = LastError::default();
        let read_again = move |wake| {
            if wake == Wake::Idle {
                return true;
            }
            let result = reload(&path, &in_force);
            last.record(result.is_ok().into());
            let is_to_log = last_error.is_to_log(wake, &result);
            let Err(error) = result else { return true };
            if is_to_log {
                tracing::error!(%error, "HTTP tokens not reloaded; those in force stay");
            }
            !error.is_of_reading()
        };
        let thread = WatchThread::start("tokens", watch, requests, read_again)?;
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

/// Puts the tokens of the file in force unless it has errors.
fn reload(path: &Path, in_force: &ArcSwap<Tokens>) -> Result<(), TokenFileError> {
    let tokens = read_by(path, Tokens::parse_again)?;
    match tokens.count() {
        0 => tracing::warn!("the file of HTTP tokens is empty: all requests that need one are refused"),
        tokens => tracing::info!(tokens, "HTTP tokens reloaded"),
    }
    in_force.store(Arc::new(tokens));
    Ok(())
}
