//! A filter: what it does at each hook.

use crate::{ConfigHost, Host};
use std::sync::Arc;

/// Whether the request goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// To the next filter.
    Continue,
    /// No further: the filter has responded.
    Responded,
    /// No further, until [`Module::resumed`]; see [`Host::waker`].
    Wait,
}

/// An HTTP filter. Envoy makes configurations on its main thread and streams on its workers; a configuration is shared by all of them.
pub trait Module: 'static {
    /// A configuration of the filter.
    type Config: Send + Sync + 'static;
    /// A configuration of the filter for a route.
    type Route: Send + Sync + 'static;
    /// State of one stream.
    type Stream: Default + 'static;

    /// Reads a configuration. The error is logged, and Envoy rejects the configuration.
    fn configure(host: &ConfigHost, bytes: &[u8]) -> Result<Self::Config, String>;
    /// Reads the configuration of a route.
    fn configure_route(bytes: &[u8]) -> Result<Self::Route, String>;
    /// Publishes figures, on the main thread; see [`ConfigHost::scheduler`].
    fn publish(config: &Self::Config, host: &ConfigHost);
    /// Handles the headers of a request.
    fn request_headers(
        config: &Self::Config,
        route: Option<&Arc<Self::Route>>,
        stream: &mut Self::Stream,
        host: &mut dyn Host,
    ) -> Flow;
    /// Resumes a waiting request after its [`Waker`](crate::Waker) was used. Called at most once for each use, and never after the stream's
    /// end.
    fn resumed(config: &Self::Config, stream: &mut Self::Stream, host: &mut dyn Host) -> Flow;
    /// Handles the headers of a response, before they are sent.
    fn response_headers(config: &Self::Config, stream: &mut Self::Stream, host: &mut dyn Host);
    /// Handles the end of the stream; headers, metadata and attributes can still be read.
    fn complete(config: &Self::Config, stream: &mut Self::Stream, host: &mut dyn Host);
    /// Decides after a panic of [`Self::request_headers`] or [`Self::resumed`].
    fn after_panic(config: &Self::Config, host: &mut dyn Host) -> Flow;
}
