//! Metrics of files that the server reads again while it runs. Rule files have their own series.

use super::page::Page;
use std::{fmt, sync::Arc};
use tidegate_counts::LastAttempt;
use tidegate_transport::TlsCounts;

impl Page<'_> {
    /// Writes whether the present content of each kind of file is in force.
    pub(super) fn files(
        &mut self,
        ports: &[(&'static str, Arc<TlsCounts>)],
        tokens: Option<&LastAttempt>,
    ) -> fmt::Result {
        self.samples("file_last_reload_successful", &mut |samples| {
            for (port, counts) in ports {
                if counts.not_after().is_some() {
                    let (file, value) =
                        (format!("{port}_certificate"), u64::from(counts.is_last_reload_successful()));
                    samples.sample(&[("file", &file)], value.into())?;
                }
            }
            tokens.map_or(Ok(()), |tokens| {
                samples.sample(&[("file", "http_tokens")], u64::from(tokens.is_successful()).into())
            })
        })
    }
}
