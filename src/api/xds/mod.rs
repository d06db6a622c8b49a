//! The xDS feed: rules from a control plane, as a client of the aggregated discovery service (state of the world).
//!
//! Each response holds all resources of type `ratelimit.config.ratelimit.v3.RateLimitConfig`; they replace those of the
//! response before. Good ones are put in force and acknowledged. If any is bad, all are refused with every error, and the
//! rules in force stay, as they do while there is no connection.
//!
//! Invariants: at most one response is processed at a time; a response is bounded by `message_bytes_max` before it is
//! decoded; the wait between two attempts to connect, and between two refusals of the same version, is bounded from below.

mod backoff;
mod connect;
#[cfg(feature = "fuzzing")]
pub(in crate::api) mod fuzz_bridge;
mod resource;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use settings::XdsSettings;
use std::{sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
use tidegate_operations::config::{Config, ControlPlaneCounts};
use tidegate_threads::{BackgroundThread, Priority, StartError};
use tokio::sync::watch;

/// The running feed.
pub struct XdsFeed {
    stop: watch::Sender<bool>,
    thread: BackgroundThread,
}

impl XdsFeed {
    /// Connects in the background, and from then on passes every good response to the owner of the rules.
    pub fn start(
        config: &Arc<Config>,
        settings: XdsSettings,
        clock: &Arc<dyn Clock>,
        counts: &Arc<ControlPlaneCounts>,
    ) -> Result<Self, StartError> {
        let (config, clock, counts) = (Arc::clone(config), Arc::clone(clock), Arc::clone(counts));
        let (stop, stopped) = watch::channel(false);
        let feed = stream::Feed { config, clock, settings, state: stream::State::default(), counts };
        let run = async move || feed.run(stopped).await;
        Ok(Self { stop, thread: BackgroundThread::start_async("xds", Priority::Low, run)? })
    }

    /// Ends the thread. An update that is being built is finished if that takes no longer than the timeout.
    pub fn stop(self, timeout: Duration) {
        self.stop.send_replace(true);
        if !self.thread.join_within(timeout) {
            tracing::warn!("stopping without the resources that are being put in force");
        }
    }
}
