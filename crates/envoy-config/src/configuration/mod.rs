//! The rate limit parts of Envoy configurations from any source: bootstraps, dumps of the admin port, files of xDS, patches of Istio. They
//! are found by their fields, wherever they are: whatever wraps them does not matter.

mod cluster;
mod entry;
mod local;
mod manager;
mod patches;
mod routes;
mod runtime;
mod settings;
mod share;
mod typed;
mod walk;

pub use cluster::Cluster;
pub use entry::{Level, RateLimitEntry};
pub use manager::{FilterKind, HttpFilter, Manager, RateLimitFilter, Routes};
pub use routes::{PerRoute, PerRouteConfig, Route, RouteConfig, Target, VirtualHost};
pub use runtime::Runtime;
pub use settings::FailureMode;
pub use share::Share;
pub use walk::{Configuration, NetworkFilter};
