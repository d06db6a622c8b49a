//! Metrics of files that the server reads again while it runs. Rule files have their own series.

use super::{page::Page, sink::Kind};
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
        let help = "1 if the last reload of the file succeeded, or there was none";
        self.samples("file_last_reload_successful", help, Kind::Gauge, &mut |samples| {
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
