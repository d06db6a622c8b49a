//! `/`: the paths of the port, as the debug port of the reference server lists its own.

use super::{HttpState, ROUTES, console, control};
use axum::extract::State;

/// `/`: the paths that are served, one a line.
pub(super) async fn index(State(state): State<HttpState>) -> String {
    paths(&state).iter().map(|path| format!("{path}\n")).collect()
}

/// The paths that are served, in order.
fn paths(state: &HttpState) -> Vec<&str> {
    let control = state.control.as_ref().map(|_| control::PATH);
    let console = control.filter(|_| state.has_console).map(|_| console::PATHS[0]);
    let metrics = state.metrics_path.as_ref().map(super::MetricsPath::as_str);
    let further = [control, console, metrics].into_iter().flatten();
    let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).chain(further).collect();
    paths.sort_unstable();
    paths
}
