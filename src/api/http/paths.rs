//! The paths of the port.

pub(super) const CONFIG: &str = "/config";
pub(super) const HEALTHCHECK: &str = "/healthcheck";
pub(super) const INDEX: &str = "/";
pub(super) const JSON: &str = "/json";
pub(super) const LIVEZ: &str = "/livez";
pub(super) const METRICS: &str = "/metrics";
pub(super) const READYZ: &str = "/readyz";
pub(super) const RLCONFIG: &str = "/rlconfig";
pub(super) const RULES: &str = "/rules";
pub(super) const RULES_STATUS: &str = "/rules/status";
pub(super) const STATS: &str = "/stats";
pub(super) const VERSION: &str = "/version";

/// The methods of the control API.
pub(super) const CONTROL: &str = "/control/v1/{method}";

/// The page of the console, and its files.
pub(super) const CONSOLE: [&str; 2] = ["/console", "/console/{file}"];

/// All but those of the control API and the console, in the order in which they are listed.
pub(super) const ALL: [&str; 12] =
    [INDEX, CONFIG, JSON, METRICS, RULES, RULES_STATUS, VERSION, RLCONFIG, STATS, LIVEZ, READYZ, HEALTHCHECK];
