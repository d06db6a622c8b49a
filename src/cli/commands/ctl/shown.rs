//! What the operations have in common: a response as it is shown, the reason for the audit log, and entries as they are written.

use crate::api::control::{Named, OutOfRange, to_json_with_lists};
use clap::Args;

#[derive(Args, Clone)]
pub(super) struct Reason {
    /// Reason, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) reason: String,
}

/// Parses `key=value`, or `key` for any value.
pub(super) fn entry(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match key {
        "" => Err("the key is empty; write KEY=VALUE".into()),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}

/// A response.
pub(super) struct Shown {
    /// An error if a server sends a time that JSON cannot express.
    pub(super) json: Result<Vec<u8>, OutOfRange>,
    pub(super) text: String,
}

impl Shown {
    pub(super) fn new(message: &impl Named, text: impl ToString) -> Self {
        Self { json: to_json_with_lists(message), text: text.to_string() }
    }
}
