//! The variables of statsd, as flags of the push of metrics.

use crate::cli::{
    Failure,
    serve::settings::{Environment, Flags},
};

impl Environment<'_> {
    /// Metrics are pushed only where a variable requests it: the reference server's default, a statsd on this machine, is
    /// not assumed.
    pub(super) fn statsd(&self, flags: &mut Flags) -> Result<(), Failure> {
        let is_dog = self.is_on("USE_DOG_STATSD")?;
        let is_named =
            ["USE_STATSD", "STATSD_HOST", "STATSD_PORT"].iter().any(|name| self.text(name).is_some());
        let is_off = self.text("USE_STATSD").is_some() && !self.is_on("USE_STATSD")?;
        if self.is_on("DISABLE_STATS")? || !(is_dog || is_named && !is_off) {
            return Ok(());
        }
        let host = self.text("STATSD_HOST").unwrap_or("localhost");
        let port = self.text("STATSD_PORT").unwrap_or("8125");
        flags.push(("--statsd", Some(format!("{host}:{port}"))));
        flags.push((
            "--statsd-interval",
            Some(self.duration("STATS_FLUSH_INTERVAL")?.unwrap_or("10s".into())),
        ));
        if !self.is_on("USE_PROMETHEUS")? {
            flags.push(("--reference-metrics", None));
        }
        if is_dog {
            flags.push(("--statsd-format", Some("dogstatsd".to_owned())));
        } else {
            let transport = self.text("STATSD_PROTOCOL").unwrap_or("tcp").to_ascii_lowercase();
            if !["tcp", "udp"].contains(&&*transport) {
                return Err(self.wrong("STATSD_PROTOCOL", "tcp or udp"));
            }
            flags.push(("--statsd-transport", Some(transport)));
        }
        flags.extend(self.text("EXTRA_TAGS").map(|tags| ("--statsd-tags", Some(tags.to_owned()))));
        Ok(())
    }
}
